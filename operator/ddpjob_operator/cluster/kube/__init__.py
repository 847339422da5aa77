"""Access to the Kubernetes API: objects, watches, the Lease and rights. Imports neither store nor reconciler."""
