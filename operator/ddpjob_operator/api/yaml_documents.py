"""Parses YAML that people write, with the line of each value."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from .problems import BadInputError, Path, Problem

MOST_VALUES = 100_000
"""The largest number of values that a document may have. With aliases of aliases, a few lines can expand to more."""


def parsed_documents(text: str, source: str) -> list["YamlDocument"]:
    """Parses the documents of a YAML text. `source` is the text's name in messages.

    Raises:
        BadInputError: the text is not YAML, or expands to too many values.
    """
    try:
        nodes = (node for node in yaml.compose_all(text, yaml.SafeLoader) if node is not None)
        return [document for document in map(YamlDocument.of, nodes) if document.value is not None]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = f" line {mark.line + 1}:" if mark else ""
        raise BadInputError(f"{source} is not YAML:{line} {error.problem}") from None
    except RecursionError:
        raise BadInputError(
            f"{source} is nested too deeply, or an alias in it refers to a part that contains the alias"
        ) from None
    except OverflowError:
        raise BadInputError(f"{source} has more than {MOST_VALUES} values after its aliases are expanded") from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date that does not exist.
        raise BadInputError(f"{source} is not YAML: {' '.join(str(error).split())}") from None


@dataclass
class YamlDocument:
    """A YAML document with the line numbers of its values."""

    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    repeated: list[Problem] = field(default_factory=list)

    @classmethod
    def of(cls, node: yaml.Node) -> "YamlDocument":
        """Reads a document. OverflowError: it has more than MOST_VALUES values."""
        loader = yaml.SafeLoader("")
        document = cls()
        for count, (path, child) in enumerate(_walk(node, (), document.repeated)):
            if count == MOST_VALUES:
                raise OverflowError
            document.lines[path] = child.start_mark.line + 1
        document.value = loader.construct_document(node)
        return document

    @property
    def kind(self) -> str:
        """The document's `kind` or, without one, a description of the document."""
        if isinstance(self.value, dict):
            return str(self.value.get("kind", "a mapping without kind"))
        return "a list" if isinstance(self.value, list) else "plain text"

    @property
    def type(self) -> str:
        """The document's API group and kind, such as `batch/Job`."""
        version = self.value.get("apiVersion", "") if isinstance(self.value, dict) else ""
        return f"{str(version).partition('/')[0]}/{self.kind}"

    def line(self, path: Path) -> int:
        """Returns the line of the value at a path or, if there is none, of the innermost value that encloses it."""
        while path not in self.lines:
            path = path[:-1]
        return self.lines[path]


def _walk(node: yaml.Node, path: Path, repeated: list[Problem]) -> Iterator[tuple[Path, yaml.Node]]:
    yield path, node
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in seen:
                repeated.append(Problem((*path, name), "is given twice; the last one would silently win"))
            seen.add(name)
            yield from _walk(value, (*path, name), repeated)
            yield (*path, name), key
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _walk(value, (*path, index), repeated)
