"""Launchers, which start a node's processes. Reads the job's size from their flags, and adds flags where needed.

torchrun reads the node's place in the job from variables (PET_NODE_RANK and others), which the contract sets.
Accelerate reads it only from flags, so each pod is created with such flags. Without them, each node would train
separately, or make itself the master and wait for the others forever.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .contract import Env
from .option_names import option
from .problems import BadInputError

CommandLine = tuple[str, ...]
"""The words of a command line, or of a part such as its flags."""

MODULE_FLAGS = frozenset({"-m", "--module"})
COUNTED = frozenset({"gpu", "auto"})
"""Words that torchrun accepts instead of a number of processes. They mean one process per GPU."""


@dataclass(frozen=True, slots=True)
class Size:
    """How many nodes and processes a job has; None if not given."""

    nodes: int | None = None
    procs_per_node: int | None = None

    @property
    def ranks(self) -> int:
        """The total number of processes on all nodes."""
        return (self.nodes or 1) * (self.procs_per_node or 1)


@dataclass(frozen=True, slots=True)
class Launcher:
    """A launcher's command line. Flags have underscores here, but may have dashes on the command line."""

    name: str
    calls: tuple[CommandLine, ...]
    """The first words of the commands that call the launcher."""
    nodes: str
    procs: str
    counts_all: bool
    """Whether the flag `procs` counts the processes on all nodes, and not those on each node."""
    place: frozenset[str]
    """The flags that only DDPJob may set, because they differ between nodes or name the first of several nodes."""
    told: CommandLine = ()
    """The flags that we add, with placeholders for the size."""
    without_gpus: CommandLine = ()
    """The flags that we add for several processes without GPUs, unless the user's flags contain one of `modes`."""
    modes: frozenset[str] = frozenset()

    def size(self, words: CommandLine, asked: Size, gpus: int) -> Size:
        """Returns the job's size, from the flags in `words` and from `asked`.

        `gpus` is the total number of GPUs on all nodes.

        Raises:
            BadInputError: `words` and `asked` contradict each other, or `words` set a node's place.
        """
        flags = self._flags(words)
        nodes = self._number(flags, self.nodes, asked.nodes, "nodes")
        if placed := [f"--{flag}" for flag in flags if flag in self.place and (nodes or 1) > 1]:
            raise BadInputError(
                f"{self.name} {', '.join(placed)}: remove this, because DDPJob gives each node its place"
            )
        return Size(nodes, self._procs(flags, nodes or 1, asked.procs_per_node, gpus))

    def placed(self, words: CommandLine, size: Size, *, on_gpus: bool) -> tuple[CommandLine, CommandLine]:
        """Returns the launcher's command and arguments, with our flags first, so that the user's take precedence."""
        call = self._call(words)
        without_gpus = size.ranks > 1 and not on_gpus and not self.modes & self._flags(words).keys()
        added = (*self.told, *(self.without_gpus if without_gpus else ()))
        known = {"nodes": size.nodes or 1, "ranks": size.ranks}
        return call, (*(word.format(**known) for word in added), *words[len(call) :])

    def is_called(self, words: CommandLine) -> bool:
        """Whether these words call the launcher."""
        return bool(self._call(words))

    def _call(self, words: CommandLine) -> CommandLine:
        if not words:
            return ()
        program = words[0].rpartition("/")[2]
        same = ("python" if program.startswith("python") else program, *words[1:])
        return next((words[: len(call)] for call in self.calls if same[: len(call)] == call), ())

    def _flags(self, words: CommandLine) -> dict[str, str]:
        """Returns the launcher's flags with their values, without the script's own flags, which follow the script."""
        return dict(_flags(words[len(self._call(words)) :]))

    def _procs(self, flags: dict[str, str], nodes: int, asked: int | None, gpus: int) -> int | None:
        if flags.get(self.procs) in COUNTED:
            return asked or gpus // nodes or None
        if not self.counts_all:
            return self._number(flags, self.procs, asked, "procs-per-node")
        ranks = self._number(flags, self.procs, asked and asked * nodes, "procs-per-node")
        if ranks and ranks % nodes:
            raise BadInputError(f"{self.name} --{self.procs} {ranks} cannot be divided among {nodes} nodes")
        return ranks and ranks // nodes

    def _number(self, flags: dict[str, str], flag: str, asked: int | None, ours: str) -> int | None:
        if flag not in flags:
            return asked
        value = flags[flag]
        if not value.isdecimal():
            raise BadInputError(f"{self.name} --{flag} {value}: must be a single number")
        if asked not in {None, int(value)}:
            raise BadInputError(f"{self.name} --{flag} {value} contradicts {option(ours)}; give only one of them")
        return int(value)


TORCHRUN = Launcher(
    name="torchrun",
    calls=(
        ("torchrun",),
        ("python", "-m", "torch.distributed.run"),
        ("python", "-m", "torch.distributed.launch"),
    ),
    nodes="nnodes",
    procs="nproc_per_node",
    counts_all=False,
    place=frozenset({"node_rank", "master_addr", "master_port", "rdzv_backend", "rdzv_endpoint", "standalone"}),
)

ACCELERATE = Launcher(
    name="accelerate launch",
    calls=(("accelerate", "launch"), ("accelerate-launch",), ("python", "-m", "accelerate.commands.launch")),
    nodes="num_machines",
    procs="num_processes",
    counts_all=True,
    place=frozenset({"machine_rank", "main_process_ip", "main_process_port"}),
    told=(
        *("--num_machines", "{nodes}", "--num_processes", "{ranks}", "--machine_rank", f"$({Env.NODE_RANK})"),
        *("--main_process_ip", f"$({Env.MASTER_ADDR})", "--main_process_port", f"$({Env.MASTER_PORT})"),
    ),
    # Without this flag, Accelerate starts only one process per node, because it expects MPI to start the others.
    without_gpus=("--multi_gpu",),
    modes=frozenset({"multi_gpu", "cpu", "tpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "config_file"}),
)

LAUNCHERS = (TORCHRUN, ACCELERATE)


def launcher_of(words: CommandLine) -> Launcher | None:
    """Returns the launcher that these words call; None if they call none."""
    return next((launcher for launcher in LAUNCHERS if launcher.is_called(words)), None)


def _flags(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for index, word in enumerate(words):
        if word.endswith(".py") or word in MODULE_FLAGS:
            return
        if word.startswith("--"):
            name, equals, value = word.removeprefix("--").partition("=")
            yield name.replace("-", "_"), value if equals else "".join(words[index + 1 : index + 2])
