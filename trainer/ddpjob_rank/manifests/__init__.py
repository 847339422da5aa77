"""The manifests of checkpoints: for the trainer, which resumes from them, and for preflight, which needs a size."""
