r"""Makes text from other programs safe to print.

Control characters are written out, as `\x1b`, because they could control a terminal, or make a line in a terminal or
on a page look different from what it is.
"""

import re

BIDI = "\u202a-\u202e\u2066-\u2069"
"""Characters that reorder the text after them, up to the end of the line."""
CONTROL = rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{BIDI}]"
"""All control characters except tabs and line feeds."""
IN_A_TEXT, IN_A_LINE = re.compile(CONTROL), re.compile(rf"{CONTROL}|[\t\n\u2028\u2029]")


def visible(text: str) -> str:
    """A text of any number of lines, with its control characters written out."""
    return IN_A_TEXT.sub(written_out, text)


def one_line(text: str) -> str:
    """A text as one line, with its control characters, tabs and ends of lines written out."""
    return IN_A_LINE.sub(written_out, text)


def written_out(found: re.Match[str]) -> str:
    """The matched character as Python writes it in a literal."""
    return ascii(found[0])[1:-1]
