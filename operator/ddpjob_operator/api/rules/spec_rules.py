"""The rules, each with its CEL, its check in Python and its message side by side."""

from ddpjob_operator.api.causes import Cause
from ddpjob_operator.api.contract import (
    CODE_VOLUME,
    CONTRACT_VARIABLES,
    FORMER_VERSION,
    GPU_RESOURCES,
    GROUP,
    MAX_CONTAINERS,
    MAX_ENV,
    MAX_NAME_LENGTH,
    MAX_PROCS_PER_NODE,
    RESERVED_VOLUME_PREFIX,
    SET_BY_US,
    TRAINER_CONTAINER,
)
from ddpjob_operator.api.restart import RestartAction
from ddpjob_operator.api.schema import NAME_FORM, NAME_PATTERN
from ddpjob_operator.api.spec import STORE_URL

from . import checks
from .record import FIXED_FOR_EVER, Fixed, Rule, Together

POD = "spec.template.spec"
METADATA = "spec.template.metadata"
RESTART_RULES = "spec.restart.rules[]"
CONTAINERS = f"{POD}.containers"
SCHEDULING = "spec.scheduling"
NETWORK = "spec.network"
CHECKPOINT, HISTORY = "spec.checkpoint", "spec.history"

OF_THE_CRD = "the CRD's own bounds refuse it"
OF_THE_POD = "its pods are refused: the job is Blocked, with reason Invalid"

_NAMES = "[" + ", ".join(f"'{name}'" for name in sorted(CONTRACT_VARIABLES)) + "]"
_IS_GPU = " || ".join(f"k.startsWith('{gpu}')" if gpu.endswith("-") else f"k == '{gpu}'" for gpu in GPU_RESOURCES)


def _few_gpus(amount: str) -> str:
    """Returns the CEL check that an amount is a whole number of GPUs, at most MAX_PROCS_PER_NODE."""
    small = f"{amount}.matches('^[0-9]{{1,4}}$') && int({amount}) <= {MAX_PROCS_PER_NODE}"
    return f"(type({amount}) == int ? {amount} >= 0 && {amount} <= {MAX_PROCS_PER_NODE} : {small})"


IS_FORMER = f"self.?status.?bookkeeping.?version.orValue('') == '{FORMER_VERSION}'"
"""A CEL expression: true if the spec is of a former version, in which fields had other types. Such a job never runs
again."""

# The API server checks all rules at each write of a job, even of its status. A rule at an unset field costs nothing.
# But each step of a path in CEL copies the schemas of all possible fields, which are 43 in a pod. So `at` is as deep
# as possible, ideally a single value.
RULES: tuple[Rule, ...] = (
    Rule(
        "metadata.name",
        "a name that cannot be part of the names of pods and of the Service",
        f"{{it}} must be {NAME_FORM}, because names in Kubernetes begin with it",
        checks.job_name,
        f"self.metadata.name.size() <= {MAX_NAME_LENGTH} && self.metadata.name.matches('{NAME_PATTERN}')",
        general={"it": "metadata.name"},
    ),
    Rule(
        RESTART_RULES,
        "a restart rule without anything to match",
        f"matches nothing; give one of {', '.join(checks.RULE_MATCHES)}",
        checks.matching_rules,
        f"{IS_FORMER} || !has(self.spec.restart.rules) || self.spec.restart.rules.all(rule, "
        f"{' || '.join(f'has(rule.{field})' for field in checks.RULE_MATCHES)})",
    ),
    Rule(
        f"{RESTART_RULES}.action",
        "an action other than Fail for attempts that start over",
        f"must be {RestartAction.FAIL} in a rule for {Cause.STARTED_OVER}, because the attempt has already started "
        "over",
        checks.forbidden_beginnings,
        f"!has(self.causes) || !('{Cause.STARTED_OVER}' in self.causes) || self.action == '{RestartAction.FAIL}'",
        RESTART_RULES,
    ),
    *(
        Rule(
            f"{METADATA}.{kind}",
            f"{kind} that only DDPJob may set",
            f"{GROUP}/ is reserved for DDPJob; choose another",
            checks.reserved_keys(kind),
            f"self.all(key, !key.startsWith('{GROUP}/'))",
            f"{METADATA}.{kind}",
        )
        for kind in ("labels", "annotations")
    ),
    Rule(
        CONTAINERS,
        "a template without a trainer",
        f"needs a container named {TRAINER_CONTAINER}, which runs the training{{have}}",
        checks.trainer_container,
        f"self.exists_one(c, c.name == '{TRAINER_CONTAINER}')",
        CONTAINERS,
    ),
    *(
        Rule(
            f"{POD}.{kind}[].env[].name",
            "variables of the contract",
            SET_BY_US,
            checks.contract_variables(kind),
            f"!(self in {_NAMES})",
            f"{POD}.{kind}[].env[].name",
            {"it": "a variable of the contract between DDPJob and its pods (MASTER_ADDR, RANK, DDPJOB_NAME, …)"},
        )
        for kind in ("containers", "initContainers")
    ),
    *(
        Rule(
            f"{CONTAINERS}[].resources.{kind}",
            f"{kind} with an unknown number of GPUs: each GPU gets a process, so the number has to be known",
            f"{{it}} must be a whole number of GPUs, at most {MAX_PROCS_PER_NODE}",
            checks.whole_gpus(kind),
            f"self.all(k, !({_IS_GPU}) || {_few_gpus('self[k]')})",
            f"{CONTAINERS}[].resources.{kind}",
            {"it": f"a container's {kind}"},
        )
        for kind in ("requests", "limits")
    ),
    Rule(
        f"{POD}.volumes[].name",
        "volumes that only DDPJob may add",
        f"{RESERVED_VOLUME_PREFIX} is reserved for DDPJob; choose another name",
        checks.reserved_volumes,
        f"!self.startsWith('{RESERVED_VOLUME_PREFIX}')",
        f"{POD}.volumes[].name",
    ),
    *(
        Rule(
            f"{POD}.{name}",
            "a name for the pods",
            "is set by DDPJob itself; remove it",
            checks.operators_field(name),
            "false",
            f"{POD}.{name}",
        )
        for name in ("hostname", "subdomain")
    ),
    Rule(
        f"{POD}.restartPolicy",
        "restarts of single containers",
        "{it} must be Never: DDPJob restarts the gang as a whole (spec.restart)",
        checks.restart_policy,
        "self == 'Never'",
        f"{POD}.restartPolicy",
    ),
    *(
        Rule(
            f"{CONTAINERS}[].{field}",
            "restarts of the trainer by the kubelet, which DDPJob would not notice; others may be restarted",
            "restarts only the trainer; remove it: DDPJob restarts the gang as a whole (spec.restart)",
            checks.trainer_restarts(field, *harmless),
            " || ".join(
                (
                    f"self.name != '{TRAINER_CONTAINER}'",
                    f"!has(self.{field})",
                    *(f"self.{field} == '{value}'" for value in harmless),
                )
            ),
            f"{CONTAINERS}[]",
        )
        for field, harmless in (("restartPolicy", ("Never",)), ("restartPolicyRules", ()))
    ),
    Rule(
        "spec.procsPerNode",
        "a missing number of processes, if the trainer claims devices",
        "is missing; give a number, because claimed devices cannot be counted",
        checks.counted_devices,
        "has(self.procsPerNode) || self.template.spec.containers.all(c, !has(c.resources) || "
        f"!has(c.resources.claims) || c.resources.claims.size() == 0 || c.name != '{TRAINER_CONTAINER}')",
        "spec",
    ),
    Rule(
        CHECKPOINT,
        "more than one interval",
        f"{{given}}at most one of {', '.join(checks.INTERVALS)} is allowed",
        checks.one_interval,
        f"{IS_FORMER} || !has(self.spec.checkpoint) || "
        f"[{', '.join(f'has(self.spec.checkpoint.{field})' for field in checks.INTERVALS)}]"
        ".filter(given, given).size() <= 1",
    ),
    *(
        Rule(
            f"{field}.path",
            "a URL with credentials, or of something else than a place in an object store",
            "must be an absolute path, or a URL such as s3://BUCKET/PATH, gs://BUCKET/PATH or az://CONTAINER/PATH, "
            "without user, password or query: credentials come from environment variables or, on a cluster, a "
            "service account",
            check,
            f"{unset}!self.path.contains('://') || self.path.matches(r'^{STORE_URL}$')",
            field,
        )
        for field, check, unset in (
            (CHECKPOINT, checks.checkpoint_url, ""),
            (HISTORY, checks.history_url, "!has(self.path) || "),
        )
    ),
    Rule(
        f"{CHECKPOINT}.volume",
        "a volume for checkpoints in an object store",
        "is for a directory, but spec.checkpoint.path is a URL; remove the volume",
        checks.volume_for_directory,
        "!has(self.volume) || !self.path.contains('://')",
        CHECKPOINT,
    ),
    Rule(
        "spec.restart.backoffSeconds",
        "an initial wait that is longer than the maximum",
        "{it} is more than maxBackoffSeconds{bound}",
        checks.ordered_backoff,
        "self.backoffSeconds <= self.maxBackoffSeconds",
        "spec.restart",
    ),
    Rule(
        f"{NETWORK}.statusPort",
        "one port for two servers",
        "{it} is already the value of {other}; ports must differ",
        checks.different_ports("masterPort", "statusPort"),
        "self.masterPort != self.statusPort",
        NETWORK,
        {"other": "masterPort"},
    ),
    Rule(
        f"{NETWORK}.controlPort",
        "one port for two servers",
        "{it} is already the value of {other}; ports must differ",
        checks.different_ports("masterPort", "statusPort", "controlPort"),
        "!(self.controlPort in [self.masterPort, self.statusPort])",
        NETWORK,
        {"other": "masterPort or statusPort"},
    ),
    Rule(
        "spec.nodes",
        "fewer nodes than elastic allows",
        "{it} is less than elastic.minNodes{bound}",
        checks.enough_nodes,
        "!has(self.elastic) || self.nodes >= self.elastic.minNodes",
        "spec",
    ),
    Rule(
        "spec.nodes",
        "more nodes than elastic allows",
        "{it} is more than elastic.maxNodes{bound}",
        checks.few_enough_nodes,
        "!has(self.elastic) || !has(self.elastic.maxNodes) || self.nodes <= self.elastic.maxNodes",
        "spec",
    ),
    *(
        Rule(
            f"{SCHEDULING}.{field}",
            "both choices, or neither",
            f"needs exactly one of {' and '.join(choices)}",
            checks.one_choice("spec", "scheduling", field),
            " != ".join(f"has(self.{choice})" for choice in choices),
            f"{SCHEDULING}.{field}",
        )
        for field, choices in (
            ("schedulingPolicy", ("basic", "gang")),
            ("disruptionMode", ("single", "all")),
            ("topology", ("required", "preferred")),
        )
    ),
    Rule(
        f"{SCHEDULING}.schedulingPolicy.gang.minCount",
        "more pods than the job has",
        "{it} is more than nodes{bound}",
        checks.gang_within_nodes,
        "!has(self.scheduling) || self.scheduling.?schedulingPolicy.?gang.?minCount.orValue(0) <= self.nodes",
        "spec",
    ),
    Rule(
        "spec.code",
        "new code for a template that has none",
        f"needs a volume {CODE_VOLUME} in the template, as ddpjob submit adds it",
        checks.replaceable_code,
        "!has(self.code) || (has(self.template.spec.volumes) &&"
        f" self.template.spec.volumes.exists(v, v.name == '{CODE_VOLUME}'))",
        "spec",
    ),
    Rule(
        SCHEDULING,
        "a PodGroup of the operator and one of your own",
        "cannot be set together with template.spec.schedulingGroup, which names a PodGroup of your own; keep one",
        checks.one_group,
        "!has(self.scheduling) || !has(self.template.spec.schedulingGroup)",
        "spec",
    ),
    Rule(
        f"{POD}.initContainers",
        "an init container with the name of a container",
        "{it} is used twice; names must differ",
        checks.shared_names,
        "!has(self.initContainers) || self.initContainers.all(i, !self.containers.exists(c, c.name == i.name))",
        POD,
        {"it": "the name of a container"},
    ),
    Rule(
        POD,
        "one name for two containers, two volumes, or two variables of a container",
        "{it} is used twice; names must differ",
        checks.unique_names,
        beside=OF_THE_CRD,
    ),
    Rule(
        POD,
        "more containers than can be checked",
        f"has {{count}} entries; at most {MAX_CONTAINERS} are allowed",
        checks.few_containers,
        general={"count": "too many"},
        beside=OF_THE_CRD,
    ),
    Rule(
        f"{CONTAINERS}[].env",
        "more variables than can be checked",
        f"has {{count}} entries; at most {MAX_ENV} are allowed",
        checks.few_variables,
        general={"count": "too many"},
        beside=OF_THE_CRD,
    ),
    Rule(
        f"{CONTAINERS}[].volumeMounts[].name",
        "a mount of a volume that does not exist",
        "{it} is not a volume of the template{have}",
        checks.known_volumes,
        beside=OF_THE_POD,
    ),
    Rule(
        f"{CONTAINERS}[].volumeMounts[].mountPath",
        "two volumes at the same path",
        "is where spec.checkpoint.volume is mounted already; remove one of them",
        checks.checkpoint_mount,
        beside=OF_THE_POD,
    ),
)

FIXED: tuple[Fixed, ...] = (
    # `ddpjob run` manages jobs on one machine, whatever the value of this field.
    Fixed("managedBy", FIXED_FOR_EVER, local=False),
    *(Fixed(field) for field in ("template", "procsPerNode", "backend", "network", "checkpoint", "history")),
)
"""The fields whose changes cannot be applied to existing pods, and `managedBy`."""

TOGETHER: tuple[Together, ...] = (
    Together(
        "code",
        f"{{}}.template.spec.volumes.filter(v, v.name == '{CODE_VOLUME}')",
        f"is the code of new pods, and not the volume {CODE_VOLUME} of the template, whose change would be without"
        " effect: remove spec.code with the same change (code: null in a file for kubectl apply)",
    ),
)
"""Fields that would make a change of another part of the spec ineffective. Nobody would notice that."""
