"""The stages that `make test`, `make test-full` and `make test-changed` run, and the report on them."""
