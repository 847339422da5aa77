"""The preflight of a gang, as far as it uses torch, in separate programs, which may hang or leave state behind."""
