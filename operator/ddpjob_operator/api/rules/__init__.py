"""Rules that a schema cannot express. Each is written once for the CRD, the validator, local mode and the reference.

`RULES` define which specs are valid, `FIXED` which fields of a spec must not be changed, and `TOGETHER` which have
to change if another part does. The latter are only in the CRD: local mode ignores their fields.
"""

from .record import FIXED_FOR_EVER, WHILE_SUSPENDED, Fixed, Rule, Together
from .spec_rules import FIXED, IS_FORMER, RULES, TOGETHER

__all__ = [
    "FIXED",
    "FIXED_FOR_EVER",
    "IS_FORMER",
    "RULES",
    "TOGETHER",
    "WHILE_SUSPENDED",
    "Fixed",
    "Rule",
    "Together",
]
