class PlantError(Exception):
    """Something that the plant needs is missing, or did not start. The message says what to do or where to look."""
