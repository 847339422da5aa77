"""Labeled images on disk, as files or in tar shards."""
