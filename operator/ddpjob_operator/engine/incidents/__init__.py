"""Incidents: what happened, what to do about it, what a restart costs, and how all this is recorded."""
