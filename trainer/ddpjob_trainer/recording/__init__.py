"""How training went, recorded by rank 0 as JSON lines, from values that rank 0 has anyway."""
