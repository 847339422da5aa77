"""What others have written of the page is as they have published it, with its licence."""

import json
from hashlib import sha256

from ddpjob_operator.cli.dashboard.web_server import WEB

VENDOR = WEB / "vendor"
RECORD = VENDOR / "vendored.json"


def test_each_file_is_recorded_as_it_was_published() -> None:
    recorded = {name: file["sha256"] for one in json.loads(RECORD.read_text()) for name, file in one["files"].items()}
    there = {file.name: sha256(file.read_bytes()).hexdigest() for file in VENDOR.iterdir() if file != RECORD}
    assert there == recorded


def test_each_package_has_its_licence() -> None:
    for one in json.loads(RECORD.read_text()):
        assert f"{one['package']}.LICENSE" in one["files"]
        assert one["licence"] in {"MIT", "Apache-2.0"}
