"""Incidents: what happened, what is to be done about it, what that costs, and how it is recorded."""
