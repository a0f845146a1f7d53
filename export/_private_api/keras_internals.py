"""Private Keras APIs: functional graphs, sublayers, patches of backend functions."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from keras_attn._keras.private_api import sublayers_of


def layers_of(layer: keras.layers.Layer, *, include_self: bool = True) -> list[Any]:
    """Return a layer or model and all layers within it, at any depth."""
    return [*([layer] if include_self else []), *sublayers_of(layer)]


def quantization_of(layer: Any) -> str | None:
    """Return what `quantize` made of a layer: "int8", "int4", "float8", "gptq" or "awq"."""
    return getattr(layer, "quantization_mode", None)


def own_weights_of(layer: Any) -> list[Any]:
    """Return the weights that a layer holds itself, without those of layers within it."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def is_group_number(variable: Any) -> bool:
    """Tell whether a weight of floats holds indices: in which group of a quantized kernel each row is."""
    return bool(variable.name == "g_idx")


def functional_of(model: Any) -> Any | None:
    """Return the functional model behind a functional or sequential one, `None` for a subclass with its own `call`."""
    functional = getattr(model, "_functional", None) or model
    return functional if getattr(functional, "_inputs_struct", None) is not None else None


def inputs_structure(functional: Any) -> Any:
    """Return the inputs of a functional model, nested as its caller nests them."""
    return functional._inputs_struct


def outputs_structure(functional: Any) -> Any:
    """Return the outputs of a functional model, nested as it returns them."""
    return functional._outputs_struct


def nodes_of(model: Any) -> Iterator[Any]:
    """Yield each call of an operation in a functional or sequential model, inputs first."""
    by_depth = functional_of(model)._nodes_by_depth  # type: ignore[union-attr]
    for depth in sorted(by_depth, reverse=True):  # inputs are deepest
        yield from by_depth[depth]


def through_nodes(functional: Any, inputs: Sequence[Any], call: Callable[..., Any]) -> Any:
    """Evaluate a functional model by `call(node, *args, **kwargs)`, and return its outputs."""
    values = {id(tensor): value for tensor, value in zip(functional.inputs, inputs, strict=True)}
    for node in nodes_of(functional):
        if not node.is_input:
            args, kwargs = node.arguments.fill_in(values)
            outputs = keras.tree.flatten(call(node, *args, **kwargs))
            values |= zip(map(id, node.outputs), outputs, strict=False)
    return keras.tree.map_structure(lambda tensor: values[id(tensor)], outputs_structure(functional))


def traced_spec(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the outputs of a function of `KerasTensor`s, by a trace on the backend; no variable changes."""
    return keras.src.backend.compute_output_spec(function, *args, **kwargs)


def operation_of(tensor: keras.KerasTensor) -> Any:
    """Return the operation that made a tensor of a functional model."""
    return tensor._keras_history.operation


def numbers_of(tensor: Any) -> np.ndarray | None:
    """Return a tensor as an array; `None` for one of a graph, as within a loop, which has no numbers."""
    try:
        return np.asarray(keras.ops.convert_to_numpy(tensor))
    except Exception:  # noqa: BLE001 - each backend says so in its way
        return None


class KeptUpdates(keras.StatelessScope):
    """A scope in which a run of a model sees what the runs before it assigned; at its end all of it is discarded."""


@contextmanager
def discarded_updates() -> Iterator[None]:
    """Discard what a model assigns to its variables within the context.

    Moving averages and the states of seed generators are assigned by some layers in inference too. Values that an
    outer scope gives variables stay valid, and an outer `KeptUpdates` keeps what is assigned.
    """
    outer = keras.src.backend.common.stateless_scope.get_stateless_scope()
    if isinstance(outer, KeptUpdates):
        yield
        return
    with keras.StatelessScope() as scope:
        if outer is not None:
            scope.state_mapping.update(outer.state_mapping)
        yield


@contextmanager
def through_calls(
    layers: Sequence[Any], wrap: Callable[[Any, Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Let `wrap(layer, call)` give, within the context, what is called in the place of each layer's `call`."""
    previous_calls = [vars(layer).get("call") for layer in layers]
    for layer in layers:
        vars(layer)["call"] = wrap(layer, layer.call)  # past Keras, which tracks what a layer is given
    try:
        yield
    finally:
        for layer, previous_call in zip(layers, previous_calls, strict=True):
            if previous_call is None:
                del vars(layer)["call"]
            else:
                vars(layer)["call"] = previous_call


def _backend_functions() -> Any:
    """Return what holds the modules that `keras.ops` calls: from Keras 3.16 on `ops` of the backend, before itself."""
    return getattr(keras.src.backend, "ops", keras.src.backend)


@contextmanager
def mistaken_biases() -> Iterator[list[bool]]:
    """Yield a list that gets, for each `keras.ops.add` in the context, whether a summand is taken for a bias wrongly.

    On TensorFlow Keras takes one for a bias along the last axis where sizes are known and agree, as of (n, n) and
    (n, 1): keras PR 20386. In a graph where they are not known it does not.
    """
    module, is_mistaken = _backend_functions().numpy, []
    add = module.add

    def recorded_add(x1: Any, x2: Any) -> Any:
        is_mistaken.append(_is_mistaken(*(tuple(getattr(summand, "shape", ())) for summand in (x1, x2))))
        return add(x1, x2)

    module.add = recorded_add if keras.backend.backend() == "tensorflow" else add
    try:
        yield is_mistaken
    finally:
        module.add = add


def _is_mistaken(x: tuple[int | None, ...], bias: tuple[int | None, ...]) -> bool:
    sizes = [(index - len(bias), size) for index, size in enumerate(bias) if size != 1]
    if len(sizes) != 1 or len(x) < 2 or sizes[0][1] not in (x[1], x[-1]):
        return False
    axis, size = sizes[0]
    return axis != (-1 if x[-1] == size else 1 - len(x))


def track_once(archive: keras.export.ExportArchive, model: keras.Model) -> None:
    """Track a model in an archive so that each variable is saved once, without Keras's objects for the same values."""
    archive.track(model)
    for name in ("variables", "trainable_variables", "non_trainable_variables"):
        setattr(archive._tf_trackable, name, [variable.value for variable in getattr(model, name)])


@contextmanager
def disable_default_signature() -> Iterator[None]:
    """Keep Keras from giving TensorFlow, which saves a model, one more function to trace: of sizes all unknown."""
    from keras.src.backend.tensorflow.layer import TFLayer

    default_signature = TFLayer._default_save_signature
    TFLayer._default_save_signature = None
    try:
        yield
    finally:
        TFLayer._default_save_signature = default_signature


@contextmanager
def refuse_dynamic_scans() -> Iterator[None]:
    """Refuse `keras.ops.associative_scan` along an axis of unknown size, for as long as the context lasts.

    Keras traces a branch within a branch for each time the size may be halved, fifty of them, which takes minutes and
    has no form in ONNX.
    """
    core = _backend_functions().core
    scan = core.associative_scan

    def checked_scan(f: Callable[..., Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
        if any(tensor.shape[axis] is None for tensor in keras.tree.flatten(elems)):
            raise ValueError(f"`keras.ops.associative_scan` wants to know the size of axis {axis}")
        return scan(f, elems, reverse=reverse, axis=axis)

    core.associative_scan = checked_scan
    try:
        yield
    finally:
        core.associative_scan = scan


@contextmanager
def through_saturating(change: Callable[[Any], Any]) -> Iterator[None]:
    """Let `change` see, within the context, every result of a sigmoid or log-softmax, and give what is used for it.

    Sigmoids within `silu` and `gelu`, a number times one of it, are seen too; what `tf.function` has traced is not.
    """
    functions = _backend_functions().nn
    sigmoid, silu, gelu, log_softmax = functions.sigmoid, functions.silu, functions.gelu, functions.log_softmax

    def composed_gelu(x: Any, approximate: bool = True) -> Any:
        x = keras.ops.convert_to_tensor(x)
        if approximate:
            return x * functions.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))
        return x * change(0.5 + 0.5 * keras.ops.erf(x * math.sqrt(0.5)))

    functions.sigmoid = lambda x: change(sigmoid(x))
    functions.silu = lambda x: (x := keras.ops.convert_to_tensor(x)) * functions.sigmoid(x)
    functions.gelu = composed_gelu
    functions.log_softmax = lambda x, axis=-1: change(log_softmax(x, axis=axis))
    try:
        yield
    finally:
        functions.sigmoid, functions.silu, functions.gelu, functions.log_softmax = sigmoid, silu, gelu, log_softmax
