"""What a process prints before it crashes, and what is made of it."""

import pytest
from ddpjob_supervisor.watch.crash_words import CrashWords

GLOO = """\
terminate called after throwing an instance of 'gloo::EnforceNotMet'
  what():  [enforce fail at /__w/pytorch/gloo/transport/tcp/pair.cc:464] op.preamble.length <= op.nbytes. 2 vs 1
"""
STACK = """\
Fatal Python error: Segmentation fault

Thread 0x00007f4a (most recent call first):
  File "/app/feed.py", line 3 in feed

Current thread 0x00007f4b (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "/app/train.py", line 13 in step
  File "/app/train.py", line 20 in <module>

Current thread's C stack trace (most recent call first):
  File "/app/other.py", line 1 in f
Extension modules: numpy._core._multiarray_umath (total: 1)
"""
STEP = "step (train.py:13), in string_at (__init__.py:519)"

CRASHES: dict[str, tuple[str, tuple[str | None, str, str | None]]] = {
    "an uncaught exception": (
        GLOO,
        (
            "gloo::EnforceNotMet",
            "[enforce fail at /__w/pytorch/gloo/transport/tcp/pair.cc:464] op.preamble.length <= op.nbytes. 2 vs 1",
            None,
        ),
    ),
    "without a message": ("terminate called after throwing an instance of 'int'\n", ("int", "", None)),
    "of a thread that nobody joined": (
        "terminate called without an active exception\n",
        (None, "terminate called without an active exception", None),
    ),
    "a failed assertion": (
        "python: loader.c:7: next: Assertion `n > 0' failed.\n",
        (None, "python: loader.c:7: next: Assertion `n > 0' failed.", None),
    ),
    "memory that is corrupted": (
        "malloc(): corrupted top size\n" + STACK.replace("Segmentation fault", "Aborted"),
        (None, "malloc(): corrupted top size", STEP),
    ),
    "memory that is freed twice": (
        "double free or corruption (!prev)\n",
        (None, "double free or corruption (!prev)", None),
    ),
    "a stack that is smashed": (
        "*** stack smashing detected ***: terminated\n",
        (None, "*** stack smashing detected ***: terminated", None),
    ),
    "a segmentation fault": (STACK, (None, "", STEP)),
    "the last of several": (GLOO + "free(): invalid pointer\n", (None, "free(): invalid pointer", None)),
    "nothing of the kind": ("  what():  the user asks\nassertion failed\nfree: 3 GB\n", (None, "", None)),
}


@pytest.mark.parametrize("title", CRASHES)
def test_the_last_words_of_a_crash_are_heard(title: str) -> None:
    text, expected = CRASHES[title]
    words = CrashWords()
    for line in text.splitlines():
        words.hear(line)
    assert (words.kind, words.said, words.where) == expected
