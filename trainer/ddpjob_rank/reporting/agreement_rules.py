"""What ranks can agree on, and how long they wait for each other meanwhile."""

from enum import IntEnum


class Wish(IntEnum):
    """What a rank may want all ranks to do. The greatest wish counts."""

    NOTHING = 0
    SAVE = 1
    STOP = 2


PATIENCE_SECONDS = {Wish.SAVE: 45.0, Wish.STOP: 10.0}
"""How long the leader waits for the ranks' positions, and a rank for the leader's decision. Their threads answer
within milliseconds, whatever the ranks are doing. A rank that is to stop has a grace period, so that waiting longer
could cost it its last save."""

SILENT_LEADER_SECONDS = 5.0
"""How much longer than the leader a rank waits before it gives up a wish."""

ORDER_SECONDS = 2.0
"""How long the leader waits for the ranks' answers to an order. Meanwhile a rank may be waiting for the decision."""

SURVEY_SECONDS = 1.0
"""How long the leader waits for each of the two answers of a survey."""

COUNTS_SECONDS = 5.0
"""How long after an order the leader may decide that it counts. Shorter than a rank waits for the decision."""

MISMATCH_SECONDS = 45.0
"""Ranks that have not connected, or have not acted as the others have, are named after this time."""

FARTHER = 4
"""If a rank was too late for an order, the next order is farther ahead by this factor."""

RETURN_SECONDS = 5.0
"""A rank that has lost its connection counts as ended if it has not connected again within this time: the leader
cannot know whether it was killed, and the others must be able to stop then. Its last content may arrive until then,
too."""

REFUSED_SECONDS = 1.0
"""If rank 0's machine has refused connections for so long, rank 0 has ended."""

CONTENT_BYTES = 1 << 36

ARRIVING_SECONDS = 5.0
"""A content of which no more bytes have come for this time does not count as arriving."""

KEPT_BYTES = 256 << 20
"""How many bytes of all ranks together are kept. A rank that waits for no other rank may be many saves ahead of rank
0. If contents are larger, only the newest content of each rank is kept, and the one that rank 0 waits for."""
