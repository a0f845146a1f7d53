"""Records of golden cases and of special values injected into their inputs."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._format.names import Arrays, Case
from .._signature.signature import InputSpec
from .dynamic_axes import Shapes, iterate_named_axes

LARGE_VALUES = "large values"  # scores reach 1e4
POISONED = "poisoned padding"
LONG = "long"  # sequences that reach the large form of attention
NOT_RUN_PREFIX = "not run"
# An integer may be a size or a trip count. If this one makes Keras do more work, larger integers are not injected.
MIN_LARGE_INTEGER = 4097

Sizes = dict[str, int]
Run = Callable[[Arrays], Arrays]


@dataclass(frozen=True)
class InjectedValue:
    """Special value in one row of an input."""

    input: str
    value: int | str  # the integer, or the name of a pattern such as "ties and zeros"
    row: int  # index in the batch

    @property
    def is_small(self) -> bool:
        """Return True for integers of small magnitude."""
        return isinstance(self.value, int) and abs(self.value) < MIN_LARGE_INTEGER


@dataclass
class GoldenCases:
    """Golden cases, with the dynamic axes and the coverage of the model."""

    axes: Shapes  # of every input; a string names a dynamic axis, and tied axes have the same name
    cases: list[Case] = field(default_factory=list)
    sizes: list[Sizes] = field(default_factory=list)  # of every dynamic axis, by case
    refusals: dict[str, str] = field(default_factory=dict)  # reasons by name of cases on which Keras fails
    inputs: dict[str, dict[str, Any]] = field(default_factory=dict)  # coverage by input, for the parity report
    coverage: dict[str, Any] = field(default_factory=dict)  # coverage section of the parity report
    multiples: dict[str, int] = field(default_factory=dict)  # divisors above 1 of all sizes of an axis, by its name
    static: dict[str, str] = field(default_factory=dict)  # reasons by name of static axes that are dynamic in Keras
    counted_axes: dict[str, str] = field(default_factory=dict)  # name of the axis that an input of lengths counts
    injections_by_case: dict[str, list[InjectedValue]] = field(default_factory=dict)  # special values in its inputs
    drawn_floats: tuple[str, ...] = ()  # float inputs without samples, whose range is unknown, except masks
    nan_texts: dict[str, list[str]] = field(default_factory=dict)  # texts for which Keras returns NaN, by input

    def append(self, case: Case) -> None:
        """Append a case and its sizes."""
        self.cases.append(case)
        axes = iterate_named_axes(self.axes)
        self.sizes.append({symbol: case.inputs[name].shape[axis] for (name, axis), symbol in axes})

    def get_dynamic_spec(self, spec: InputSpec) -> InputSpec:
        """Return the spec of an input with the size `None` for dynamic axes."""
        shape = tuple(None if isinstance(size, str) else size for size in self.axes[spec.name])
        return InputSpec(spec.name, spec.dtype, shape)

    def count_elements_at(self, sizes: Mapping[str, int]) -> int:
        """Return the number of elements of the largest input or output at sizes by name."""
        shapes: list[list[int]] = []
        for shape in self.axes.values():
            shapes.append([sizes[size] if isinstance(size, str) else size for size in shape])
        for name, array in self.cases[0].outputs.items():
            axes = self.name_output_axes(name, [None] * array.ndim)
            shapes.append([sizes.get(str(axis), size) for axis, size in zip(axes, array.shape, strict=True)])
        return max(math.prod(shape) for shape in shapes)

    def name_output_axes(self, name: str, static: Iterable[int | None]) -> tuple[str | int, ...]:
        """Return the shape of an output: static sizes, names of input axes, or `<output>_axis_<n>`.

        An unknown axis gets the name of the input axis that has the same size in every case, if the sizes vary and only
        one input axis matches.
        """
        shapes = [case.outputs[name].shape for case in self.cases]
        axis_sizes = {symbol: [sizes[symbol] for sizes in self.sizes] for symbol in self.sizes[0]}
        axes: list[str | int] = []
        for axis, size in enumerate(static):
            output_sizes = [shape[axis] for shape in shapes]
            matches = [symbol for symbol, sizes in axis_sizes.items() if output_sizes == sizes and len(set(sizes)) > 1]
            axes.append(size if size is not None else matches[0] if len(matches) == 1 else f"{name}_axis_{axis}")
        return tuple(axes)
