"""Where samples come from that do not fit into memory: files in directories, and shards of many samples."""
