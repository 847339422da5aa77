"""How the organisation's defaults are read, merged, and refused."""

from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from ddpjob_operator.api import NO_DEFAULTS, BadInputError, DDPJobStatus, Defaults, NetworkPolicy, PodSecurity
from ddpjob_operator.api.default_settings import MOST_ENTRIES, MOST_SETTINGS, DefaultsEntry
from ddpjob_operator.api.defaults import LONGEST_DEFAULTS, merged, read_defaults, selects, settings_of
from hypothesis import given
from hypothesis import strategies as st

BLUE = {"team": "blue"}


def entries(*documents: dict[str, Any]) -> tuple[DefaultsEntry, ...]:
    named = [{"name": f"entry-{number}", **document} for number, document in enumerate(documents)]
    return read_defaults(yaml.safe_dump(named), "here")


def merge(*documents: dict[str, Any], labels: dict[str, str] = BLUE) -> dict[str, Any]:
    """What is merged of entries, without where it comes from."""
    written = merged(entries(*documents), labels).to_dict()
    return {name: value for name, value in written.items() if value and name != "sources"}


MERGED = {
    "nothing": ([], {}),
    "a later scalar wins": ([{"image": "a"}, {"image": "b"}], {"image": "b"}),
    "what a later entry does not say stays": ([{"image": "a"}, {"queue": "q"}], {"image": "a", "queue": "q"}),
    "variables by name, in their first order": (
        [
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "1"}]},
            {"env": [{"name": "C", "value": "2"}, {"name": "A", "value": "2"}]},
        ],
        {"env": [{"name": "A", "value": "2"}, {"name": "B", "value": "1"}, {"name": "C", "value": "2"}]},
    ),
    "pull secrets by name": (
        [{"imagePullSecrets": [{"name": "a"}]}, {"imagePullSecrets": [{"name": "b"}, {"name": "a"}]}],
        {"imagePullSecrets": [{"name": "a"}, {"name": "b"}]},
    ),
    "labels by key": (
        [{"labels": {"a": "1", "b": "1"}}, {"labels": {"b": "2"}}],
        {"labels": {"a": "1", "b": "2"}},
    ),
    "node selectors by key": (
        [{"nodeSelector": {"gpu": "a100"}}, {"nodeSelector": {"gpu": "h100", "zone": "a"}}],
        {"nodeSelector": {"gpu": "h100", "zone": "a"}},
    ),
    "tolerations by what they tolerate": (
        [
            {"tolerations": [{"key": "gpu", "operator": "Exists"}, {"key": "spot", "effect": "NoSchedule"}]},
            {"tolerations": [{"key": "gpu", "operator": "Equal"}]},
        ],
        {
            "tolerations": [
                {"key": "gpu", "operator": "Equal"},
                {"key": "spot", "effect": "NoSchedule"},
            ]
        },
    ),
    "volumes by name": (
        [
            {"volumes": [{"name": "ca", "mountPath": "/etc/ca", "configMap": {"name": "old"}}]},
            {"volumes": [{"name": "ca", "mountPath": "/etc/ca", "emptyDir": {}}]},
        ],
        {"volumes": [{"name": "ca", "mountPath": "/etc/ca", "emptyDir": {}}]},
    ),
    "an entry for other namespaces says nothing": (
        [{"image": "a"}, {"image": "b", "namespaceSelector": {"matchLabels": {"team": "red"}}}],
        {"image": "a"},
    ),
}


@pytest.mark.parametrize(("documents", "expected"), MERGED.values(), ids=MERGED.keys())
def test_of_the_same_setting_the_later_entry_wins(documents: list[dict[str, Any]], expected: dict[str, Any]) -> None:
    assert merge(*documents) == expected


def test_zero_and_the_enums_are_settings() -> None:
    found = merged(
        entries({"ttlSecondsAfterFinished": 5}, {"ttlSecondsAfterFinished": 0, "podSecurity": "None"}), BLUE
    )
    assert (found.ttl_seconds_after_finished, found.pod_security) == (0, PodSecurity.NONE)


def test_the_source_of_each_setting_is_named() -> None:
    first = {"image": "a", "env": [{"name": "A"}], "tolerations": [{"key": "gpu", "effect": "NoSchedule"}]}
    found = merged(entries(first, {"image": "b", "labels": {"x": "1"}, "networkPolicy": "Disabled"}), BLUE)
    assert found.sources == {
        "image": "entry-1",
        "env[A]": "entry-0",
        "tolerations[gpu:NoSchedule]": "entry-0",
        "labels[x]": "entry-1",
        "networkPolicy": "entry-1",
    }
    assert found.network_policy is NetworkPolicy.DISABLED


SELECTORS = {
    "none": (None, True),
    "empty": ({}, True),
    "a label": ({"matchLabels": {"team": "blue"}}, True),
    "another value": ({"matchLabels": {"team": "red"}}, False),
    "one of two labels": ({"matchLabels": {"team": "blue", "tier": "1"}}, False),
    "in": ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["red", "blue"]}]}, True),
    "not in": ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["blue"]}]}, False),
    "not in, without the label": ({"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["a"]}]}, True),
    "exists": ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, True),
    "does not exist": ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, False),
    "a label and an expression": (
        {"matchLabels": BLUE, "matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
        False,
    ),
}


@pytest.mark.parametrize(("selector", "expected"), SELECTORS.values(), ids=SELECTORS.keys())
def test_a_selector_selects_as_in_kubernetes(selector: dict[str, Any] | None, *, expected: bool) -> None:
    assert selects(selector, BLUE) is expected


NAMES = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["1", "2"])
PAIRS = st.dictionaries(NAMES, VALUES, max_size=3)
DOCUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "image": VALUES,
        "queue": VALUES,
        "ttlSecondsAfterFinished": st.integers(0, 3),
        "labels": PAIRS,
        "annotations": PAIRS,
        "nodeSelector": PAIRS,
        "env": PAIRS.map(lambda pairs: [{"name": name, "value": value} for name, value in pairs.items()]),
        "tolerations": st.lists(st.fixed_dictionaries({"key": NAMES, "effect": VALUES}), max_size=3),
    },
)


def as_entries(documents: Sequence[dict[str, Any]]) -> list[DefaultsEntry]:
    named = ({"name": f"entry-{number}", **document} for number, document in enumerate(documents))
    return [DefaultsEntry.model_validate(document) for document in named]


@given(st.lists(DOCUMENTS, max_size=4))
def test_each_setting_is_the_last_one_that_any_entry_makes(documents: list[dict[str, Any]]) -> None:
    known = as_entries(documents)
    last = {setting: (value, entry.name) for entry in known for setting, value in settings_of(entry)}
    found = merged(known, {})
    got = {setting: value for setting, value in settings_of(found) if setting[0] != "sources"}
    assert got == {setting: value for setting, (value, _) in last.items()}
    assert [*found.sources.values()] == [source for _, source in last.values()]


@given(st.lists(DOCUMENTS, max_size=4))
def test_an_entry_that_is_repeated_changes_nothing_but_the_name_of_its_source(
    documents: list[dict[str, Any]],
) -> None:
    known = as_entries(documents)
    once, twice = merged(known, {}), merged([*known, *known], {})
    assert once == twice


@given(st.lists(DOCUMENTS, max_size=4))
def test_a_status_keeps_defaults_as_they_are(documents: list[dict[str, Any]]) -> None:
    found = merged(as_entries(documents), {})
    status = DDPJobStatus(defaults=found)
    assert DDPJobStatus.model_validate(status.to_dict()).defaults == found


def test_a_status_keeps_an_empty_field_inside_a_setting() -> None:
    found = merged(entries({"volumes": [{"name": "v", "mountPath": "/v", "emptyDir": {}}]}), {})
    assert DDPJobStatus.model_validate(DDPJobStatus(defaults=found).to_dict()).defaults == found


def test_a_status_of_a_newer_operator_is_kept() -> None:
    newer = {"podSecurity": "Sandboxed", "future": {"x": 1}, "sources": {"future": "a"}}
    read = DDPJobStatus.model_validate({"defaults": newer})
    assert isinstance(read.defaults, Defaults)
    assert read.to_dict()["defaults"] == newer


REFUSED = {
    "an unknown key": ("- {name: a, imag: x}", "line 1: [0].imag: unknown field; did you mean image?"),
    "no name": ("- {image: x}", "[0].name: is missing"),
    "a name twice": ("- {name: a}\n- {name: a}", "line 2: [1].name: another entry has the name a; names must differ"),
    "no list": ("a: 1", "must be a list"),
    "no mapping": ("- x", "[0]: 'x' must be a mapping"),
    "no YAML": ("- [", "here is not YAML"),
    "two documents": ("[]\n---\n[]", "here has 2 YAML documents; write one list of entries"),
    "a key twice": ("- {name: a, image: x, image: y}", "is given twice"),
    "a key that is no text": ("- {name: a, labels: {1: x}}", "[0].labels.1: a key must be text; put it in quotes"),
    "a boolean for a word": (
        "- {name: a, networkPolicy: off}",
        "false is not one of Enabled, Disabled; did you mean",
    ),
    "a wrong word": ("- {name: a, podSecurity: none}", "did you mean None?"),
    "a negative time": ("- {name: a, ttlSecondsAfterFinished: -1}", "-1 is too small; it must be at least 0"),
    "an unknown key of Kubernetes'": ("- {name: a, tolerations: [{ky: x}]}", "[0].tolerations[0].ky: unknown field"),
    "a variable of the contract": ("- {name: a, env: [{name: RANK}]}", "RANK is set by DDPJob itself; remove it"),
    "a reserved label": ("- {name: a, labels: {ddpjob.dev/x: y}}", "is reserved"),
    "a label's value": ("- {name: a, labels: {x: a b}}", "'a b' is not the value of a label"),
    "a volume without a place": ("- {name: a, volumes: [{name: x, emptyDir: {}}]}", "mountPath: is missing"),
    "a relative place": (
        "- {name: a, volumes: [{name: x, mountPath: x}]}",
        "must be an absolute path without a colon",
    ),
    "a reserved volume": (
        "- {name: a, volumes: [{name: ddpjob-x, mountPath: /x}]}",
        "ddpjob- is reserved for DDPJob",
    ),
    "a volume's name": (
        "- {name: a, volumes: [{name: X, mountPath: /x}]}",
        "[0].volumes[0].name: 'X' is not the name of a volume",
    ),
    "a volume with two sources": (
        "- {name: a, volumes: [{name: x, mountPath: /x, emptyDir: {}, hostPath: {path: /}}]}",
        "[0].volumes[0]: has emptyDir and hostPath; a volume has only one of them",
    ),
    "a volume at a place of ours": (
        "- {name: a, volumes: [{name: x, mountPath: /var/run/secrets/ddpjob.dev/}]}",
        "mountPath: is where DDPJob mounts a volume of its own",
    ),
    "a variable's name": ("- {name: a, env: [{name: A=B}]}", "'A=B' is not the name of a variable"),
    "a variable without a name": ("- {name: a, env: [{name: ''}]}", "'' is not the name of a variable"),
    "a variable with two values": (
        "- {name: a, env: [{name: A, value: x, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}",
        "[0].env[0].value: cannot stand beside valueFrom",
    ),
    "a variable from nowhere": ("- {name: a, env: [{name: A, valueFrom: {}}]}", "must have exactly one source"),
    "a toleration's operator": (
        "- {name: a, tolerations: [{key: x, operator: Is}]}",
        "'Is' is not one of Equal, Exists",
    ),
    "a toleration's effect": (
        "- {name: a, tolerations: [{key: x, effect: Never}]}",
        "'Never' is not one of NoSchedule",
    ),
    "a toleration's key": ("- {name: a, tolerations: [{key: x y}]}", "'x y' is not the key of a taint"),
    "a toleration without a key": ("- {name: a, tolerations: [{value: x}]}", "[0].key: is missing; to tolerate"),
    "a toleration's value": ("- {name: a, tolerations: [{key: x, value: a b}]}", "'a b' is not the value of a taint"),
    "a value of whatever exists": (
        "- {name: a, tolerations: [{key: x, operator: Exists, value: y}]}",
        "value: must be left out",
    ),
    "seconds without NoExecute": (
        "- {name: a, tolerations: [{key: x, tolerationSeconds: 5}]}",
        "tolerationSeconds: needs effect: NoExecute",
    ),
    "a node selector's key": ("- {name: a, nodeSelector: {a b: c}}", "is not the key of a label"),
    "a node selector's value": ("- {name: a, nodeSelector: {a: b c}}", "'b c' is not the value of a label"),
    "a selector without values": (
        "- {name: a, namespaceSelector: {matchExpressions: [{key: x, operator: In}]}}",
        "[0].values: is missing: In needs some",
    ),
    "a selector with needless values": (
        "- {name: a, namespaceSelector: {matchExpressions: [{key: x, operator: Exists, values: [y]}]}}",
        "[0].values: must be left out",
    ),
    "a secret without a name": ("- {name: a, imagePullSecrets: [{}]}", "imagePullSecrets[0].name: is missing"),
    "a wrong operator of a toleration": (
        "- {name: a, tolerations: [{key: gpu, operator: Exist}]}",
        "[0].tolerations[0].operator: 'Exist' is not one of Equal, Exists, Lt, Gt",
    ),
    "a wrong effect of a toleration": (
        "- {name: a, tolerations: [{key: gpu, effect: NoRun}]}",
        "[0].tolerations[0].effect: 'NoRun' is not one of NoSchedule, PreferNoSchedule, NoExecute",
    ),
    "a node's label": ("- {name: a, nodeSelector: {pool!: x}}", "[0].nodeSelector.pool!: is not the key of a label"),
    "a node's label's value": ("- {name: a, nodeSelector: {pool: a b}}", "'a b' is not the value of a label"),
    "an unknown operator": (
        "- {name: a, namespaceSelector: {matchExpressions: [{key: x, operator: Is}]}}",
        "'Is' is not one of In, NotIn, Exists, DoesNotExist",
    ),
    "too many entries": (yaml.safe_dump([{"name": f"a{n}"} for n in range(MOST_ENTRIES + 1)]), "65 entries"),
    "too long": ("#" * (LONGEST_DEFAULTS + 1), "here is longer than 64 KiB"),
    "too many variables in all": (
        yaml.safe_dump([{"name": f"a{n}", "env": [{"name": f"N{n}{m}"} for m in range(40)]} for n in range(2)]),
        f"env has 80 keys in all entries; at most {MOST_SETTINGS} are allowed",
    ),
    "aliases of aliases": (
        "x: &a [1,1,1,1,1,1,1,1,1,1]\n"
        + "".join(
            f"y{n}: &{after} [{', '.join([f'*{b}'] * 10)}]\n"
            for n, (b, after) in enumerate([("a", "b"), ("b", "c"), ("c", "d")])
        )
        + "z: [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\n",
        "values after its aliases are expanded",
    ),
}


@pytest.mark.parametrize(("text", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_wrong_is_refused_by_name_and_line(text: str, expected: str) -> None:
    with pytest.raises(BadInputError) as error:
        read_defaults(text, "here")
    assert expected in str(error.value)
    assert str(error.value).startswith("here")


def test_however_much_is_wrong_little_is_told() -> None:
    many = "- &x {name: a, env: [" + ", ".join(["{nam: 1}"] * 64) + "]}\n" + "- *x\n" * 480
    with pytest.raises(BadInputError, match=r"; and [0-9]+ more$") as error:
        read_defaults(many, "here")
    assert len(str(error.value)) < 10_000


@given(
    st.text(max_size=60)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from([*DefaultsEntry.model_json_schema(by_alias=True)["properties"], "matchLabels", "key"])
                | NAMES,
                inner,
                max_size=4,
            )
        ),
        max_leaves=12,
    ).map(yaml.safe_dump)
)
def test_whatever_is_written_there_is_read_or_refused(text: str) -> None:
    try:
        known = read_defaults(text, "here")
    except BadInputError:
        return
    merged(known, {})


@pytest.mark.parametrize("text", ["", "# nothing\n", "[]", "null"])
def test_no_entries_are_no_defaults(text: str) -> None:
    assert merged(read_defaults(text, "here"), BLUE) == NO_DEFAULTS
