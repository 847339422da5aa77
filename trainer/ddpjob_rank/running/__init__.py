"""The rank's own process, which runs the user's program as Python would, and answers the supervisor's questions."""
