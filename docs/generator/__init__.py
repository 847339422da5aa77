"""What the reference pages take from the code, as Markdown."""
