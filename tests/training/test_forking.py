"""What the tests' own way to start supervisors keeps of them."""

import os
from pathlib import Path

from tests.support.waiting import patience
from tests.training.forking import fork_supervisor


def test_in_one_file_neither_output_overwrites_what_the_other_has_said(tmp_path: Path) -> None:
    (tmp_path / "speaks.py").write_text(
        "import os\nfor output in (1, 2, 1): os.write(output, b'to %d\\n' % output)\n"
    )
    said = tmp_path / "said"
    assert fork_supervisor("speaks", [], dict(os.environ), tmp_path, said).wait(patience(60)) == 0
    assert said.read_text() == "to 1\nto 2\nto 1\n"
