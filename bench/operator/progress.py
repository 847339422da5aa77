"""Measures the cost of jobs that report progress. As with most real reports, only the step changes."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from ddpjob_operator.engine import fingerprint

from tests.plant.audit import kind, writes
from tests.support.jobs import FOR_LONG

from .audit import job_name
from .client import Manifest
from .contestants import SERVER
from .stage import Figures, Stage

MEASURED_SECONDS = 60.0
"""How long the measurement takes. The operator writes a job's progress every 10 s."""
STATUS = {"version": 2, "mark": "1", "attempt": 1, "phase": "Running", "since": "2026-01-01T12:00:00.000Z"}
STEPS_PER_SECOND = 10


async def progress(stage: Stage) -> Figures:
    """Measures running jobs of 4 pods, each with a supervisor that reports a new step at each request."""
    jobs, measured = (5, 12.0) if stage.quick else (200, MEASURED_SECONDS)
    path = stage.contestant.path
    await stage.begin()
    async with supervisors(jobs) as reported:
        await stage.submit(_job(stage, number, port) for number, port in enumerate(reported))
        for job in (await stage.client.get(path(stage.namespace)))["items"]:
            reported[job["spec"]["network"]["statusPort"]] = fingerprint(job["metadata"]["uid"])
        await stage.until(path(stage.namespace), jobs, lambda job: "progress" in job.get("status", {}))
        stage.measure()
        await asyncio.sleep(measured)
        used = stage.used()
        statuses = sum(kind(event) == "ddpjobs/status" for event in writes(stage.plant, stage.since, stage.namespace))
    return {
        "jobs": jobs,
        "statuses/s": statuses / measured,
        "CPU ms per status, contestant": 1000 * used["contestant"] / statuses,
        f"CPU ms per status, {SERVER}": 1000 * used[SERVER] / statuses,
    }


def _job(stage: Stage, number: int, port: int) -> Manifest:
    job = stage.contestant.job(job_name(number), 4, FOR_LONG)
    job["spec"]["network"] = {"statusPort": port}
    return job


@asynccontextmanager
async def supervisors(count: int) -> AsyncIterator[dict[int, str]]:
    """Runs `count` supervisors, which listen on all addresses of this machine.

    Yields a dictionary from each port to the fingerprint of the supervisor's job. The caller fills in the
    fingerprints.
    """
    reported: dict[int, str] = {}
    began = time.monotonic()

    async def status(request: web.Request) -> web.Response:
        """Answers after the longest wait that the request allows, because the mark never changes."""
        if "If-None-Match" in request.headers:
            await asyncio.sleep(float(request.headers["Prefer"].removeprefix("wait=")))
        assert request.transport is not None
        port = request.transport.get_extra_info("sockname")[1]
        step = int(STEPS_PER_SECOND * (time.monotonic() - began))
        document = STATUS | {"job": reported[port], "progress": {"epoch": 1, "step": step}}
        return web.json_response(document, headers={"ETag": f'"{STATUS["mark"]}"'})

    app = web.Application()
    app.router.add_get("/status", status)
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=0.1)
    await runner.setup()
    try:
        for _ in range(count):
            site = web.TCPSite(runner, port=0)
            await site.start()
            reported[site.port] = ""
        yield reported
    finally:
        await runner.cleanup()
