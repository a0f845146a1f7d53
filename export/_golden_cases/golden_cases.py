"""Record of the golden cases of a model."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._format.names import Arrays, Case
from .._signature.signature import InputSpec
from .dynamic_axes import Shapes, iterate_named_axes

LARGE = "large values"  # scores reach 1e4
POISONED = "poisoned padding"
LONG = "long"  # the case that reaches the large form of attention
NOT_RUN = "not run"
MIN_LARGE_INTEGER = 4097  # an integer may be a size, or how often a loop runs: nothing larger where this is more work

Sizes = dict[str, int]
Run = Callable[[Arrays], Arrays]


@dataclass(frozen=True)
class InjectedValue:
    """A special value in one row of an input."""

    input: str
    value: int | str  # the integer, or the kind of value
    row: int  # index in the batch

    @property
    def is_small(self) -> bool:
        """True if the value is an integer near usual integers."""
        return isinstance(self.value, int) and abs(self.value) < MIN_LARGE_INTEGER


@dataclass
class Cases:
    """Golden cases, and the names of the axes they vary."""

    axes: Shapes  # of every input; a string stands for a dynamic axis, the same string where axes must agree
    cases: list[Case] = field(default_factory=list)
    sizes: list[Sizes] = field(default_factory=list)  # of every named axis, by case
    refused: dict[str, str] = field(default_factory=dict)  # reasons by name of the cases that Keras cannot run
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)  # coverage by input, as in the parity report
    coverage: dict[str, Any] = field(default_factory=dict)  # of the model, as in the parity report
    multiples: dict[str, int] = field(default_factory=dict)  # of which the size of an axis must be one, unless 1
    static: dict[str, str] = field(default_factory=dict)  # reasons by name of static axes that Keras leaves open
    lengths: dict[str, str] = field(default_factory=dict)  # name of the axis that an input of lengths counts
    trials: dict[str, list[InjectedValue]] = field(
        default_factory=dict
    )  # in cases of special values, by name of the case
    drawn: tuple[str, ...] = ()  # float inputs without samples, whose range is unknown; no masks
    nan_texts: dict[str, list[str]] = field(default_factory=dict)  # by input, texts for which Keras gives NaN

    def append(self, case: Case) -> None:
        """Append a case, with its sizes."""
        self.cases.append(case)
        self.sizes.append(
            {symbol: case.inputs[name].shape[axis] for (name, axis), symbol in iterate_named_axes(self.axes)}
        )

    def get_dynamic_spec(self, spec: InputSpec) -> InputSpec:
        """Return the input's spec with `None` where an axis has a name."""
        shape = tuple(None if isinstance(size, str) else size for size in self.axes[spec.name])
        return InputSpec(spec.name, spec.dtype, shape)

    def count_elements_at(self, sizes: Mapping[str, int]) -> int:
        """Return how many numbers the largest input or output has at sizes by name."""
        shapes: list[list[int]] = []
        for shape in self.axes.values():
            shapes.append([sizes[size] if isinstance(size, str) else size for size in shape])
        for name, array in self.cases[0].outputs.items():
            named = self.output_axes(name, [None] * array.ndim)
            shapes.append([sizes.get(str(axis), size) for axis, size in zip(named, array.shape, strict=True)])
        return max(math.prod(shape) for shape in shapes)

    def output_axes(self, name: str, static: Iterable[int | None]) -> tuple[str | int, ...]:
        """Return an output's shape: static sizes, the names of input axes it goes with, or names of its own.

        It goes with an axis that has several sizes among the cases, and whose size it has in each. If there are two of
        those, or only one size was seen, the name is its own.
        """
        shapes = [case.outputs[name].shape for case in self.cases]
        varied = {symbol: [sizes[symbol] for sizes in self.sizes] for symbol in self.sizes[0]}
        named: list[str | int] = []
        for axis, size in enumerate(static):
            seen = [shape[axis] for shape in shapes]
            same = [symbol for symbol, sizes in varied.items() if seen == sizes and len(set(sizes)) > 1]
            named.append(size if size is not None else same[0] if len(same) == 1 else f"{name}_axis_{axis}")
        return tuple(named)
