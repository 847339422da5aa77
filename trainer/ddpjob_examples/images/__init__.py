"""Images with classes on disk, as files or in shards."""
