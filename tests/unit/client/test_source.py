"""What of a folder travels with a job, and how it is packed and unpacked."""

import os
import stat
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import pytest
from ddpjob_operator.api import BadInputError
from ddpjob_operator.client import source as sources
from ddpjob_operator.client import unpack as unpacking
from ddpjob_operator.client.archive import IN_A_CONFIG_MAP, File, pack
from ddpjob_operator.client.source import read_file, read_folder

KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\n"


def write(folder: Path, **files: str) -> None:
    """Files by name, with `__` for a slash."""
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def put(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in read_folder(folder).files)


TRAVELS: dict[str, tuple[list[str], str, list[str]]] = {
    "all that is there": (
        ["train.py", "models/net.py", "conf/a.yaml"],
        "",
        ["conf/a.yaml", "models/net.py", "train.py"],
    ),
    "not what git ignores": (["train.py", "data/a.bin", "x.log"], "data/\n*.log\n", ["train.py"]),
    "what git ignores no more": (["a.log", "b.log"], "*.log\n!b.log\n", ["b.log"]),
    "nothing of git, of environments and of caches": (
        ["a.py", ".git/config", ".venv/bin/x", "venv/x", "__pycache__/a.pyc", "ddpjob-runs/a/job.json", "p/.git"],
        "",
        ["a.py"],
    ),
    "an environment by another name": (["a.py", "py311/pyvenv.cfg", "py311/lib/x.py"], "", ["a.py"]),
    "no secrets, whatever git says": (
        ["a.py", ".env", ".env.local", "k/id_rsa", "tls.key", "cert.pem", ".aws/credentials", "kubeconfig"],
        "!.env\n!*.key\n",
        ["a.py"],
    ),
    "what only sounds like one": (
        ["environment.py", "keys.py", "env/model.py"],
        "",
        ["env/model.py", "environment.py", "keys.py"],
    ),
}


@pytest.mark.parametrize(("there", "ignored", "travels"), TRAVELS.values(), ids=TRAVELS)
def test_of_a_folder_travels(tmp_path: Path, there: list[str], ignored: str, travels: list[str]) -> None:
    put(tmp_path, *there)
    if ignored:
        write(tmp_path, **{".gitignore": ignored})
    assert names(tmp_path) == travels


def test_the_gitignore_of_a_folder_within_and_of_the_repository_around_count(tmp_path: Path) -> None:
    put(tmp_path, ".git/config", "job/train.py", "job/big.bin", "job/sub/keep.bin", "job/sub/drop.txt")
    write(tmp_path, **{".gitignore": "*.bin\n/train.py\n", "job__sub__.gitignore": "!keep.bin\ndrop.txt\n"})
    assert names(tmp_path / "job") == ["sub/keep.bin", "train.py"]


def test_what_git_ignores_by_other_lists_does_not_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    put(tmp_path, "config/git/x", ".git/info/x", "job/train.py", "job/mine.txt", "job/ours.txt", "job/all.txt")
    for file, lines in {
        "config/git/ignore": "mine.txt\n",
        ".git/info/exclude": "job/ours.txt\n",
        ".gitignore": "\ufeffall.txt\n",  # An editor's mark, which git passes over.
    }.items():
        (tmp_path / file).write_text(lines, encoding="utf-8")
    assert names(tmp_path / "job") == ["train.py"]


def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "job/train.py")
    refused = PermissionError(13, "Permission denied")
    monkeypatch.setattr("ddpjob_operator.client.source.os.scandir", Mock(side_effect=refused))
    with pytest.raises(BadInputError, match=rf"^cannot read {tmp_path}/job: Permission denied$"):
        names(tmp_path / "job")


LISTS = ("config/git/ignore", ".git/info/exclude", ".gitignore", "outer/.gitignore", "outer/job/.gitignore")
"""Who may say that a file is ignored, the last one first to be heard."""


@pytest.mark.parametrize(("says", "unsays"), list(pairwise(LISTS)))
def test_of_two_lists_the_one_that_is_nearer_decides(
    says: str, unsays: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    put(tmp_path, *LISTS, "outer/job/train.py", "outer/job/a.txt", "outer/job/b.txt")
    for file in LISTS:
        (tmp_path / file).write_text({says: "a.txt\n!b.txt\n", unsays: "!a.txt\nb.txt\n"}.get(file, ""))
    assert names(tmp_path / "outer" / "job") == ["a.txt", "train.py"]


def test_a_pattern_that_takes_for_ever_is_told(tmp_path: Path) -> None:
    write(tmp_path, **{"a.py": "", ".gitignore": "# * * * * * *\n**/*.a*b*.*\n"})
    assert names(tmp_path) == ["a.py"]
    write(tmp_path, **{".gitignore": "sub/*a*a*a*a*b/x\n"})
    with pytest.raises(BadInputError, match=r"\.gitignore: 'sub/\*a\*a\*a\*a\*b/x' has more than 4 stars in a name"):
        read_folder(tmp_path)


def test_a_secret_is_seen_in_the_text_of_windows_too(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"password": "hunter2"}', encoding="utf-16")
    with pytest.raises(BadInputError, match="line 1: a value for password"):
        read_folder(tmp_path)


def test_no_gitignore_beyond_the_repository_counts(tmp_path: Path) -> None:
    put(tmp_path, "repository/.git/config", "repository/train.py")
    write(tmp_path, **{".gitignore": "*\n"})
    assert names(tmp_path / "repository") == ["train.py"]


def test_links_travel_as_the_files_that_they_lead_to_and_only_within_the_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    put(outside, "secret.txt", "data/a")
    folder = tmp_path / "folder"
    put(folder, "a.py", ".env", "sub/b.py")
    for link, target in {
        "in.py": "a.py",
        "out.txt": outside / "secret.txt",
        "out": outside,
        "loop": ".",
        "env.txt": ".env",
        "nowhere": "missing",
        "itself": "itself",
    }.items():
        (folder / link).symlink_to(target)
    os.mkfifo(folder / "pipe")
    source = read_folder(folder)
    assert sorted(file.name for file in source.files) == ["a.py", "in.py", "sub/b.py"]
    assert source.left_out == {
        ".env": "may hold secrets",
        "env.txt": "a link to a file that is not sent",
        "itself": "a link that leads to no file",
        "loop": "a link that leads to no file",
        "nowhere": "a link that leads to no file",
        "out": "a link that leads out of the folder",
        "out.txt": "a link that leads out of the folder",
        "pipe": "not a regular file",
    }


def test_a_file_that_goes_away_while_the_folder_is_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "train.py")
    monkeypatch.setattr(sources, "_found", lambda folder, *_: ({"gone.py": folder / "gone.py"}, ()))
    with pytest.raises(BadInputError, match=r"cannot read .*/gone\.py: No such file or directory"):
        read_folder(tmp_path)


SECRET = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3g"
HIDDEN = {
    "a key at the end of a long file": ("deploy", "#\n" * 4000 + KEY, "line 4001: a private key"),
    "a token in a program": ("hub.py", f"login('hf_{SECRET}')\n", "line 1: a Hugging Face token"),
    "a value with a telling name": ("a.yaml", f"x: 1\napi_key: '{SECRET}'\n", "line 2: a value for api_key"),
    "one without quotes": ("a.yaml", "db:\n  password: hunter2  # of the test\n", "line 2: a value for password"),
    "one in a shell": ("go.sh", f"export WANDB_API_KEY={SECRET}\n", "line 1: a value for API_KEY"),
    "one in an INI file": ("app.ini", f"[hub]\ntoken = {SECRET}\n", "line 2: a value for token"),
    "a password": ("db.py", "DB_PASSWORD = 'hunter2'\n", "line 1: a value for PASSWORD"),
    "an address with a password": ("go.sh", "\ngit clone https://me:hunter2@host/x\n", "line 2: an address with a"),
    "a service account": ("gcp.json", '{"private_key": "' + KEY.strip() + '\\nMII"}', "line 1: a private key"),
}


@pytest.mark.parametrize(("name", "text", "said"), HIDDEN.values(), ids=HIDDEN)
def test_a_file_that_looks_secret_by_what_is_in_it_is_named_and_neither_sent_nor_left_out_in_silence(
    tmp_path: Path, name: str, text: str, said: str
) -> None:
    write(tmp_path, **{"a.py": "", name: text})
    for read in (lambda: read_folder(tmp_path), lambda: read_file(tmp_path / name)):
        with pytest.raises(BadInputError) as error:
            read()
        assert f"{tmp_path / name}, {said}" in str(error.value)
        assert f"--include {tmp_path / name}" in str(error.value)
        assert not any(value in str(error.value) for value in (SECRET, "hunter2"))
    included = [tmp_path / name]
    assert sorted(file.name for file in read_folder(tmp_path, included).files) == ["a.py", name]
    assert read_file(tmp_path / name, included).files[0].content.decode() == text


@pytest.mark.parametrize(("places", "told"), [(5, 0), (6, 1), (7, 2)])
def test_few_of_many_places_that_look_secret_are_told(tmp_path: Path, places: int, told: int) -> None:
    write(tmp_path, **{"a.py": f"t = 'hf_{SECRET}'\n" * places})
    more = f"\n  and {told} more places?" if told else ""
    with pytest.raises(BadInputError, match=rf"(?s)line 1: a Hugging.*line 5: a Hugging Face token{more}\nPut it"):
        read_folder(tmp_path)


ORDINARY = """\
tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased-2023-large")
pad_token = "<|reserved_special_token_0|>"
model.config.eos_token = "extra_id_0_and_more"
token = os.environ["HF_TOKEN"]
password = getpass.getpass()
parser.add_argument("--api-key", help="the key of the service, as 32 letters")
author = "Jane Doe 1234567890ab"
url = "https://host:8080/path/me@example.com"
url = "postgresql://user:password@localhost/db"
url = f"https://{user}:{password}@host"
AWS = "AKIAIOSFODNN7EXAMPLE"
"""


SETTINGS = """\
tokenizer: bert-base-uncased-2023abcdefgh4
pad_token_id: 151643
max_tokens = 4096000000000
token: ${HF_TOKEN}
auth: disabled
secretName: the-secret-of-a-team
export HF_TOKEN="$(cat token)"
"""


def test_what_programs_say_every_day_looks_no_secret(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{"a.py": ORDINARY, "a.yaml": SETTINGS, "secrets.py": "", "credentials.py": "", "kubeconfig.py": ""},
    )
    put(tmp_path, "tokenizer.json", "tokens.txt", ".env.example", "id_rsa.pub", "secrets.c", "token/t.py")
    assert read_folder(tmp_path).left_out == {}
    assert len(read_folder(tmp_path).files) == 11


SECRET_NAMES = [
    "credentials.json",
    "service-account.json",
    "my_service_account_prod.json",
    "kaggle.json",
    ".huggingface/token",
    "secrets.yaml",
    "conf/secrets.toml",
    "terraform.tfstate",
    "terraform.tfstate.backup",
    "prod.tfvars",
    "a.auto.tfvars.json",
    "pip.conf",
    ".s3cfg",
    ".vault-token",
    "my.env",
    ".env.production",
    ".ENV",
    "id_rsa.bak",
    "deploy_rsa",
    "ID_ED25519",
    ".netrc",
    ".docker/config.json",
    ".kube/config",
    ".aws/credentials",
    "release.keystore",
    "a.p12",
    "a.pfx",
    "a.jks",
    "secring.gpg",
    "rclone.conf",
    ".dvc/config.local",
    "wandb-secret.yaml",
    ".git-credentials",
    ".npmrc",
    ".pypirc",
    "kubeconfig",
    "kubeconfig.yaml",
    "prod.kubeconfig",
    "application_default_credentials.json",
    "client_secret_1.json",
    "token",
    "secrets/db.txt",
    "openai_api_key.txt",
    "passwords.txt",
    ".bash_history",
    ".terraform/x",
    "x-firebase-adminsdk-1.json",
    "AuthKey.p8",
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_what_is_secret_by_its_name_stays_unless_it_is_asked_for(tmp_path: Path, name: str) -> None:
    put(tmp_path, "a.py", name)
    source = read_folder(tmp_path)
    assert [file.name for file in source.files] == ["a.py"]
    assert set(source.left_out.values()) == {"may hold secrets"}
    assert sorted(file.name for file in read_folder(tmp_path, [tmp_path / name]).files) == sorted(["a.py", name])


def test_what_is_asked_for_travels_though_git_ignores_it_and_has_to_be_there(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    put(tmp_path, "outside", "folder/a.py", "folder/local.yaml", "folder/sub/b")
    write(folder, **{".gitignore": "local.yaml\n"})
    assert len(read_folder(folder, [folder / "local.yaml"]).files) == 3
    for name, said in {"no": "no such file", "sub": "not a file", "../outside": "it is not in"}.items():
        with pytest.raises(BadInputError, match=rf"--include .*{said}"):
            read_folder(folder, [folder / name])


def test_the_same_files_are_the_same_archive_whenever_and_wherever_they_were_written(tmp_path: Path) -> None:
    for name, time in (("here", 1), ("there", 2_000_000_000)):
        put(tmp_path / name, "b.py", "a.py")
        os.utime(tmp_path / name / "a.py", (time, time))
    here, there = (pack(read_folder(tmp_path / name).files) for name in ("here", "there"))
    assert here == there
    (tmp_path / "there" / "a.py").chmod(0o755)
    assert pack(read_folder(tmp_path / "there").files).digest != here.digest, "a program is to stay one"


def test_what_is_too_large_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(os.urandom(3 * IN_A_CONFIG_MAP.packed))
    for size in range(1, 6):
        (tmp_path / f"data{size}").write_bytes(os.urandom(size << 10))
    put(tmp_path, "train.py")
    with pytest.raises(BadInputError) as error:
        pack(read_folder(tmp_path).files)
    largest = "weights.bin (3.001 MiB), data5 (5.005 KiB), data4 (4.005 KiB), data3 (3.005 KiB), data2 (2.005 KiB)"
    assert f" MiB packed, but a job can carry only 1 MiB; the largest files: {largest}. " in str(error.value)
    for remedy in ("a smaller folder (--source)", ".gitignore", "--volume CLAIM:/data", "--image-volume IMAGE:/code"):
        assert remedy in str(error.value)


def test_what_can_never_become_small_enough_is_not_even_read(tmp_path: Path) -> None:
    with (tmp_path / "disk.img").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BadInputError, match=r"the code is 1024 GiB unpacked, .* disk.img \(1024 GiB\)"):
        read_folder(tmp_path)


def test_a_folder_without_end_is_not_searched_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_FILES", 2)
    put(tmp_path, "data/a", "data/b", "c")
    with pytest.raises(BadInputError, match=r"more than 2 files; of the first 3, most are in: data/ \(2\)\. Name"):
        read_folder(tmp_path)


@pytest.mark.parametrize("name", [b"\xff.py", b"a\nb"])
def test_a_name_that_cannot_be_shown_is_told_and_not_sent(tmp_path: Path, name: bytes) -> None:
    Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).write_text("")
    with pytest.raises(BadInputError, match="has a file with an unprintable name"):
        read_folder(tmp_path)


def test_what_is_no_folder_or_holds_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="there is no such folder"):
        read_folder(tmp_path / "missing")
    put(tmp_path, ".env")
    with pytest.raises(BadInputError, match="has no file to send"):
        read_folder(tmp_path)
    with pytest.raises(BadInputError, match=r"cannot read .*missing.py: No such file"):
        read_file(tmp_path / "missing.py")


def unpack(data: bytes, directory: Path) -> subprocess.CompletedProcess[str]:
    """As its pod does it: the text of the module, on a Python that knows nothing of us."""
    archive = directory.parent / "code.zip"
    archive.write_bytes(data)
    text = Path(unpacking.__file__).read_text()
    words = [sys.executable, "-ISc", text, str(archive), str(directory)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_a_pod_has_what_was_packed(tmp_path: Path) -> None:
    files = (File("a.py", b"print(1)"), File("sub/run.sh", b"#!/bin/sh\n", executable=True), File("empty", b""))
    target = tmp_path / "code"
    assert unpack(pack(files).data, target).stderr == ""
    assert {path.relative_to(target).as_posix() for path in target.rglob("*")} == {
        "a.py",
        "sub",
        "sub/run.sh",
        "empty",
    }
    assert (target / "a.py").read_bytes() == b"print(1)"
    modes = [stat.S_IMODE((target / name).stat().st_mode) for name in ("a.py", "sub/run.sh")]
    assert modes == [0o644, 0o755]


def test_nothing_is_written_outside_and_no_link_is_made_whatever_an_archive_says(tmp_path: Path) -> None:
    bad = tmp_path / "bad.zip"
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("../outside", "x")
        archive.writestr("/tmp/ddpjob-absolute", "x")
        link = zipfile.ZipInfo("link")
        link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc")
        archive.writestr("link/passwd", "x")
    target = tmp_path / "in" / "code"
    target.mkdir(parents=True)
    assert unpack(bad.read_bytes(), target).returncode != 0, "what it says cannot be: a file with files in it"
    assert not (tmp_path / "in" / "outside").exists()
    assert not Path("/tmp/ddpjob-absolute").exists()
    assert not any(path.is_symlink() for path in target.rglob("*"))


def test_an_archive_that_unpacks_to_far_more_than_it_is_fills_no_disk(tmp_path: Path) -> None:
    packed = pack([File("zeros", bytes(300 << 20))]).data
    assert len(packed) < IN_A_CONFIG_MAP.packed
    done = unpack(packed, tmp_path / "code")
    assert done.returncode == 1
    assert "are allowed" in done.stderr
    assert not (tmp_path / "code").exists()
