"""Recognises secrets by the names of files, variables and options, and by the form of the secrets themselves.

These lists decide which files may be sent to a cluster, and what is masked in a report. All patterns match in time
that is linear in the length of the text.
"""

import re
from collections.abc import Iterable, Iterator
from fnmatch import translate

FOLDERS = frozenset(
    (
        *(".ssh", ".gnupg", ".password-store", ".aws", ".azure", ".gcloud", "gcloud", ".oci", ".kube", ".docker"),
        *(".kaggle", ".huggingface", ".terraform", ".pulumi", ".vagrant"),
    )
)
"""The names of folders that contain secrets, in lower case, like all names below."""

OF_SECRETS = "secrets"
"""The name of folders in which all files except programs are secret."""

FILES = (
    *(".env", ".env.*", "*.env", ".envrc"),
    *("*.pem", "*.key", "*.p8", "*.p12", "*.pfx", "*.pkcs12", "*.jks", "*.keystore", "*.keytab", "*.kdb", "*.kdbx"),
    *("*.ppk", "*.agekey", "*.ovpn", "secring.*", "krb5cc_*", "ssh_host_*_key", "*_rsa", "*_ed25519"),
    *("id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*"),
    *("credentials", "credentials.*", "*credentials*.json", "*service[-_]account*.json", "*serviceaccount*.json"),
    *("*firebase-adminsdk*.json", "client_secret*.json", "*.publishsettings", ".s3cfg", ".boto", ".passwd-s3fs"),
    *("kaggle.json", "stored_tokens", ".databrickscfg", "rclone.conf", ".rclone.conf", "clearml.conf"),
    *(".comet.config", "config.local", "kubeconfig", "kubeconfig.*", "*.kubeconfig"),
    *(".dockercfg", ".dockerconfigjson", "*.tfstate", "*.tfstate.*", "*.tfvars", "*.tfvars.*", ".terraformrc"),
    *(
        "terraform.rc",
        "secret.*",
        "secrets.*",
        "*.secret",
        "*.secrets",
        "*.secret.*",
        "*[-_]secret.*",
        "*[-_]secrets.*",
    ),
    *(".vault-token", ".vault_pass*", "vault_pass*", "token", "token.txt", "token.json", "*.token"),
    *("*api_key*", "*api-key*", "*apikey*", "password*", "passwd", ".netrc", "_netrc", "*.netrc", ".authinfo*"),
    *(".pgpass", "pgpass.conf", ".my.cnf", ".mylogin.cnf", ".pypirc", "pip.conf", "pip.ini", ".npmrc"),
    *(".git-credentials", ".htpasswd", ".htdigest", ".curlrc", ".wgetrc", ".msmtprc", ".*_history"),
)
"""The names of files that contain secrets, as shell patterns."""

NOT_SECRET = (
    *(".env.example", ".env.sample", ".env.template", "*.pub", "*.py", "*.pyi", "*.ipynb"),
    *("*.c", "*.cc", "*.cpp", "*.cu", "*.cuh", "*.h", "*.hpp", "*.go", "*.rs", "*.js", "*.ts", "*.java"),
)
"""The names of files, mostly programs, that are not secret even if FILES matches them. Their text is still searched
for secrets."""

NAMES = (
    r"token(?!i[sz])|secret|passw|passphrase|credential|private|auth(?!or(?!i))"
    r"|(?:api|access|account|client|encryption|signing|license|ssh|session)[-_]?key|connection[-_]?string"
)
"""Parts of the names of variables, options and fields whose values are secret, regardless of case."""
SECRET_NAME = re.compile(NAMES, re.IGNORECASE)


SHAPES = (
    # The pattern includes the body, so that a report masks the whole key, even if its END line is missing.
    (
        "a private key",
        "PRIVATE KEY",
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----[A-Za-z0-9+/=\s\\]{0,65536}",
    ),
    ("a PuTTY private key", "PuTTY-User-Key-File", r"PuTTY-User-Key-File-\d"),
    ("an age private key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[A-Z0-9]{50,80}"),
    ("a key from a kubeconfig", "client-key-data", r"client-key-data:\s{0,8}[A-Za-z0-9+/=]{40,65536}"),
    ("a registry login", '"auth"', r'"auth"\s{0,8}:\s{0,8}"[A-Za-z0-9+/=]{16,4096}"'),
    ("an AWS access key", "AKIA", r"AKIA(?![A-Z0-9]{9}EXAMPLE)[A-Z0-9]{16}"),
    ("an AWS access key", "ASIA", r"ASIA(?![A-Z0-9]{9}EXAMPLE)[A-Z0-9]{16}"),
    ("an Azure account key", "AccountKey=", r"AccountKey=[A-Za-z0-9+/=]{40,200}"),
    ("a Google key", "AIza", r"AIza[\w-]{35}"),
    ("a Google client secret", "GOCSPX-", r"GOCSPX-[\w-]{20,64}"),
    ("a Google token", "ya29.", r"ya29\.[\w-]{20,2048}"),
    ("a Hugging Face token", "hf_", r"hf_[A-Za-z0-9]{30,64}"),
    ("a GitHub token", "gh", r"gh[pousr]_[A-Za-z0-9]{36,255}"),
    ("a GitHub token", "github_pat_", r"github_pat_\w{50,255}"),
    ("a GitLab token", "glpat-", r"glpat-[\w-]{20,255}"),
    ("a Weights & Biases key", "wandb_v1_", r"wandb_v1_[\w-]{20,255}"),
    ("an NVIDIA key", "nvapi-", r"nvapi-[\w-]{40,255}"),
    ("an OpenAI or Anthropic key", "sk-", r"sk-(?:ant-|proj-|svcacct-)?[A-Za-z0-9_-]{32,255}"),
    ("a Replicate token", "r8_", r"r8_[A-Za-z0-9]{37}"),
    ("a Databricks token", "dapi", r"dapi[0-9a-f]{32}"),
    ("a Slack token", "xox", r"xox[abeoprs]-[\w-]{10,255}"),
    ("a Slack webhook", "hooks.slack.com", r"hooks\.slack\.com/services/[\w/]{20,100}"),
    ("a PyPI token", "pypi-AgEI", r"pypi-AgEI[\w-]{40,2048}"),
    ("an npm token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    ("a Docker Hub token", "dckr_pat_", r"dckr_pat_[\w-]{20,100}"),
    ("a Vault token", "hv", r"hv[sbr]\.[\w-]{20,2048}"),
    ("a DigitalOcean token", "dop_v1_", r"dop_v1_[0-9a-f]{64}"),
    ("a SendGrid key", "SG.", r"SG\.[\w-]{16,64}\.[\w-]{16,128}"),
    ("a Stripe key", "k_live_", r"[rs]k_live_[A-Za-z0-9]{16,255}"),
    ("a signed token (JWT)", "eyJ", r"eyJ[\w-]{10,4096}\.eyJ[\w-]{10,4096}\.[\w-]{10,4096}"),
)
"""Kinds of secrets, each with a name, a text that every such secret contains (for a quick search), and a pattern."""


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))


_SECRET, _NOT_SECRET = _any_of(FILES), _any_of(NOT_SECRET)


def names_secrets(path: str, *, is_folder: bool = False) -> bool:
    """Whether the names in the path of a file or folder show that it contains secrets."""
    *above, name = path.lower().split("/")
    if FOLDERS.intersection((*above, name) if is_folder else above):
        return True
    return not is_folder and bool((_SECRET.match(name) or OF_SECRETS in above) and not _NOT_SECRET.match(name))


BEGIN = r"(?<![\w-])"
"""Matches only at the start of a word, so that a long word is not tried again at each of its characters."""

_SHAPES = tuple((kind, hint, re.compile(BEGIN + pattern)) for kind, hint, pattern in SHAPES)
SHAPED = re.compile(BEGIN + "(?:" + "|".join(pattern for _, _, pattern in SHAPES) + ")")
"""Matches a secret of any of these kinds."""

_IN_AN_ADDRESS = re.compile(
    r"://[^\s:/@'\"<>{}$%]{0,64}:(?!(?:pass|passwd|password|pw|pwd|secret|token|[x*.]{1,64})@)[^\s/@'\"<>{}$]{3,256}@"
)
_ASSIGNED = re.compile(
    rf"(?P<name>(?:{NAMES})[\w-]{{0,40}}+)[\"']?\]?\s{{0,4}}(?::\s{{0,4}}[\w.]{{1,30}}\s{{0,4}})?[:=]\s{{0,4}}"
    r"[\"'](?P<value>[^\s\"'${}<>()]{6,512})[\"']",
    re.IGNORECASE,
)
_WRITTEN = re.compile(
    r"^[ \t]{0,64}+(?:- |export[ \t]|set[ \t])?[\w.-]{0,64}?"
    rf"(?P<name>(?:{NAMES})[\w-]{{0,40}}+)[ \t]{{0,8}}[:=][ \t]{{0,8}}"
    r"(?P<value>[^\s\"'${}<>()#,]{6,512})[ \t]{0,8}(?:#[^\n]{0,512})?$",
    re.IGNORECASE | re.MULTILINE,
)
"""Matches a line that sets a value without quotes, as in YAML, INI files or shells. In a program, such a line would
be code."""
_WORD = re.compile(r"[A-Za-z0-9]+")
_LONG = 12
"""Minimum length of a run of mixed letters and digits. Most generated secrets contain a run this long; ordinary words
do not."""


def suspicions(text: str, file: str) -> Iterator[tuple[int, str]]:
    """Yields the number of each line that seems to contain a secret, with the kind of secret, but never its value."""
    for kind, hint, pattern in _SHAPES:
        if hint in text:
            yield from ((_line(text, found), kind) for found in pattern.finditer(text))
    yield from ((_line(text, found), "an address with a password") for found in _IN_AN_ADDRESS.finditer(text))
    is_program = _NOT_SECRET.match(file.lower().rpartition("/")[2])
    for found in (*_ASSIGNED.finditer(text), *(() if is_program else _WRITTEN.finditer(text))):
        if _is_made_up(found["value"], least=1 if found["name"].lower().startswith("passw") else _LONG):
            yield _line(text, found), f"a value for {found['name']}"


def _is_made_up(value: str, least: int) -> bool:
    """Whether a run of at least `least` characters mixes letters and digits, as in `hunter2` but not `bert-base`."""
    return any(len(run) >= least and not (run.isalpha() or run.isdigit()) for run in _WORD.findall(value))


def _line(text: str, found: re.Match[str]) -> int:
    return text.count("\n", 0, found.start()) + 1
