"""Records the course of training: rank 0 writes JSON lines, from values that it has anyway."""
