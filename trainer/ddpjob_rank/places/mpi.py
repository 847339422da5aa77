"""A process's place according to MPI, if `mpirun` has started it as one of several processes."""

from collections.abc import Mapping

from ddpjob_rank.environment import Env

PLACE = (Env.RANK, Env.WORLD_SIZE, Env.LOCAL_RANK, Env.LOCAL_WORLD_SIZE)
OPEN_MPI = (
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
)
HYDRA = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
"""The variables of Hydra, the launcher of MPICH and Intel MPI."""


def variables(env: Mapping[str, str]) -> dict[str, str] | None:
    """RANK and related variables, if MPI has started this process as one of several; otherwise None."""
    for names in (OPEN_MPI, HYDRA):
        if all(name in env for name in names) and env[names[1]] != "1":
            return {ours: env[theirs] for ours, theirs in zip(PLACE, names, strict=True)}
    return None
