"""What is made of the API server's words when it refuses a pod."""

import pytest
from ddpjob_operator.cluster.kube.api_client import ApiError
from ddpjob_operator.cluster.refusals import Refused, refusal_of_pod

LITTLE, MUCH = {"cpu": "100m", "memory": "64Mi"}, {"cpu": "8", "memory": "64Gi"}
POD = {
    "spec": {
        "containers": [
            {"name": "trainer", "resources": {"requests": MUCH, "limits": MUCH}},
            {"name": "exporter", "resources": {"limits": LITTLE}},
            {"name": "plain"},
        ],
        "initContainers": [
            {"name": "fetch", "resources": {"requests": {"cpu": "0.1"}, "limits": {"cpu": "2e0"}}},
            {"name": "wait-for-master", "resources": {"requests": MUCH, "limits": MUCH}},
        ],
    }
}
FORBIDDEN = 'pods "digits-1-c59gt" is forbidden: '

CONTAINERS = {
    "minimum cpu usage per Container is 200m, but request is 100m": "exporter, fetch",
    "minimum memory usage per Container is 1Gi, but limit is 64Mi": "exporter",
    "maximum cpu usage per Container is 4, but limit is 8": "trainer, wait-for-master",
    "maximum cpu usage per Container is 1, but limit is 2": "fetch",
    "[maximum cpu usage per Container is 1, but limit is 2, minimum memory usage per Container is 1Gi, but request "
    "is 64Mi]": "fetch, exporter",
    # What the LimitRange itself gives to containers that name nothing.
    "maximum cpu usage per Container is 1, but limit is 1500m": "plain",
    "minimum ephemeral-storage usage per Container is 1Gi.  No request is specified": (
        "trainer, exporter, plain, fetch, wait-for-master"
    ),
    "cpu max limit to request ratio per Container is 2, but provided ratio is 20.000000": "fetch",
    "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0": "plain",
    "memory max limit to request ratio per Container is 2, but no limit is specified or limit is 0": "plain, fetch",
    # What the LimitRange itself gives, to one of them: nobody knows to which.
    "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000": "",
    # Not about one container.
    "maximum cpu usage per Pod is 1, but limit is 8": "",
    "cpu max limit to request ratio per Pod is 2, but provided ratio is 20.000000": "",
}


def refused(message: str, status: int = 403) -> Refused:
    error = refusal_of_pod(ApiError(status, "Forbidden", message), POD)
    assert isinstance(error, Refused)
    return error


@pytest.mark.parametrize(("said", "meant"), CONTAINERS.items())
def test_what_a_limit_range_does_not_allow_is_told_with_the_containers_that_ask_for_it(said: str, meant: str) -> None:
    told = refused(FORBIDDEN + said)
    assert told.message == FORBIDDEN + said + (f" (container {meant})" if meant else "")
    assert (told.reason, told.fits) == ("LimitRangeViolation", 0)


PLACES = {
    'Pod "a" is invalid: spec.initContainers[1].image: Required value': " (container wait-for-master)",
    'Pod "a" is invalid: [spec.containers[0].ports[0]: no, spec.containers[2]: no]': " (container trainer, plain)",
    'Pod "a" is invalid: spec.containers[7].image: Required value': "",
    'Pod "a" is invalid: spec.containers[0].image: the container "trainer" needs one': "",
    'Pod "a" is invalid: spec.nodeName: Forbidden': "",
}


@pytest.mark.parametrize(("said", "added"), PLACES.items())
def test_a_place_among_the_containers_of_a_pod_that_nobody_sees_is_told_with_its_name(said: str, added: str) -> None:
    told = refused(said, 422)
    assert (told.message, told.reason, told.fits) == (said + added, "Invalid", 0)


QUOTAS = {
    "exceeded quota: few, requested: pods=1, used: pods=4, limited: pods=4": 4,
    "exceeded quota: few, requested: limits.cpu=8,requests.memory=64Gi, used: limits.cpu=0,requests.memory=0, "
    "limited: limits.cpu=20,requests.memory=100G": 1,
    "exceeded quota: few, requested: requests.nvidia.com/gpu=8, used: requests.nvidia.com/gpu=0, limited: "
    "requests.nvidia.com/gpu=4": 0,
    "exceeded quota: few, requested: pods=0, used: pods=4, limited: pods=4": None,
    "exceeded quota: few, requested: pods=one, used: pods=4, limited: pods=4": None,
    "exceeded quota: few": None,
}


@pytest.mark.parametrize(("said", "fits"), QUOTAS.items())
def test_a_quota_tells_how_many_pods_there_can_be_at_most(said: str, fits: int | None) -> None:
    told = refused(FORBIDDEN + said)
    assert (told.message, told.reason, told.fits) == (FORBIDDEN + said, "QuotaExceeded", fits)


def test_what_a_quota_demands_and_nobody_named_is_no_quota_that_is_full() -> None:
    told = refused(f"{FORBIDDEN}failed quota: few: must specify limits.cpu for: plain; limits.memory for: plain")
    assert (told.reason, told.fits) == ("ResourcesMissing", 0)


def test_a_webhook_that_does_not_answer_may_answer_later() -> None:
    told = refused('Internal error occurred: failed calling webhook "a.b": refused', 500)
    assert (told.reason, told.fits) == ("WebhookFailed", None)


def test_a_server_that_is_busy_has_refused_nothing() -> None:
    error = ApiError(429, "TooManyRequests", "later")
    assert refusal_of_pod(error, POD) is error


@pytest.mark.parametrize(
    "said",
    [
        "minimum " * 2000,
        f"{'a' * 9000} max limit to request ratio per Container is 1, but provided ratio is {'1' * 9000}",
        f"minimum {'a' * 9000} usage per Container is 1, but request is 1",
        f"exceeded quota: few, requested: {'a=1,' * 9000}, used: a=1, limited: a=1",
        "spec.containers[" * 2000,
        "exceeded quota: few, requested: pods=1e99, used: pods=1, limited: pods=1e99999",
    ],
)
def test_whatever_it_says_is_read_in_no_time(said: str) -> None:
    assert refused(FORBIDDEN + said).message == FORBIDDEN + said


PASSING = (
    "there was an error enforcing limit ranges",
    "status unknown for quota: few, resources: pods",
    'User "system:serviceaccount:ddpjob-system:operator" cannot create resource "pods"',
)


@pytest.mark.parametrize("said", PASSING)
def test_what_may_be_forbidden_for_a_moment_only_is_not_for_good(said: str) -> None:
    assert refused(FORBIDDEN + said).fits is None
