"""Draw inputs of given sizes and run the Keras model on them."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import keras
import numpy as np

from .._errors import UnsupportedModelError
from .._internals.keras_internals import functional_of, inputs_structure, layers_of, nodes_of, operation_of
from .._standalone.verify import Arrays
from .axis_groups import Axis
from .draws import mask
from .input_sources import LENGTHS, Source
from .keras_messages import first_line
from .signature import Signature

Sizes = Mapping[Axis, int]
RUNS_OF_RANDOM = 30  # of a layer that drops one example in ten, all but 1 in 20 models show it


class Problem(NamedTuple):
    """Why a model gives no numbers on inputs of some sizes: what Keras said, and that in a sentence with the shapes."""

    said: str
    sentence: str


class Drawer:
    """Draws inputs of given sizes and runs the Keras model on them."""

    def __init__(self, model: keras.Model, signature: Signature, made: Mapping[str, Source]) -> None:
        self._model = model
        self._signature = signature
        self._made = made
        self._rng = np.random.default_rng(0)
        self._functional: Any = functional_of(model)
        self._structure = None if self._functional is None else inputs_structure(self._functional)
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
                cycle = np.array(LENGTHS[lengths](self._number_of_keys(spec.name, arrays, sizes)))
                if (below := self._made[spec.name].below) is not None:
                    cycle = np.clip(cycle, 0, below - 1)
                flat = np.resize(cycle, arrays[spec.name].size)
                arrays[spec.name] = flat.reshape(arrays[spec.name].shape).astype(spec.dtype)
        return arrays

    def poisoned(self, inputs: Arrays) -> Arrays | None:
        """Return the inputs with NaN, infinity and 1e30 in the padding of keys and values, if there is padding."""
        arrays = dict(inputs)
        for name, source in self._made.items():
            for padded in source.padded:
                beyond = np.arange(arrays[padded].shape[1]) >= np.asarray(inputs[name])[:, np.newaxis]
                garbage = np.resize(np.array([np.nan, np.inf, 1e30, -np.inf]), arrays[padded].shape)
                with np.errstate(over="ignore"):  # 1e30 is infinity in float16, which will do as well
                    garbage = garbage.astype(arrays[padded].dtype)
                arrays[padded] = np.where(beyond[..., np.newaxis], garbage, arrays[padded])
        return arrays if any(source.padded for source in self._made.values()) else None

    def magnified(self, inputs: Arrays) -> Arrays | None:
        """Return the inputs with drawn floats 100 times as large, so that scores reach 1e4, if any was drawn.

        A mask stays one.
        """
        fixed = {name for name, source in self._made.items() if source.sampled or source.ids or source.draw is mask}
        drawn = [name for name, array in inputs.items() if array.dtype.kind == "f" and name not in fixed]
        return inputs | {name: inputs[name] * inputs[name].dtype.type(100) for name in drawn} if drawn else None

    def _number_of_keys(self, name: str, arrays: Arrays, sizes: Sizes) -> int:
        source = self._made[name]
        if source.keys is None:
            return max((size for (_, axis), size in sizes.items() if axis > 0), default=1)
        keys = source.keys
        if (model := self._keys[name]) is not None:
            keys = model(self._packed(arrays))
        return int(keys.shape[source.keys_axis]) - source.room

    def outputs(self, inputs: Arrays) -> Arrays:
        """Return Keras's outputs as NumPy arrays."""
        return outputs_of(self._signature)(inputs)

    def problem(self, sizes: Sizes) -> Problem | None:
        """Return why the model gives no numbers on these sizes, or `None` if it does."""
        inputs: Arrays = {}
        try:
            inputs = self.inputs(sizes)
            outputs = self.outputs(inputs)
        except Exception as error:  # noqa: BLE001 - the question is whether it fails, whatever it fails with
            said = first_line(error)
            return Problem(said, f"Keras itself cannot run the model on inputs{_shapes(inputs)}: {said}")
        if self.is_degenerate(inputs, outputs):
            return Problem("NaN or nothing", f"Keras gives NaN or nothing on inputs{_shapes(inputs)}")
        return None

    def is_degenerate(self, inputs: Arrays, outputs: Arrays) -> bool:
        """Tell whether an output holds NaN, or the output of any layer is empty that need not be.

        So it is when a convolution runs out of positions: TensorFlow goes on with the empty tensor, and what comes out
        at the end is nothing to compare with. A layer may also give out an empty tensor in any case, as the DeiT of
        keras_hub does where no attention scores are asked for.
        """
        for output in outputs.values():
            if np.issubdtype(output.dtype, np.floating) and np.isnan(output).any():
                return True
        if self._structure is None:
            return any(0 in output.shape for output in outputs.values())
        with quiet_keras():
            inner = self._of_every_layer(inputs)
        told = self._every_layer.outputs
        return any(0 in found.shape and 0 not in each.shape for found, each in zip(inner, told, strict=True))

    def refuse_unsteady(self, sizes: Sizes) -> None:
        """Refuse a model that does not give the same outputs again, naming the first layer whose output changes.

        A model that draws random numbers is asked more often: what it does with them may seldom show.

        Raises:
            UnsupportedModelError: A layer draws random numbers without `training`, or keeps count of its calls.
        """
        inputs = self.inputs(sizes)
        before = [(state, _numbers(state)) for state in self._states()]
        first = self.outputs(inputs)
        drawn = [state for state, numbers in before if not np.array_equal(numbers, _numbers(state))]
        for _ in range(RUNS_OF_RANDOM if drawn else 1):
            again = self.outputs(inputs)
            if not all(_same(first[name], again[name]) for name in first):
                raise UnsupportedModelError(self._unsteady(inputs, drawn))

    def _states(self) -> list[Any]:
        """Return the variables that are no weights: the states of seed generators among them."""
        weights = {id(weight) for weight in self._model.weights}
        return [variable for variable in self._model.variables if id(variable) not in weights]

    def _unsteady(self, inputs: Arrays, drawn: list[Any]) -> str:
        if drawn:
            holders = [layer for layer in layers_of(self._model) if any(v is drawn[0] for v in layer.variables)]
            name = min(holders, key=lambda layer: len(layers_of(layer))).name
            return (
                f"Layer `{name}` draws random numbers when it is called with `training=False`, and its output changes "
                "with them, which a file cannot do. Let it draw only `if training:`, and return the mean otherwise."
            )
        return (
            f"{self._first_unsteady_layer(inputs)} gives other outputs when it is called again on the same inputs: it "
            "draws random numbers or keeps state in Python, which a file cannot do."
        )

    def _first_unsteady_layer(self, inputs: Arrays) -> str:
        if self._functional is None:
            return "The model"
        with quiet_keras():
            first = self._of_every_layer(inputs)
            for _ in range(RUNS_OF_RANDOM):
                again = self._of_every_layer(inputs)
                for tensor, a, b in zip(self._every_layer.outputs, first, again, strict=True):
                    if not _same(a, b):
                        return f"Layer `{operation_of(tensor).name}`"
        return "A layer of the model"

    def _of_every_layer(self, inputs: Arrays) -> list[Any]:
        found: list[Any] = keras.tree.flatten(self._every_layer(self._packed(inputs)))  # Keras gives one alone as it is
        return found

    @cached_property
    def _every_layer(self) -> Any:
        tensors = [node.output_tensors for node in nodes_of(self._functional)]
        return keras.Model(self._structure, keras.tree.flatten(tensors))

    def _packed(self, inputs: Arrays) -> Any:
        return keras.tree.pack_sequence_as(self._structure, [inputs[spec.name] for spec in self._signature.inputs])


def outputs_of(signature: Signature) -> Callable[[Arrays], Arrays]:
    """Return the function that runs the Keras model of a signature on arrays."""

    def outputs(inputs: Arrays) -> Arrays:
        with quiet_keras():
            tensors = signature.call(inputs)
        return {name: np.asarray(keras.ops.convert_to_numpy(tensor)) for name, tensor in tensors.items()}

    return outputs


def _shapes(inputs: Arrays) -> str:
    return " of shapes " + ", ".join(f"`{name}` {array.shape}" for name, array in inputs.items()) if inputs else ""


def _numbers(variable: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(variable.value))


def alike(one: np.ndarray, other: np.ndarray) -> bool:
    """Tell whether two arrays of floats are the same but for what another order of their sums does."""
    largest = np.abs(np.nan_to_num(other.astype(np.float64), posinf=0, neginf=0)).max(initial=0.0)
    return np.allclose(one, other, rtol=1e-5, atol=1e-6 * largest, equal_nan=True)


def _same(first: Any, second: Any) -> bool:
    """Tell whether two results of one computation agree, but for the order in which threads added up."""
    first, second = keras.ops.convert_to_numpy(first), keras.ops.convert_to_numpy(second)
    return bool(np.allclose(first, second, rtol=1e-3, atol=1e-5, equal_nan=True))


@contextlib.contextmanager
def quiet_keras() -> Iterator[None]:
    """Ignore warnings: the sizes are drawn here, and what Keras thinks of a single key is not for the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
