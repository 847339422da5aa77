"""Samples that do not fit into memory: files in directories, and shards of many samples."""
