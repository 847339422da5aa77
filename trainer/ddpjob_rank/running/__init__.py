"""The rank's own process: it runs the user's program as Python would, and answers the supervisor's questions."""
