"""Trace each attention call as a named function, which becomes one ONNX node."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from keras_attn._pooling.composite import Composite, use_evaluator
from keras_attn._types import BandMask, Heads

from .._onnx.traced_model import FUNCTION_DOMAIN
from .._private_api.builtin_attention import BuiltinAttentionCall, intercept_builtin_attention
from .._private_api.tensorflow_internals import NO_INLINE, is_traced_once
from .builtin_attention_calls import evaluate_builtin_attention


# `eq=False` compares by identity: two calls with the same fields are different nodes, and calls are keys of dicts.
@dataclass(frozen=True, eq=False)
class TracedCall:
    """One call of an attention layer in a traced graph.

    Attributes:
        op_type: Name of the ONNX function, in the domain `alt.keras_attn`.
        layer: Path of the layer.
        layer_id: `id` of the layer, since two layers may have the same path; another integer if no layer has the call.
        score: Name of the scoring function.
        shapes: Static shape of each argument by name, in order; see `keras_attn._pooling.composite.Composite`.
        dtypes: Dtype of each argument.
        constants: Arguments with constant values. They are inputs of the ONNX node, but not of the traced function.
        options: Numeric parameters of the scoring function, such as `scale`.
        heads: Numbers of packed heads, or `None` if the weights have no axis for heads.
        band: Band mask: causal mask and attention window.
        normalizer: Name of the normalizer, such as softmax.
        returns_weights: Whether the weights are a second output.
        may_leak_nan: Whether NaN and infinity of masked keys may reach the output, multiplied by a weight of 0.
        full_masks: Names among `mask` and `bias` whose last two axes certainly are (Tq, Tk) and do not broadcast.
    """

    op_type: str
    layer: str
    layer_id: int
    score: str
    shapes: dict[str, tuple[int | None, ...]]
    dtypes: dict[str, str]
    constants: dict[str, np.ndarray]
    options: dict[str, float]
    heads: Heads | None
    band: BandMask
    normalizer: str
    returns_weights: bool
    may_leak_nan: bool = False
    full_masks: frozenset[str] = frozenset()

    @property
    def rank(self) -> int:
        """Rank of queries, keys and values."""
        return len(self.shapes["values"])

    @property
    def num_heads(self) -> int:
        """Number of query heads."""
        return 1 if self.heads is None else self.heads.num_query_heads

    @property
    def num_kv_heads(self) -> int:
        """Number of key/value heads."""
        return 1 if self.heads is None else self.heads.num_kv_heads

    @property
    def key_size(self) -> int:
        """Size of a query and a key in one head."""
        return (self.shapes["queries"][-1] or 0) // self.num_heads

    @property
    def value_size(self) -> int:
        """Size of a value in one head."""
        return (self.shapes["values"][-1] or 0) // self.num_kv_heads

    @property
    def window(self) -> tuple[int | None, int | None]:
        """Window: number of unmasked keys before and after the position of a query; `None` for all."""
        return self.band.window_limits

    @property
    def has_lengths(self) -> bool:
        """Return True if `valid_lens` has one length per example."""
        return "valid_lens" in self.shapes and len(self.shapes["valid_lens"]) == self.rank - 2

    @property
    def has_query_lengths(self) -> bool:
        """Return True if `valid_lens` has one length per query."""
        return "valid_lens" in self.shapes and not self.has_lengths

    @property
    def has_attention_mask(self) -> bool:
        """Return True if the call has an attention mask that may differ between queries or heads."""
        if "mask" not in self.shapes:
            return False
        num_mask_heads = 1 if self.heads is None else self.shapes["mask"][-3]
        return (num_mask_heads, self.shapes["mask"][-2]) != (1, 1)

    @property
    def has_bias(self) -> bool:
        """Return True if a bias is added to the scores."""
        return "bias" in self.shapes

    @property
    def has_key_mask(self) -> bool:
        """Return True if the call has a key mask: the same mask for all queries of an example."""
        return "keys_mask" in self.shapes or ("mask" in self.shapes and not self.has_attention_mask)

    @property
    def mask_differs_by_query(self) -> bool:
        """Return True if the unmasked keys may differ between queries of one example."""
        return self.has_query_lengths or self.has_attention_mask or self.window != (None, None)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return ("output", "weights") if self.returns_weights else ("output",)


class CallTracer:
    """An evaluator of composites that traces each attention call as a named TensorFlow function.

    Attributes:
        calls: All calls of the latest trace.
        needs_zeroed_padding: See `keras_attn._pooling.composite.Evaluator`.
        reasons: By `id` of a layer, the reason if one of its calls is not traced as a named function.
    """

    # A composite is traced as a `tf.function` with the attributes `_implements` ("alt.keras_attn.NAME", the ONNX
    # function) and `_noinline`, so that TensorFlow's optimizers do not inline it. All tensors that it reads are
    # arguments, since captured tensors would be lost; constants are not, since they would be moved into the function.
    # `freeze.py` converts the remaining `PartitionedCall` to one ONNX node. Only float32 calls are traced, in the
    # outermost graph and in bodies of loops and branches inside it, where a call is converted once: a `tf.function` may
    # have several calls, and tf2onnx writes the condition of a loop twice.

    def __init__(self, *, needs_zeroed_padding: bool) -> None:
        self.needs_zeroed_padding = needs_zeroed_padding
        self.calls: list[TracedCall] = []
        self.reasons: dict[int, str] = {}
        self._graph: Any = None

    @contextlib.contextmanager
    def intercept(self) -> Iterator[None]:
        """Evaluate the composites of one trace; the current graph is the outermost graph of the trace."""
        self._graph = tf.compat.v1.get_default_graph()
        self.calls.clear()
        with use_evaluator(self), intercept_builtin_attention(self._evaluate_builtin, self.reasons):
            yield

    def __call__(self, composite: Composite, returns_weights: bool) -> tuple[Any, Any]:
        """Return output and weights of a composite; see `keras_attn._pooling.composite.Evaluator`."""
        tensors = {name: tf.convert_to_tensor(tensor) for name, tensor in composite.tensors.items()}
        if not self._can_trace_call(composite.layer, tensors["values"].dtype.name):
            return composite.function(**tensors)

        constants = {name: tf.get_static_value(tensor) for name, tensor in tensors.items()}
        constants = {name: value for name, value in constants.items() if value is not None}
        variables = {name: tensor for name, tensor in tensors.items() if name not in constants}

        def compute(*argument: Any) -> tuple[Any, ...]:
            output_and_weights = composite.function(**constants, **dict(zip(variables, argument, strict=True)))
            return output_and_weights if returns_weights else output_and_weights[:1]

        call = TracedCall(
            op_type=f"{composite.name}_{len(self.calls)}",
            layer=composite.layer.path,
            layer_id=id(composite.layer),
            score=composite.name,
            shapes={name: tuple(tensor.shape) for name, tensor in tensors.items()},
            dtypes={name: tensor.dtype.name for name, tensor in tensors.items()},
            constants=constants,
            options=dict(composite.options),
            heads=composite.heads,
            band=composite.band,
            normalizer=composite.normalizer,
            returns_weights=returns_weights,
        )
        self.calls.append(call)
        function = tf.function(
            compute,
            autograph=False,
            experimental_implements=f"{FUNCTION_DOMAIN}.{call.op_type}",
            experimental_attributes={NO_INLINE: True},
        )
        # Freezing drops the shapes of the outputs of a call in a loop body.
        outputs = [tf.ensure_shape(output, output.shape) for output in function(*variables.values())]
        return outputs[0], outputs[1] if returns_weights else None

    def _evaluate_builtin(self, attention: BuiltinAttentionCall) -> tuple[Any, Any] | None:
        return evaluate_builtin_attention(attention, self) if self._can_trace_call(attention.layer) else None

    def _can_trace_call(self, layer: Any, dtype: str = "float32") -> bool:
        reason = "" if dtype == "float32" else f"it computes in {dtype}"
        if not is_traced_once(tf.compat.v1.get_default_graph(), self._graph):
            reason = "it is called in a function that TensorFlow traces apart, such as a `tf.function`"
        self.reasons |= {id(layer): reason} if reason else {}
        return not reason
