"""Choose a generator of random or sampled arrays for each model input."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from keras_attn._states.cache import PROJECTED

from .._errors import InputError
from .._format.names import STRING
from .._signature.signature import InputSpec, Signature
from .embedding_inputs import Found, found_ids
from .input_uses import InputUse, state_in, tensors_by_name, uses_of
from .preprocessing_inputs import floats_of, readers_of, whole_numbers_of, words_of
from .random_inputs import Deck, Ids, Shape, mask, normal_with_padding, resized
from .random_texts import Words

# How lengths are set in a case, by name: rows cycle through what the function gives for a number of keys.
LENGTHS: dict[str, Callable[[int], list[int]]] = {
    "mixed": lambda keys: [max(keys - 1, 1), 1, keys],
    "zero": lambda keys: [0],
    "one": lambda keys: [1],
    "full": lambda keys: [keys],
    "over-full": lambda keys: [keys + 3],
    "negative": lambda keys: [-1, keys],
    "every": lambda keys: [0, keys + 1, 1, keys, -2, keys // 2],
}

BEYOND_KEYS = ("over-full", "every")  # in which a state has no room for what is appended

# The arguments of our layers that are lengths, and those whose steps they count.
COUNTED = {"valid_lens": ("keys", "values", "scores", "memory"), "input_lens": ("inputs",)}


@dataclass(frozen=True)
class Source:
    """Makes arrays for one input.

    `draw` takes a shape and a generator. For an input of lengths, `keys` is the tensor of the model whose axis -2
    they count (axis -1 for scores), or `None` where only the sizes of the case are known, and `padded` names the inputs
    that are the keys or values themselves: what stands there beyond a length of shape (B,) must not matter. Lengths
    that feed an `Embedding` too stay `below` its size, and lengths of states `below` those in samples. `ids` are all
    numbers that may be looked up, as `table` is where they are not drawn but sampled, and `padding` is what fills the
    steps that a model skips, which stand at the end of some of the rows that are drawn. `appended` are the
    tensors whose positions, along axis -2, are appended to a state behind the length, or their numbers. `words` are
    what an input of strings holds.
    """

    draw: Callable[[Shape, np.random.Generator], np.ndarray]
    lengths: bool = False
    keys: Any = None
    keys_axis: int = -2
    padded: tuple[str, ...] = ()
    below: int | None = None
    sampled: bool = False
    ids: Ids | None = None
    table: Ids | None = None
    padding: float | None = None
    appended: tuple[Any, ...] = ()
    words: Words | None = None


def sources(signature: Signature, given: Mapping[str, np.ndarray]) -> dict[str, Source]:
    """Return the source of every input.

    Floats are drawn normal, booleans at even odds, what is looked up in an `Embedding` within its range, integers that
    feed `valid_lens` or are called so within the keys' length, numbers that are a mask and integers for one of two
    segments as 0 and 1.
    A sample, where `given`, is resized instead.

    Raises:
        InputError: Integer inputs feed something else and have no sample.
    """
    functional = signature.functional
    tensors = {} if functional is None else tensors_by_name(signature)
    found, readers = found_ids(signature, given), readers_of(signature, given)
    made: dict[str, Source] = {}
    unknown: dict[InputSpec, list[InputUse]] = {}
    for spec in signature.inputs:
        uses = None if functional is None else list(uses_of(functional, tensors[spec.name]))
        read, sample = readers.get(spec.name, []), given.get(spec.name)
        if spec.dtype == STRING:
            made[spec.name] = _source_of_strings(words_of(read), sample)
            continue
        source = _source(spec, uses, sample, tensors, found, read)
        if source is None:
            unknown[spec] = uses or []
        else:
            made[spec.name] = source
    if unknown:
        raise InputError(_unknown(unknown))
    return made


def _unknown(inputs: Mapping[InputSpec, list[InputUse]]) -> str:
    """Say all that is known of inputs of which it is not known what they may hold."""
    known = []
    for spec, uses in inputs.items():
        feeds = ", ".join(dict.fromkeys(f"`{use.operation.name}`" for use in uses))
        known.append(f"`{spec.name}` ({spec.dtype}, shape {spec.shape}{f', feeds {feeds}' if feeds else ''})")
    samples = ", ".join(f"{spec.name!r}: ..." for spec in inputs)
    return (
        f"It is not known which integers may be in {' and '.join(known)}: no Embedding was seen to look them up, they "
        f"are no `valid_lens`, and no mask by their name. Pass `sample_inputs={{{samples}}}` (`--samples`)."
    )


def _source(
    spec: InputSpec,
    uses: list[InputUse] | None,
    sample: np.ndarray | None,
    tensors: Mapping[str, Any],
    found: Found,
    readers: list[Any],
) -> Source | None:
    """Return the source of one input; `None` where it is not known what the input may hold."""
    uses_of_it = uses or []
    lengths = next((use for use in uses_of_it if use.argument in COUNTED), None)
    tables = [use.operation for use in uses_of_it if isinstance(use.operation, keras.layers.Embedding)]
    is_mask = not tables and spec.dtype != "bool" and _is_mask(spec, uses_of_it)
    ids = None if is_mask else _ids(spec, tables, found)  # a product of ids and a mask is looked up too
    if lengths is not None:
        below = None if ids is None else ids.high + 1
        attended = [lengths.bound.get(name) for name in COUNTED[lengths.argument]]
        attended = [tensor for tensor in attended if tensor is not None and not isinstance(tensor, Mapping)]
        if not attended:  # a block of the user's own: the lengths are taken for those of its first tensor, along axis 1
            others = (value for name, value in lengths.bound.items() if name != lengths.argument)
            first = next((value for value in others if len(getattr(value, "shape", ())) > 1), None)
            return Source(_counts, True, None if lengths.inner else first, 1, below=below)
        keys = None if lengths.inner else attended[0]  # not a mapping, which is what `precompute` gave
        has_features = "scores" not in lengths.bound
        padding = attended if len(spec.shape) == 1 and has_features else []
        padded = tuple(name for name, tensor in tensors.items() if any(tensor is each for each in padding))
        return Source(_counts, True, keys, -2 if has_features else -1, padded, below)
    if spec.dtype.startswith("int") and (source := _source_of_filled(uses_of_it, sample)) is not None:
        return source
    is_called_lengths = "valid_lens" in spec.name and np.issubdtype(spec.dtype, np.integer)
    if uses is None and is_called_lengths:
        return Source(_counts, True)
    if sample is not None:
        return Source(lambda shape, rng: resized(sample, shape), sampled=True, table=ids)
    if ids is None and is_called_lengths:  # of a mask that the user makes, as for a recurrent layer
        return Source(_counts, True)
    if spec.dtype == "bool":
        return Source(lambda shape, rng: rng.random(shape) < 0.5)
    if ids is not None:
        return _source_of_ids(spec, ids)
    if is_mask:
        return Source(mask, padding=0 if len(spec.shape) == 2 else None)
    if not np.issubdtype(spec.dtype, np.integer):
        return _source_of_floats(spec, uses_of_it, readers)
    if (looked_up := whole_numbers_of(readers)) is not None:
        return _source_of_ids(spec, looked_up) if isinstance(looked_up, Ids) else Source(looked_up)
    if SEGMENTS.search(spec.name.lower()):
        return _source_of_ids(spec, Ids(0, 1))
    # a table that was not seen at work, as in a loop, and of one size only: what else would be looked up there?
    sizes = {table.input_dim for table in found.unseen}
    if not sizes and spec.dtype in ("uint8", "int8"):  # such as pixels: any number of the dtype
        ends = np.iinfo(spec.dtype)
        return Source(lambda shape, rng: rng.integers(ends.min, ends.max, shape, endpoint=True))
    return _source_of_ids(spec, Ids(0, sizes.pop() - 1)) if len(sizes) == 1 else None


def _source_of_strings(words: Words, sample: np.ndarray | None) -> Source:
    if sample is None:
        return Source(words.draw, words=words)
    return Source(lambda shape, rng: resized(sample, shape), sampled=True, words=words)


def _source_of_filled(uses: list[InputUse], sample: np.ndarray | None) -> Source | None:
    """Return the source of the length of a state with a capacity, or `None` if the input is no such length."""
    states = [(use, state) for use in uses if (state := state_in(use.bound[use.argument])) is not None]
    if not states:
        return None
    use, state = states[0]
    appending = [other for other, _ in states if other.argument not in ("keys", "values")]
    appended = tuple(1 if other.inner else other.bound.get("keys", 1) for other in appending)
    below = None if sample is None else int(sample.max()) + 1
    return Source(_counts, True, None if use.inner else state[PROJECTED], below=below, appended=appended)


SEGMENTS = re.compile(r"segment|token_type")
# `mask_positions` counts where masked tokens are, a `masked_image` is one
NO_MASK = re.compile(r"position|ind(ex|ices)|masked")


def _is_mask(spec: InputSpec, uses: list[InputUse]) -> bool:
    """Tell whether an input is a mask: by its own name, or by that of an argument it is passed as."""
    names = [spec.name.lower(), *(use.argument for use in uses)]
    return any("mask" in name and not NO_MASK.search(name) for name in names)


def _ids(spec: InputSpec, tables: list[Any], found: Found) -> Ids | None:
    """Return what may be looked up: in the tables that an input feeds, and by what was seen of a run."""
    known = [Ids(0, table.input_dim - 1, bool(table.mask_zero)) for table in tables]
    if spec.name in found.ids:
        known.append(found.ids[spec.name])
    return functools.reduce(Ids.__and__, known) if known else None


def _source_of_ids(spec: InputSpec, ids: Ids) -> Source:
    return Source(Deck(ids).draw, ids=ids, padding=0 if ids.pads and len(spec.shape) > 1 else None)


def _source_of_floats(spec: InputSpec, uses: list[InputUse], readers: list[Any]) -> Source:
    masking = next((use.operation for use in uses if isinstance(use.operation, keras.layers.Masking)), None)
    if masking is None or len(spec.shape) < 2:
        return Source(floats_of(readers))
    fill = float(masking.mask_value)
    return Source(functools.partial(normal_with_padding, fill=fill), padding=fill)


def _counts(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    return np.ones(shape, np.int64)
