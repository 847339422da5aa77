"""The manifests of checkpoints: the trainer resumes from them, and the preflight reads sizes from them."""
