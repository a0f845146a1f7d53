"""Draw inputs of given sizes, with lengths of a pattern."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from .._format.dtypes import numpy_dtype
from .._format.names import Arrays
from .._signature.signature import InputSpec
from .axis_groups import Axis
from .input_generators import BEYOND_KEYS, LENGTHS, InputGenerator, Lengths

Sizes = Mapping[Axis, int]
Shapes = tuple[tuple[int, ...], ...]


class InputSampler:
    """Draws inputs of given sizes; the arrays depend on the order of all draws."""

    def __init__(self, specs: Sequence[InputSpec], generators: Mapping[str, InputGenerator]) -> None:
        self._specs = specs
        self._generators = generators
        self._rng = np.random.default_rng(0)

    def inputs(self, sizes: Sizes, lengths: str = "mixed") -> Arrays:
        """Return arrays whose free axes have `sizes`, and whose lengths follow the pattern called `lengths`."""
        arrays = {
            spec.name: self._generators[spec.name].draw(shape, self._rng).astype(numpy_dtype(spec.dtype))
            for spec, shape in zip(self._specs, self.shapes(sizes), strict=True)
        }
        for name, array in arrays.items():
            rule = self._generators[name].lengths
            if rule is not None:
                cycle = _cycle(rule, arrays, sizes, lengths)
                arrays[name] = np.resize(cycle, array.size).reshape(array.shape).astype(array.dtype)
        return arrays

    def shapes(self, sizes: Sizes) -> Shapes:
        """Return the shape of every input, in the order of the model."""
        return tuple(
            tuple(sizes.get((spec.name, axis), size or 0) for axis, size in enumerate(spec.shape))
            for spec in self._specs
        )

    @property
    def has_texts(self) -> bool:
        """Whether an input holds strings."""
        return any(generator.words for generator in self._generators.values())

    @property
    def floats(self) -> tuple[str, ...]:
        """Float inputs that are drawn, except masks and numbers that are looked up."""
        drawn = {
            name
            for name, generator in self._generators.items()
            if not (generator.is_sampled or generator.ids or generator.is_mask)
        }
        return tuple(s.name for s in self._specs if s.name in drawn and numpy_dtype(s.dtype).kind == "f")


def _cycle(rule: Lengths, arrays: Arrays, sizes: Sizes, pattern: str) -> np.ndarray:
    """Return the lengths through which the rows of a batch cycle."""
    if rule.count is None:
        keys = max((size for (_, axis), size in sizes.items() if axis > 0), default=1)
    else:
        keys = rule.count(arrays)
    cycle = np.array(LENGTHS[pattern](keys))
    if rule.is_of_state and pattern not in BEYOND_KEYS:
        cycle = np.minimum(cycle, keys)  # a state without room gives NaN
    return cycle if rule.limit is None else np.clip(cycle, 0, rule.limit - 1)
