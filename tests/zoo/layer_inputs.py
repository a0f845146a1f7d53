"""Inputs of the table of layer options, and models of its rows with one of our attention layers."""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import keras
import numpy as np
from hard_to_check_models import perturb_weights
from keras import layers as L  # noqa: N812 - these files consist of them
from keras import ops

import keras_attn

from .layer_options import Row

Shape = tuple[int | None, ...]
Arrays = dict[str, np.ndarray]
WORDS = ["a", "b", "c", "a b", "B, c!", "", "d é"]


@dataclass(frozen=True)
class Kind:
    """Inputs that layers share, and their call.

    Attributes:
        shapes: The shapes of the inputs; None is an axis of any size.
        dtype: The dtype of all inputs.
        bounds: The range of the numbers if the export needs samples. Other integers are below 6, other floats normal.
        call: Calls a layer with the inputs.
        is_masked: Whether every layer that supports masks is called a second time, with masks.
        is_traced: Whether the export runs a graph of the model; loops over time take minutes without one.
    """

    shapes: dict[str, Shape]
    dtype: str = "float32"
    bounds: tuple[int, int] | None = None
    call: Callable[..., Any] = lambda layer, *inputs: layer(*inputs)
    is_masked: bool = False
    is_traced: bool = False

    @property
    def samples(self) -> Arrays | None:
        """Inputs for the export."""
        return self.draw(0, 3, 6) if self.bounds else None

    def draw(self, seed: int, batch: int, size: int) -> Arrays:
        """Return inputs of a batch, with axes of any size of this size; masked ones end with padding."""
        rng = np.random.default_rng(seed)
        return {name: self._drawn(rng, (batch, *(n or size for n in shape))) for name, shape in self.shapes.items()}

    def _drawn(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        if self.dtype == "string":
            return rng.choice(WORDS, shape).astype(object)
        if self.dtype == "int32":
            return rng.integers(*(self.bounds or (0, 6)), shape, dtype=self.dtype)
        drawn = rng.uniform(*self.bounds, shape) if self.bounds else rng.standard_normal(shape)
        if self.is_masked:
            drawn[::2, shape[1] // 2 :] = 0
        return drawn.astype(self.dtype)


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


def masked_words(layer: keras.Layer, x: Any) -> Any:
    """Call a head of masked words, whose embedding is built before, as in a model that reads the words."""
    positions = ops.argmax(x, axis=1)
    if layer.token_embedding is not None:
        layer.token_embedding(positions)
    return layer(x, positions)


PAIR: dict[str, Shape] = {"x": (None, 4), "y": (None, 4)}
KINDS = {
    "recurrent": Kind({"x": (None, 4)}, is_masked=True, is_traced=True),
    "features": Kind({"x": (None, 4)}),
    "steps": Kind({"x": (5, 4)}, is_masked=True),
    "vector": Kind({"x": (4,)}),
    "matrix": Kind({"x": (None, 3)}, bounds=(0, 1)),
    "cell": Kind({"x": (4,), "h": (3,), "c": (3,)}, call=with_states),
    "1D": Kind({"x": (None, 4)}, is_masked=True),
    "2D": Kind({"x": (None, None, 4)}),
    "pixels": Kind({"x": (None, None, 3)}, bounds=(0, 255)),
    "photo": Kind({"x": (8, 8, 3)}, bounds=(0, 255)),
    "clip": Kind({"x": (2, 8, 8, 3)}, bounds=(0, 255)),
    "3D": Kind({"x": (4, 4, 4, 2)}),
    "frames of 1D": Kind({"x": (None, 6, 2)}, is_traced=True),
    "frames of 2D": Kind({"x": (None, 5, 5, 2)}, is_traced=True),
    "video": Kind({"x": (None, 5, 5, 2)}),
    "frames of 3D": Kind({"x": (None, 4, 4, 4, 2)}, is_traced=True),
    "tokens": Kind({"x": (None,)}, "int32"),
    "ids": Kind({"x": (6,)}, "int32", bounds=(0, 6)),
    "reversed": Kind({"x": (None,)}, "int32", call=reversed_embedding),
    "words": Kind({"x": (6,)}, "string"),
    "texts": Kind({"x": ()}, "string"),
    "pair of ids": Kind({"x": (1,), "y": (1,)}, "int32", call=in_list),
    "pair of words": Kind({"x": (1,), "y": (1,)}, "string", call=in_list),
    "sound": Kind({"x": (400,)}),
    "sounds": Kind({"x": (1600,)}),
    "signal": Kind({"x": (40, 1)}),
    "pair": Kind(PAIR, call=in_list, is_masked=True),
    "query": Kind(PAIR, is_masked=True),
    "attention": Kind(PAIR, call=lambda layer, x, y: layer(x, y, y), is_masked=True),
    "positions": Kind(PAIR),
    "heads": Kind({"x": (2, None, 4)}, call=lambda layer, x: layer(x, role="queries")),
    "scores": Kind({"x": (2, None, None)}),
    "decoder": Kind(PAIR, call=decoded, is_traced=True),
    "decoders": Kind(PAIR, is_masked=True, is_traced=True),
    "masked words": Kind({"x": (7, 4)}, call=masked_words),
}


def evaluated(text: str, **names: Any) -> Any:
    """Return the value of a text of the table."""
    if "keras_hub." in text:
        names["keras_hub"] = import_module("keras_hub").layers
    return eval(text, {**vars(keras), **vars(L), "keras_attn": keras_attn, **names})


def class_of(row: Row) -> type[keras.Layer]:
    kind: type[keras.Layer] = evaluated(row.layer)
    return kind


def arguments_of(row: Row) -> dict[str, Any]:
    """Return the arguments of the constructor by name; the option of a row replaces what all rows have."""
    bind = inspect.signature(class_of(row)).bind_partial
    arguments = evaluated(f"bind({row.base}).arguments", bind=bind)
    return arguments.pop("kwargs", {}) | arguments | evaluated(f"dict({row.option})")


def name_of(row: Row) -> str:
    return re.sub(r"\W+", "_", f"{row.layer}_{row.option}", flags=re.ASCII).strip("_")


def as_sequence(tensor: Any) -> Any:
    """Return a tensor as floats of shape (B, T, D), with the mask of a sequence."""
    if len(tensor.shape) == 3 and tensor.shape[-1] and tensor.dtype == "float32":
        return tensor
    size = tensor.shape[-1] if len(tensor.shape) > 2 else None
    return L.Reshape((-1, size or 1))(ops.cast(tensor, "float32"))


def outputs_of(row: Row, inputs: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield names and tensors of the outputs of a row, without masks and with masks."""
    kind, layer = KINDS[row.kind], class_of(row)(**arguments_of(row))
    layer.name = name_of(row)
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
    inputs = [keras.Input(shape, batch, kind.dtype, name=name) for name, shape in kind.shapes.items()]
    outputs = dict(output for row in rows for output in outputs_of(row, inputs))
    first = next(iter(outputs.values()))
    keys = as_sequence(L.Hashing(5)(inputs[0]) if kind.dtype == "string" else inputs[0])
    is_sequence = not rows[0].refused and first.dtype != "string" and first.shape[0] == batch
    queries = as_sequence(first) if is_sequence else keys
    keys = L.Masking()(keys) if kind.is_masked else keys
    outputs["attention"] = keras_attn.AdditiveAttention(4, name="attention")(queries, keys, keys)
    return perturb_weights(keras.Model(dict(zip(kind.shapes, inputs, strict=True)), outputs))
