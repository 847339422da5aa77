"""Samples: where they come from, in which order, and in which batches."""
