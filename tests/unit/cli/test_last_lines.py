"""What the rank that failed first had printed last, in the report of a run on this machine."""

from ddpjob_operator.cli.report import report
from ddpjob_operator.local import RunDirectory, Runs

from tests.unit.engine.builders import a_job


def page_of(run: RunDirectory, log: str) -> str:
    """The page of a run of two nodes whose rank 1 failed, with this log."""
    run.save(a_job(nodes=2).running().fails(1).settled().snapshot.job)
    file = run.logs_of(1) / "node-1.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(log)
    assert report(Runs(run.root.parent), "digits", None) == 0
    return (run.root / "report.html").read_text()


def test_the_last_thirty_lines_of_the_node_that_failed_first_are_shown(digits: RunDirectory) -> None:
    text = page_of(digits, "".join(f"line {number}\n" for number in range(1, 41)))
    assert ">Last lines of rank 1, attempt 1</h2>" in text
    assert "line 11\n" in text
    assert "line 40</pre>" in text
    assert "line 10\n" not in text


def test_what_it_printed_in_a_later_attempt_is_left_out(digits: RunDirectory) -> None:
    again = "attempt 2 begins in place: rank 1 on node 1 failed"
    text = page_of(digits, f"boom\n{again}\ndone\n")
    assert ">boom</pre>" in text
    assert "done" not in text


def test_its_lines_are_text_bounded_and_without_secrets(digits: RunDirectory) -> None:
    text = page_of(digits, f"<b>no</b> \x1b[31m token=not-to-be-seen\n{'x' * 100_000}\n")
    assert "&lt;b&gt;no&lt;/b&gt;" in text
    assert "not-to-be-seen" not in text
    assert "\x1b" not in text
    assert "x" * 2001 not in text


def test_without_a_log_nothing_is_shown(digits: RunDirectory) -> None:
    assert "Last lines" not in page_of(digits, "")
