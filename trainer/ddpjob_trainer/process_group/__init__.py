"""The process group: how the processes of a world find each other, what carries their words, and how they part."""
