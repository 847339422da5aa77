"""Rules that a schema cannot express, each written once for the CRD, the validator, local mode and the reference.

`RULES` say what a spec may contain, `FIXED` which of its fields must not be changed.
"""

from .record import FIXED_FOR_EVER, WHILE_SUSPENDED, Fixed, Rule
from .spec_rules import FIXED, IS_FORMER, RULES

__all__ = ["FIXED", "FIXED_FOR_EVER", "IS_FORMER", "RULES", "WHILE_SUSPENDED", "Fixed", "Rule"]
