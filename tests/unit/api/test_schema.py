"""The JSON Schema for editors: valid itself, and of one mind with the validation that a submitted job meets."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml
from ddpjob_operator.api import DDPJob
from ddpjob_operator.api.job_file import read
from ddpjob_operator.api.schema import job_schema
from ddpjob_operator.api.validation import problems, without_nulls
from ddpjob_operator.engine import Settings, Snapshot
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.unit.engine.builders import START, Moment

from .documents import a_file
from .test_problems import PROBLEMS

EXAMPLES = sorted((Path(__file__).parents[3] / "deploy" / "examples").glob("*.yaml"))

NOT_OF_ONE_FIELD = {
    *("a field twice", "no trainer", "two trainers", "a variable of the contract", "a variable twice"),
    *("a variable of the contract in a sidecar", "a variable of the contract before the start", "a restart policy"),
    *("a hostname", "a label of ours", "a volume of ours", "nine containers", "257 variables"),
    *("half a GPU", "a word for GPUs", "claimed devices and no number", "more GPUs than a node may have processes"),
    *("one port for two", "a port that another has by default", "one port for all"),
    *("two intervals", "three intervals", "two volumes at one place", "a first wait longer than the longest"),
    *("a mount of a volume that is named otherwise", "a mount where there are no volumes"),
    "a URL with credentials, which are not repeated",  # The API server would repeat what a pattern refuses.
    *("a rule without anything to match", "fewer nodes than it may have", "more nodes than it may have"),
}
"""Mistakes that a schema cannot see."""


def test_the_schema_is_valid() -> None:
    Draft202012Validator.check_schema(job_schema())


def test_every_integer_of_ours_has_a_format() -> None:
    spec = job_schema()["properties"]["spec"]
    own = [
        spec,
        *(job_schema()["$defs"][name] for name in ("Restart", "ExitCodes", "Elastic", "Checkpoint", "Network")),
    ]
    fields = [field.get("items", field) for struct in own for field in struct["properties"].values()]
    integers = [field for field in fields if field.get("type") == "integer"]
    assert len(integers) > 20
    assert [field for field in integers if field.get("format") != "int32"] == []


def test_every_reference_of_the_schema_leads_somewhere() -> None:
    schema = job_schema()
    assert [name for name in _references(schema) if name not in schema["$defs"]] == []


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for item in schema for name in _references(item)]
    if not isinstance(schema, dict):
        return []
    own = [schema["$ref"].removeprefix("#/$defs/")] if isinstance(schema.get("$ref"), str) else []
    return own + [name for item in schema.values() for name in _references(item)]


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_valid_for_editor_and_operator(example: Path) -> None:
    job = read(example).job
    documents = yaml.safe_load_all(example.read_text(encoding="utf-8"))
    written = next(document for document in documents if document["kind"] == "DDPJob")
    Draft202012Validator(job_schema()).validate(written)
    assert job.metadata.name == written["metadata"]["name"]


@pytest.mark.parametrize("mistake", [name for name in PROBLEMS if name not in NOT_OF_ONE_FIELD])
def test_an_editor_marks_what_the_operator_refuses(mistake: str) -> None:
    document = yaml.safe_load(PROBLEMS[mistake][0])
    assert not Draft202012Validator(job_schema()).is_valid(document)


def test_the_schema_tells_what_every_field_means() -> None:
    spec = job_schema()["properties"]["spec"]
    structs = [
        spec,
        *(
            job_schema()["$defs"][name]
            for name in ("Restart", "RestartRule", "ExitCodes", "Elastic", "Checkpoint", "Network")
        ),
    ]
    fields = {name: field for struct in structs for name, field in struct["properties"].items()}
    assert [name for name, field in fields.items() if not field.get("description")] == []


FULL: dict[str, Any] = yaml.safe_load(
    a_file(
        "nodes: 2\nprocsPerNode: 2\nactiveDeadlineSeconds: 60\nelastic: {minNodes: 1, maxNodes: 4}\n"
        "restart: {mode: Recreate, rules: [{exitCodes: {operator: In, values: [3, 64]}, signals: [SIGBUS], "
        "causes: [NodeLost], action: Fail}]}\ncleanPodPolicy: All\nsuccessPolicy: RankZero\n"
        "managedBy: ddpjob.dev/operator\n"
        "checkpoint: {path: /runs, interval: Auto, volume: {emptyDir: {}}}\nnetwork: {statusPort: 2000}\n"
        "preflight: Full\nstallTimeoutSeconds: 60",
        container="env: [{name: A, value: a}]\nargs: [--fast]\nresources: {limits: {nvidia.com/gpu: 2}}\n"
        "volumeMounts: [{name: data, mountPath: /data}]",
        pod="volumes: [{name: data, emptyDir: {}}]\ninitContainers: [{name: first, image: any}]",
    )
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 5000) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=4,
)


def _places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, item in items for place in _places(item, (*path, key)))]


@given(place=st.sampled_from(_places(FULL)[1:]), value=JSON)
@example(place=("spec", "template", "spec", "initContainers", 0, "name"), value={})
@example(place=("spec", "template", "spec", "containers", 0, "image"), value=None)
def test_whatever_stands_in_a_document_it_is_refused_in_words_or_can_be_started(
    place: tuple[str | int, ...], value: Any
) -> None:
    document = copy.deepcopy(FULL)
    holder: Any = document
    for part in place[:-1]:
        holder = holder[part]
    holder[place[-1]] = value
    found = problems(document)
    if not found:
        job = DDPJob.from_dict(without_nulls(document))
        # Whoever names no image gets the administrator's.
        moment = Moment(Snapshot(START, job, settings=Settings(trainer_image="any")))
        assert moment.decision.actions or job.spec.suspend
    assert all(str(problem) for problem in found)
