"""The adapter to Kubernetes: watches fill the snapshot, a writer carries decisions out.

Read `operator.py` first: it puts the parts together. `reconciler.py` is one round of one job. `kube/` is what talks
to Kubernetes, `serve/` what the operator shows of itself.
"""
