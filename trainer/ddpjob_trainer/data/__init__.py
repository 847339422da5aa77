"""Samples: where they come from, in which order, and as which batches."""
