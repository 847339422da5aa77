"""Why a rank fails, in one word: what rules match, what the status says, what a failure report may claim."""

from enum import StrEnum


class Cause(StrEnum):
    """Why a rank failed."""

    APPLICATION = "Application"
    """The training program ended with an error or by a signal."""
    OUT_OF_MEMORY = "OutOfMemory"
    """The kernel ended it, or a process of it, because the memory limit was reached."""
    CONFIG_ERROR = "ConfigError"
    """The program says that its arguments, data or environment are wrong."""
    STORAGE_FULL = "StorageFull"
    """A checkpoint could not be written for want of space."""
    STORAGE_EXCEEDED = "StorageExceeded"
    """The pod was evicted because it used more local storage than its limits allow."""
    IMAGE_ERROR = "ImageError"
    """The image does not exist, may not be pulled, or has an invalid name."""
    START_ERROR = "StartError"
    """A container could not be made or started: no such command, a ConfigMap or Secret that is missing, a failed init
    container."""
    PREFLIGHT_FAILED = "PreflightFailed"
    """The program says that the machine or the network is not fit for training."""
    STALLED = "Stalled"
    """The rank does not go on: it says so itself, or has not finished finishTimeoutSeconds after the others."""
    PEER_LOST = "PeerLost"
    """A collective failed because another rank went away: a consequence, unless nothing else is known."""
    STOPPED = "Stopped"
    """It saved and stopped because it was asked to, but not by this job's operator."""
    POD_DELETED = "PodDeleted"
    """The pod was deleted, or vanished, without this job's operator."""
    EVICTED = "Evicted"
    """The pod was evicted: a node was drained, or ran short of something."""
    PREEMPTED = "Preempted"
    """A pod of higher priority took its place."""
    NODE_LOST = "NodeLost"
    """Its node shut down, went away, or does not answer any more."""
