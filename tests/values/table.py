"""What a row of the tables is, and the list on which each file of rows puts its own."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial, reduce
from typing import Any

from .grids import FLOATS, each

Given = Callable[[str, str], Any]


@dataclass(frozen=True)
class Entry:
    """An operator with arguments that change what is computed.

    Attributes:
        operator: Its public name, as `keras.ops.clip`.
        how: The arguments, in a word; empty for the defaults.
        function: Takes tensors and returns one, or a list, tuple or dict of them.
        given: What it is given, by kind of value and dtype.
        dtypes: Of what it is given.
        known: Whether sizes are known when it is traced; as Keras asks, where it wants to know them.
        limit: The largest relative difference of floats, in float32.
        refused: What the export says of it, where it is refused: a part of the sentence.
        deviates: The kinds of value for which the file differs, for a reason in `deviations.py`.
    """

    operator: str
    function: Callable[..., Any]
    given: Given = each
    dtypes: tuple[str, ...] = FLOATS
    how: str = ""
    known: bool = False
    limit: float = 2e-6
    refused: str = ""
    deviates: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.operator} ({self.how})" if self.how else self.operator


ENTRIES: list[Entry] = []


FIELDS = {each.name for each in fields(Entry)}


def rows_of(module: Any, names: str, given: Given = each, dtypes: tuple[str, ...] = FLOATS, **options: Any) -> None:
    """Put operators of a module on the list, by names with spaces between them.

    What is no field of `Entry` goes to the operator, by name.
    """
    arguments = {name: options.pop(name) for name in [*options] if name not in FIELDS}
    for name in names.split():
        function = reduce(getattr, name.split("."), module)
        add(f"{module.__name__}.{name}", partial(function, **arguments), given, dtypes, **options)


def add(operator: str, function: Callable[..., Any], *given: Any, **options: Any) -> None:
    """Put a row on the list; what follows the function are fields of `Entry`."""
    ENTRIES.append(Entry(operator, function, *given, **options))
