"""The adapter for Kubernetes: watches fill the snapshot, a writer carries out decisions.

Read `operator.py` first: it puts the parts together. `reconciler.py` is one round of one job. `kube/` talks to
Kubernetes; `serve/` serves the operator's own health, metrics and log.
"""
