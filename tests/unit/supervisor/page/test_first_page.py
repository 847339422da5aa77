"""The page of GET /, for people."""

import base64
import dataclasses
import hashlib
import html
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from ddpjob_supervisor.gang.messages import End, Incident
from ddpjob_supervisor.gang.states import Delay, Phase, Stall
from ddpjob_supervisor.page.document import Gang, document
from ddpjob_supervisor.page.first_page import HEADERS, as_html
from hypothesis import given
from hypothesis import strategies as st

from .gangs import AT, BEAT, GANG
from .test_page_server import Served, serve
from .test_reference_page import FULL


def page(gang: Gang = GANG, *, live: bool = False, **changes: Any) -> str:
    """The page of a gang with changes."""
    return as_html(document(dataclasses.replace(gang, **changes)), "digits-0-x7k2p", live=live)


def facts(**changes: Any) -> dict[str, str]:
    """What the page says of that gang, by name."""
    found = re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page(**changes))
    return {name: html.unescape(value) for name, value in found}


def rows(text: str) -> list[list[str]]:
    """The cells of all tables."""
    return [re.findall("<td>(.*?)</td>", row) for row in re.findall("<tr>(.*?)</tr>", text) if "<td>" in row]


def test_it_says_what_the_gang_does() -> None:
    assert facts(now=AT + 90) == {
        "Since": "1m30s ago",
        "World": "2 nodes, 2 per node",
        "Step": "120 of 400, 30%, saving",
        "Loss": "0.31",
        "Throughput": "3,200 samples/s",
        "Per step": "20 ms",
        "Last step": "1m30s ago",
        "Left": "6 s",
        "Checkpoint": "step 100, 1m30s ago",
        "Stragglers": "rank 3 on node 1 (1.8 x)",
        "Restarts": "1 in place",
    }


def test_its_tables_have_incidents_and_ranks() -> None:
    incident, first, second = rows(page())
    assert incident[0] == "2"
    assert incident[2:] == ["3", "Application", "killed by SIGKILL", "120"]
    assert first == ["0", "0", "", "", "", "", ""]
    assert second == ["3", "1", "120", "training", "20 ms", "1.00 GiB", "learning_rate 0.1"]


def test_a_heading_says_the_state_and_the_title_also_where() -> None:
    assert "<h1>Stalled, attempt 3</h1>" in page(phase=Phase.STALLED)
    assert "<title>digits-0-x7k2p: Stalled, attempt 3</title>" in page(phase=Phase.STALLED)


def test_what_is_wrong_is_told() -> None:
    told = facts(
        missing=(1, 3),
        stall=Stall(AT, 1, 1, "rank 1 is in all_reduce"),
        delay=Delay(AT, 300.0, "no step seen for 5 min"),
        stopped="rank 1 is stopped (SIGSTOP)",
        hold="no program runs",
    )
    assert told.items() >= {
        ("Not connected", "nodes 1, 3"),
        ("Stalled", "rank 1 is in all_reduce"),
        ("First step", "no step seen for 5 min"),
        ("Stopped", "rank 1 is stopped (SIGSTOP)"),
        ("Hold", "no program runs"),
    }


def test_what_is_not_known_is_left_out() -> None:
    text = as_html(document(Gang("u", 1, 1, 1, Phase.GATHERING)), "pod")
    assert "<h1>Gathering, attempt 1</h1>" in text
    assert "<table>" not in text
    assert "None" not in text


def test_the_page_of_another_node_names_rank_0s() -> None:
    assert "10.0.0.7:29502" in facts(coordinator="10.0.0.7:29502")["All nodes"]


def test_each_document_has_a_page() -> None:
    assert "<h1>Stalled, attempt 2</h1>" in page(FULL)
    assert "<h1>Stalled, attempt 2</h1>" in page(FULL, coordinator=None)


HOSTILE = "</title></style><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[31m\u202e\n\"'&"


class Tags(HTMLParser):
    """Collects the elements of a page and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}


def elements(text: str) -> tuple[set[str], set[str]]:
    parser = Tags()
    parser.feed(text)
    return parser.found, parser.attributes


@given(st.text() | st.just(HOSTILE))
def test_what_a_program_says_is_text_and_no_code(said: str) -> None:
    beat: Any = BEAT | {"activity": said, "transport": said, "metrics": {said: 1.0, "other": said}}
    hostile = dataclasses.replace(
        GANG,
        beats=(beat,),
        incidents=(Incident(2, 1, End(3, 1, AT, said, said, said, 3)),),
        stall=Stall(AT, 1, 1, said),
        checkpoint={"step": said, "time": said},
        coordinator=None,
    )
    text = as_html(document(hostile), said)
    assert elements(text) == elements(page(stall=Stall(AT, 1, 1, "")))
    assert not set(text) & set("\x00\x1b\x7f\u202a\u202e\u2066")


def test_a_long_value_is_cut_off() -> None:
    assert len(page(stall=Stall(AT, 1, 1, "<" * 100_000))) < 10_000


def test_its_style_is_admitted_by_its_hash_and_nothing_else_is() -> None:
    (style,) = re.findall("<style>(.*?)</style>", page(), re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = HEADERS["Content-Security-Policy"]
    assert f"style-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(("query", "again"), [("", None), ("?live", "5"), ("?live=1", None), ("?x=live", None)])
def test_it_is_loaded_again_by_itself_only_for_who_asks_for_that(
    query: str, again: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDPJOB_NAME", "digits")

    async def asking(served: Served, client: Any) -> None:
        async with client.get(served.url(f"/{query}")) as answer:
            assert (answer.status, answer.content_type) == (200, "text/html")
            assert answer.headers.get("Refresh") == again
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
            assert "<h1>Running, attempt 1</h1>" in await answer.text()
            assert "<title>digits on " in await answer.text()

    serve(asking)
