"""Serves the operator's own health and metrics, and sets up its log. Imports nothing else from `cluster`."""
