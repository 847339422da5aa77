"""Words of the former version: each is refused with what is written now, beside all else that is wrong."""

from pathlib import Path

import pytest
import yaml
from ddpjob_operator.api.former_words import FORMER_WORDS, FormerWord
from ddpjob_operator.api.schema import job_schema
from jsonschema import Draft202012Validator

from .documents import a_file, complaint, complaints

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "versions.md"

OF_BEFORE = a_file().replace("v1alpha2", "v1alpha1")
EXIT_CODES = "is now a mapping, such as {operator: In, values: [3, 64]}; a range is now the list of its values"
FILES: dict[str, tuple[str, list[str]]] = {
    "apiVersion: ddpjob.dev/v1alpha1": (OF_BEFORE, ["line 1: apiVersion: is now ddpjob.dev/v1alpha2"]),
    "spec.masterPort": (a_file("masterPort: 29600"), ["line 6: spec.masterPort: is now spec.network.masterPort"]),
    "spec.statusPort": (a_file("statusPort: 3"), ["line 6: spec.statusPort: is now spec.network.statusPort"]),
    "spec.controlPort": (a_file("controlPort: 1"), ["line 6: spec.controlPort: is now spec.network.controlPort"]),
    "spec.waitForMaster": (
        a_file("waitForMaster: false"),
        ["line 6: spec.waitForMaster: is now spec.network.waitForMaster"],
    ),
    "spec.networkPolicy": (
        a_file("networkPolicy: Disabled"),
        ["line 6: spec.networkPolicy: is now spec.network.policy"],
    ),
    "spec.procsPerNode: Auto": (
        a_file("procsPerNode: Auto"),
        ["line 6: spec.procsPerNode: Auto is no longer a value; leave the field out for one process per GPU"],
    ),
    "spec.checkpoint.everySeconds: Auto": (
        a_file("checkpoint: {path: /runs, everySeconds: auto}"),
        ["line 6: spec.checkpoint.everySeconds: Auto is no longer a value; write interval: Auto instead"],
    ),
    "spec.restart.rules[].exitCodes: [3, 64-65]": (
        a_file("restart:\n  rules:\n    - {exitCodes: [3, 64-78], action: Fail}\n    - {exitCodes: 3, action: Fail}"),
        [
            f"line 8: spec.restart.rules[0].exitCodes: {EXIT_CODES}",
            f"line 9: spec.restart.rules[1].exitCodes: {EXIT_CODES}",
        ],
    ),
}
each_word = pytest.mark.parametrize("word", FORMER_WORDS, ids=lambda word: word.old)


@each_word
def test_a_former_word_is_refused_once_with_what_is_written_now(word: FormerWord) -> None:
    text, expected = FILES[word.old]
    assert complaints(text) == expected


@each_word
def test_the_page_on_versions_has_a_row_for_it(word: FormerWord) -> None:
    assert f"| `{word.old}` | {word.new} |" in PAGE.read_text()


@each_word
def test_the_type_does_not_know_it(word: FormerWord) -> None:
    assert not Draft202012Validator(job_schema()).is_valid(yaml.safe_load(FILES[word.old][0]))


def test_former_words_are_told_together_and_beside_every_other_mistake() -> None:
    assert complaints(a_file("masterPort: 29600\nnetworkPolicy: Disabled\nnodes: 0")) == [
        "line 6: spec.masterPort: is now spec.network.masterPort",
        "line 7: spec.networkPolicy: is now spec.network.policy",
        "line 8: spec.nodes: 0 is too small; it must be at least 1",
    ]


def test_what_is_written_now_is_no_former_word() -> None:
    now = "procsPerNode: 2\ncheckpoint: {path: /runs, everySeconds: 5}\nnetwork: {masterPort: 29600}\nrestart:\n"
    assert complaint(a_file(now + "  rules: [{exitCodes: {operator: In, values: [3]}, action: Fail}]")) == ""
