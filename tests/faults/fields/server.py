"""Sends many requests to a plant's API server on one connection. A kubectl for each request would take minutes."""

import http.client
import json
from typing import Any

from ddpjob_operator.api.contract import API_VERSION
from ddpjob_operator.engine import SCHEDULING_API

from tests.plant import Plant

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"

Body = dict[str, Any] | list[Any] | None


class Server:
    """A plant's API server, as an admin uses it."""

    def __init__(self, plant: Plant, namespace: str) -> None:
        host, port = plant.url.removeprefix("https://").split(":")
        self._connection = http.client.HTTPSConnection(host, int(port), context=plant.admin(), timeout=30)
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._jobs = f"/apis/{API_VERSION}/namespaces/{namespace}/ddpjobs"
        self._groups = f"/apis/{SCHEDULING_API}/namespaces/{namespace}/podgroups"
        self._policies = f"/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies"
        self._budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"

    def close(self) -> None:
        """Closes the connection."""
        self._connection.close()

    def try_to_create(self, job: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """The new job as it would be stored, and the error if it is refused. Nothing is stored."""
        return self._tried("POST", self._jobs, job)

    def try_to_replace(self, job: dict[str, Any]) -> tuple[dict[str, Any], str]:
        """Works like `try_to_create`, for the change of an existing job."""
        return self._tried("PUT", f"{self._jobs}/{job['metadata']['name']}", job)

    def create(self, job: dict[str, Any]) -> dict[str, Any]:
        """Creates a job."""
        return self._done("POST", self._jobs, job)

    def change(self, job: dict[str, Any]) -> dict[str, Any]:
        """Gives the job the spec of `job`, whatever its status is by now."""
        patch = [{"op": "replace", "path": "/spec", "value": job["spec"]}]
        return self._done("PATCH", f"{self._jobs}/{job['metadata']['name']}", patch)

    def delete(self, name: str) -> None:
        """Deletes a job, and with it everything that belongs to it."""
        self._done("DELETE", f"{self._jobs}/{name}", {"propagationPolicy": "Background"})

    def job(self, name: str) -> dict[str, Any] | None:
        """The job as it is now; None if it does not exist."""
        status, answer = self._ask("GET", f"{self._jobs}/{name}")
        return answer if status == 200 else None

    def pods(self, uid: str) -> list[dict[str, Any]]:
        """The pods of a job."""
        found = self._done("GET", f"{self._pods}?labelSelector=ddpjob.dev/job-uid%3D{uid}")
        return list(found["items"])

    def annotate(self, pod: str, annotations: dict[str, str]) -> None:
        """Controls a pod with annotations."""
        self._done("PATCH", f"{self._pods}/{pod}", {"metadata": {"annotations": annotations}})

    def delete_pod(self, name: str) -> None:
        """Deletes a pod, as a person does."""
        self._done("DELETE", f"{self._pods}/{name}", {})

    def policies(self, uid: str) -> int:
        """How many NetworkPolicies a job has."""
        return self._how_many(self._policies, uid)

    def budgets(self, uid: str) -> int:
        """How many PodDisruptionBudgets a job has."""
        return self._how_many(self._budgets, uid)

    def _how_many(self, path: str, uid: str) -> int:
        found = self._done("GET", f"{path}?labelSelector=ddpjob.dev/job-uid%3D{uid}")
        return len(found["items"])

    def group(self, name: str) -> dict[str, Any]:
        """The spec of a PodGroup; empty if it does not exist."""
        return dict(self._ask("GET", f"{self._groups}/{name}")[1].get("spec", {}))

    def _tried(self, method: str, path: str, job: dict[str, Any]) -> tuple[dict[str, Any], str]:
        status, answer = self._ask(method, f"{path}?dryRun=All&fieldValidation=Strict", job)
        return (answer, "") if status < 300 else ({}, str(answer["message"]))

    def _done(self, method: str, path: str, body: Body = None) -> dict[str, Any]:
        status, answer = self._ask(method, path, body)
        assert status < 300, f"{method} {path}: {answer.get('message')}"
        return answer

    def _ask(self, method: str, path: str, body: Body = None) -> tuple[int, dict[str, Any]]:
        try:
            return self._ask_once(method, path, body)
        except (OSError, http.client.HTTPException):
            self._connection.close()  # The server has closed the connection, because nobody used it for a while.
            return self._ask_once(method, path, body)

    def _ask_once(self, method: str, path: str, body: Body) -> tuple[int, dict[str, Any]]:
        content = JSON if method != "PATCH" else JSON_PATCH if isinstance(body, list) else MERGE
        self._connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": content})
        answer = self._connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text)
