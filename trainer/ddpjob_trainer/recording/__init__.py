"""How training went, recorded by rank 0 as JSON lines, from values that it has anyway."""
