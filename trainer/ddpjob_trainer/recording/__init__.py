"""How training went, kept for later: as JSON lines, for looking back, and as TensorBoard's event files.

Rank 0 writes both. For this it gathers nothing that was not known anyway, and reads no loss from a device that was
not read to be printed.
"""
