"""The manifests of a job's objects: their names, its pods and the other objects that pods need, as plain JSON."""
