"""What `ddpjob submit SCRIPT` brings to a cluster, from what a person types in their own directory."""

import base64
import io
import zipfile
from pathlib import Path
from typing import Any

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.cli.arguments import parse
from ddpjob_operator.cli.cluster.parcel import Parcel, parcel


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("src").mkdir()
    Path("src/train.py").write_text("import torch, model\nfrom data.sets import mnist\n")
    Path("src/model.py").write_text("")
    Path("elsewhere.py").write_text("")


def submitted(words: str) -> Parcel:
    return parcel(parse(["submit", *words.split()]), "team")


def trainer(made: Parcel) -> dict[str, Any]:
    found: dict[str, Any] = made.document["spec"]["template"]["spec"]["containers"][0]
    return found


COMMANDS = {
    "src/train.py": ["ddpjob-supervise", "train.py"],
    "src/train.py --source .": ["ddpjob-supervise", "src/train.py"],
    "src/train.py --source src": ["ddpjob-supervise", "train.py"],
    "-m model --source src": ["ddpjob-supervise", "-m", "model"],
    "src/train.py --source . --start-method cold": ["ddpjob-supervise", "--start-method", "cold", "src/train.py"],
    "-m only.in.the.image": ["ddpjob-supervise", "-m", "only.in.the.image"],
    "--source src -- torchrun train.py": ["torchrun"],
}


@pytest.mark.parametrize("words", COMMANDS)
def test_a_program_is_found_in_the_pod_where_it_is_unpacked(words: str) -> None:
    made = submitted(words)
    assert trainer(made)["command"][: len(COMMANDS[words])] == COMMANDS[words]
    travels = made.code is not None
    assert (trainer(made).get("workingDir") == "/ddpjob/code") == travels == ("in.the.image" not in words)


def test_the_digest_of_the_code_is_on_the_job_and_on_the_code() -> None:
    made = submitted("src/train.py")
    assert made.code is not None
    annotations = made.document["metadata"]["annotations"]
    assert annotations == made.code["metadata"]["annotations"]
    assert made.document["metadata"]["namespace"] == made.code["metadata"]["namespace"] == "team"


def test_a_script_that_travels_alone_and_needs_what_stays_says_how_to_send_it() -> None:
    assert submitted("src/train.py").told == (
        "packed 1 file, 48 bytes: train.py",
        "src/train.py imports model from its folder, which is not sent; to send it: --source src",
    )
    assert submitted("src/train.py --source src").told == ("packed 2 files, 48 bytes: model.py, train.py",)


def test_what_may_hold_secrets_is_counted_and_named_and_listed_whole_on_demand() -> None:
    for number in range(7):
        Path(f"src/{number}.key").write_text("x")
    Path("src/out").symlink_to("/etc/hostname")
    brief = submitted("src/train.py --source src --env HF_TOKEN=x --env OMP_NUM_THREADS=1").told
    assert brief[1:] == (
        "not packed, because they may hold secrets (7): 0.key, 1.key, 2.key, 3.key, 4.key and 2 more",
        (
            "To send one anyway: --include FILE. Values that only the job should know belong in a Secret:"
            " --env-from SECRET"
        ),
        "not packed: out (a link that leads out of the folder)",
        "To list all of them: --dry-run",
        (
            "everyone who may see the job can read HF_TOKEN; put secret values into a Secret, and name it with"
            " --env-from"
        ),
    )
    whole = submitted("src/train.py --source src --dry-run --include src/3.key").told
    assert "3.key" in whole[0]
    assert whole[1] == "not packed, because they may hold secrets (6): 0.key, 1.key, 2.key, 4.key, 5.key, 6.key"


def test_a_script_that_looks_secret_is_refused_with_its_line_unless_it_is_asked_for() -> None:
    Path("src/train.py").write_text("import os\nAPI_KEY = 'aB3dE6gH9jK2mN5pQ8sT'\n")
    with pytest.raises(BadInputError, match=r"src/train.py, line 2: a value for API_KEY\n.*--include src/train.py"):
        submitted("src/train.py")
    assert files(submitted("src/train.py --include src/train.py")) == ["train.py"]


def files(made: Parcel) -> list[str]:
    assert made.code is not None
    return zipfile.ZipFile(io.BytesIO(base64.b64decode(made.code["binaryData"]["code.zip"]))).namelist()


REQUIREMENTS = {
    "src/train.py": ["requirements.txt", "train.py"],
    "-m only.in.the.image": ["requirements.txt"],
    "src/train.py --source .": ["elsewhere.py", "requirements.txt", "src/model.py", "src/train.py"],
}


@pytest.mark.parametrize("words", REQUIREMENTS)
def test_a_requirements_file_travels_with_the_program_or_alone(words: str) -> None:
    Path("requirements.txt").write_text("timm==1.0 --hash=sha256:0\n--index-url https://me:${TOKEN}@example.com/\n")
    made = submitted(f"{words} --pip einops -r requirements.txt")
    assert files(made) == REQUIREMENTS[words]
    install = made.document["spec"]["template"]["spec"]["initContainers"][-1]
    assert install["args"] == ["einops", "--requirement", "/ddpjob/code/requirements.txt"]
    assert (trainer(made).get("workingDir") == "/ddpjob/code") == ("in.the.image" not in words)
    assert submitted(f"{words} --pip einops -r requirements.txt") == made, "the same words, the same job"
    Path("requirements.txt").write_text("timm==2.0\n")
    assert submitted(f"{words} --pip einops -r requirements.txt").code != made.code


def test_gpus_become_processes_of_a_launcher_too() -> None:
    made = submitted("--source src --nodes 2 --gpus-per-node 4 -- accelerate launch train.py")
    assert made.document["spec"]["procsPerNode"] == 4


MISTAKES = {
    "elsewhere.py --source src": "elsewhere.py is not in the --source folder src",
    "missing.py": "there is no missing.py in ",
    "-- torchrun elsewhere.py": "elsewhere.py would not be sent; to send it with its folder: --source .",
    "src/train.py --checkpoint /ckpt": "--checkpoint /ckpt: must be CLAIM:/path",
    "src/train.py --env SEED": "--env SEED: must be NAME=VALUE",
    "src/train.py --name Train": "--name: 'Train' must be at most 52 lower-case letters",
    "src/train.py --pip=-rlocked.txt": "--pip -rlocked.txt: put pip's options into a file",
    "src/train.py --pip ./src": "--pip ./src: must be a package as pip takes it",
    "src/train.py --pip a@https://me:x@example.com/a.whl": "--pip has an address with a password; write ${NAME} in",
    "src/train.py --pip a@https://me:x/y@example.com/a.whl": "--pip has an address with a password",
    "src/train.py --pip=-ihttps://me:x@example.com": "--pip has an address with a password",
    "src/train.py --pip a@https://${token}@example.com/a.whl": "--pip has an address with a password",
    "src/train.py -r secret.txt": "--requirements secret.txt has an address with a password; write ${NAME} in",
    "src/train.py -r missing.txt": "cannot read missing.txt: No such file or directory",
    "src/train.py -r parts.txt": "parts.txt names more.txt, which would not be sent; to send the folder: --source .",
    "src/train.py --source src -r parts.txt": "parts.txt is not in the --source folder src",
    "src/train.py --source src -r src/no.txt": "--requirements src/no.txt: there is no such file",
    "src/train.py --source src -r src/.env": "--requirements src/.env: it would not be sent: .gitignore",
    "src/train.py --gpus-per-node 100": "must be a whole number of GPUs, at most 64",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_told_with_what_would_be_right(words: str) -> None:
    Path("secret.txt").write_text("--index-url https://hush@example.com/simple\n")
    Path("parts.txt").write_text("einops\n-r more.txt\n")
    Path("src/.env").write_text("")
    with pytest.raises(BadInputError) as error:
        submitted(words)
    assert MISTAKES[words] in str(error.value)
