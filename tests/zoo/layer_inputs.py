"""Inputs of the table of layer options, and models of its rows with one of our attention layers."""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import keras
import numpy as np
from keras import layers as L  # noqa: N812 - these files consist of them
from keras import ops
from proof_models import perturbed

import keras_attn

from .layer_options import Row

Shape = tuple[int | str | None, ...]  # with the dtype at the end if that is not float32
Arrays = dict[str, np.ndarray]
WORDS = ["a", "b", "c", "a b", "B, c!", "", "d é"]


@dataclass(frozen=True)
class Kind:
    """Inputs that layers share, and their call.

    Attributes:
        shapes: The shapes of the inputs; None is an axis of any size.
        bounds: The range of the numbers. Integers are from 0 to 5 and floats normal if there is none.
        call: Calls a layer with the inputs.
        is_masked: Whether every layer that supports masks is called a second time, with masks.
        has_samples: Whether the export needs samples, because it cannot find the range itself.
        is_traced: Whether the export runs a graph of the model; loops over time take minutes without one.
    """

    shapes: dict[str, Shape]
    bounds: tuple[float, float] | None = None
    call: Callable[..., Any] = lambda layer, *inputs: layer(*inputs)
    is_masked: bool = False
    has_samples: bool = False
    is_traced: bool = False

    @property
    def inputs(self) -> dict[str, tuple[list[Any], str]]:
        """The shape and the dtype of every input."""
        parts = {name: (shape[:-1], shape[-1]) for name, shape in self.shapes.items()}
        return {
            name: ([*shape], dtype) if isinstance(dtype, str) else ([*shape, dtype], "float32")
            for name, (shape, dtype) in parts.items()
        }

    def draw(self, seed: int, batch: int, size: int) -> Arrays:
        """Return inputs of a batch, with axes of any size of this size; masked ones end with padding."""
        rng = np.random.default_rng(seed)
        return {
            name: self._drawn(rng, (batch, *(n or size for n in shape)), dtype)
            for name, (shape, dtype) in self.inputs.items()
        }

    def _drawn(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
        if dtype == "string":
            return rng.choice(WORDS, shape).astype(object)
        if dtype != "float32":
            return rng.integers(0, 6, shape, dtype=dtype)
        drawn = rng.uniform(*self.bounds, shape) if self.bounds else rng.standard_normal(shape)
        if self.is_masked:
            drawn[::2, shape[1] // 2 :] = 0
        return drawn.astype(dtype)


def with_states(layer: keras.Layer, x: Any, *states: Any) -> Any:
    """Call a cell with as many states as the cell has."""
    return layer(x, list(states[: len(layer.state_size) if isinstance(layer.state_size, list) else 1]))


def in_list(layer: keras.Layer, *inputs: Any) -> Any:
    """Call a layer that takes its inputs in a list."""
    return layer([*inputs])


def reversed_embedding(layer: keras.Layer, x: Any) -> Any:
    """Call an embedding, and again in reverse."""
    return layer(layer(x), reverse=True)


def decoded(layer: keras.Layer, x: Any, y: Any) -> Any:
    """Call a cell of attention in a loop over `x`."""
    return keras_attn.AttentionRNN(layer)(x, y)


PAIR: dict[str, Shape] = {"x": (None, 4), "y": (None, 4)}
FRAMES: dict[str, Any] = {"is_masked": True, "is_traced": True}
KINDS = {
    "sequence": Kind({"x": (None, 4)}, is_masked=True),
    "recurrent": Kind({"x": (None, 4)}, is_masked=True, is_traced=True),
    "encoder": Kind({"x": (None, 4)}, is_masked=True),
    "features": Kind({"x": (None, 4)}),
    "steps": Kind({"x": (5, 4)}, is_masked=True),
    "vector": Kind({"x": (4,)}),
    "matrix": Kind({"x": (None, 3)}, bounds=(0, 1)),
    "cell": Kind({"x": (4,), "h": (3,), "c": (3,)}, call=with_states),
    "image": Kind({"x": (None, None, 4)}),
    "pixels": Kind({"x": (None, None, 3)}, bounds=(0, 255), has_samples=True),
    "volume": Kind({"x": (4, 4, 4, 2)}),
    "frames1": Kind({"x": (None, 6, 2)}, **FRAMES),
    "frames2": Kind({"x": (None, 5, 5, 2)}, **FRAMES),
    "frames3": Kind({"x": (None, 4, 4, 4, 2)}, **FRAMES),
    "ids": Kind({"x": (None, "int32")}),
    "indices": Kind({"x": (None, "int32")}),
    "reversed": Kind({"x": (None, "int32")}, call=reversed_embedding),
    "words": Kind({"x": (None, "string")}),
    "texts": Kind({"x": ("string",)}),
    "pair of ids": Kind({"x": (1, "int32"), "y": (1, "int32")}, call=in_list),
    "pair of words": Kind({"x": (1, "string"), "y": (1, "string")}, call=in_list),
    "sound": Kind({"x": (400,)}),
    "signal": Kind({"x": (40, 1)}),
    "pair": Kind(PAIR, call=in_list, is_masked=True),
    "list": Kind(PAIR, call=in_list, is_masked=True),
    "query": Kind(PAIR, is_masked=True),
    "positions": Kind(PAIR),
    "heads": Kind({"x": (2, None, 4)}, call=lambda layer, x: layer(x, role="queries")),
    "scores": Kind({"x": (2, None, None)}),
    "decoder": Kind(PAIR, call=decoded, is_traced=True),
    "decoders": Kind(PAIR, is_masked=True, is_traced=True),
    "masked words": Kind({"x": (7, 4), "positions": (2, "int32")}),
    "boxes": Kind({"x": (6, 4), "classes": (6, 2)}, bounds=(0, 1), has_samples=True),
}


def namespace() -> dict[str, Any]:
    """Return the names that arguments in the table use."""
    return {**vars(keras), **vars(L), "np": np, "keras_attn": keras_attn, "L": L}


def layer_of(row: Row) -> keras.Layer:
    """Return the layer of a row; its name contains the class and the options."""
    names = namespace()
    if row.layer.startswith("keras_hub."):
        names["keras_hub"] = import_module("keras_hub").layers
    (positional, base), (_, options) = (
        eval(f"(lambda *a, **k: (a, k))({text})", names)
        for text in (row.base, row.option)
    )
    kind = eval(row.layer, names)
    layer = kind(**(inspect.signature(kind).bind_partial(*positional).arguments | base | options))
    layer.name = name_of(row)
    return layer


def name_of(row: Row) -> str:
    return re.sub(r"\W+", "_", f"{row.layer}_{row.option}").strip("_")


def as_sequence(tensor: Any) -> Any:
    """Return a tensor as floats of shape (B, T, D), with the mask of a sequence."""
    if len(tensor.shape) == 3 and tensor.shape[-1] and tensor.dtype == "float32":
        return tensor
    size = tensor.shape[-1] if len(tensor.shape) > 2 else None
    return L.Reshape((-1, size or 1))(ops.cast(tensor, "float32"))


def outputs_of(row: Row, inputs: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield names and tensors of the outputs of a row, without masks and with masks."""
    kind, layer = KINDS[row.kind], layer_of(row)
    is_turned = "channels_first" in row.option
    if is_turned:
        time = [1] if "frames" in row.kind else []
        axes = range(1, len(inputs[0].shape))
        inputs = [L.Permute((*time, axes[-1], *axes[len(time) : -1]))(tensor) for tensor in inputs]
    calls = {"": inputs}
    if kind.is_masked and layer.supports_masking and not is_turned:
        calls["_masked"] = [L.Masking()(tensor) for tensor in inputs]
    for end, tensors in calls.items():
        for number, output in enumerate(keras.tree.flatten(kind.call(layer, *tensors))):
            yield f"{name_of(row)}{end}{number or ''}", output


def model_of(rows: Sequence[Row]) -> keras.Model:
    """Return a model with an output for every output of the rows, and one of an attention layer."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    kind = KINDS[rows[0].kind]
    batch = 2 if "stateful=True" in rows[0].option else None
    inputs = [keras.Input(shape, batch, dtype, name=name) for name, (shape, dtype) in kind.inputs.items()]
    outputs = dict(output for row in rows for output in outputs_of(row, inputs))
    first = next(iter(outputs.values()))
    queries = as_sequence(inputs[0] if first.sparse else first)
    keys = queries if inputs[0].dtype == "string" else as_sequence(inputs[0])
    keys = L.Masking()(keys) if kind.is_masked else keys
    outputs["attention"] = keras_attn.AdditiveAttention(4, name="attention")(queries, keys, keys)
    return perturbed(keras.Model(dict(zip(kind.shapes, inputs, strict=True)), outputs))
