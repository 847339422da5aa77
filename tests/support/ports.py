"""Ports that a test may give to a program that it starts later."""

from ddpjob_operator.local.machine import Port, free_port

_held: list[Port] = []


def hold_port() -> int:
    """A port that is free, and that no other test and no `ddpjob run` gets while this process lives.

    A test socket that is closed again would not hold the port: another program could get it before this program binds
    it.
    """
    _held.append(Port(free_port()))
    return _held[-1].number
