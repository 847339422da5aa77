"""The cluster of deploy/kind/up: `make e2e-kind` brings it up, and these tests come last there."""

import os
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

KUBECONFIG = ROOT / ".venv" / "kind.kubeconfig"


@pytest.fixture
def kubeconfig() -> Path:
    """Of the cluster."""
    if os.environ.get("KUBECONFIG") != str(KUBECONFIG):
        pytest.skip("left out: it needs the cluster of deploy/kind/up; run make e2e-kind")
    return KUBECONFIG
