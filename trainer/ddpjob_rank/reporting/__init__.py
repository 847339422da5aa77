"""Progress reports to the supervisor, from the program's own calls or from its observed steps and progress bars."""
