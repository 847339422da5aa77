"""Finds the cluster, user and namespace to use, in the same files and by the same rules as kubectl."""

import difflib
import os
import time
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path

import yaml
from kubernetes.client.api_client import ApiClient
from kubernetes.client.configuration import Configuration
from kubernetes.config import ConfigException, load_incluster_config
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

from ddpjob_operator.api import BadInputError
from ddpjob_operator.api.option_names import option
from ddpjob_operator.api.words import listed

from .cluster import Cluster, Document

IN_CLUSTER_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
CONNECTIONS = 128
"""Maximum number of connections: enough to follow the logs of many pods and to make a few other requests."""

CREDENTIALS_SECONDS = 60.0
"""How long a token whose expiry is unknown is used until it is read again. A token file is often replaced only just
before the old token expires."""
CLIENT_SECONDS = 600.0
"""How long an API client is given out again. A client cannot take new certificates, which a plugin may have made."""

UNUSABLE = (ConfigException, yaml.YAMLError, AttributeError, LookupError, TypeError, ValueError)
"""What the Kubernetes client raises for a kubeconfig with a mistake."""
TEMPORARY = "set TMPDIR to a directory of yours that has room"
"""Advice after a write error: the Kubernetes client writes the certificates of a kubeconfig to temporary files."""


def kubeconfigs() -> list[Path]:
    """The files that $KUBECONFIG names or, if it is not set, kubectl's default file; only those that exist."""
    named = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config"))
    return [file for path in named.split(os.pathsep) if path and (file := Path(path).expanduser()).is_file()]


def connect(kubeconfig: Path | None = None, context: str | None = None, namespace: str | None = None) -> Cluster:
    """The cluster of a context (default: the current context). Without a kubeconfig, the cluster that runs this pod.

    No request is sent to the cluster yet.

    Raises:
        BadInputError: there is no such file or context, no cluster is named anywhere, or the kubeconfig is unusable.
    """
    if kubeconfig is not None and not kubeconfig.is_file():
        raise BadInputError(f"no kubeconfig {kubeconfig}; name a file that exists")
    files = (kubeconfig,) if kubeconfig else (*kubeconfigs(),)
    if not files:
        own = IN_CLUSTER_NAMESPACE.read_text(encoding="utf-8").strip() if IN_CLUSTER_NAMESPACE.exists() else "default"
        return Cluster(_from_within(), "in-cluster", namespace or own)
    joined = os.pathsep.join(map(str, files))
    try:
        written = tuple((found.st_mtime_ns, found.st_size, found.st_ino) for found in map(Path.stat, files))
        api, chosen = _of_files(files, written, context, int(time.monotonic() / CLIENT_SECONDS))
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else f"{error.strerror}; {TEMPORARY}"
        raise BadInputError(f"cannot use the kubeconfig {joined}: {reason}") from None
    except UNUSABLE as error:
        raise BadInputError(f"cannot use the kubeconfig {joined}: {' '.join(str(error).split())}") from None
    named = namespace or chosen["context"].get("namespace") or "default"
    if not isinstance(named, str):
        raise BadInputError(
            f"the namespace {named!r} of context {chosen['name']} in {joined} must be a string: put it in quotes"
        )
    return Cluster(api, chosen["name"], named)


# A program that submits a thousand jobs uses the same few connections for all of them.


@lru_cache(maxsize=8)
def _of_files(
    files: tuple[Path, ...], _written: tuple[tuple[int, ...], ...], context: str | None, _period: int
) -> tuple[ApiClient, Document]:
    """An API client for a context, and the context. Both are made again in each period, or if a file has changed."""
    configuration, loader = _configuration(), _loader(os.pathsep.join(map(str, files)), context)
    loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    _keep_valid(configuration, loader)
    return ApiClient(configuration), loader.current_context


def _keep_valid(configuration: Configuration, loader: KubeConfigLoader) -> None:
    """Lets a client that is used for hours read its token again, also if nothing says when the token expires."""
    at_expiry, read = configuration.refresh_api_key_hook, time.monotonic()
    if at_expiry is None:  # It has no token.
        return

    def before_request(configuration: Configuration) -> None:
        nonlocal read
        if hasattr(loader, "expiry"):
            at_expiry(configuration)
        elif time.monotonic() - read >= CREDENTIALS_SECONDS:
            read = time.monotonic()
            with suppress(OSError, *UNUSABLE):  # The old token may still be valid; if not, the API server says so.
                loader.load_and_set(configuration)
            configuration.refresh_api_key_hook = before_request

    configuration.refresh_api_key_hook = before_request


@cache
def _from_within() -> ApiClient:
    """An API client for the cluster that runs this pod."""
    configuration = _configuration()
    try:
        load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except ConfigException:
        named = os.environ.get("KUBECONFIG")
        where = f" at {named} (KUBECONFIG)" if named else ""
        raise BadInputError(
            f"no cluster is named: there is no kubeconfig{where}. Set KUBECONFIG to yours, or give"
            f" {option('kubeconfig', 'FILE')}"
        ) from None
    return ApiClient(configuration)


def _configuration() -> Configuration:
    configuration = Configuration()
    configuration.retries = False
    configuration.keep_alive = True
    configuration.connection_pool_maxsize = CONNECTIONS
    return configuration


def _loader(files: str, context: str | None) -> KubeConfigLoader:
    merger = KubeConfigMerger(files)  # type: ignore[no-untyped-call]
    if merger.config is None:
        raise ConfigException("it is empty")
    names = [entry["name"] for entry in merger.config.value.get("contexts") or []]
    if not names:
        raise BadInputError(f"{files} names no context; is it a kubeconfig?")
    # Like kubectl, use the current context of the first file that has one. The merger uses that of the last file.
    chosen = context or next(
        filter(None, (file.get("current-context") for file in merger.config_files.values())), None
    )
    if chosen is None:
        raise BadInputError(
            f"the kubeconfig {files} has no current context; choose with {option('context')}: {listed(names)}"
        )
    if context is not None and context not in names:
        close = difflib.get_close_matches(context, names)
        guess = f"did you mean {close[0]}?" if close else f"there is {listed(names)}"
        raise BadInputError(f"no context named {context} in {files}; {guess}")
    return KubeConfigLoader(merger.config, chosen, config_persister=merger.save_changes)  # type: ignore[no-untyped-call]
