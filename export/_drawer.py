"""Draw inputs of given sizes and run the Keras model on them."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import keras
import numpy as np

from ._signature import Signature, functional_of
from ._sources import LENGTHS, Source
from ._verify import Arrays

Axis = tuple[str, int]  # an input's name and the number of one of its axes
Sizes = Mapping[Axis, int]


class Drawer:
    """Draws inputs of given sizes and runs the Keras model on them."""

    def __init__(self, model: keras.Model, signature: Signature, made: Mapping[str, Source]) -> None:
        self._signature = signature
        self._made = made
        self._rng = np.random.default_rng(0)
        self._functional: Any = functional_of(model)
        self._structure = None if self._functional is None else self._functional._inputs_struct
        self._keys = {
            name: keras.Model(self._structure, source.keys) if source.keys.shape[source.keys_axis] is None else None
            for name, source in made.items()
            if source.keys is not None
        }

    def inputs(self, sizes: Sizes, lengths: str = "mixed") -> Arrays:
        """Return arrays whose free axes have `sizes`, and whose lengths follow the pattern called `lengths`."""
        arrays = {}
        for spec in self._signature.inputs:
            shape = tuple(sizes.get((spec.name, axis), size) for axis, size in enumerate(spec.shape))
            arrays[spec.name] = self._made[spec.name].draw(shape, self._rng).astype(spec.dtype)  # type: ignore[arg-type]
        for spec in self._signature.inputs:
            if self._made[spec.name].lengths:
                cycle = LENGTHS[lengths](self._number_of_keys(spec.name, arrays, sizes))
                flat = np.resize(np.array(cycle), arrays[spec.name].size)
                arrays[spec.name] = flat.reshape(arrays[spec.name].shape).astype(spec.dtype)
        return arrays

    def _number_of_keys(self, name: str, arrays: Arrays, sizes: Sizes) -> int:
        source = self._made[name]
        if source.keys is None:
            return max((size for (_, axis), size in sizes.items() if axis > 0), default=1)
        keys = source.keys
        if (model := self._keys[name]) is not None:
            keys = model(self._packed(arrays))
        return int(keys.shape[source.keys_axis])

    def outputs(self, inputs: Arrays) -> Arrays:
        """Return Keras's outputs as NumPy arrays."""
        with _quiet_keras():
            outputs = self._signature.call(inputs)
        return {name: np.asarray(keras.ops.convert_to_numpy(tensor)) for name, tensor in outputs.items()}

    def runs(self, sizes: Sizes) -> bool:
        """Tell whether the model gives numbers on these sizes: neither an exception nor something degenerate."""
        inputs = self.inputs(sizes)
        try:
            outputs = self.outputs(inputs)
        except Exception:  # noqa: BLE001 - the question is whether it fails, whatever it fails with
            return False
        return not self.is_degenerate(inputs, outputs)

    def is_degenerate(self, inputs: Arrays, outputs: Arrays) -> bool:
        """Tell whether an output holds NaN, or the output of any layer is empty.

        So it is when a convolution runs out of positions: TensorFlow goes on with the empty tensor, and what comes out
        at the end is nothing to compare with.
        """
        for output in outputs.values():
            if np.issubdtype(output.dtype, np.floating) and np.isnan(output).any():
                return True
        with _quiet_keras():
            inner = outputs.values() if self._structure is None else self._every_layer(self._packed(inputs))
        return any(0 in tensor.shape for tensor in inner)

    @cached_property
    def _every_layer(self) -> Any:
        nodes = [node for same_depth in self._functional._nodes_by_depth.values() for node in same_depth]
        tensors = [node.output_tensors for node in nodes]
        return keras.Model(self._structure, keras.tree.flatten(tensors))

    def _packed(self, inputs: Arrays) -> Any:
        return keras.tree.pack_sequence_as(self._structure, [inputs[spec.name] for spec in self._signature.inputs])


@contextlib.contextmanager
def _quiet_keras() -> Iterator[None]:
    """Ignore warnings: the sizes are drawn here, and what Keras thinks of a single key is not for the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
