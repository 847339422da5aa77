"""Rules that a schema cannot express. Each is written once for the CRD, the validator, local mode and the reference.

`RULES` define which specs are valid, and `FIXED` which fields of a spec must not be changed.
"""

from .record import FIXED_FOR_EVER, WHILE_SUSPENDED, Fixed, Rule
from .spec_rules import FIXED, IS_FORMER, RULES

__all__ = ["FIXED", "FIXED_FOR_EVER", "IS_FORMER", "RULES", "WHILE_SUSPENDED", "Fixed", "Rule"]
