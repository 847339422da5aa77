"""`python -m tests.strangers.page`: writes the table of strangers' scripts from the rows of their tests."""

from tests.pages import REFERENCE, write

from .stranger import STRANGERS

PAGE = REFERENCE / "strangers.md"
PART = "strangers"


def table() -> list[str]:
    """The lines of the table."""
    rows = [
        f"| [{one.script}](../../tests/strangers/scripts/{one.script}) | {one.what} | {one.works} | {one.change} |"
        for one in STRANGERS.values()
    ]
    return ["", "| Script | What it is | What works | What to change |", "| --- | --- | --- | --- |", *rows, ""]


if __name__ == "__main__":
    write(PAGE, PART, table())
