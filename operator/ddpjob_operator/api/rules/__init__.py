"""Rules that a schema cannot state, each in one place: the CRD, the validator, local mode and the reference use them.

`RULES` are about what a spec may say, `FIXED` about what a change to it must not touch.
"""

from .record import FIXED_FOR_EVER, WHILE_SUSPENDED, Fixed, Rule
from .spec_rules import FIXED, IS_FORMER, RULES

__all__ = ["FIXED", "FIXED_FOR_EVER", "IS_FORMER", "RULES", "WHILE_SUSPENDED", "Fixed", "Rule"]
