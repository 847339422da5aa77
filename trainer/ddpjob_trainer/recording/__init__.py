"""How training went, kept for later: as JSON lines, for whoever looks back, and as TensorBoard's event files.

Rank 0 writes both. Nothing is gathered for it that was not known anyway, and no loss is read from a device that was
not read to be printed.
"""
