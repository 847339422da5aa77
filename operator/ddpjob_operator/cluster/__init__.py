"""The adapter for Kubernetes: watches provide the data for snapshots, and a writer carries out decisions.

Read `operator.py` first, which puts the parts together. `reconciler.py` runs one round of one job. `kube/`
communicates with Kubernetes. `serve/` serves the operator's own health and metrics, and sets up its log.
"""
