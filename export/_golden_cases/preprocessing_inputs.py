"""Find inputs that preprocessing layers read, and generators for their values.

What they hold follows from those: words of a vocabulary and others, numbers of classes, floats around limits of
buckets. A tokenizer of KerasHub's is such a layer too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import keras
import numpy as np

from .._format.dtypes import UNWRITABLE
from .._private_api.keras_internals import numbers_of, through_calls
from .._signature.keras_messages import quiet_keras
from .._signature.signature import InputSpec, Signature
from .random_inputs import Ids, Shape, normal, resized
from .random_texts import Words

LENGTHS = (6, 16, 64)  # of axes without a size: the first with which the model runs
MARK = 7_000_003  # no vocabulary has it
OF_ANY_LENGTH = (42, -805, 12345678, 2**31 - 1, -(2**31))  # as texts, which hashes are made of

LOOKUPS = (keras.layers.StringLookup, keras.layers.IntegerLookup)
HASHES = (keras.layers.Hashing, keras.layers.HashedCrossing)
CLASSES = keras.layers.CategoryEncoding
READERS = (
    *LOOKUPS,
    *HASHES,
    CLASSES,
    keras.layers.TextVectorization,
    keras.layers.Discretization,
    keras.layers.Normalization,
)
Draw = Callable[[Shape, np.random.Generator], np.ndarray]


def readers_of(signature: Signature, given: Mapping[str, np.ndarray]) -> dict[str, list[Any]]:
    """Return the preprocessing layers that take what an input holds, as it is, by the names of inputs."""
    layers = [layer for layer in signature.layers if isinstance(layer, READERS) or _has_pieces(layer)]
    marks = {spec.name: _mark(spec, number) for number, spec in enumerate(signature.inputs)}
    asked = [name for name, mark in marks.items() if mark is not None]
    if not layers or not asked:
        return {}
    found: dict[str, dict[int, Any]] = {}

    def watching(layer: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        def watched(inputs: Any, *args: Any, **kwargs: Any) -> Any:
            for tensor in keras.tree.flatten(inputs):
                if (array := numbers_of(tensor)) is not None:
                    for name in asked:
                        if _is_there(marks[name], array):
                            found.setdefault(name, {})[id(layer)] = layer
            return call(_taken(layer, inputs), *args, **kwargs)

        return watched

    for length in LENGTHS:
        arrays = {spec.name: _array(spec, marks[spec.name], given, length) for spec in signature.inputs}
        try:
            with through_calls(layers, watching), quiet_keras():
                signature.run(arrays)
            break
        except Exception:  # noqa: BLE001 - a mark may be refused once it was seen; if not, other sizes are tried
            if found:
                break
    return {name: list(layers.values()) for name, layers in found.items()}


def words_of(readers: list[Any]) -> Words:
    """Return what an input of strings holds."""
    known: dict[str, None] = {}
    for layer in readers:
        if _has_pieces(layer):
            pieces = (str(each).removeprefix(layer.suffix_indicator) for each in layer.get_vocabulary())
            known |= dict.fromkeys(each for each in pieces if each and not UNWRITABLE.search(each))
        elif not isinstance(layer, HASHES):
            known |= dict.fromkeys(map(str, layer.get_vocabulary(include_special_tokens=False)))
    lookups = [layer for layer in readers if isinstance(layer, LOOKUPS)]
    texts = [layer for layer in readers if isinstance(layer, keras.layers.TextVectorization)]
    splits = (
        not readers or any(map(_has_pieces, readers)) or any(layer.get_config()["split"] is not None for layer in texts)
    )
    return Words(tuple(known), splits, any(_is_closed(layer) for layer in lookups))


def floats_of(readers: list[Any]) -> Draw:
    """Return what draws floats for layers that are made for a range of them."""
    for layer in readers:
        if isinstance(layer, keras.layers.Discretization) and layer.bin_boundaries:
            return partial(_around, np.asarray(layer.bin_boundaries, np.float64))
        if isinstance(layer, keras.layers.Normalization) and not layer.invert:
            mean, deviation = (np.asarray(each) for each in (layer.mean, np.sqrt(layer.variance)))
            return lambda shape, rng, m=mean, d=deviation: _scaled(shape, rng, m, d)  # type: ignore[misc]
    return normal


def _around(limits: np.ndarray, shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Return floats of every bucket, and the limits themselves."""
    width = max(float(np.ptp(limits)), 1.0) / len(limits)
    ends = np.array([limits[0] - width, *limits, limits[-1] + width])
    drawn = rng.choice(ends, shape) + rng.choice([0.0, 0.5], shape) * rng.uniform(-width, width, shape)
    return np.asarray(drawn)


def _scaled(shape: Shape, rng: np.random.Generator, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    drawn = normal(shape, rng)
    scaled = drawn * deviation + mean
    return scaled if scaled.shape == drawn.shape else drawn


def whole_numbers_of(readers: list[Any]) -> Draw | Ids | None:
    """Return what draws whole numbers that are looked up; or the classes that they must be; `None` for neither."""
    if classes := [layer.num_tokens for layer in readers if isinstance(layer, CLASSES)]:
        return Ids(0, min(classes) - 1)
    known: list[int] = []
    for layer in readers:
        if isinstance(layer, LOOKUPS):
            known += [int(each) for each in layer.get_vocabulary(include_special_tokens=False)]
    if not readers or all(isinstance(layer, keras.layers.Normalization) for layer in readers):
        return None
    if not any(_is_closed(layer) for layer in readers if isinstance(layer, LOOKUPS)):
        known += [max(known, default=0) + 1, max(known, default=0) + 1000, -1, 0]
    if any(isinstance(layer, HASHES) for layer in readers):
        known += OF_ANY_LENGTH
    numbers = np.array(known, np.int64)
    return lambda shape, rng: rng.choice(numbers, shape)


def _taken(layer: Any, inputs: Any) -> Any:
    """Return what a layer takes in the place of marks, of which it may be none: others are to be seen too."""
    if isinstance(layer, CLASSES):
        return keras.ops.zeros_like(inputs)
    if isinstance(layer, LOOKUPS) and _is_closed(layer):
        word = layer.get_vocabulary(include_special_tokens=False)[0]
        return keras.ops.convert_to_tensor(np.full(inputs.shape, word, object if isinstance(word, str) else None))
    return inputs


def _has_pieces(layer: Any) -> bool:
    """Tell whether a layer is a `WordPieceTokenizer` of KerasHub, which need not be there to tell."""
    return hasattr(layer, "tokenize") and hasattr(layer, "suffix_indicator")


def _is_closed(layer: Any) -> bool:
    return bool(layer.num_oov_indices == 0 and not layer.invert)


def _mark(spec: InputSpec, number: int) -> str | int | None:
    if spec.dtype == "string":
        return f"kerasattnmark{number}x"
    return MARK + number if spec.dtype in ("int32", "int64", "uint32", "uint64", "float32", "float64") else None


def _is_there(mark: str | int | None, array: np.ndarray) -> bool:
    if isinstance(mark, str):
        return array.dtype == object and any(mark.encode() in each for each in array.flat)
    return array.dtype.kind in "iuf" and bool((array == mark).any())


def _array(spec: InputSpec, mark: str | int | None, given: Mapping[str, np.ndarray], length: int) -> np.ndarray:
    sizes = ((2 if axis == 0 else length) if size is None else size for axis, size in enumerate(spec.shape))
    shape = tuple(sizes)
    if mark is not None:
        return np.full(shape, mark, object if isinstance(mark, str) else spec.dtype)
    return resized(given[spec.name], shape) if spec.name in given else np.ones(shape, spec.dtype)
