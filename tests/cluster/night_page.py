"""Writes docs/explanation/a-night.md from what one run of the night has shown."""

import math
import re
from collections.abc import Mapping
from pathlib import Path

from .onlookers import Noted

PAGE = Path(__file__).parents[2] / "docs/explanation/a-night.md"

TEXT = """\
# One night, and two days later

Two teams have a namespace each, `vision` and `language`, with three jobs each. In one night a job hangs, another
diverges, a third waits for a quota, and a machine is lost. This page shows who is told of it, and when, and what can
be read two days later, when pods, jobs and even the cluster are gone.

Nothing here is written by hand: a test plays the night, and writes this page from what it sees (`UPDATE_NIGHT=1
.venv/bin/pytest tests/cluster/test_night.py`). Operator, Prometheus, Alertmanager, supervisors and ranks are real
processes; the machines on which the scheduler places the pods are simulated, and the program computes nothing. The
alerts are [the chart's](../how-to/alerts.md), with one change: waiting counts after {pending} seconds, not after 15
minutes. The jobs have `stallTimeoutSeconds: 20`. Prometheus reads metrics and evaluates rules each second: add your
own two intervals. Alertmanager has a route for each team:

```yaml
route:
  receiver: nobody
  routes:
    - matchers: [namespace=vision]
      receiver: vision-on-call
    - matchers: [namespace=language]
      receiver: language-on-call
```

## The night

| Job | What happens | Who is told | By which alert | After |
| --- | --- | --- | --- | --- |
| `vision/segment` | A read of rank 1 never returns. | `vision-on-call` | `DDPJobStalled` | {stalled} s |
| `language/gpt` | The loss becomes NaN. | `language-on-call` | `DDPJobDiverged` | {diverged} s |
| `vision/wide` | The namespace's quota is full. | `vision-on-call` | `DDPJobPending` | {waited} s |
| `language/bert` | The machine of rank 1 loses its power. | nobody: all ranks run again after {back} s | | |
| `vision/resnet`, `language/finetune` | Nothing. | nobody | | |

{summaries}

The first look after the last of these alerts:

<!-- not run: recorded by the test -->
```bash
kubectl get ddp -A
```
```text
{during}
```

`segment` started again by itself after its stall, so its on-call may sleep on, unless it happens again: the alert
ends 15 minutes after the restart. `bert` waits until Kubernetes gives up the machine, 8 seconds after its last sign
of life here and 50 by default, and for [30 seconds more](../decisions/0023-thirty-seconds-for-a-silent-node.md).
`wide` starts when `resnet` has finished; its alert ends {pending_ended} s after it began. `gpt` keeps on computing
with NaN until its program gives up. The morning:

```text
{morning}
```

Two people follow the same night, one on [`ddpjob top`](../how-to/see-all-jobs.md), one on the page of [`ddpjob
dashboard`](../how-to/see-all-jobs-in-a-browser.md), as soon as the first five jobs run. Both see a trouble in the
job's line. On `top`, `w` leads to the job that has come into trouble last, and Enter to what has happened to it. On
the page it takes two clicks: the button *to look at*, and the job's name.

| Job | Its line shows | On `top` after | On the page after | Keys to the cause |
| --- | --- | --- | --- | --- |
{looks}

The jobs are deleted then, which ends `DDPJobDiverged`, and so is the cluster.

## Two days later

The jobs had `spec.history`. Anybody who may read that directory can ask what happened, on any machine. `gpt`:

{gpt}

`segment` hung where the stack of rank 1 says, in `read_batch`; rank 0 only waited for it:

{segment}

A report draws the curves, with the interruption:

{report}

`bert` needed two attempts. The supervisors cannot know why rank 1 fell silent. The operator told the pod that
replaced it:

{bert}

[Keep logs when pods are gone](../how-to/keep-logs-when-pods-are-gone.md) says what is kept, and for how long.
"""

GPT = ("status gpt", "logs gpt --tail 4")
SEGMENT = ("status segment", "logs segment --previous --node 1 --tail 4")
REPORT = ("report segment --output segment.html",)
BERT = ("status bert",)
READ = (*GPT, *SEGMENT, *REPORT, *BERT)
"""What is asked two days later: arguments of `ddpjob`."""

Times = Mapping[str, float]
"""Seconds by the name of an alert."""


def written(
    delays: Times,
    lasted: Times,
    summaries: Mapping[str, str],
    back: float,
    tables: tuple[str, str],
    *,
    pending: int,
    looks: Mapping[str, tuple[Noted, Noted, float]],
    read: Mapping[str, str],
) -> str:
    """The page.

    delays     how many seconds after its reason an alert has fired
    lasted     how many seconds it then lasted, if it has ended
    summaries  what the alerts say
    back       how many seconds after the loss of its machine the job ran again
    tables     `kubectl get ddp -A`, once all alerts have fired, and in the morning
    pending    the limit for waiting
    looks      by the job's name, what was seen on `ddpjob top` and on the page, and when the trouble began
    read       what `ddpjob` prints two days later, by its arguments
    """
    during, morning = (_trimmed(table) for table in tables)
    return TEXT.format(
        pending=pending,
        stalled=math.ceil(delays["DDPJobStalled"]),
        diverged=math.ceil(delays["DDPJobDiverged"]),
        waited=math.ceil(delays["DDPJobPending"]),
        back=math.ceil(back),
        summaries="The alerts say:\n\n" + "\n".join(f"- `{name}`: {text}." for name, text in summaries.items()),
        during=during,
        morning=morning,
        looks="\n".join(_look(name, *looks[name]) for name in ("segment", "gpt", "wide", "bert")),
        pending_ended=math.ceil(lasted["DDPJobPending"]),
        **{
            name: "\n\n".join(_shown(words, read[words]) for words in asked)
            for name, asked in {"gpt": GPT, "segment": SEGMENT, "report": REPORT, "bert": BERT}.items()
        },
    )


def _look(name: str, top: Noted, page: Noted, began: float) -> str:
    """A row of the table of what was seen."""
    keys = " ".join(f"`{key}`" for key in top.keys)
    delays = (f"{max(0.0, noted.at - began):.1f} s" for noted in (top, page))
    return f"| `{name}` | `{top.shown}` | {' | '.join(delays)} | {keys} |"


def _shown(words: str, printed: str) -> str:
    call = f"<!-- not run: recorded by the test -->\n```bash\nddpjob {words} --history history\n```"
    return f"{call}\n```text\n{_trimmed(printed)}\n```"


def _trimmed(text: str) -> str:
    return re.sub(r" +$", "", text, flags=re.MULTILINE).strip("\n")
