"""The formats that `ddpjob-train export` can write."""

from typing import Final, Literal

Format = Literal["state-dict", "torch-export"]
STATE_DICT: Final = "state-dict"
