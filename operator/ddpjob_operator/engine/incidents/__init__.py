"""Incidents: what happened, what to do about it, what that costs, and how it is recorded."""
