"""The options of a run, a module for each topic: its values, its flags, and how they are read."""
