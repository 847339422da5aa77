"""What a wrong file gets: every mistake at once, each with its line, its path, and what would be right."""

from itertools import pairwise
from pathlib import Path

import pytest
from ddpjob_operator.api import BadInputError, Cause, job_file
from ddpjob_operator.api.job_file import read
from ddpjob_operator.api.restart import Signal

from .documents import HEAD, TEMPLATE, a_file, complaint, complaints

TRAINER = "spec.template.spec.containers[0]"
KNOWN = (
    "nodes, procsPerNode, backend, network, suspend, cancel, "
    "managedBy, activeDeadlineSeconds, startDeadlineSeconds, scheduleTimeoutSeconds, successPolicy, "
    "finishTimeoutSeconds, cleanPodPolicy, ttlSecondsAfterFinished, restart, elastic, scheduling, disruption, "
    "stallTimeoutSeconds, firstStepTimeoutSeconds, preflight, checkpoint, history, code, template"
)
NAME = (
    "Name of the job: at most 52 lower-case letters, digits and dashes, starting with a letter and not ending with a "
    "dash. Pods and the Service are named after it."
)

NOT_A_NAME = (
    "must be at most 52 lower-case letters, digits and dashes, starting with a letter and not ending with a "
    "dash, because names in Kubernetes begin with it"
)

LOCAL_COPIES = (
    "How much memory on rank 0's node may hold local copies of checkpoints that are saved to an object store, such as"
    ' `4Gi`. A restart in place resumes from the local copy without waiting for the store. `"0"`: no local copy.'
    " Without a value, a quarter of the memory that the container's limit leaves free."
)
CHECKPOINTS = (
    "Where checkpoints are: a directory, as the trainer sees it, which is an absolute path other than /, without a "
    "colon; or a URL such as s3://BUCKET/PATH, gs://BUCKET/PATH or az://CONTAINER/PATH, without credentials."
)

OPERATOR = (
    "In: the exit code is one of `values`. NotIn: the exit code is none of `values`. A rank without an exit code "
    "matches neither, nor does a rank that exited with 0."
)


def a_rule(matches: str) -> str:
    """A file with one restart rule, in line 8."""
    return a_file(f"restart:\n  rules:\n    - {{{matches}, action: Fail}}")


PROBLEMS: dict[str, tuple[str, list[str]]] = {
    # numbers and words
    "no nodes": (a_file("nodes: 0"), ["line 6: spec.nodes: 0 is too small; it must be at least 1"]),
    "too many nodes": (a_file("nodes: 4097"), ["line 6: spec.nodes: 4097 is too large; it must be at most 4096"]),
    "a number in quotes": (a_file('nodes: "2"'), ["line 6: spec.nodes: '2' must be a whole number"]),
    "half a node": (a_file("nodes: 2.5"), ["line 6: spec.nodes: 2.5 must be a whole number"]),
    "a truth for a number": (a_file("nodes: yes"), ["line 6: spec.nodes: True must be a whole number"]),
    "a system's port": (
        a_file("network: {masterPort: 80}"),
        ["line 6: spec.network.masterPort: 80 is too small; it must be at least 1024"],
    ),
    "no port": (
        a_file("network: {masterPort: 65536}"),
        ["line 6: spec.network.masterPort: 65536 is too large; it must be at most 65535"],
    ),
    "one port for two": (
        a_file("network: {statusPort: 29502}"),
        ["line 6: spec.network.statusPort: 29502 is already the value of controlPort; ports must differ"],
    ),
    "a port that another has by default": (
        a_file("network: {masterPort: 29501}"),
        ["line 6: spec.network.masterPort: 29501 is already the value of statusPort; ports must differ"],
    ),
    "one port for all": (
        a_file("network:\n  masterPort: 2000\n  statusPort: 2000\n  controlPort: 2000"),
        [
            "line 8: spec.network.statusPort: 2000 is already the value of masterPort; ports must differ",
            "line 9: spec.network.controlPort: 2000 is already the value of masterPort; ports must differ",
        ],
    ),
    "a word that YAML takes for a truth": (
        a_file("preflight: Off"),
        ["line 6: spec.preflight: false is not one of Disabled, Fast, Full; did you mean Disabled?"],
    ),
    "the same in quotes": (
        a_file('preflight: "Off"'),
        ["line 6: spec.preflight: 'Off' is not one of Disabled, Fast, Full; did you mean Disabled?"],
    ),
    "a switch turned on": (
        a_file("network: {policy: on}"),
        ["line 6: spec.network.policy: true is not one of Enabled, Disabled; did you mean Enabled?"],
    ),
    "another word for it": (
        a_file("preflight: none"),
        ["line 6: spec.preflight: 'none' is not one of Disabled, Fast, Full"],
    ),
    "an interval in words": (
        a_file("checkpoint: {path: /runs, everySeconds: often}"),
        ["line 6: spec.checkpoint.everySeconds: 'often' must be a whole number"],
    ),
    "no processes": (
        a_file("procsPerNode: 0"),
        ["line 6: spec.procsPerNode: 0 is too small; it must be at least 1"],
    ),
    "a word in the wrong case": (
        a_file("backend: nccl"),
        ["line 6: spec.backend: 'nccl' is not one of Auto, NCCL, Gloo; did you mean NCCL?"],
    ),
    "a deadline of nothing": (
        a_file("activeDeadlineSeconds: 0"),
        ["line 6: spec.activeDeadlineSeconds: 0 is too small; it must be at least 1"],
    ),
    # names of fields
    "a typo": (a_file("nods: 2"), ["line 6: spec.nods: unknown field; did you mean nodes?"]),
    "another's spelling": (
        a_file("network: {master_port: 2000}"),
        ["line 6: spec.network.master_port: unknown field; did you mean masterPort?"],
    ),
    "an unknown field": (a_file("gpus: 2"), [f"line 6: spec.gpus: unknown field; known here: {KNOWN}"]),
    "a field of spec outside it": (
        a_file().replace("spec:\n", "nodes: 2\nspec:\n", 1),
        ["line 5: nodes: unknown field; known here: apiVersion, kind, metadata, spec, status"],
    ),
    "a typo deep in a struct": (
        a_file("restart:\n  maxRestart: 2"),
        ["line 7: spec.restart.maxRestart: unknown field; did you mean maxRestarts?"],
    ),
    "a typo deep in the pod": (
        a_file(container="comand: [python]"),
        [f"line 11: {TRAINER}.comand: unknown field; did you mean command?"],
    ),
    "a field twice": (
        a_file("nodes: 2\nnodes: 3"),
        ["line 7: spec.nodes: is given twice; the last one would silently win"],
    ),
    # the template
    "a command that is no list": (
        a_file(container="command: python train.py"),
        [f"line 11: {TRAINER}.command: 'python train.py' must be a list: [python, train.py]"],
    ),
    "arguments that are no list": (
        a_file(container="args: --lr 0.1 --note 'a b'"),
        [f"line 11: {TRAINER}.args: \"--lr 0.1 --note 'a b'\" must be a list: [--lr, '0.1', --note, a b]"],
    ),
    "a command for a shell": (
        a_file(container="command: cd src && python train.py"),
        [
            (
                f"line 11: {TRAINER}.command: 'cd src && python train.py' must be a list:"
                " [sh, -c, cd src && python train.py]"
            ),
        ],
    ),
    "a command with a quote that does not end": (
        a_file(container="command: echo don't"),
        [f"line 11: {TRAINER}.command: \"echo don't\" must be a list: [sh, -c, echo don't]"],
    ),
    "one where a list of mappings should be": (
        a_file(container="env: DEBUG"),
        [f"line 11: {TRAINER}.env: 'DEBUG' must be a list"],
    ),
    "a number for a string": (
        a_file(container="env:\n  - {name: EPOCHS, value: 3}"),
        [f"line 12: {TRAINER}.env[0].value: 3 must be a string; put it in quotes"],
    ),
    "no trainer": (
        a_file().replace("name: trainer", "name: main"),
        [
            (
                "line 8: spec.template.spec.containers: needs a container named trainer, which runs the training; "
                "it has main"
            ),
        ],
    ),
    "no template": (
        HEAD + "  nodes: 2\n",
        [
            "line 5: spec.template.spec.containers: needs a container named trainer, which runs the training",
            (
                "line 5: spec.template: is missing: "
                "Pod template of every node, with a container named `trainer` that runs the training."
            ),
        ],
    ),
    "two trainers": (
        a_file(pod="  - name: trainer\n    image: other:1"),
        ["line 11: spec.template.spec.containers[1].name: trainer is used twice; names must differ"],
    ),
    "a variable of the contract": (
        a_file(container="env:\n  - name: RANK\n    value: '0'"),
        [f"line 12: {TRAINER}.env[0].name: RANK is set by DDPJob itself; remove it"],
    ),
    "a variable of the contract in a sidecar": (
        a_file(pod="  - name: sidecar\n    image: side:1\n    env: [{name: MASTER_ADDR, value: x}]"),
        ["line 13: spec.template.spec.containers[1].env[0].name: MASTER_ADDR is set by DDPJob itself; remove it"],
    ),
    "a variable of the contract before the start": (
        a_file(pod="initContainers:\n  - name: fetch\n    image: fetch:1\n    env: [{name: DDPJOB_UID, value: x}]"),
        ["line 14: spec.template.spec.initContainers[0].env[0].name: DDPJOB_UID is set by DDPJob itself; remove it"],
    ),
    "a variable twice": (
        a_file(container="env:\n  - {name: A, value: a}\n  - {name: A, value: b}"),
        [f"line 13: {TRAINER}.env[1].name: A is used twice; names must differ"],
    ),
    "a restart policy": (
        a_file(pod="restartPolicy: OnFailure"),
        [
            (
                "line 11: spec.template.spec.restartPolicy: 'OnFailure' must be Never: "
                "DDPJob restarts the gang as a whole (spec.restart)"
            ),
        ],
    ),
    "a hostname": (
        a_file(pod="hostname: me"),
        ["line 11: spec.template.spec.hostname: is set by DDPJob itself; remove it"],
    ),
    "a label of ours": (
        a_file().replace("  template:\n", "  template:\n    metadata: {labels: {ddpjob.dev/node: '3'}}\n"),
        ["line 7: spec.template.metadata.labels.ddpjob.dev/node: ddpjob.dev/ is reserved for DDPJob; choose another"],
    ),
    "a volume of ours": (
        a_file(pod="volumes:\n  - name: ddpjob-shm\n    emptyDir: {}"),
        ["line 12: spec.template.spec.volumes[0].name: ddpjob- is reserved for DDPJob; choose another name"],
    ),
    "nine containers": (
        a_file(pod="".join(f"  - {{name: side-{n}, image: side:1}}\n" for n in range(8))),
        ["line 8: spec.template.spec.containers: has 9 entries; at most 8 are allowed"],
    ),
    "257 variables": (
        a_file(container="env:\n" + "".join(f"  - {{name: V{n}, value: a}}\n" for n in range(257))),
        [f"line 11: {TRAINER}.env: has 257 entries; at most 256 are allowed"],
    ),
    "half a GPU": (
        a_file(container="resources:\n  limits:\n    nvidia.com/gpu: '0.5'"),
        [f"line 13: {TRAINER}.resources.limits.nvidia.com/gpu: '0.5' must be a whole number of GPUs, at most 64"],
    ),
    "a word for GPUs": (
        a_file(container="resources:\n  limits:\n    nvidia.com/mig-1g.5gb: one"),
        [
            (
                f"line 13: {TRAINER}.resources.limits.nvidia.com/mig-1g.5gb: 'one' must be a whole number of GPUs, "
                "at most 64"
            ),
        ],
    ),
    "more GPUs than a node may have processes": (
        a_file(container="resources:\n  limits:\n    nvidia.com/gpu: 65"),
        [f"line 13: {TRAINER}.resources.limits.nvidia.com/gpu: 65 must be a whole number of GPUs, at most 64"],
    ),
    "a grace period without an end": (
        a_file(pod="terminationGracePeriodSeconds: 9223372036854775807"),
        [
            (
                "line 11: spec.template.spec.terminationGracePeriodSeconds: 9223372036854775807 is too large; "
                "it must be at most 31622400"
            ),
        ],
    ),
    "claimed devices and no number": (
        a_file(container="resources: {claims: [{name: gpus}]}"),
        ["line 5: spec.procsPerNode: is missing; give a number, because claimed devices cannot be counted"],
    ),
    # checkpoint and restart
    "the root as checkpoint path": (
        a_file("checkpoint:\n  path: //"),
        [(f"line 7: spec.checkpoint.path: '//' does not have the right form: {CHECKPOINTS}")],
    ),
    "a relative checkpoint path": (
        a_file("checkpoint:\n  path: runs"),
        [
            (f"line 7: spec.checkpoint.path: 'runs' does not have the right form: {CHECKPOINTS}"),
        ],
    ),
    "a URL with credentials, which are not repeated": (
        a_file("checkpoint:\n  path: s3://me:wJalrXUtnFEMI@bucket/runs"),
        [
            (
                "line 7: spec.checkpoint.path: must be an absolute path, or a URL such as s3://BUCKET/PATH, "
                "gs://BUCKET/PATH or az://CONTAINER/PATH, without user, password or query: credentials come from "
                "environment variables or, on a cluster, a service account"
            )
        ],
    ),
    "a local copy of half a byte": (
        a_file("checkpoint:\n  path: /runs\n  localCopySizeLimit: 500m"),
        [f"line 8: spec.checkpoint.localCopySizeLimit: '500m' does not have the right form: {LOCAL_COPIES}"],
    ),
    "a checkpoint nowhere": (
        a_file("checkpoint:\n  keep: 2"),
        [
            (f"line 6: spec.checkpoint.path: is missing: {CHECKPOINTS}"),
        ],
    ),
    "two intervals": (
        a_file("checkpoint:\n  path: /runs\n  everySteps: 5\n  everySeconds: 5"),
        [
            (
                "line 6: spec.checkpoint: has everySteps and everySeconds; at most one of interval, everySteps, "
                "everySeconds is allowed"
            )
        ],
    ),
    "three intervals": (
        a_file("checkpoint:\n  path: /runs\n  everySteps: 5\n  everySeconds: 5\n  interval: Auto"),
        [
            (
                "line 6: spec.checkpoint: has interval and everySteps and everySeconds; at most one of interval, "
                "everySteps, everySeconds is allowed"
            )
        ],
    ),
    "two volumes in one": (
        a_file("checkpoint:\n  path: /runs\n  volume: {emptyDir: {}, hostPath: {path: /x}}"),
        ["line 8: spec.checkpoint.volume: has emptyDir, hostPath; at most 1 of them is allowed"],
    ),
    "a volume of nothing": (
        a_file("checkpoint:\n  path: /runs\n  volume: {}"),
        ["line 8: spec.checkpoint.volume: is empty: Where a volume's data is: exactly one of the fields."],
    ),
    "a mount of a volume that is named otherwise": (
        a_file(
            container="volumeMounts:\n  - {name: date, mountPath: /data}",
            pod="volumes:\n  - {name: data, emptyDir: {}}\n  - {name: logs, emptyDir: {}}",
        ),
        [f"line 12: {TRAINER}.volumeMounts[0].name: date is not a volume of the template; it has data, logs"],
    ),
    "a mount where there are no volumes": (
        a_file(container="volumeMounts:\n  - {name: date, mountPath: /data}"),
        [f"line 12: {TRAINER}.volumeMounts[0].name: date is not a volume of the template"],
    ),
    "two volumes at one place": (
        a_file(
            "checkpoint:\n  path: /runs\n  volume: {emptyDir: {}}",
            container="volumeMounts:\n  - {name: mine, mountPath: /runs/}",
            pod="volumes:\n  - {name: mine, emptyDir: {}}",
        ),
        [
            (
                f"line 15: {TRAINER}.volumeMounts[0].mountPath: is where spec.checkpoint.volume is mounted already; "
                "remove one of them"
            ),
        ],
    ),
    "a first wait longer than the longest": (
        a_file("restart: {backoffSeconds: 301}"),
        ["line 6: spec.restart.backoffSeconds: 301 is more than maxBackoffSeconds (300)"],
    ),
    # restart rules
    "a rule without anything to match": (
        a_file("restart:\n  rules:\n    - action: Fail"),
        ["line 8: spec.restart.rules[0]: matches nothing; give one of exitCodes, signals, causes"],
    ),
    "a rule without an action": (
        a_file("restart:\n  rules:\n    - causes: [Preempted]"),
        [
            (
                "line 8: spec.restart.rules[0].action: is missing: Restart: the gang starts again, "
                "which counts. RestartFree: it starts again, which does not count. Fail: the job fails."
            ),
        ],
    ),
    "a rule with a typo": (
        a_file("restart:\n  rules:\n    - {exitCode: [3], causes: [NodeLost], action: Fail}"),
        ["line 8: spec.restart.rules[0].exitCode: unknown field; did you mean exitCodes?"],
    ),
    "an exit code of nobody": (
        a_rule("exitCodes: {operator: In, values: [256]}"),
        ["line 8: spec.restart.rules[0].exitCodes.values[0]: 256 is too large; it must be at most 255"],
    ),
    "the exit code of success": (
        a_rule("exitCodes: {operator: In, values: [3, 0]}"),
        ["line 8: spec.restart.rules[0].exitCodes.values[1]: 0 is too small; it must be at least 1"],
    ),
    "an exit code that is no list": (
        a_rule("exitCodes: {operator: In, values: 3}"),
        ["line 8: spec.restart.rules[0].exitCodes.values: 3 must be a list: [3]"],
    ),
    "an exit code twice": (
        a_rule("exitCodes: {operator: In, values: [3, 7, 3]}"),
        ["line 8: spec.restart.rules[0].exitCodes.values: has 3 twice; values must differ"],
    ),
    "a range of exit codes": (
        a_rule("exitCodes: {operator: NotIn, values: [64-78]}"),
        ["line 8: spec.restart.rules[0].exitCodes.values[0]: '64-78' must be a whole number"],
    ),
    "exit codes without an operator": (
        a_rule("exitCodes: {values: [3]}"),
        [f"line 8: spec.restart.rules[0].exitCodes.operator: is missing: {OPERATOR}"],
    ),
    "the name that a Job has for exit codes": (
        a_rule("onExitCodes: {operator: In, values: [3]}, causes: [NodeLost]"),
        ["line 8: spec.restart.rules[0].onExitCodes: unknown field; did you mean exitCodes?"],
    ),
    "a signal without its first letters": (
        a_rule("signals: [SEGV]"),
        [
            (
                f"line 8: spec.restart.rules[0].signals[0]: 'SEGV' is not one of {', '.join(Signal)}; "
                "did you mean SIGSEGV?"
            )
        ],
    ),
    "a cause that is none": (
        a_rule("causes: [OutOfMemory, Bad]"),
        [f"line 8: spec.restart.rules[0].causes[1]: 'Bad' is not one of {', '.join(Cause)}"],
    ),
    "an empty list of causes": (
        a_rule("causes: [], signals: [SIGBUS]"),
        [
            (
                "line 8: spec.restart.rules[0].causes: is empty: "
                "Why the rank failed, as in `status.incidents[0].cause`."
            ),
        ],
    ),
    "21 rules": (
        a_file("restart:\n  rules:\n" + "    - {causes: [NodeLost], action: Fail}\n" * 21),
        ["line 7: spec.restart.rules: has 21 entries; at most 20 are allowed"],
    ),
    "fewer disruptions than none": (
        a_file("restart: {maxDisruptions: -1}"),
        ["line 6: spec.restart.maxDisruptions: -1 is too small; it must be at least 0"],
    ),
    # the end, and what comes after it
    "a start deadline of nothing": (
        a_file("startDeadlineSeconds: 0"),
        ["line 6: spec.startDeadlineSeconds: 0 is too small; it must be at least 1"],
    ),
    "a timeout of nothing": (
        a_file("scheduleTimeoutSeconds: 0\nfinishTimeoutSeconds: 0"),
        [
            "line 6: spec.scheduleTimeoutSeconds: 0 is too small; it must be at least 1",
            "line 7: spec.finishTimeoutSeconds: 0 is too small; it must be at least 1",
        ],
    ),
    "a time that is over before the end": (
        a_file("ttlSecondsAfterFinished: -1"),
        ["line 6: spec.ttlSecondsAfterFinished: -1 is too small; it must be at least 0"],
    ),
    "a policy of another operator": (
        a_file("cleanPodPolicy: running"),
        ["line 6: spec.cleanPodPolicy: 'running' is not one of None, Running, All; did you mean Running?"],
    ),
    "another rank's success": (
        a_file("successPolicy: RankOne"),
        ["line 6: spec.successPolicy: 'RankOne' is not one of AllRanks, RankZero; did you mean RankZero?"],
    ),
    "a manager without a prefix": (
        a_file("managedBy: kueue"),
        [
            (
                "line 6: spec.managedBy: 'kueue' does not have the right form: The controller that manages the "
                "job: a name with a prefix, such as `example.com/other`. With any name but `ddpjob.dev/operator`, "
                "the operator leaves the job alone. It can never be changed."
            ),
        ],
    ),
    # elastic
    "fewer nodes than it may have": (
        a_file("nodes: 1\nelastic: {minNodes: 2}"),
        ["line 6: spec.nodes: 1 is less than elastic.minNodes (2)"],
    ),
    "more nodes than it may have": (
        a_file("nodes: 4\nelastic: {maxNodes: 3}"),
        ["line 6: spec.nodes: 4 is more than elastic.maxNodes (3)"],
    ),
    "no node at least": (
        a_file("elastic: {minNodes: 0}"),
        ["line 6: spec.elastic.minNodes: 0 is too small; it must be at least 1"],
    ),
    "no time to find a place": (
        a_file("elastic: {shrinkAfterSeconds: 0}"),
        ["line 6: spec.elastic.shrinkAfterSeconds: 0 is too small; it must be at least 1"],
    ),
    # the object itself
    "another version": (
        a_file().replace("v1alpha2", "v1"),
        ["line 1: apiVersion: 'ddpjob.dev/v1' must be ddpjob.dev/v1alpha2"],
    ),
    "no name": (
        a_file().replace("  name: digits", "  labels: {a: b}"),
        [f"line 3: metadata.name: is missing: {NAME}"],
    ),
    "capitals in the name": (
        a_file().replace("name: digits", "name: Digits"),
        [f"line 4: metadata.name: 'Digits' {NOT_A_NAME}"],
    ),
    "a digit at the start of the name": (
        a_file().replace("name: digits", "name: 1st"),
        [f"line 4: metadata.name: '1st' {NOT_A_NAME}"],
    ),
    "a name that is too long": (
        a_file().replace("name: digits", "name: " + "a" * 53),
        [f"line 4: metadata.name: '{'a' * 53}' {NOT_A_NAME}"],
    ),
    "a date without quotes": (
        a_file(container="env: [{name: SINCE, value: 2026-01-31}]"),
        ["line 11: spec.template.spec.containers[0].env[0].value: 2026-01-31 must be a string; put it in quotes"],
    ),
    "a spec that is none": (
        HEAD.replace("spec:", "spec: 3"),
        [
            "line 5: spec.template.spec.containers: needs a container named trainer, which runs the training",
            "line 5: spec: 3 must be a mapping",
        ],
    ),
    # all of them together
    "four mistakes": (
        a_file("nodes: 0\nbackend: Mpi\ncheckpoint: {path: runs}", container="env: [{name: RANK, value: 0}]"),
        [
            "line 6: spec.nodes: 0 is too small; it must be at least 1",
            "line 7: spec.backend: 'Mpi' is not one of Auto, NCCL, Gloo",
            (f"line 8: spec.checkpoint.path: 'runs' does not have the right form: {CHECKPOINTS}"),
            f"line 14: {TRAINER}.env[0].name: RANK is set by DDPJob itself; remove it",
            f"line 14: {TRAINER}.env[0].value: 0 must be a string; put it in quotes",
        ],
    ),
}


@pytest.mark.parametrize(("text", "expected"), PROBLEMS.values(), ids=PROBLEMS)
def test_the_mistakes_of(text: str, expected: list[str]) -> None:
    assert complaints(text) == expected


def test_a_name_cannot_end_in_a_line_break() -> None:
    text = a_file().replace("name: digits", 'name: "digits\\n"')
    assert complaints(text) == [f"line 4: metadata.name: 'digits\\n' {NOT_A_NAME}"]


ONE = "job.yaml must hold exactly one object of kind DDPJob, but holds"
FILES: dict[str, tuple[str, str]] = {
    "nothing": ("", f"{ONE} nothing"),
    "only comments": ("# later\n---\n", f"{ONE} nothing"),
    "another kind": ("kind: Pod\n", f"{ONE} Pod"),
    "other kinds": ("kind: Pod\n---\nkind: Service\n", f"{ONE} Pod, Service"),
    "a kind in the wrong case": ("kind: ddpjob\n", f"{ONE} ddpjob"),
    "a mapping without a kind": ("nodes: 2\n", f"{ONE} a mapping without kind"),
    "a list": ("- kind: DDPJob\n", f"{ONE} a list"),
    "a word": ("hello\n", f"{ONE} plain text"),
    "two jobs": (f"{a_file()}---\n{a_file()}", f"{ONE} DDPJob, DDPJob"),
    "a PyTorchJob": (
        "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n",
        (
            f"{ONE} PyTorchJob; as a DDPJob, its Master and Workers are spec.nodes, nprocPerNode is"
            " spec.procsPerNode, and the Worker's template is spec.template, with its container named trainer"
        ),
    ),
    "a TrainJob": (
        "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\n",
        (
            f"{ONE} TrainJob; as a DDPJob, its trainer.numNodes is spec.nodes, trainer.numProcPerNode is"
            " spec.procsPerNode, and image, command, args and env are those of the container named trainer in"
            " spec.template"
        ),
    ),
    "a batch Job": (
        "apiVersion: batch/v1\nkind: Job\n---\nkind: Service\n",
        (
            f"{ONE} Job, Service; as a DDPJob, the Job's completions are spec.nodes, backoffLimit is"
            " spec.restart.maxRestarts, and template is spec.template, with its container named trainer"
        ),
    ),
    "somebody else's Job": ("apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\n", f"{ONE} Job"),
    "a bracket that is not closed": (
        "kind: DDPJob\nspec: [1\n",
        "job.yaml is not YAML: line 3: expected ',' or ']', but got '<stream end>'",
    ),
    "a tab": (
        "spec:\n\tnodes: 1\n",
        "job.yaml is not YAML: line 2: found character '\\t' that cannot start any token",
    ),
    "a key that cannot be one": ("kind: DDPJob\n? [a]\n: b\n", "job.yaml is not YAML: line 2: found unhashable key"),
    "a part that holds itself": (
        "kind: DDPJob\nspec: &all\n  template: *all\n",
        "job.yaml is nested too deeply, or an alias in it refers to a part that contains the alias",
    ),
    "aliases of aliases": (
        "a: &a [1,1,1,1,1,1,1,1,1,1]\n"
        + "".join(f"{x}: &{x} [{','.join([f'*{y}'] * 10)}]\n" for y, x in pairwise("abcdefghij")),
        "job.yaml has more than 100000 values after its aliases are expanded",
    ),
    "more than any object has": (
        "#" * (4 << 20) + "#",
        "job.yaml is larger than 4 MiB; an API server accepts no object of this size",
    ),
    "five hundred brackets": (
        "kind: DDPJob\nspec: " + "[" * 500 + "]" * 500,
        "job.yaml is nested too deeply, or an alias in it refers to a part that contains the alias",
    ),
}


@pytest.mark.parametrize(("text", "expected"), FILES.values(), ids=FILES)
def test_a_file_that_holds(text: str, expected: str) -> None:
    assert complaint(text) == expected


def test_a_file_is_read_up_to_its_limit_and_never_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text := a_file(""))
    monkeypatch.setattr(job_file, "LONGEST_TEXT", len(text))
    assert read(file).job.metadata.name == "digits"
    file.write_text(f"{text}#")
    with pytest.raises(BadInputError, match="an API server accepts no object of this size"):
        read(file)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"cannot read .*none\.yaml: No such file or directory"):
        read(tmp_path / "none.yaml")


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"cannot read .*: Is a directory"):
        read(tmp_path)


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(a_file("# größer").encode("latin-1"))
    with pytest.raises(BadInputError, match=r"cannot read .*job\.yaml: it is not UTF-8 text"):
        read(tmp_path / "job.yaml")


def test_lines_are_those_of_the_file_not_of_the_document() -> None:
    assert complaints("kind: ConfigMap\n---\n" + a_file("nodes: 0")) == [
        "line 8: spec.nodes: 0 is too small; it must be at least 1"
    ]


def test_the_template_of_these_tests_is_valid() -> None:
    assert complaint(HEAD + TEMPLATE) == ""
