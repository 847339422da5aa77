"""Code that a rank and its supervisor share: places, reports, failures, stopping. Imports no torch."""
