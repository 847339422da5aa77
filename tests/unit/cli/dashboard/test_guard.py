"""Who may ask the server of `ddpjob dashboard`."""

import pytest
from ddpjob_operator.cli.dashboard.guard import Guard
from hypothesis import given
from hypothesis import strategies as st

GUARD = Guard(8000, "the-token")
OURS = {"Host": "127.0.0.1:8000", "Authorization": "Bearer the-token"}
CLICKED = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/api/watch", OURS),
        ("/api/watch", OURS | {"Host": "localhost:8000", "Origin": "http://localhost:8000"}),
        ("/api/watch", OURS | {"Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:8000"}),
        ("/", {"Host": "127.0.0.1:8000", "Sec-Fetch-Site": "none", "Sec-Fetch-Dest": "document"}),
        ("/app.js", {"Host": "127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}),
        ("/", {"Host": "127.0.0.1:8000"} | CLICKED),
    ],
)
def test_the_page_and_its_requests_are_answered(path: str, headers: dict[str, str]) -> None:
    assert GUARD.refusal(path, headers) == ""


@pytest.mark.parametrize(
    ("path", "headers", "why"),
    [
        ("/", {}, "no other name"),
        ("/", {"Host": "evil.example:8000"}, "no other name"),
        ("/api/watch", OURS | {"Host": "evil.example:8000"}, "no other name"),
        ("/api/watch", OURS | {"Host": "127.0.0.1:8001"}, "no other name"),
        ("/api/watch", OURS | {"Host": "127.0.0.1"}, "no other name"),
        ("/api/act", OURS | {"Origin": "http://evil.example"}, "another page"),
        ("/api/act", OURS | {"Origin": "http://127.0.0.1:9000"}, "another page"),
        ("/api/act", OURS | {"Origin": "null"}, "another page"),
        ("/api/act", OURS | {"Sec-Fetch-Site": "same-site"}, "another page"),
        ("/api/watch", OURS | CLICKED, "another page"),
        ("/app.js", {"Host": "127.0.0.1:8000", "Sec-Fetch-Site": "cross-site"}, "another page"),
        ("/", {"Host": "127.0.0.1:8000"} | CLICKED | {"Sec-Fetch-Dest": "iframe"}, "another page"),
        ("/api/watch", {"Host": "127.0.0.1:8000"}, "token is missing or wrong"),
        ("/api/watch", OURS | {"Authorization": "Bearer the-toke"}, "token is missing or wrong"),
        ("/api/watch", OURS | {"Authorization": "the-token"}, "token is missing or wrong"),
        ("/api/watch", OURS | {"Authorization": "Bearer \udcff"}, "token is missing or wrong"),
    ],
)
def test_all_others_are_refused(path: str, headers: dict[str, str], why: str) -> None:
    assert why in GUARD.refusal(path, headers)


@given(st.text())
def test_nobody_guesses_the_token(text: str) -> None:
    assert GUARD.refusal("/api/watch", OURS | {"Authorization": f"Bearer {text}"}) != "" or text == "the-token"


def test_no_browser_sends_anybody_the_token_in_the_address() -> None:
    assert GUARD.address == "http://127.0.0.1:8000/#token=the-token"


def test_a_port_that_browsers_leave_out_may_be_left_out() -> None:
    assert Guard(80, "the-token").refusal("/", {"Host": "localhost"}) == ""
