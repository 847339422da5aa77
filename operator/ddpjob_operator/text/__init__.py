r"""Texts that others have written, as they may stand among ours.

Control characters are written out, as `\x1b`: they could give orders to a terminal, or have a line read otherwise
than it is, in a terminal and on a page alike.
"""

import re

BIDI = "\u202a-\u202e\u2066-\u2069"
"""What reorders the letters around it, up to the end of the line."""
CONTROL = rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{BIDI}]"
"""All except tabs and ends of lines."""
IN_A_TEXT, IN_A_LINE = re.compile(CONTROL), re.compile(rf"{CONTROL}|[\t\n\u2028\u2029]")


def visible(text: str) -> str:
    """A text of several lines with its control characters written out."""
    return IN_A_TEXT.sub(written_out, text)


def one_line(text: str) -> str:
    """A text that must not look like more than one line of ours."""
    return IN_A_LINE.sub(written_out, text)


def written_out(found: re.Match[str]) -> str:
    """What was found, as Python writes it in a literal."""
    return ascii(found[0])[1:-1]
