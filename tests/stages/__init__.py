"""What `make test`, `make test-full` and `make test-changed` run, stage after stage, and what they say of it."""
