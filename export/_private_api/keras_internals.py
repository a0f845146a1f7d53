"""Private Keras APIs: functional graphs, sublayers, patches of backend functions."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from keras_attn._keras.private_api import all_sublayers


def find_layers(layer: keras.layers.Layer, *, include_self: bool = True) -> list[Any]:
    """Return a layer or model and all its sublayers, at any depth."""
    return [*([layer] if include_self else []), *all_sublayers(layer)]


def get_quantization(layer: Any) -> str | None:
    """Return the quantization mode of a layer: "int8", "int4", "float8", "gptq", "awq" or None."""
    return getattr(layer, "quantization_mode", None)


def get_own_weights(layer: Any) -> list[Any]:
    """Return the weights of a layer without the weights of its sublayers."""
    return [*layer._trainable_variables, *layer._non_trainable_variables]


def is_group_index(variable: Any) -> bool:
    """Return True for a float weight of indices: the group of each row of a GPTQ or AWQ kernel."""
    return bool(variable.name == "g_idx")


def get_functional(model: Any) -> Any | None:
    """Return the functional model of a functional or sequential model, None for a subclass with its own `call`."""
    functional = getattr(model, "_functional", None) or model
    return functional if getattr(functional, "_inputs_struct", None) is not None else None


def get_inputs_structure(functional: Any) -> Any:
    """Return the inputs of a functional model, in the nested structure of its call argument."""
    return functional._inputs_struct


def get_outputs_structure(functional: Any) -> Any:
    """Return the outputs of a functional model, in the nested structure of its result."""
    return functional._outputs_struct


def iter_functional_nodes(model: Any) -> Iterator[Any]:
    """Yield each call of an operation in a functional or sequential model, inputs first."""
    by_depth = get_functional(model)._nodes_by_depth  # type: ignore[union-attr]
    for depth in sorted(by_depth, reverse=True):  # inputs are deepest
        yield from by_depth[depth]


def evaluate_nodes(functional: Any, inputs: Sequence[Any], call: Callable[..., Any]) -> Any:
    """Evaluate a functional model by `call(node, *args, **kwargs)`, and return its outputs."""
    values = {id(tensor): value for tensor, value in zip(functional.inputs, inputs, strict=True)}
    for node in iter_functional_nodes(functional):
        if not node.is_input:
            args, kwargs = node.arguments.fill_in(values)
            outputs = keras.tree.flatten(call(node, *args, **kwargs))
            values |= zip(map(id, node.outputs), outputs, strict=False)
    return keras.tree.map_structure(lambda tensor: values[id(tensor)], get_outputs_structure(functional))


def trace_spec(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the output specs of a function of `KerasTensor`s, traced on the backend; variables do not change."""
    return keras.src.backend.compute_output_spec(function, *args, **kwargs)


def get_operation(tensor: keras.KerasTensor) -> Any:
    """Return the operation that produced a tensor of a functional model."""
    return tensor._keras_history.operation


def to_numpy_or_none(tensor: Any) -> np.ndarray | None:
    """Return a tensor as an array, or None for a symbolic tensor, such as one in a loop."""
    try:
        return np.asarray(keras.ops.convert_to_numpy(tensor))
    except Exception:  # noqa: BLE001 - each backend raises another type for symbolic tensors
        return None


class SharedUpdates(keras.StatelessScope):
    """A scope in which runs of a model share assignments to variables, which are discarded at its end."""


@contextmanager
def discard_updates() -> Iterator[None]:
    """Discard the assignments of a model to its variables within the context, except inside `SharedUpdates`.

    Some layers assign moving averages and states of seed generators in inference too. Values of variables in an outer
    scope stay valid.
    """
    outer = keras.src.backend.common.stateless_scope.get_stateless_scope()
    if isinstance(outer, SharedUpdates):
        yield
        return
    with keras.StatelessScope() as scope:
        if outer is not None:
            scope.state_mapping.update(outer.state_mapping)
        yield


@contextmanager
def wrap_layer_calls(
    layers: Sequence[Any], wrap: Callable[[Any, Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Replace each layer's `call` by `wrap(layer, call)` within the context."""
    previous_calls = [vars(layer).get("call") for layer in layers]
    for layer in layers:
        vars(layer)["call"] = wrap(layer, layer.call)  # `setattr` would make Keras track it
    try:
        yield
    finally:
        for layer, previous_call in zip(layers, previous_calls, strict=True):
            if previous_call is None:
                del vars(layer)["call"]
            else:
                vars(layer)["call"] = previous_call


def _get_backend_functions() -> Any:
    """Return the namespace of modules that `keras.ops` calls: `backend.ops` from Keras 3.16 on, before `backend`."""
    return getattr(keras.src.backend, "ops", keras.src.backend)


@contextmanager
def detect_additions_along_wrong_axis() -> Iterator[list[bool]]:
    """Yield a list that gets a boolean for each `keras.ops.add` in the context: True if the axis is wrong."""
    # keras PR 20386: on TensorFlow, Keras replaces `x1 + x2` by `tf.nn.bias_add` if `x2` has one dim other than 1 that
    # equals the last or second dim of `x1`, at any position. So (n, n) + (n, 1) adds along the last axis. With unknown
    # sizes in a graph Keras adds correctly, so that eager and traced outputs differ.
    module, is_mistaken = _get_backend_functions().numpy, []
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
    """Track a model in an archive so that each variable is saved once."""
    # Keras tracks its own `Variable` objects in addition to the TensorFlow variables that they wrap.
    archive.track(model)
    for name in ("variables", "trainable_variables", "non_trainable_variables"):
        setattr(archive._tf_trackable, name, [variable.value for variable in getattr(model, name)])


@contextmanager
def disable_default_signature() -> Iterator[None]:
    """Disable Keras's default signature, for which TensorFlow would trace the model again with all sizes unknown."""
    from keras.src.backend.tensorflow.layer import TFLayer

    default_signature = TFLayer._default_save_signature
    TFLayer._default_save_signature = None
    try:
        yield
    finally:
        TFLayer._default_save_signature = default_signature


@contextmanager
def refuse_dynamic_scans() -> Iterator[None]:
    """Raise ValueError for `keras.ops.associative_scan` along an axis of unknown size, within the context."""
    # Keras traces nested branches, one for each halving of the size, fifty of them. For one model this took 348 s, and
    # the result has no mapping to ONNX. By this error the export finds that the axis must be static, and took 13 s.
    core = _get_backend_functions().core
    scan = core.associative_scan

    def checked_scan(f: Callable[..., Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
        if any(tensor.shape[axis] is None for tensor in keras.tree.flatten(elems)):
            raise ValueError(f"`keras.ops.associative_scan` needs a static size for axis {axis}")
        return scan(f, elems, reverse=reverse, axis=axis)

    core.associative_scan = checked_scan
    try:
        yield
    finally:
        core.associative_scan = scan


@contextmanager
def intercept_saturating(change: Callable[[Any], Any]) -> Iterator[None]:
    """Replace each result of a sigmoid or log-softmax by `change(result)` within the context.

    The sigmoids in `silu` and `gelu` are included; functions that `tf.function` traced before are not.
    """
    functions = _get_backend_functions().nn
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
