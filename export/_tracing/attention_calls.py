"""Trace attention layers as named functions: each call becomes one node, whose body the exporter chooses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from keras_attn._composite import Composite, evaluated_by

from .._internals.tensorflow_internals import KEPT_APART

DOMAIN = "keras_attn"


@dataclass(frozen=True, eq=False)  # each is itself alone, and a key of dicts
class Call:
    """One call of an attention layer in a traced graph.

    Attributes:
        op: The name of its ONNX function, in the domain `keras_attn`.
        layer: The path of the layer.
        owner: The identity of the layer: two may have the same path.
        name: The name of its scoring function.
        shapes: Static shape of each argument by name, in order; see `keras_attn._composite.Composite`.
        dtypes: Their dtypes.
        constants: Arguments with a value that is known: nothing else sees them, or it would be moved into the function.
        options: Numbers the scoring function depends on.
        returns_weights: Whether the weights are a second output.
        compute: The call itself: maps the arguments by name to a tuple of the outputs.
    """

    op: str
    layer: str
    owner: int
    name: str
    shapes: dict[str, tuple[int | None, ...]]
    dtypes: dict[str, str]
    constants: dict[str, np.ndarray]
    options: dict[str, float]
    returns_weights: bool
    compute: Callable[[Mapping[str, Any]], tuple[Any, ...]] = field(repr=False)

    @property
    def rank(self) -> int:
        """The number of axes of queries, keys and values."""
        return len(self.shapes["values"])

    @property
    def mask_is_per_query(self) -> bool:
        """Whether the mask may differ between queries."""
        return "mask" in self.shapes and self.shapes["mask"][-2] != 1

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return ("output", "weights") if self.returns_weights else ("output",)


class Tagger:
    """An evaluator of composites that traces chosen calls as named functions, which no optimizer takes apart.

    Everything such a function reads is an argument, or it would be lost. Only calls in the outermost graph that compute
    in float32 are considered: loops and compiled functions keep what is in them.

    Attributes:
        calls: All calls of the latest trace that were considered.
        tagged: Those that were chosen.
        hides_unseen: See `keras_attn._composite.Evaluator`.
    """

    def __init__(self, chosen: Callable[[Call], bool], *, hides_unseen: bool) -> None:
        """Tag the calls for which `chosen` is true."""
        self.hides_unseen = hides_unseen
        self.calls: list[Call] = []
        self.tagged: list[Call] = []
        self._chosen = chosen
        self._graph: Any = None

    @contextlib.contextmanager
    def tracing(self) -> Iterator[None]:
        """Evaluate the composites of one trace, whose outermost graph is the current one."""
        self._graph = tf.compat.v1.get_default_graph()
        self.calls.clear()
        self.tagged.clear()
        with evaluated_by(self):
            yield

    def __call__(self, composite: Composite, returns_weights: bool) -> tuple[Any, Any]:
        """Return what the composite's function would; see `keras_attn._composite.Evaluator`."""
        tensors = {name: tf.convert_to_tensor(tensor) for name, tensor in composite.tensors.items()}
        if tf.compat.v1.get_default_graph() is not self._graph or tensors["values"].dtype != tf.float32:
            return composite.function(**tensors)

        constants = {name: tf.get_static_value(tensor) for name, tensor in tensors.items()}
        constants = {name: value for name, value in constants.items() if value is not None}
        variable = {name: tensor for name, tensor in tensors.items() if name not in constants}

        def compute(arguments: Mapping[str, Any]) -> tuple[Any, ...]:
            pair = composite.function(**arguments)
            return pair if returns_weights else pair[:1]

        def compute_variable(*argument: Any) -> tuple[Any, ...]:
            return compute({**constants, **dict(zip(variable, argument, strict=True))})

        call = Call(
            op=f"{composite.name}_{len(self.calls)}",
            layer=composite.layer.path,
            owner=id(composite.layer),
            name=composite.name,
            shapes={name: tuple(tensor.shape) for name, tensor in tensors.items()},
            dtypes={name: tensor.dtype.name for name, tensor in tensors.items()},
            constants=constants,
            options=dict(composite.options),
            returns_weights=returns_weights,
            compute=compute,
        )
        self.calls.append(call)
        if not self._chosen(call):
            return composite.function(**tensors)
        self.tagged.append(call)
        function = tf.function(
            compute_variable,
            autograph=False,
            experimental_implements=f"{DOMAIN}.{call.op}",
            experimental_attributes={KEPT_APART: True},
        )
        outputs = function(*variable.values())
        return outputs[0], outputs[1] if returns_weights else None
