"""Trace each attention call as a named function, which becomes one ONNX node."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from keras_attn._pooling.composite import Composite, evaluated_by
from keras_attn._types import Heads, Pairs

from .._onnx.traced_model import DOMAIN
from .._private_api.builtin_attention import BuiltinAttentionCall, intercept_builtin_attention
from .._private_api.tensorflow_internals import KEPT_APART, runs_in_place
from .builtin_attention_calls import evaluate_builtin_attention


@dataclass(frozen=True, eq=False)  # each is itself alone, and a key of dicts
class Call:
    """One call of an attention layer in a traced graph.

    Attributes:
        op: The name of its ONNX function, in the domain `alt.keras_attn`.
        layer: The path of the layer.
        owner: The identity of the layer: two may have the same path. Another number if no layer is around it.
        name: The name of its scoring function.
        shapes: Static shape of each argument by name, in order; see `keras_attn._pooling.composite.Composite`.
        dtypes: Their dtypes.
        constants: Arguments with a value that is known: nothing else sees them, or it would be moved into the function.
        options: Numbers the scoring function depends on.
        heads: The heads that lie side by side, or `None` where the weights have no axis for them.
        pairs: Which pairs take part by their order alone.
        normalizer: What makes weights of the scores.
        returns_weights: Whether the weights are a second output.
        leaks: Whether NaN and infinities may come through a mask, as they do through weights of zero.
        whole: Which of `mask` and `bias` are known to have axes as long as the queries and the keys.
    """

    op: str
    layer: str
    owner: int
    name: str
    shapes: dict[str, tuple[int | None, ...]]
    dtypes: dict[str, str]
    constants: dict[str, np.ndarray]
    options: dict[str, float]
    heads: Heads | None
    pairs: Pairs
    normalizer: str
    returns_weights: bool
    leaks: bool = False
    whole: frozenset[str] = frozenset()

    @property
    def rank(self) -> int:
        """The number of axes of queries, keys and values."""
        return len(self.shapes["values"])

    @property
    def num_heads(self) -> int:
        """How many heads of queries there are."""
        return 1 if self.heads is None else self.heads.of_queries

    @property
    def num_kv_heads(self) -> int:
        """How many heads of keys and values there are."""
        return 1 if self.heads is None else self.heads.of_keys

    @property
    def key_size(self) -> int:
        """The size of a query and a key in one head, where there are heads: that of a kernel."""
        return (self.shapes["queries"][-1] or 0) // self.num_heads

    @property
    def value_size(self) -> int:
        """The size of a value in one head, where there are heads."""
        return (self.shapes["values"][-1] or 0) // self.num_kv_heads

    @property
    def band(self) -> tuple[int | None, int | None]:
        """How many keys before and after its own position a query may see; `None` for all."""
        return self.pairs.band

    @property
    def has_lengths(self) -> bool:
        """Whether each example has a length."""
        return "valid_lens" in self.shapes and len(self.shapes["valid_lens"]) == self.rank - 2

    @property
    def has_query_lengths(self) -> bool:
        """Whether each query has a length."""
        return "valid_lens" in self.shapes and not self.has_lengths

    @property
    def has_pair_mask(self) -> bool:
        """Whether there is a mask that may differ between queries, or heads."""
        if "mask" not in self.shapes:
            return False
        of_heads = 1 if self.heads is None else self.shapes["mask"][-3]
        return (of_heads, self.shapes["mask"][-2]) != (1, 1)

    @property
    def has_bias(self) -> bool:
        """Whether something is added to the scores."""
        return "bias" in self.shapes

    @property
    def has_keys_mask(self) -> bool:
        """Whether there is a mask that is the same for all queries of an example."""
        return "keys_mask" in self.shapes or ("mask" in self.shapes and not self.has_pair_mask)

    @property
    def differs_by_query(self) -> bool:
        """Whether queries of one example may see other keys."""
        return self.has_query_lengths or self.has_pair_mask or self.band != (None, None)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return ("output", "weights") if self.returns_weights else ("output",)


class Tagger:
    """An evaluator of composites that traces calls as named functions, which no optimizer takes apart.

    Everything such a function reads is an argument, or it would be lost. Only calls that compute in float32 are
    considered, in the outermost graph and in the loops and branches in it: functions, such as compiled ones, and the
    conditions of loops keep what is in them.

    Attributes:
        calls: All calls of the latest trace.
        hides_masked: See `keras_attn._pooling.composite.Evaluator`.
        reasons: By the identity of a layer, why a call of it is none of these.
    """

    def __init__(self, *, hides_masked: bool) -> None:
        self.hides_masked = hides_masked
        self.calls: list[Call] = []
        self.reasons: dict[int, str] = {}
        self._graph: Any = None

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Evaluate the composites of one trace, whose outermost graph is the current one."""
        self._graph = tf.compat.v1.get_default_graph()
        self.calls.clear()
        with evaluated_by(self), intercept_builtin_attention(self._evaluate_builtin, self.reasons):
            yield

    def __call__(self, composite: Composite, returns_weights: bool) -> tuple[Any, Any]:
        """Return what the composite's function would; see `keras_attn._pooling.composite.Evaluator`."""
        tensors = {name: tf.convert_to_tensor(tensor) for name, tensor in composite.tensors.items()}
        if not self._is_kept(composite.layer, tensors["values"].dtype.name):
            return composite.function(**tensors)

        constants = {name: tf.get_static_value(tensor) for name, tensor in tensors.items()}
        constants = {name: value for name, value in constants.items() if value is not None}
        variable = {name: tensor for name, tensor in tensors.items() if name not in constants}

        def compute(*argument: Any) -> tuple[Any, ...]:
            pair = composite.function(**constants, **dict(zip(variable, argument, strict=True)))
            return pair if returns_weights else pair[:1]

        call = Call(
            op=f"{composite.name}_{len(self.calls)}",
            layer=composite.layer.path,
            owner=id(composite.layer),
            name=composite.name,
            shapes={name: tuple(tensor.shape) for name, tensor in tensors.items()},
            dtypes={name: tensor.dtype.name for name, tensor in tensors.items()},
            constants=constants,
            options=dict(composite.options),
            heads=composite.heads,
            pairs=composite.pairs,
            normalizer=composite.normalizer,
            returns_weights=returns_weights,
        )
        self.calls.append(call)
        function = tf.function(
            compute,
            autograph=False,
            experimental_implements=f"{DOMAIN}.{call.op}",
            experimental_attributes={KEPT_APART: True},
        )
        # with its shape, which freezing forgets of a call in a body
        outputs = [tf.ensure_shape(each, each.shape) for each in function(*variable.values())]
        return outputs[0], outputs[1] if returns_weights else None

    def _evaluate_builtin(self, attention: BuiltinAttentionCall) -> tuple[Any, Any] | None:
        return evaluate_builtin_attention(attention, self) if self._is_kept(attention.layer) else None

    def _is_kept(self, layer: Any, dtype: str = "float32") -> bool:
        reason = "" if dtype == "float32" else f"it computes in {dtype}"
        if not runs_in_place(tf.compat.v1.get_default_graph(), self._graph):
            reason = "it is called in a function that TensorFlow traces apart, such as a `tf.function`"
        self.reasons |= {id(layer): reason} if reason else {}
        return not reason
