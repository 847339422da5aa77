"""The operator's command line: what it does not understand, it names."""

import pytest
from ddpjob_operator.cluster.options import parse
from ddpjob_operator.engine import Settings

MISTAKES = {
    "--label=team": "'team' is not a label, such as team=vision",
    "--label=team=a/b": "'team=a/b' is not a label, such as team=vision",
    "--label=helm.sh/chart=x": "'helm.sh/chart' is reserved: tools recognise a single object by it, not several",
    "--inherit-key=a/b/c": "'a/b/c' is not the key of a label or annotation, such as example.com/team",
    "--inherit-key=x.k8s.io/x": "'x.k8s.io/x' is reserved: tools recognise a single object by it, not several",
    "--gpu-resource=gpu": "'gpu' is not the name of a resource, such as nvidia.com/gpu.shared",
    "--port=70000": "'70000' is not a port: it must be a number from 0 to 65535",
    "--resync-seconds=0": "'0' must be a whole number of seconds, at least 1",
    "--resync-seconds=5m": "'5m' must be a whole number of seconds, at least 1",
    "--drain-protection-seconds=604801": "'604801' must be a whole number of seconds from 0 to 604800",
    "--avoid-broken-nodes-seconds=604801": "'604801' must be a whole number of seconds from 0 to 604800",
    "--drain-protection-seconds=1h": "'1h' must be a whole number of seconds from 0 to 604800",
    "--clock-settling-seconds=0": "'0' must be a whole number of seconds, at least 1",
}


@pytest.mark.parametrize("flag", MISTAKES)
def test_a_mistake_is_told_in_one_line(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([flag])
    said = capsys.readouterr().err.splitlines()[-1]
    name, _, _ = flag.partition("=")
    assert (ended.value.code, said) == (2, f"ddpjob-operator: error: argument {name}: {MISTAKES[flag]}")


def test_resources_that_count_as_gpus_are_named_one_by_one() -> None:
    given = parse(["--gpu-resource=nvidia.com/gpu.shared", "--gpu-resource=example.com/gpu-"])
    assert given.settings.gpu_resources == ("nvidia.com/gpu.shared", "example.com/gpu-")


def test_what_all_objects_get_is_bounded(capsys: pytest.CaptureFixture[str]) -> None:
    given = parse(["--label=b=2", "--label=a=1", "--label=b=3", "--inherit-key=x", "--inherit-key=x"])
    assert (given.settings.labels, given.settings.inherited_keys) == ((("a", "1"), ("b", "3")), ("x",))
    with pytest.raises(SystemExit):
        parse([f"--inherit-key=key-{number}" for number in range(33)])
    assert "argument --inherit-key: given 33 times; at most 32 are allowed" in capsys.readouterr().err


def test_without_flags_jobs_are_decided_about_as_the_engine_does_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "")
    assert parse([]).settings == Settings()
