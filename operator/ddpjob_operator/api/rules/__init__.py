"""Rules that a schema cannot state, each once: the CRD, the validator, local mode and the reference go by these.

`RULES` are about what a spec says, `FIXED` about what a change of it may not touch.
"""

from .record import FIXED_FOR_EVER, WHILE_SUSPENDED, Fixed, Rule
from .spec_rules import FIXED, RULES

__all__ = ["FIXED", "FIXED_FOR_EVER", "RULES", "WHILE_SUSPENDED", "Fixed", "Rule"]
