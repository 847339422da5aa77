"""The pages on installs are true: their commands run, and print what is shown."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.pages import WITH_HELM, pages_that_run
from tests.docs.reader import OF_THE_CLONE, Reader, read
from tests.plant import Plant, build
from tests.support.helm import NAMESPACE, RELEASE
from tests.support.operators import an_operator

from .test_release import INSTALL, forget_the_type

WITH_AN_OPERATOR = {"docs/how-to/meet-policies.md", "docs/how-to/set-defaults.md"}
"""Pages with jobs that begin. The pods of the install do not run, so its operator is a process beside them."""
FLAGS = ("--no-leader-elect", f"--lease-namespace={NAMESPACE}", f"--defaults={RELEASE}-defaults")


@pytest.mark.parametrize("name", pages_that_run(WITH_HELM))
def test_the_commands_of_a_page_do_with_helm_what_it_shows(name: str, bare: Plant, tmp_path: Path) -> None:
    programs = (Path(sys.executable).parent, *(build.path(program).parent for program in ("helm", "kubectl")))
    environment = bare.environment() | {"PATH": ":".join([*map(str, programs), os.environ["PATH"]])}
    try:
        with _an_operator_for(name, bare):
            read(name, Reader(tmp_path / "ddpjob", WITH_HELM, environment, (*OF_THE_CLONE, "charts")))
    finally:
        bare.kubectl("delete", "--ignore-not-found", "--filename", INSTALL)
        forget_the_type(bare)


@contextmanager
def _an_operator_for(name: str, plant: Plant) -> Iterator[None]:
    """Runs an operator under the name of the install's account, which guards know, if the page needs one."""
    if name not in WITH_AN_OPERATOR:
        yield
        return
    account = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
    # It starts before the page's install gives the account its rights.
    plant.kubectl("create", "clusterrolebinding", "all", "--clusterrole=cluster-admin", f"--user={account}")
    try:
        with an_operator(plant, *FLAGS, kubeconfig=plant.kubeconfig_for(account), until_ready=False, forked=True):
            yield
    finally:
        plant.kubectl("delete", "clusterrolebinding", "all")
