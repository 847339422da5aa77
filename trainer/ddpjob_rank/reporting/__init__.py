"""Progress reports to the supervisor: by the program's own calls, or from its observed steps and progress bars."""
