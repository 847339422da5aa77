"""Words for people."""


def counted(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`, `2 processes`."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{ending}"
