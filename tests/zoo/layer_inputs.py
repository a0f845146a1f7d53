"""Inputs for the rows of layer_options.txt, and models of these rows with an attention layer of keras-attn."""

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import keras
import numpy as np
from hard_to_check_models import perturb_weights
from keras import layers as L  # noqa: N812 - used in every line of the models
from keras import ops

import keras_attn

from .layer_options import Row

Shape = tuple[int | None, ...]
Arrays = dict[str, np.ndarray]
WORDS = ["a", "b", "c", "a b", "B, c!", "", "d é"]


@dataclass(frozen=True)
class InputKind:
    """Inputs of a group of layers, and the call of a layer with these inputs.

    Attributes:
        shapes: The shapes of the inputs; None is an axis of any size.
        dtype: The dtype of all inputs.
        bounds: The range of the numbers if the export needs samples. Without bounds integers are 0 to 5, and floats
            have a standard normal distribution.
        call: Calls a layer with the inputs.
        is_masked: True if every layer that supports masks is also called with masks.
        is_traced: True if the export runs a graph of the model; loops over time take minutes without a graph.
    """

    shapes: dict[str, Shape]
    dtype: str = "float32"
    bounds: tuple[int, int] | None = None
    call: Callable[..., Any] = lambda layer, *inputs: layer(*inputs)
    is_masked: bool = False
    is_traced: bool = False

    @property
    def samples(self) -> Arrays | None:
        """Sample inputs for the export if it needs them."""
        return self.draw(0, 3, 6) if self.bounds else None

    def draw(self, seed: int, batch: int, size: int) -> Arrays:
        """Return inputs of a batch with `size` for axes of any size; if masks are used, every second row is padded."""
        rng = np.random.default_rng(seed)
        shapes = {name: (batch, *(length or size for length in shape)) for name, shape in self.shapes.items()}
        return {name: self._draw_array(rng, shape) for name, shape in shapes.items()}

    def _draw_array(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        if self.dtype == "string":
            return rng.choice(WORDS, shape).astype(object)
        if self.dtype == "int32":
            return rng.integers(*(self.bounds or (0, 6)), shape, dtype=self.dtype)
        values = rng.uniform(*self.bounds, shape) if self.bounds else rng.standard_normal(shape)
        if self.is_masked:
            values[::2, shape[1] // 2 :] = 0
        return values.astype(self.dtype)


def call_cell(layer: keras.Layer, x: Any, *states: Any) -> Any:
    """Call a recurrent cell with the number of states that the cell has."""
    return layer(x, list(states[: len(layer.state_size) if isinstance(layer.state_size, list) else 1]))


def call_with_list(layer: keras.Layer, *inputs: Any) -> Any:
    """Call a layer with the list of its inputs."""
    return layer([*inputs])


def call_embedding_in_reverse(layer: keras.Layer, x: Any) -> Any:
    """Call an embedding on ids, and on its outputs with `reverse=True`."""
    return layer(layer(x), reverse=True)


def call_in_attention_rnn(layer: keras.Layer, x: Any, y: Any) -> Any:
    """Call an attention cell in an `AttentionRNN` over the steps of `x`."""
    return keras_attn.AttentionRNN(layer)(x, y)


def call_masked_lm_head(layer: keras.Layer, x: Any) -> Any:
    """Call a masked-LM head; its token embedding is built before, as in a model that embeds the ids."""
    positions = ops.argmax(x, axis=1)
    if layer.token_embedding is not None:
        layer.token_embedding(positions)
    return layer(x, positions)


PAIR: dict[str, Shape] = {"x": (None, 4), "y": (None, 4)}
INPUT_KINDS = {
    "recurrent": InputKind({"x": (None, 4)}, is_masked=True, is_traced=True),
    "features": InputKind({"x": (None, 4)}),
    "steps": InputKind({"x": (5, 4)}, is_masked=True),
    "vector": InputKind({"x": (4,)}),
    "matrix": InputKind({"x": (None, 3)}, bounds=(0, 1)),
    "cell": InputKind({"x": (4,), "h": (3,), "c": (3,)}, call=call_cell),
    "1D": InputKind({"x": (None, 4)}, is_masked=True),
    "2D": InputKind({"x": (None, None, 4)}),
    "pixels": InputKind({"x": (None, None, 3)}, bounds=(0, 255)),
    "photo": InputKind({"x": (8, 8, 3)}, bounds=(0, 255)),
    "clip": InputKind({"x": (2, 8, 8, 3)}, bounds=(0, 255)),
    "3D": InputKind({"x": (4, 4, 4, 2)}),
    "frames of 1D": InputKind({"x": (None, 6, 2)}, is_traced=True),
    "frames of 2D": InputKind({"x": (None, 5, 5, 2)}, is_traced=True),
    "video": InputKind({"x": (None, 5, 5, 2)}),
    "frames of 3D": InputKind({"x": (None, 4, 4, 4, 2)}, is_traced=True),
    "tokens": InputKind({"x": (None,)}, "int32"),
    "ids": InputKind({"x": (6,)}, "int32", bounds=(0, 6)),
    "reversed": InputKind({"x": (None,)}, "int32", call=call_embedding_in_reverse),
    "words": InputKind({"x": (6,)}, "string"),
    "texts": InputKind({"x": ()}, "string"),
    "pair of ids": InputKind({"x": (1,), "y": (1,)}, "int32", call=call_with_list),
    "pair of words": InputKind({"x": (1,), "y": (1,)}, "string", call=call_with_list),
    "sound": InputKind({"x": (400,)}),
    "sounds": InputKind({"x": (1600,)}),
    "signal": InputKind({"x": (40, 1)}),
    "pair": InputKind(PAIR, call=call_with_list, is_masked=True),
    "query": InputKind(PAIR, is_masked=True),
    "attention": InputKind(PAIR, call=lambda layer, x, y: layer(x, y, y), is_masked=True),
    "positions": InputKind(PAIR),
    "heads": InputKind({"x": (2, None, 4)}, call=lambda layer, x: layer(x, role="queries")),
    "scores": InputKind({"x": (2, None, None)}),
    "decoder": InputKind(PAIR, call=call_in_attention_rnn, is_traced=True),
    "decoders": InputKind(PAIR, is_masked=True, is_traced=True),
    "masked words": InputKind({"x": (7, 4)}, call=call_masked_lm_head),
}


def evaluate(text: str, **names: Any) -> Any:
    """Evaluate Python code of the table."""
    if "keras_hub." in text:
        names["keras_hub"] = import_module("keras_hub").layers
    return eval(text, {**vars(keras), **vars(L), "keras_attn": keras_attn, **names})


def find_class(row: Row) -> type[keras.Layer]:
    layer_class: type[keras.Layer] = evaluate(row.layer)
    return layer_class


def collect_arguments(row: Row) -> dict[str, Any]:
    """Return the arguments of the constructor by name; the option of a row overrides the arguments of all rows."""
    bind = inspect.signature(find_class(row)).bind_partial
    arguments = evaluate(f"bind({row.base}).arguments", bind=bind)
    return arguments.pop("kwargs", {}) | arguments | evaluate(f"dict({row.option})")


def build_name(row: Row) -> str:
    return re.sub(r"\W+", "_", f"{row.layer}_{row.option}", flags=re.ASCII).strip("_")


def to_sequence(tensor: Any) -> Any:
    """Return a float32 tensor of shape (B, T, D); one that already has this shape keeps its mask."""
    if len(tensor.shape) == 3 and tensor.shape[-1] and tensor.dtype == "float32":
        return tensor
    size = tensor.shape[-1] if len(tensor.shape) > 2 else None
    return L.Reshape((-1, size or 1))(ops.cast(tensor, "float32"))


def build_outputs(row: Row, inputs: Sequence[Any]) -> Iterator[tuple[str, Any]]:
    """Yield names and tensors of the outputs of a row, without masks and, if supported, with masks."""
    kind, layer = INPUT_KINDS[row.kind], find_class(row)(**collect_arguments(row))
    layer.name = build_name(row)
    is_channels_first = "channels_first" in row.option
    if is_channels_first:
        time_axes = [1] if "frames" in row.kind else []
        axes = range(1, len(inputs[0].shape))
        inputs = [L.Permute((*time_axes, axes[-1], *axes[len(time_axes) : -1]))(tensor) for tensor in inputs]
    calls = {"": inputs}
    if kind.is_masked and layer.supports_masking and not is_channels_first:
        calls["_masked"] = [L.Masking()(tensor) for tensor in inputs]
    for suffix, tensors in calls.items():
        for number, output in enumerate(keras.tree.flatten(kind.call(layer, *tensors))):
            yield f"{build_name(row)}{suffix}{number or ''}", output


def build_model(rows: Sequence[Row]) -> keras.Model:
    """Build a model with all outputs of the rows and the output of an attention layer."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    kind = INPUT_KINDS[rows[0].kind]
    batch = 2 if "stateful=True" in rows[0].option else None
    inputs = [keras.Input(shape, batch, kind.dtype, name=name) for name, shape in kind.shapes.items()]
    outputs = dict(output for row in rows for output in build_outputs(row, inputs))
    first = next(iter(outputs.values()))
    keys = to_sequence(L.Hashing(5)(inputs[0]) if kind.dtype == "string" else inputs[0])
    is_sequence = not rows[0].refusal_reason and first.dtype != "string" and first.shape[0] == batch
    queries = to_sequence(first) if is_sequence else keys
    keys = L.Masking()(keys) if kind.is_masked else keys
    outputs["attention"] = keras_attn.AdditiveAttention(4, name="attention")(queries, keys, keys)
    return perturb_weights(keras.Model(dict(zip(kind.shapes, inputs, strict=True)), outputs))
