"""The data of a training: which batches it has seen, and which come next."""
