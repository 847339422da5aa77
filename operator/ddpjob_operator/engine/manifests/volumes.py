"""A template's volumes: which objects they refer to, and whether files there outlive the job's pods.

The job's history is kept where the job's checkpoints outlive its pods.
"""

from ddpjob_operator.api import CodeReference, DDPJob, DDPJobSpec, FailedCode, HistoryMode, RunningCode
from ddpjob_operator.api.contract import CODE_VOLUME, HISTORY_FOLDER
from ddpjob_operator.api.spec import is_url
from ddpjob_operator.engine.snapshot import Manifest

PASSING = frozenset({"emptyDir", "ephemeral"})
"""Kinds of volumes that are deleted with their pod."""
NOT_WRITTEN = frozenset({"configMap", "secret", "projected", "downwardAPI", "image"})

MADE_FROM = {
    "configMap": ("ConfigMap", "name"),
    "secret": ("Secret", "secretName"),
    "persistentVolumeClaim": ("PersistentVolumeClaim", "claimName"),
}


def config_map_of(job: DDPJob) -> str | None:
    """Returns the name of the ConfigMap with the code of new pods; None if they have the code of the template."""
    code = job.spec.code
    if code is None:
        return None
    return code.former if failure_of(code, job.status.code) else code.config_map


def failure_of(code: CodeReference | None, runs: RunningCode | None) -> FailedCode | None:
    """Returns how the code that the spec names has failed before its first step; None if it has not."""
    failed = runs.failed if runs else None
    return failed if failed and code and failed.revision == code.revision else None


def has_former(spec: DDPJobSpec) -> bool:
    """Whether there is other code to go back to. There is none if somebody has sent the former code again."""
    volumes = spec.template["spec"].get("volumes", ())
    of_template = (volume.get("configMap", {}).get("name") for volume in volumes if volume["name"] == CODE_VOLUME)
    code = spec.code
    return code is not None and code.config_map != (code.former or next(of_template, None))


def volumes_of(job: DDPJob) -> list[Manifest]:
    """Returns the template's volumes as new pods have them: with the newest code, unless it has failed."""
    volumes: list[Manifest] = job.spec.template["spec"].get("volumes", [])
    config_map = config_map_of(job)
    if config_map is None:
        return volumes
    code = {"name": CODE_VOLUME, "configMap": {"name": config_map}}
    return [code if volume["name"] == CODE_VOLUME else volume for volume in volumes]


def needed(job: DDPJob) -> list[str]:
    """Lists the objects that the pods' volumes refer to, such as `ConfigMap code`. Pods wait until all exist."""
    sources = [
        source for volume in volumes_of(job) for source in (volume, *volume.get("projected", {}).get("sources", ()))
    ]
    found = (
        (kind, source[field].get(name) or source[field].get("name"))
        for source in sources
        for field, (kind, name) in MADE_FROM.items()
        if field in source and not source[field].get("optional")
    )
    return list(dict.fromkeys(f"{kind} {name}" for kind, name in found if name))


def lost_with_pods(spec: DDPJobSpec) -> str:
    """Returns the reason why no checkpoint outlives the pods, as a clause of a sentence; empty if one does."""
    checkpoint, pod = spec.checkpoint, spec.template["spec"]
    if checkpoint and is_url(checkpoint.path):
        return ""
    if checkpoint and checkpoint.volume:
        return "" if _outlives_pods(checkpoint.volume) else "its checkpoint.volume is deleted with its pods"
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    mounted = {
        f"{mount['mountPath'].rstrip('/')}/": volumes.get(mount["name"], {})
        for mount in spec.trainer.get("volumeMounts", [])
    }
    if checkpoint is None:
        kept = any(map(_outlives_pods, mounted.values()))
        return "" if kept else "it has neither a checkpoint nor a volume that outlives its pods"
    above = [path for path in mounted if f"{checkpoint.path}/".startswith(path)]
    kept = bool(above) and _outlives_pods(mounted[max(above, key=len)])
    return "" if kept else "its checkpoint.path is not on a volume that outlives its pods"


def history_path(spec: DDPJobSpec) -> str | None:
    """Returns where a job that starts now keeps its history, as a directory or a URL; None if it keeps none."""
    if no_history(spec):
        return None
    if spec.history.path:
        return spec.history.path
    assert spec.checkpoint, "otherwise there is no history"
    return f"{spec.checkpoint.path.rstrip('/')}/{HISTORY_FOLDER}"


def no_history(spec: DDPJobSpec) -> str:
    """Returns the reason why a job keeps no history, as a clause of a sentence; empty if it keeps one."""
    if spec.history.mode is HistoryMode.DISABLED:
        return "its history.mode is Disabled"
    if spec.history.path:
        return ""
    return lost_with_pods(spec) if spec.checkpoint else "it has neither a history.path nor a checkpoint"


def history_of(job: DDPJob) -> str | None:
    """Returns where a job that has started keeps its history; None if it keeps none.

    An operator that knew no default has not written the place into the status. Its jobs keep a history only if their
    spec names the place, even if a newer operator makes some of their pods.
    """
    named = job.spec.history.path if job.spec.history.mode is HistoryMode.AUTO else None
    return job.status.history_path or named


def _outlives_pods(volume: Manifest) -> bool:
    return bool(set(volume) - {"name"} - PASSING - NOT_WRITTEN)
