"""Intercept attention in built-in layers of Keras and keras_hub while a model is traced."""

# Without these patches, attention of Keras's layers would be plain operators, from which masks cannot be recovered:
# Keras combines query, key, attention and causal masks to one tensor (B, Tq, Tk). Three methods are patched:
# - `_compute_attention_mask` has the single masks as arguments; they are recorded by `id` of its result;
# - `_compute_attention` has queries, keys and values after the projections, and the combined mask;
# - `Attention.call` has both for layers without heads.
# `AdditiveAttention` and keras_hub's `CachedMultiHeadAttention` inherit them. The methods behave as before in all
# threads except the one that entered the context, and for subclasses, which may compute something else.

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any

import keras
from keras import ops

from keras_attn._pooling.composite import DROPOUT_REASON

MULTI_HEAD_LAYERS = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)
SINGLE_HEAD_LAYERS = (keras.layers.Attention, keras.layers.AdditiveAttention)
MEAN, ZEROS, AS_COMPUTED = "mean", "zeros", "as computed"
_REPEAT_OPS = {"Reshape", "Tile", "ExpandDims", "Identity"}  # the ops of TensorFlow's `repeat`


@dataclass(frozen=True)
class MaskParts:
    """The separate masks of a call.

    Attributes:
        query_mask: Query mask, booleans `(B, Tq)`, or None.
        key_mask: Key mask, booleans `(B, Tk)`, or None.
        attention_mask: The `attention_mask` of the call, or None.
        causal: Whether the call has a causal mask.
        window_radius: Number of unmasked keys on either side of the position of a query, or None for all.
    """

    query_mask: Any = None
    key_mask: Any = None
    attention_mask: Any = None
    causal: bool = False
    window_radius: int | None = None


@dataclass(frozen=True, kw_only=True)
class BuiltinAttentionCall:
    """One call of a layer's attention, after its projections.

    Attributes:
        layer: The layer.
        queries: `(B, Tq, D)`, or `(B, Tq, H, D)` with heads.
        keys: `(B, Tk, D)`, or `(B, Tk, G, D)`.
        values: `(B, Tk, Dv)`, or `(B, Tk, G, Dv)`.
        w_v: `(D, 1)` of additive scores, or None for dot products.
        scale: Factor of the dot products.
        masks: The masks; the attention mask as booleans of rank 4 that broadcast to `(B, H, Tq, Tk)`.
        combined_mask: Conjunction of all masks, of the same rank, or None.
        masked_row_output: Output of a fully masked query: the `MEAN` of all values, `ZEROS` for output and weights, or
            `AS_COMPUTED`, the layer's own result, which depends on the rounding of its scores.
        returns_weights: Whether the call returns the weights.
        original: Returns output and weights of the layer itself, with None for weights that are not returned.
    """

    layer: Any
    queries: Any
    keys: Any
    values: Any
    w_v: Any = None
    scale: float = 1.0
    masks: MaskParts
    combined_mask: Any = None
    masked_row_output: str
    returns_weights: bool
    original: Callable[[], tuple[Any, Any]] = field(repr=False)


Evaluate = Callable[[BuiltinAttentionCall], "tuple[Any, Any] | None"]


class _Interception:
    """The evaluator of one thread, and the parts of the combined masks of the layers that it calls."""

    def __init__(self, evaluate: Evaluate, reasons: dict[int, str]) -> None:
        self._evaluate = evaluate
        self._reasons = reasons
        # By `id` of the combined mask, which is stored too, so that the id is not reused.
        self._parts: dict[int, tuple[Any, MaskParts]] = {}

    def attach_parts(self, mask: Any, parts: MaskParts) -> None:
        self._parts[id(mask)] = mask, parts

    def find_parts(self, mask: Any) -> MaskParts:
        return self._parts[id(mask)][1] if id(mask) in self._parts else MaskParts(attention_mask=mask)

    def evaluate_call(self, layer: Any, call: BuiltinAttentionCall | str) -> tuple[Any, Any] | None:
        """Return output and weights of a call, or None if the layer must compute it; `call` may be the reason."""
        if isinstance(call, str):
            self._reasons[id(layer)] = call
            return None
        return self._evaluate(call)


_ACTIVE: ContextVar[_Interception | None] = ContextVar("keras_attn_builtin_attention", default=None)


class MethodPatches:
    """Patches of methods, active while at least one context is entered in any thread.

    A replacement is called with the original method, the layer and the arguments of the call.
    """

    def __init__(self, replacements: dict[tuple[Any, str], Callable[..., Any]]) -> None:
        self._replacements = replacements
        self._originals: dict[tuple[Any, str], Any] = {}
        self._lock = threading.Lock()
        self._num_contexts = 0

    def apply(self) -> None:
        with self._lock:
            self._num_contexts += 1
            if self._num_contexts > 1:
                return
            for (owner, name), replacement in self._replacements.items():
                self._originals[owner, name] = getattr(owner, name)
                setattr(owner, name, _make_method(replacement, self._originals[owner, name]))

    def restore(self) -> None:
        with self._lock:
            self._num_contexts -= 1
            if self._num_contexts:
                return
            for (owner, name), original in self._originals.items():
                setattr(owner, name, original)


def _make_method(replacement: Callable[..., Any], original: Any) -> Any:
    @functools.wraps(original)  # Keras reads the signature of `call`
    def method(layer: Any, *args: Any, **kwargs: Any) -> Any:
        return replacement(original, layer, *args, **kwargs)

    return method


def is_builtin_attention(layer: Any) -> bool:
    """Return True if the class of a layer is a built-in attention layer of Keras or keras_hub, not a subclass."""
    return _has_heads(layer) or type(layer) in SINGLE_HEAD_LAYERS


@contextmanager
def intercept_builtin_attention(evaluate: Evaluate, reasons: dict[int, str] | None = None) -> Iterator[None]:
    """Compute float32 attention of built-in layers by `evaluate` within the context, in this thread.

    Args:
        evaluate: Returns output and weights in the shapes of the layer, or None if the layer must compute them.
        reasons: Is filled with the reason, by `id` of the layer, if a call is not passed to `evaluate`.
    """
    token = _ACTIVE.set(_Interception(evaluate, {} if reasons is None else reasons))
    try:
        _PATCHES.apply()
        yield
    finally:
        _PATCHES.restore()
        _ACTIVE.reset(token)


def _has_heads(layer: Any) -> bool:
    hub = sys.modules.get("keras_hub")  # imported if the model has a layer of keras_hub
    return type(layer) in (
        MULTI_HEAD_LAYERS if hub is None else (*MULTI_HEAD_LAYERS, hub.layers.CachedMultiHeadAttention)
    )


def _compute_attention_mask(original: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute the combined mask, and record its parts."""
    mask = original(layer, *args, **kwargs)
    interception = _ACTIVE.get()
    if interception is None or mask is None or not _has_heads(layer):
        return mask
    arguments = _bind_arguments(original, layer, args, kwargs)
    queries = _cast_to_bool(arguments["query_mask"])
    masks = [_cast_to_bool(arguments[name]) for name in ("value_mask", "key_mask") if arguments[name] is not None]
    keys = functools.reduce(ops.logical_and, masks) if masks else None
    order = {"causal": arguments["use_causal_mask"], "window_radius": _read_window_radius(layer)}
    if queries is None and keys is None and MaskParts(**order) == MaskParts():
        parts = MaskParts(attention_mask=mask)
    else:
        parts = MaskParts(queries, keys, _cast_to_bool(arguments["attention_mask"]), **order)
    interception.attach_parts(mask, parts)
    return mask


def _compute_attention(original: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute output and weights of a layer with heads."""
    interception = _ACTIVE.get()
    if interception is None or not _has_heads(layer):
        return original(layer, *args, **kwargs)
    compute = functools.partial(original, layer, *args, **kwargs)
    arguments = _bind_arguments(original, layer, args, kwargs)
    call = _describe_multi_head(layer, arguments, interception.find_parts(arguments["attention_mask"]), compute)
    return interception.evaluate_call(layer, call) or compute()


def _call_single_head(original: Any, layer: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute the output of a layer without heads, and the weights if the call returns them."""
    interception = _ACTIVE.get()
    if interception is None or type(layer) not in SINGLE_HEAD_LAYERS:
        return original(layer, *args, **kwargs)

    def compute() -> tuple[Any, Any]:
        result = original(layer, *args, **kwargs)
        return result if isinstance(result, tuple) else (result, None)

    call = _describe_single_head(layer, _bind_arguments(original, layer, args, kwargs), compute)
    output, weights = interception.evaluate_call(layer, call) or compute()
    return output if weights is None else (output, weights)


_PATCHES = MethodPatches(
    {(owner, "_compute_attention_mask"): _compute_attention_mask for owner in MULTI_HEAD_LAYERS}
    | {(owner, "_compute_attention"): _compute_attention for owner in MULTI_HEAD_LAYERS}
    | {(keras.layers.Attention, "call"): _call_single_head}
)


def _describe_multi_head(
    layer: Any, arguments: dict[str, Any], parts: MaskParts, compute: Callable[[], Any]
) -> BuiltinAttentionCall | str:
    """Describe a call of `_compute_attention`, or return the reason if the call is unsupported."""
    queries, keys, values = (arguments[name] for name in ("query", "key", "value"))
    is_grouped = isinstance(layer, keras.layers.GroupQueryAttention)
    weights = layer._return_attention_scores if is_grouped else arguments["return_attention_scores"]
    uses_softmax_layer = layer.dropout > 0 or weights
    softmax = type(layer._softmax)
    axes = (1,) if is_grouped else layer._attention_axes
    if reason := _find_first_reason(
        (not _are_float32(queries, keys, values), f"it computes in {layer.compute_dtype}"),
        (layer.dropout > 0 and arguments["training"], DROPOUT_REASON),
        (softmax is not keras.layers.Softmax, f"its softmax is a layer of class {softmax.__name__}"),
        (layer._flash_attention, "it has `flash_attention=True`"),
        (axes != (1,), f"it attends along the axes {axes}"),
        (not _have_rank(4, queries, keys, values), f"its queries have {len(queries.shape) - 1} axes"),
    ):
        return reason
    mask = arguments["attention_mask"]
    if arguments.get("use_causal_mask", False):  # Keras sets this flag if it adds no mask
        if mask is not None:
            return "it has a mask in addition to a causal mask"
        parts = MaskParts(causal=True)
    if not _is_mask_supported(parts):
        return f"its `attention_mask` has {len(parts.attention_mask.shape)} axes"
    if is_grouped:
        keys = _undo_repeat(keys, layer.num_key_value_heads)
        values = _undo_repeat(values, layer.num_key_value_heads)
    return BuiltinAttentionCall(
        layer=layer,
        queries=queries,
        keys=keys,
        values=values,
        scale=layer._inverse_sqrt_head_dim if is_grouped else layer._inverse_sqrt_key_dim,
        masks=replace(parts, attention_mask=_expand_mask_to_4d(parts.attention_mask, uses_softmax_layer)),
        combined_mask=_expand_mask_to_4d(mask, uses_softmax_layer),
        masked_row_output=ZEROS if uses_softmax_layer else MEAN,
        returns_weights=bool(weights),
        original=compute,
    )


def _find_first_reason(*reasons: tuple[Any, str]) -> str:
    """Return the first reason whose condition is true, or an empty string."""
    return next((reason for is_true, reason in reasons if is_true), "")


def _is_mask_supported(parts: MaskParts) -> bool:
    """Return True if the axes of an attention mask are examples, heads, queries and keys."""
    # Keras broadcasts a mask (B, H, Tq, Tk) against (B, Tq, 1) of a query mask: the axis of heads then meets B.
    if parts.attention_mask is None or len(parts.attention_mask.shape) in (2, 3):
        return True
    is_only_mask = parts.query_mask is None and parts.key_mask is None
    return len(parts.attention_mask.shape) == 4 and parts.attention_mask.shape[1] is not None and is_only_mask


def _describe_single_head(
    layer: Any, arguments: dict[str, Any], compute: Callable[[], tuple[Any, Any]]
) -> BuiltinAttentionCall | str:
    """Describe a call of an attention layer without heads, or return the reason if the call is unsupported."""
    queries, values, *keys_argument = arguments["inputs"]
    keys = keys_argument[0] if keys_argument else values
    query_mask, key_mask = (*(arguments["mask"] or ()), None, None)[:2]
    masks = [mask for mask in (query_mask, key_mask) if mask is not None]
    sizes = {queries.shape[-1], keys.shape[-1]}
    if reason := _find_first_reason(
        (not _are_float32(queries, keys, values), f"it computes in {layer.compute_dtype}"),
        (not _have_rank(3, queries, keys, values), f"its queries have {len(queries.shape)} axes"),
        (not _have_rank(2, *masks), "its mask has a value for each pair of query and key"),
        (layer.dropout > 0 and arguments["training"], DROPOUT_REASON),
        (None in sizes or len(sizes) > 1, "the feature sizes of queries and keys are unknown or differ"),
    ):
        return reason
    queries, keys, w_v = _scale_inputs(layer, queries, keys)
    return BuiltinAttentionCall(
        layer=layer,
        queries=queries,
        keys=keys,
        values=ops.convert_to_tensor(values),
        w_v=w_v,
        masks=MaskParts(_cast_to_bool(query_mask), _cast_to_bool(key_mask), causal=bool(arguments["use_causal_mask"])),
        masked_row_output=AS_COMPUTED,
        returns_weights=bool(arguments["return_attention_scores"]),
        original=compute,
    )


def _scale_inputs(layer: Any, queries: Any, keys: Any) -> tuple[Any, Any, Any]:
    """Return scaled queries and keys, and `w_v` `(D, 1)` of additive scores or None for dot products."""
    queries, keys = ops.convert_to_tensor(queries), ops.convert_to_tensor(keys)
    units = ops.ones((queries.shape[-1], 1), "float32")
    if type(layer) is keras.layers.AdditiveAttention:
        return queries, keys, units if layer.scale is None else ops.expand_dims(layer.scale, -1)
    scale = 1.0 if layer.scale is None else ops.convert_to_tensor(layer.scale)
    if layer.score_mode == "dot":
        return queries * scale, keys, None
    return queries * scale, keys * scale, units * layer.concat_score_weight


def _bind_arguments(function: Any, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    bound = inspect.signature(function).bind(layer, *args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _read_window_radius(layer: Any) -> int | None:
    is_grouped = isinstance(layer, keras.layers.GroupQueryAttention)
    window = layer.sliding_window if is_grouped else layer._sliding_window
    return None if window is None else window - 1


def _are_float32(*tensors: Any) -> bool:
    return all(keras.backend.standardize_dtype(tensor.dtype) == "float32" for tensor in tensors)


def _have_rank(rank: int, *tensors: Any) -> bool:
    return all(len(tensor.shape) == rank for tensor in tensors)


def _cast_to_bool(mask: Any) -> Any:
    return None if mask is None else ops.cast(mask, "bool")


def _expand_mask_to_4d(mask: Any, uses_softmax_layer: bool) -> Any:
    """Return an attention mask as booleans of rank 4, `(B, H, Tq, Tk)`; dims may be 1."""
    if mask is None:
        return None
    mask = ops.convert_to_tensor(mask)
    if uses_softmax_layer and keras.backend.standardize_dtype(mask.dtype) != "bool":
        # `keras.layers.Softmax` masks numbers up to 0.5; other code paths cast to bool.
        mask = ops.greater(mask, ops.cast(0.5, mask.dtype))
    while len(mask.shape) < 4:
        mask = ops.expand_dims(mask, 0 if len(mask.shape) == 2 else 1)
    return _cast_to_bool(mask)


def _undo_repeat(tensor: Any, heads: int) -> Any:
    """Return the keys or values `(B, Tk, G, D)` before the layer repeated their heads, or `tensor` if not found."""
    source = tensor
    while source.shape.rank != 4 or source.shape[2] != heads:
        op = getattr(source, "op", None)  # an eager tensor has none
        if op is None or op.type not in _REPEAT_OPS:
            return tensor
        source = op.inputs[0]
    return source
