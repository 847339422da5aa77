"""Access to the Kubernetes API: objects, watches, the Lease and rights. Imports neither the store nor the rounds."""
