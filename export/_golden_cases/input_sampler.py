"""Draw inputs of given sizes, run the model on them, and detect failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from .._array_comparison import alike
from .._errors import UnsupportedModelError
from .._format.dtypes import numpy_dtype
from .._format.names import Arrays
from .._private_api.keras_internals import KeptUpdates, discarded_updates, inputs_structure, layers_of, numbers_of
from .._signature.keras_messages import first_line, quiet_keras
from .._signature.signature import InputSpec, Signature
from .._signature.static_shapes import infer_positions
from .axis_groups import Axis
from .input_generators import BEYOND_KEYS, LENGTHS, Source
from .nan_rows import nan_rows
from .random_inputs import mask

Sizes = Mapping[Axis, int]
Shapes = tuple[tuple[int, ...], ...]
NAN = "NaN or nothing"
RUNS_OF_RANDOM = 30  # of a layer that drops one example in ten, all but 1 in 20 models show it


class Problem(NamedTuple):
    """Why a model gives no numbers on inputs of some sizes: what Keras said, and that in a sentence with the shapes."""

    said: str
    sentence: str


class Drawer:
    """Draws inputs of given sizes and runs the Keras model on them."""

    def __init__(self, signature: Signature, made: Mapping[str, Source]) -> None:
        self._signature = signature
        self._made = made
        self._rng = np.random.default_rng(0)
        self.infers_shapes = True
        self._positions: dict[Shapes, list[float]] = {}  # by shapes of inputs that static inference accepts
        self._size_models: dict[int, keras.Model] = {}  # by tensor, whose sizes the models compute

    def inputs(self, sizes: Sizes, lengths: str = "mixed") -> Arrays:
        """Return arrays whose free axes have `sizes`, and whose lengths follow the pattern called `lengths`."""
        arrays = {}
        for spec in self._signature.inputs:
            drawn = self._made[spec.name].draw(self._shape(spec, sizes), self._rng)
            arrays[spec.name] = drawn.astype(numpy_dtype(spec.dtype))
        for spec in self._signature.inputs:
            if self._made[spec.name].lengths:
                keys = self._number_of_keys(spec.name, arrays, sizes)
                cycle = np.array(LENGTHS[lengths](keys))
                if self._made[spec.name].appended and lengths not in BEYOND_KEYS:
                    cycle = np.minimum(cycle, keys)  # a state without room gives NaN
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
        drawn = self.floats
        return inputs | {name: inputs[name] * inputs[name].dtype.type(100) for name in drawn} if drawn else None

    @property
    def floats(self) -> tuple[str, ...]:
        """Float inputs that are drawn, except masks and numbers that are looked up."""
        fixed = {name for name, source in self._made.items() if source.sampled or source.ids or source.draw is mask}
        dtypes = {spec.name: numpy_dtype(spec.dtype) for spec in self._signature.inputs if spec.name not in fixed}
        return tuple(name for name, dtype in dtypes.items() if dtype.kind == "f")

    def _number_of_keys(self, name: str, arrays: Arrays, sizes: Sizes) -> int:
        source = self._made[name]
        if source.keys is None:
            return max((size for (_, axis), size in sizes.items() if axis > 0), default=1)
        appended = sum(self._size(tensor, -2, arrays) for tensor in source.appended)
        return max(self._size(source.keys, source.keys_axis, arrays) - appended, 0)

    def _size(self, tensor: Any, axis: int, arrays: Arrays) -> int:
        """Return the size that a tensor of the model has along an axis; an integer is the size itself."""
        if isinstance(tensor, int):
            return tensor
        if tensor.shape[axis] is None:
            if id(tensor) not in self._size_models:
                self._size_models[id(tensor)] = keras.Model(inputs_structure(self._signature.functional), tensor)
            with discarded_updates():
                tensor = self._size_models[id(tensor)](self._signature.packed(arrays), training=False)
        return int(tensor.shape[axis])

    def problem(self, sizes: Sizes) -> Problem | None:
        """Return why the model gives no numbers on these sizes, or `None` if it does."""
        inputs: Arrays = {}
        try:
            inputs = self.inputs(sizes)
            if (said := self.static_problem(inputs)) is not None:
                return Problem(said, f"Static shape inference rejects inputs{_shapes(inputs)}: {said}")
            outputs = self._signature.run(inputs)
            if any(source.words for source in self._made.values()) and (rows := nan_rows(inputs, outputs)).any():
                outputs = {name: array[~rows] for name, array in outputs.items()}
        except UnsupportedModelError:
            raise
        except Exception as error:  # noqa: BLE001 - the question is whether it fails, whatever it fails with
            said = first_line(error)
            return Problem(said, f"Keras itself cannot run the model on inputs{_shapes(inputs)}: {said}")
        if self.is_degenerate(outputs):
            return Problem(NAN, f"Keras gives NaN or nothing on inputs{_shapes(inputs)}{_integers(inputs)}")
        return None

    def static_problem(self, inputs: Arrays) -> str | None:
        """Return why static shape inference rejects the shapes of inputs, or `None` if it accepts them.

        An empty layer output is rejected too: kernels continue with an empty tensor, and the outputs at the end show
        nothing. Larger inputs than accepted ones have no fewer positions, and are not inferred again.
        """
        shapes = tuple(inputs[spec.name].shape for spec in self._signature.inputs)
        try:
            if not any(_within(smaller, shapes) for smaller in self._positions):
                self._inferred(shapes)
        except Exception as error:  # noqa: BLE001 - the question is whether it fails, whatever it fails with
            return first_line(error)
        return None

    def positions(self, sizes: Sizes) -> list[float] | None:
        """Return the sizes of the open axes of all layer outputs, or `None` if static inference rejects the sizes."""
        try:
            return self._inferred(tuple(self._shape(spec, sizes) for spec in self._signature.inputs))
        except Exception:  # noqa: BLE001 - the question is whether it fails, whatever it fails with
            return None

    def _inferred(self, shapes: Shapes) -> list[float]:
        if shapes not in self._positions:
            with quiet_keras():
                self._positions[shapes] = infer_positions(self._signature, shapes) if self.infers_shapes else []
        return self._positions[shapes]

    def _shape(self, spec: InputSpec, sizes: Sizes) -> tuple[int, ...]:
        return tuple(sizes.get((spec.name, axis), size or 0) for axis, size in enumerate(spec.shape))

    def is_degenerate(self, outputs: Arrays) -> bool:
        """Return True if an output holds NaN, or if an output is empty and static inference cannot show it."""
        infers = self.infers_shapes and self._signature.is_functional
        return any(
            (array.dtype.kind == "f" and np.isnan(array).any()) or (0 in array.shape and not infers)
            for array in outputs.values()
        )

    def refuse_unsteady(self, sizes: Sizes) -> None:
        """Refuse a model that changes its weights in inference, or does not return the same outputs again.

        A model that draws random numbers runs more often: few of the numbers may change an output.

        Raises:
            UnsupportedModelError: A layer changes a weight or draws random numbers without `training`, or counts its
                calls.
        """
        inputs = self.inputs(sizes)
        with KeptUpdates() as scope:
            first = self._signature.run(inputs)
            assigned = [v for v in self._signature.model.variables if scope.get_current_value(v) is not None]
            weights = {id(weight) for weight in self._signature.model.weights}
            if stateful := [variable for variable in assigned if id(variable) in weights]:
                raise UnsupportedModelError(self._stateful(stateful[0]))
            drawn = [variable for variable in assigned if _is_changed(variable, scope)]
            for _ in range(RUNS_OF_RANDOM if drawn else 1):
                again = self._signature.run(inputs)
                if not all(_same_again(first[name], again[name]) for name in first):
                    raise UnsupportedModelError(self._unsteady(inputs, drawn))

    def _holder_of(self, variable: Any) -> str:
        """Return the name of the innermost layer that has a variable."""
        holders = [layer for layer in self._signature.layers if any(v is variable for v in layer.variables)]
        return str(min(holders, key=lambda layer: len(layers_of(layer))).name)

    def _stateful(self, variable: Any) -> str:
        return (
            f"Layer `{self._holder_of(variable)}` changes a variable, `{variable.name}`, when the model is called with "
            "`training=False`; a file would freeze the value it has now. Let the layer change the variable only `if "
            "training:`, do not call it with `training=True` in the model, or pass the state as an input and an output."
        )

    def _unsteady(self, inputs: Arrays, drawn: list[Any]) -> str:
        if drawn:
            return (
                f"Layer `{self._holder_of(drawn[0])}` draws random numbers when it is called with `training=False`, "
                "and its output changes with them, which a file cannot do. Let it draw only `if training:`, and return "
                "the mean otherwise."
            )
        return (
            f"{self._first_unsteady_layer(inputs)} gives other outputs when it is called again on the same inputs: it "
            "draws random numbers or keeps state in Python, which a file cannot do."
        )

    def _first_unsteady_layer(self, inputs: Arrays) -> str:
        if self._signature.is_functional:
            with KeptUpdates():
                first = self._signature.layer_outputs(inputs)
                for _ in range(RUNS_OF_RANDOM):
                    for (name, one), (_, other) in zip(first, self._signature.layer_outputs(inputs), strict=True):
                        if not _same_again(one, other):
                            return f"Layer `{name}`"
            return "A layer of the model"
        return "The model"


def _within(smaller: Sequence[Sequence[int]], larger: Sequence[Sequence[int]]) -> bool:
    return all(one <= other for pair in zip(smaller, larger, strict=True) for one, other in zip(*pair, strict=True))


def _shapes(inputs: Arrays) -> str:
    return " of shapes " + ", ".join(f"`{name}` {array.shape}" for name, array in inputs.items()) if inputs else ""


def _integers(inputs: Arrays) -> str:
    """Return the values of integer inputs with one axis, such as lengths, for a message."""
    few = {name: array.tolist() for name, array in inputs.items() if array.dtype.kind in "iu" and array.ndim == 1}
    return "".join(f", with `{name}` = {values}" for name, values in few.items())


def _is_changed(variable: Any, scope: keras.StatelessScope) -> bool:
    """Return whether a run within a scope assigned another value to a variable than the variable has outside."""
    assigned = numbers_of(scope.get_current_value(variable))  # `None` if a `tf.function` was traced, for instance
    with keras.StatelessScope():
        before = keras.ops.convert_to_numpy(variable.value)
    return assigned is None or not np.array_equal(before, assigned)


def _same_again(first: Any, second: Any) -> bool:
    """Tell whether a computation gave the same twice, but for the order in which threads added up."""
    return alike(*map(keras.ops.convert_to_numpy, (first, second)), rtol=1e-3, atol=1e-5)
