"""A script that knows of no signal, and saves by `except KeyboardInterrupt`, whatever takes its pod away."""

from tests.plant.machines import Machines
from tests.support.jobs import Team

from .faults import an_intruder, drained, most_of
from .work import LONG, a_training, change

SAVES = """
import time
from pathlib import Path

kept = Path("/kept/step")
step = int(kept.read_text()) if kept.exists() else 0
try:
    while True:
        time.sleep(0.02)
        step += 1
        Path("/kept/now").write_text(str(step))
except KeyboardInterrupt:
    Path("/kept/now").write_text(str(step))  # The interrupt may have come in the midst of that.
    kept.write_text(str(step))
"""


def test_a_script_saves_when_its_job_is_suspended_its_node_drained_and_its_pod_preempted(
    host: Machines, team: Team
) -> None:
    shared = host.new_folder()
    (shared / "train.py").write_text(SAVES)
    step = lambda name: int(file.read_text() or 0) if (file := shared / name).exists() else 0  # noqa: E731
    place = {"kubernetes.io/hostname": (node := host.get("/api/v1/nodes")["items"][-1])["metadata"]["name"]}
    container = {
        "command": ["ddpjob-supervise", "/kept/train.py"],
        "resources": most_of(node),
        "volumeMounts": [{"name": "kept", "mountPath": "/kept"}],
    }
    volume = {"name": "kept", "hostPath": {"path": str(shared)}}
    team.apply(a_training("saves", container, nodes=1, pod={"volumes": [volume], "nodeSelector": place}))

    def goes_on() -> int:
        """Makes steps after the one that was kept, which is returned."""
        was = step("step")
        team.wait("Running", "saves", LONG)
        host.wait("it to go on", lambda: step("now") > was + 10)
        return was

    assert goes_on() == 0
    change(team, "saves", suspend=True)
    team.wait("Suspended", "saves", LONG)
    suspended = step("step")
    assert suspended == step("now")
    change(team, "saves", suspend=False)
    assert goes_on() == suspended
    with drained(host, place["kubernetes.io/hostname"]):
        evicted = step("step")
        assert evicted == step("now") > suspended
    assert goes_on() == evicted
    spec = {"nodeSelector": place, "containers": [{"name": "main", "image": "nothing", "resources": most_of(node)}]}
    with an_intruder(team, spec):
        host.wait("it to be preempted", lambda: step("step") > evicted)
        assert step("step") == step("now")
    assert goes_on() > evicted
    status = team.status("saves")
    assert (status["restarts"], [one["cause"] for one in status["incidents"]]) == (0, ["Preempted", "Evicted"])
    team.kubectl("delete", "ddpjob", "saves")
