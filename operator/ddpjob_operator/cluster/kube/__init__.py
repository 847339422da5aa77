"""What talks to Kubernetes as such: it knows objects, watches, leases and rights, but no store and no rounds."""
