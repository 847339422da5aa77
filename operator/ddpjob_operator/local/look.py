"""Asks the supervisor of a run's rank 0 what the ranks are doing."""

import json
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from typing import Any

from ddpjob_operator.api import BadInputError

from .processes import LocalPod
from .run_directory import RunDirectory

ANSWER_SECONDS = 15.0


def look(run: RunDirectory) -> Any:
    """The supervisor's document of what each rank is doing now.

    Raises:
        BadInputError: nothing of the run is running, or its supervisor does not answer.
    """
    name = run.root.name
    pods = ((pod, pod.observed()) for pod in map(LocalPod, run.pods.glob("*")) if pod.running)
    first = next(((seen.address or "", pod.ports.status) for pod, seen in pods if seen.node == 0), None)
    if first is None:
        raise BadInputError(f"{name} is not running, so it has no stacks")
    try:
        with closing(HTTPConnection(*first, timeout=ANSWER_SECONDS)) as connection:
            connection.request("GET", "/stacks")
            response = connection.getresponse()
            answer = response.read()
        if response.status != HTTPStatus.OK:
            raise ValueError(answer.decode(errors="replace").strip())  # noqa: TRY301
        return json.loads(answer)
    except (OSError, HTTPException, ValueError) as error:
        raise BadInputError(f"the supervisor of {name} shows no stacks: {error or type(error).__name__}") from None
