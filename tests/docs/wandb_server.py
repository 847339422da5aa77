"""A stand-in for wandb's server: it takes runs and their history from wandb's own client, and remembers them.

It answers as much as the client needs to start a run, to resume one and to send an offline one. What the real server
does with a history, it does not show.
"""

import json
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self


class WandbServer:
    """Serves on a free port of loopback while it is used as a context manager.

    history  the lines of each run, by its id
    names    display name and group of each run, by its id
    """

    def __init__(self) -> None:
        self.history: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.names: dict[str, tuple[str, str]] = {}
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"server_of": self}))

    def __enter__(self) -> Self:
        Thread(target=self._http.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    @property
    def variables(self) -> dict[str, str]:
        """With these a client sends to this server, every second."""
        return {
            "WANDB_BASE_URL": f"http://127.0.0.1:{self._http.server_port}",
            "WANDB_API_KEY": "0" * 40,
            "WANDB__FILE_STREAM_TRANSMIT_INTERVAL": "1",
        }

    def steps(self, run: str) -> list[int]:
        """The steps of a run in the order of their lines."""
        return [line["_step"] for line in self.history[run]]

    def append(self, run: str, offset: int, lines: list[str]) -> None:
        """Writes lines of history from this line on."""
        self.history[run][offset : offset + len(lines)] = map(json.loads, lines)

    def answer(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        """The data with which wandb's server answers an operation of GraphQL."""
        project = {"id": "p", "name": variables.get("project"), "entity": {"id": "e", "name": "me"}}
        run = str(variables.get("name"))
        match operation:
            case "RunResumeStatus":
                return {"model": {**project, "bucket": self._known(run)}}
            case "UpsertBucket":
                if variables.get("displayName"):
                    self.names[run] = (variables["displayName"], variables["groupName"])
                bucket = {"id": "r", "name": run, "displayName": run, "config": "{}", "project": project}
                return {"upsertBucket": {"bucket": bucket, "inserted": True}}
            case "CreateRunFiles":
                files = [{"name": name, "uploadUrl": self.variables["WANDB_BASE_URL"]} for name in variables["files"]]
                return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": files}}
            case "Viewer":
                me = {"id": "u", "entity": "me", "username": "me"}
                return {"viewer": {**me, "flags": "{}", "teams": {"edges": []}}}
        return {}

    def _known(self, run: str) -> dict[str, Any] | None:
        if run not in self.names:
            return None
        lines = self.history[run]
        counts = {"historyLineCount": len(lines), "eventsLineCount": 0, "logLineCount": 0}
        tails = {"historyTail": json.dumps([json.dumps(line) for line in lines[-1:]]), "eventsTail": "[]"}
        config = {"config": "{}", "wandbConfig": '{"t": 1}', "summaryMetrics": "{}", "tags": []}
        return {"id": "r", "name": run, "displayName": run, **counts, **tails, **config}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: WandbServer

    def do_POST(self) -> None:
        """Takes a piece of a history, or an operation."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.endswith("/file_stream"):
            piece = json.loads(body).get("files", {}).get("wandb-history.jsonl")
            if piece:
                self.server_of.append(self.path.split("/")[-2], piece["offset"], piece["content"])
            self._send({})
        elif self.path == "/graphql":
            asked = json.loads(body)
            self._send({"data": self.server_of.answer(asked["operationName"], asked.get("variables") or {})})
        else:
            self._send({})

    def do_PUT(self) -> None:
        """Takes a file, and forgets it."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._send({})

    def log_message(self, *_: object) -> None:
        """Keeps the output of tests free of requests."""

    def _send(self, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
