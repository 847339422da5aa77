"""What a stack tells, as faulthandler of different versions of Python writes it."""

import pytest
from ddpjob_supervisor.watch import frames

SITE = "/opt/venv/lib/python3.12/site-packages"


def stack(*calls: tuple[str, int, str], head: str = "Current thread 0x00007f") -> str:
    lines = [f'  File "{file}", line {line} in {function}\n' for file, line, function in calls]
    return f"{head} (most recent call first):\n{''.join(lines)}\n"


MAIN = ("/app/train.py", 9, "<module>")
LOAD = ("/app/data set.py", 42, "load_batch")
REDUCE = (f"{SITE}/torch/distributed/distributed_c10d.py", 3300, "all_reduce")
HOOK = (f"{SITE}/torch/distributed/algorithms/ddp_comm_hooks/default_hooks.py", 30, "allreduce_hook")
BACKWARD = (f"{SITE}/torch/autograd/graph.py", 1113, "_engine_run_backward")
MODULE = (f"{SITE}/torch/nn/modules/module.py", 1798, "_call_impl")
DDP = (f"{SITE}/torch/nn/parallel/distributed.py", 1911, "forward")
BUFFERS = (f"{SITE}/torch/nn/parallel/distributed.py", 2385, "_distributed_broadcast_coalesced")
QUEUE = ("/usr/lib/python3.12/selectors.py", 415, "select")
OUR_LOOP = (f"{SITE}/ddpjob_trainer/train.py", 77, "train_step")
OUR_START = (f"{SITE}/ddpjob_rank/running/rank.py", 42, "become")
RUNPY = ("<frozen runpy>", 88, "_run_code")
ANSWERED = stack(
    (f"{SITE}/ddpjob_rank/running/answering.py", 60, "_answer"),
    ("/usr/lib/python3.12/threading.py", 1075, "_bootstrap_inner"),
    head="Current thread 0x00007e",
)
WRITING = (f"{SITE}/ddpjob_rank/console.py", 40, "_write_partial_lines")
SAYING = (f"{SITE}/ddpjob_rank/console.py", 60, "_write")


@pytest.mark.parametrize(
    ("calls", "place", "waits"),
    [
        ([LOAD, MAIN], "load_batch (data set.py:42)", False),
        ([REDUCE, MAIN], "train.py:9, in all_reduce (distributed_c10d.py:3300)", True),
        ([BACKWARD, MAIN], "train.py:9, in _engine_run_backward (graph.py:1113)", True),
        ([LOAD, BACKWARD, MAIN], "load_batch (data set.py:42)", False),
        ([BUFFERS, DDP, MODULE, MAIN], "train.py:9, in _distributed_broadcast_coalesced (distributed.py:2385)", True),
        ([LOAD, MODULE, DDP, MODULE, MAIN], "load_batch (data set.py:42)", False),
        ([MODULE, DDP, MODULE, MAIN], "train.py:9, in _call_impl (module.py:1798)", False),
        ([LOAD, HOOK, BACKWARD, MAIN], "load_batch (data set.py:42)", False),
        ([QUEUE, MAIN], "train.py:9, in select (selectors.py:415)", False),
        ([BACKWARD, OUR_LOOP, OUR_START], "train_step (train.py:77), in _engine_run_backward (graph.py:1113)", True),
        ([OUR_START], "become (rank.py:42)", False),
        ([], None, False),
    ],
    ids=[
        "own code",
        "a collective",
        "a collective of backward",
        "own code in backward",
        "a collective of forward",
        "own code in forward",
        "a layer",
        "own code that communication has called",
        "a queue",
        "our loop",
        "not yet in the program",
        "no frames",
    ],
)
def test_a_stack_tells_where_the_program_is_and_whether_it_waits_for_others(
    calls: list[tuple[str, int, str]], place: str | None, *, waits: bool
) -> None:
    found = frames.main_thread(stack(*calls))
    assert (frames.location(found), frames.communicates(found)) == (place, waits)


@pytest.mark.parametrize(
    "stacks",
    [
        stack(QUEUE, head="Thread 0x00007e") + stack(LOAD, MAIN),
        stack(LOAD, MAIN, head="Current thread 0x00007f [python]")
        + stack(QUEUE, head="Thread 0x00007e [pin_memory]"),
        ANSWERED + stack(LOAD, MAIN, head="Thread 0x00007f"),
        stack(QUEUE, head="Thread 0x00007e") + stack(LOAD, MAIN, head="Thread 0x00007f"),
    ],
    ids=["it writes them itself", "with names", "our thread writes them", "nobody's thread writes them"],
)
def test_the_main_thread_is_found_among_others_and_shown_first(stacks: str) -> None:
    assert frames.location(frames.main_thread(stacks)) == "load_batch (data set.py:42)"
    shown = frames.main_first(stacks).splitlines()
    assert LOAD[0] in shown[1]
    assert sorted(shown) == sorted(stacks.rstrip().splitlines())


@pytest.mark.parametrize(
    ("stacks", "left"),
    [
        (stack(BACKWARD, MAIN, OUR_START, RUNPY), stack(BACKWARD, MAIN)),
        (
            stack(QUEUE, head="Thread 0x00007e") + stack(LOAD, MAIN, OUR_START),
            stack(LOAD, MAIN) + stack(QUEUE, head="Thread 0x00007e"),
        ),
        (ANSWERED + stack(LOAD, MAIN, head="Thread 0x00007f"), stack(LOAD, MAIN, head="Thread 0x00007f")),
        (stack(WRITING, head="Thread 0x00007e") + stack(LOAD, MAIN), stack(LOAD, MAIN)),
        (stack(SAYING, MAIN), stack(SAYING, MAIN)),
        (stack(BACKWARD, OUR_LOOP, OUR_START), stack(BACKWARD, OUR_LOOP)),
        (stack(OUR_START), stack(OUR_START)),
        ("", ""),
    ],
    ids=[
        "its start",
        "threads of its own",
        "our thread",
        "our writer",
        "our print",
        "our loop",
        "not yet in the program",
        "no stack",
    ],
)
def test_the_log_has_the_program_s_part_of_the_stacks(stacks: str, left: str) -> None:
    assert frames.without_ours(stacks) == left.rstrip()
