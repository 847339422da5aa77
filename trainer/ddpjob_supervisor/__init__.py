"""The supervisor, the parent process of a node's ranks: starts them warm, ends them together, and reports on them."""
