"""Trial runs: draw inputs of given sizes, run a model on them, and detect failures.

TensorFlow's eager kernels do not check 'valid' convolutions with strides: if an input has fewer positions than the
kernel, they return uninitialized memory of a wrong shape. So the shapes of all layer outputs are inferred before each
run, which raises in this case. Static inference takes about 10 ms for a network of 150 layers, because most layers
compute an output shape by a formula.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from .._array_comparison import arrays_match
from .._errors import UnsupportedModelError
from .._format.dtypes import numpy_dtype
from .._format.names import Arrays
from .._private_api.keras_internals import (
    SharedUpdates,
    evaluate_nodes,
    find_layers,
    get_functional,
    to_numpy_or_none,
    trace_spec,
)
from .._signature.keras_messages import shorten_message, silence_keras
from .._signature.signature import InputSpec, Signature
from .axis_groups import Axis
from .input_generators import LENGTH_PATTERNS, OVERFLOW_PATTERNS, InputGenerator, Lengths

Sizes = Mapping[Axis, int]
Shapes = tuple[tuple[int, ...], ...]
NAN_OR_EMPTY = "NaN or nothing"
# A layer that drops one example in ten changes no output in 30 runs with probability 0.9**30, 1 in 20.
RANDOM_MODEL_RUNS = 30


class InputSampler:
    """Sampler of inputs of given sizes; the arrays depend on the order of all draws."""

    def __init__(self, specs: Sequence[InputSpec], generators: Mapping[str, InputGenerator]) -> None:
        self._specs = specs
        self._generators = generators
        self._rng = np.random.default_rng(0)

    def draw(self, sizes: Sizes, lengths: str = "mixed") -> Arrays:
        """Return arrays whose dynamic axes have `sizes`, with the pattern of lengths called `lengths`."""
        arrays = {
            spec.name: self._generators[spec.name].draw(shape, self._rng).astype(numpy_dtype(spec.dtype))
            for spec, shape in zip(self._specs, self.list_shapes(sizes), strict=True)
        }
        for name, array in arrays.items():
            rule = self._generators[name].lengths
            if rule is not None:
                cycle = _build_length_cycle(rule, arrays, sizes, lengths)
                arrays[name] = np.resize(cycle, array.size).reshape(array.shape).astype(array.dtype)
        return arrays

    def list_shapes(self, sizes: Sizes) -> Shapes:
        """Return the shape of every input, in the order of the model."""
        return tuple(
            tuple(sizes.get((spec.name, axis), size or 0) for axis, size in enumerate(spec.shape))
            for spec in self._specs
        )

    @property
    def has_texts(self) -> bool:
        """Return True if an input contains strings."""
        return any(generator.texts for generator in self._generators.values())

    @property
    def drawn_floats(self) -> tuple[str, ...]:
        """Return the names of drawn float inputs, except masks and ids."""
        drawn_names = {
            name
            for name, generator in self._generators.items()
            if not (generator.is_sampled or generator.id_range or generator.is_mask)
        }
        return tuple(s.name for s in self._specs if s.name in drawn_names and numpy_dtype(s.dtype).kind == "f")


def _build_length_cycle(rule: Lengths, arrays: Arrays, sizes: Sizes, pattern: str) -> np.ndarray:
    """Return the lengths through which the rows of a batch cycle, a 1-D array."""
    if rule.count_steps is None:
        keys = max((size for (_, axis), size in sizes.items() if axis > 0), default=1)
    else:
        keys = rule.count_steps(arrays)
    cycle = np.array(LENGTH_PATTERNS[pattern](keys))
    if rule.is_of_state and pattern not in OVERFLOW_PATTERNS:
        cycle = np.minimum(cycle, keys)  # a cache returns NaN after an overflow
    return cycle if rule.limit is None else np.clip(cycle, 0, rule.limit - 1)


class RunFailure(NamedTuple):
    """Failure of a model on inputs of some sizes: the message of Keras, and a sentence with the shapes."""

    message: str
    sentence: str


class TrialRuns:
    """Runs of a model on drawn inputs, preceded by static shape inference."""

    def __init__(self, signature: Signature, sampler: InputSampler) -> None:
        self._signature = signature
        self._sampler = sampler
        self.infers_shapes = True
        self._positions: dict[Shapes, list[float]] = {}  # for shapes of inputs that inference accepts

    def find_failure(self, sizes: Sizes) -> RunFailure | None:
        """Return the failure of the model on inputs of some sizes, or `None` if it returns numbers."""
        inputs: Arrays = {}
        try:
            inputs = self._sampler.draw(sizes)
            if (message := self.find_static_failure(inputs)) is not None:
                return RunFailure(message, f"Static shape inference rejects inputs{_format_shapes(inputs)}: {message}")
            outputs = self._signature.run(inputs)
        except UnsupportedModelError:
            raise
        except Exception as error:  # noqa: BLE001 - the type of the error depends on the model
            message, shapes = shorten_message(error), _format_shapes(inputs)
            return RunFailure(message, f"Keras itself cannot run the model on inputs{shapes}: {message}")
        rows = find_nan_rows(inputs, outputs) if self._sampler.has_texts else np.zeros(0, bool)
        finite_outputs = {name: array[~rows] for name, array in outputs.items()} if rows.any() else outputs
        if self.is_degenerate(finite_outputs):
            values = f"{_format_shapes(inputs)}{_format_integers(inputs)}"
            return RunFailure(NAN_OR_EMPTY, f"The model returns NaN or an empty tensor on inputs{values}")
        return None

    def find_static_failure(self, inputs: Arrays) -> str | None:
        """Return the error of static shape inference for the shapes of inputs, or `None` if it accepts them."""
        # An empty layer output is an error too: a convolution of a small image returns an empty tensor, TensorFlow
        # continues with it, and the outputs mean nothing. Inputs at least as large as accepted ones are not inferred.
        shapes = tuple(inputs[spec.name].shape for spec in self._signature.inputs)
        try:
            if not any(_is_within(smaller, shapes) for smaller in self._positions):
                self._infer_cached(shapes)
        except Exception as error:  # noqa: BLE001 - the type of the error depends on the model
            return shorten_message(error)
        return None

    def infer_positions(self, sizes: Sizes) -> list[float] | None:
        """Return the sizes of the dynamic axes of all layer outputs, or `None` if static inference rejects `sizes`."""
        try:
            return self._infer_cached(self._sampler.list_shapes(sizes))
        except Exception:  # noqa: BLE001 - the type of the error depends on the model
            return None

    def is_degenerate(self, outputs: Arrays) -> bool:
        """Return True if an output has NaN, or is empty and static inference cannot detect that."""
        infers = self.infers_shapes and self._signature.is_functional
        return any(
            (array.dtype.kind == "f" and np.isnan(array).any()) or (0 in array.shape and not infers)
            for array in outputs.values()
        )

    def _infer_cached(self, shapes: Shapes) -> list[float]:
        if shapes not in self._positions:
            with silence_keras():
                self._positions[shapes] = _infer_positions(self._signature, shapes) if self.infers_shapes else []
        return self._positions[shapes]


def find_nan_rows(inputs: Arrays, outputs: Arrays) -> np.ndarray:
    """Return a mask (B,) of the rows with NaN outputs, or (0,) if first axes differ or every row has NaN."""
    sizes = {array.shape[:1] for array in (*inputs.values(), *outputs.values())}
    if len(sizes) != 1 or sizes & {(), (0,)}:
        return np.zeros(0, bool)
    floats = [array for array in outputs.values() if array.dtype.kind == "f" and array.size]
    rows = np.any([np.isnan(array).reshape(len(array), -1).any(1) for array in floats], axis=0)
    return rows if np.ndim(rows) and not rows.all() else np.zeros(0, bool)


def _is_within(smaller: Sequence[Sequence[int]], larger: Sequence[Sequence[int]]) -> bool:
    return all(a <= b for pair in zip(smaller, larger, strict=True) for a, b in zip(*pair, strict=True))


def _format_shapes(inputs: Arrays) -> str:
    return " of shapes " + ", ".join(f"`{name}` {array.shape}" for name, array in inputs.items()) if inputs else ""


def _format_integers(inputs: Arrays) -> str:
    """Format the values of integer inputs with one axis, such as lengths, for a message."""
    lengths = {name: array.tolist() for name, array in inputs.items() if array.dtype.kind in "iu" and array.ndim == 1}
    return "".join(f", with `{name}` = {values}" for name, values in lengths.items())


def _infer_positions(signature: Signature, shapes: Shapes) -> list[float]:
    """Infer the sizes of the dynamic axes, except the batch, of all layer outputs; infinity if it depends on values.

    For a subclassed model, only check that a trace accepts the shapes, and return []. Raises if a layer rejects the
    shapes, or has an empty output that the model does not declare as empty.
    """
    pairs = zip(signature.inputs, shapes, strict=True)
    tensors = {spec.name: keras.KerasTensor(shape, spec.dtype) for spec, shape in pairs}
    positions: list[float] = []
    if signature.is_functional:
        _infer_functional(signature.functional, list(tensors.values()), positions)
    elif _has_valid_padding(signature.model):  # a trace takes as long as a run, and only this padding needs it
        trace_spec(signature.call, tensors)
    return positions


def _has_valid_padding(operation: Any) -> bool:
    """Return True if a layer contains a layer with 'valid' padding, False for functions of `keras.ops`."""
    layers = find_layers(operation, include_self=False) if isinstance(operation, keras.Layer) else []
    return any(getattr(layer, "padding", None) == "valid" for layer in layers)


def _infer_functional(functional: Any, inputs: Sequence[Any], positions: list[float]) -> Any:
    """Return the specs of the outputs of a functional model, and append sizes of dynamic axes to `positions`."""

    def infer(node: Any, *args: Any, **kwargs: Any) -> Any:
        operation, tensors = node.operation, keras.tree.flatten(args)
        nested = get_functional(operation)
        if nested is not None and len(tensors) == len(nested.inputs):
            outputs = _infer_functional(nested, tensors, positions)
        elif _has_valid_padding(operation):
            # `compute_output_shape` of a layer with nested convolutions is often an approximate formula.
            outputs = trace_spec(operation.call, *args, **kwargs)
        else:
            outputs = operation.compute_output_spec(*args, **kwargs)
        for tensor, output in zip(node.outputs, keras.tree.flatten(outputs), strict=False):
            declared, shape = getattr(tensor, "shape", ()), getattr(output, "shape", ())
            if 0 in shape and 0 not in declared:
                raise ValueError(f"layer `{operation.name}` has an empty output of shape {tuple(shape)}")
            sizes = [size for axis, size in zip(declared[1:], shape[1:], strict=False) if axis is None]
            positions.extend(math.inf if size is None else size for size in sizes)
        return outputs

    return evaluate_nodes(functional, inputs, infer)


def refuse_nondeterministic(signature: Signature, inputs: Arrays) -> None:
    """Run a model again on the same inputs, and refuse it if the outputs differ.

    Raises:
        UnsupportedModelError: If a layer, without `training`, changes a weight, draws random numbers that change an
            output, or has state in Python.
    """
    with SharedUpdates() as scope:
        first_outputs = signature.run(inputs)
        assigned_variables = [v for v in signature.model.variables if scope.get_current_value(v) is not None]
        weights = {id(weight) for weight in signature.model.weights}
        if stateful := [variable for variable in assigned_variables if id(variable) in weights]:
            raise UnsupportedModelError(
                f"Layer `{_find_layer_of(signature, stateful[0])}` changes a variable, `{stateful[0].name}`, when the "
                "model is called with `training=False`; a file would freeze its present value. Change it only `if "
                "training:`, do not call the layer with `training=True` in the model, or pass the state as an input "
                "and an output."
            )
        random = [variable for variable in assigned_variables if _is_changed(variable, scope)]
        # A random number may change few of the outputs, so one more run is not enough.
        for _ in range(RANDOM_MODEL_RUNS if random else 1):
            outputs = signature.run(inputs)
            if not all(_is_reproduced(first_outputs[name], outputs[name]) for name in first_outputs):
                raise UnsupportedModelError(_explain_nondeterminism(signature, inputs, random))


def _find_layer_of(signature: Signature, variable: Any) -> str:
    """Return the name of the innermost layer that contains a variable."""
    holders = [layer for layer in signature.layers if any(v is variable for v in layer.variables)]
    return str(min(holders, key=lambda layer: len(find_layers(layer))).name)


def _explain_nondeterminism(signature: Signature, inputs: Arrays, random: list[Any]) -> str:
    if random:
        return (
            f"Layer `{_find_layer_of(signature, random[0])}` draws random numbers when it is called with "
            "`training=False`, and its output depends on them, which cannot be exported. Draw random numbers only "
            "`if training:`, and return the mean otherwise."
        )
    return (
        f"{_find_nondeterministic_layer(signature, inputs)} gives other outputs when it is called again on the same "
        "inputs: it draws random numbers or has state in Python, which cannot be exported."
    )


def _find_nondeterministic_layer(signature: Signature, inputs: Arrays) -> str:
    if not signature.is_functional:
        return "The model"
    with SharedUpdates():
        first_outputs = signature.run_layers(inputs)
        for _ in range(RANDOM_MODEL_RUNS):
            for (name, expected), (_, actual) in zip(first_outputs, signature.run_layers(inputs), strict=True):
                if not _is_reproduced(expected, actual):
                    return f"Layer `{name}`"
    return "A layer of the model"


def _is_changed(variable: Any, scope: keras.StatelessScope) -> bool:
    """Return True if a run within a scope assigned a different value to a variable."""
    assigned_value = to_numpy_or_none(
        scope.get_current_value(variable)
    )  # `None` for a symbolic value, as in a `tf.function`
    with keras.StatelessScope():
        current = keras.ops.convert_to_numpy(variable.value)
    return assigned_value is None or not np.array_equal(current, assigned_value)


def _is_reproduced(first: np.ndarray, second: np.ndarray) -> bool:
    """Return True if two outputs are equal up to the order of summation in different threads."""
    return arrays_match(first, second, rtol=1e-3, atol=1e-5)
