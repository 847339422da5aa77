"""Slots of heartbeat files, as a rank writes them."""

from ddpjob_rank.reporting.heartbeat import Record, encode, encode_others


def slot_of(number: int, record: Record, metrics: bytes = b"") -> bytes:
    """A record as a slot, whose metrics are encoded already."""
    return encode(number, record, encode_others(record, metrics))
