"""The manifests of what belongs to a job: names, pods and what they need, as plain JSON."""
