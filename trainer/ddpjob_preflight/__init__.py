"""Parts of a gang's preflight that use torch, as separate programs, because they may hang or leave state behind."""
