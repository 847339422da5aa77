"""`ddpjob dashboard` against a real API server: what users with different rights see and may do, and how soon."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import yaml
from ddpjob_operator.api.contract import API_VERSION

from tests.plant import Plant
from tests.support.helm import user_role
from tests.support.jobs import Team, a_job
from tests.support.live_page import Dashboard, Reader, dashboard
from tests.support.relay import relay_in_a_thread
from tests.support.waiting import patience, wait_for

SOON_SECONDS = 1.0
HOSTILE = "<img src=x onerror=alert(1)>\x1b]0;x\x07\u202e[/red] token=hunter2hunter2 $(id)\nState: Succeeded"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ddpjobs.ddpjob.dev"


def member(team: Team, role: str) -> Path:
    """The kubeconfig of a user who has this role of the chart in this namespace, and no other right."""
    user = f"{role}-{team.namespace}"
    team.plant.api.apply(user_role(role), team.namespace)
    team.kubectl("create", "rolebinding", user, f"--clusterrole={role}", f"--user={user}")
    return team.plant.kubeconfig_for(user)


def seconds_until(condition: Callable[[], object]) -> float:
    """How long it takes until a condition is true."""
    began = time.monotonic()
    wait_for("the page to show it", condition)
    return time.monotonic() - began


@contextmanager
def a_newer_field(plant: Plant) -> Iterator[None]:
    """The cluster's type has a field that this version does not know."""

    def versions(*, warp: bool) -> list[Any]:
        found: list[Any] = plant.get(CRD)["spec"]["versions"]
        for version in (one for one in found if one["name"] == API_VERSION.partition("/")[2]):
            spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
            spec.pop("warp", None)
            if warp:
                spec["warp"] = {"type": "integer"}
        return found

    plant.api.patch(CRD, {"spec": {"versions": versions(warp=True)}})
    try:
        yield
    finally:
        plant.api.patch(CRD, {"spec": {"versions": versions(warp=False)}})


def test_a_viewer_sees_changes_within_a_second_and_is_refused_what_an_editor_may_do(api: Plant) -> None:
    team = Team(api, api.new_namespace())
    team.apply(a_job("a"), a_job("b"))
    with (
        dashboard(member(team, "ddpjob-view"), "-n", team.namespace) as viewers,
        dashboard(member(team, "ddpjob-edit"), "-n", team.namespace) as editors,
    ):
        page = Reader(viewers)
        wait_for("both jobs", lambda: page.rows().keys() == {"a", "b"})
        job = Reader(viewers, id=page.rows()["a"]["id"])
        wait_for("the job in full", job.rows)

        taken = []
        for state in ("Queued", "Restarting", "Queued", "Restarting"):
            team.say("a", state=state, message=f"waits in {state}")
            taken.append(seconds_until(lambda: page.rows()["a"]["state"] == state))  # noqa: B023  Called at once.
        assert min(taken) < SOON_SECONDS, taken
        assert all(one < patience(SOON_SECONDS) for one in taken), taken
        row = page.rows()["a"]
        wait_for("the open job too", lambda: job.rows()["a"]["message"] == "waits in Restarting")

        succeeded, said = viewers.act(row, "suspend")
        assert not succeeded
        assert 'cannot patch resource "ddpjobs"' in said
        assert "Ask for the ClusterRole ddpjob-edit" in said
        assert viewers.ask(f"/api/yaml?{urlencode({'id': row['id']})}")["text"].startswith("apiVersion: ddpjob.dev/")
        succeeded, said = editors.act(row, "suspend")
        assert succeeded, said
        succeeded, said = editors.act(row, "scale", "3")
        assert succeeded, said
        assert (team.job("a") or {})["spec"] | {"suspend": True, "nodes": 3} == (team.job("a") or {})["spec"]

        assert not viewers.act(row, "delete")[0]
        succeeded, said = editors.act(row, "delete")
        assert succeeded, said
        wait_for("the row to go", lambda: page.rows().keys() == {"b"})
        wait_for("the open job to be gone", lambda: [*job.state.values()] == ["The job is gone."])


def test_a_hostile_job_and_one_that_cannot_be_read_harm_themselves_alone(api: Plant) -> None:
    team = Team(api, api.new_namespace())
    with a_newer_field(api), dashboard(api.kubeconfig, "-n", team.namespace) as board:
        team.apply(a_job("good"), a_job("hostile"))

        def newer() -> bool:
            team.apply(a_job("newer", warp=9))
            return (team.job("newer") or {})["spec"].get("warp") == 9

        wait_for("the new type", newer)
        failed = {"attempt": 1, "node": 1, "pod": "x", "time": "2026-01-01T12:00:00Z", "cause": "Application"}
        team.say("hostile", state="Running", attempt=1, message=HOSTILE, incidents=[failed | {"message": HOSTILE}])
        team.say("good", state="Running", message="2 nodes are running")
        page = Reader(board)
        wait_for("the jobs", lambda: {row["state"] for row in page.rows().values()} == {"Running", "Unknown"})
        rows = page.rows()
        assert (rows["good"]["state"], rows["good"]["message"]) == ("Running", "2 nodes are running")
        assert "does not know: spec.warp" in rows["newer"]["message"]
        for text in (rows["hostile"]["message"], str(_detail(board, rows["hostile"])["axis"])):
            assert r"\x1b]0;x\x07\u202e[/red]" in text.replace("\\\\", "\\")
            assert "\x1b" not in text
            assert "hunter2" not in text
        assert "does not know: spec.warp" in _detail(board, rows["newer"])["problem"]
        assert _detail(board, rows["good"])["row"]["state"] == "Running"


def _detail(board: Dashboard, row: dict[str, Any]) -> dict[str, Any]:
    """A job in full, by part."""
    reader = Reader(board, id=row["id"])
    wait_for("the job in full", lambda: reader.state)
    return {name.partition(" ")[2]: value for name, value in reader.state.items()}


def test_who_may_see_one_namespace_is_told_which_right_all_of_them_take(api: Plant) -> None:
    team = Team(api, api.new_namespace())
    team.apply(a_job("a"))
    kubeconfig = member(team, "ddpjob-view")
    with dashboard(kubeconfig, "--all-namespaces") as board:
        page = Reader(board)
        wait_for("the refusal", lambda: 'cannot list resource "ddpjobs"' in page.problem())
        assert "at the cluster scope" in page.problem()
        assert "What is shown is of" not in page.problem()
        assert page.rows() == {}


def test_of_a_cluster_that_is_lost_and_a_token_that_ends_it_is_said_since_when(api: Plant, tmp_path: Path) -> None:
    team = Team(api, api.new_namespace())
    team.apply(a_job("a"))
    team.plant.api.apply(user_role("ddpjob-view"), team.namespace)
    team.kubectl("create", "serviceaccount", "ann")
    team.kubectl(
        "create", "rolebinding", "ann", "--clusterrole=ddpjob-view", f"--serviceaccount={team.namespace}:ann"
    )
    account = yaml.safe_load(api.kubeconfig_for_service_account(team.namespace, "ann").read_text())
    url = urlsplit(account["clusters"][0]["cluster"]["server"])
    with relay_in_a_thread(url.netloc, "127.0.0.1") as line:
        account["clusters"][0]["cluster"]["server"] = f"https://{line}"
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(account))
        kubeconfig.chmod(0o600)
        stay = dashboard(kubeconfig, "-n", team.namespace)
        board = stay.__enter__()
        page = Reader(board)
        wait_for("the job", lambda: page.rows().keys() == {"a"})
        assert page.problem() == ""
    try:
        wait_for("the loss", lambda: "cannot be reached" in page.problem() or "cannot reach" in page.problem())
        assert "What is shown is of " in page.problem()
        assert page.rows().keys() == {"a"}
        team.kubectl("delete", "serviceaccount", "ann")
        with relay_in_a_thread(url.netloc, "127.0.0.1", int(line.rpartition(":")[2])):
            wait_for("the end of the token", lambda: "rejects your credentials" in page.problem())
            assert "are wrong or have expired" in page.problem()
            assert "What is shown is of " in page.problem()
            assert page.rows().keys() == {"a"}
    finally:
        stay.__exit__(None, None, None)
