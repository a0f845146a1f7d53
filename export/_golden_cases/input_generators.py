"""Choice of a generator of random or sampled arrays for each model input.

The first rule of RULES that returns a generator decides. Facts about inputs come from probe runs (`input_probes.py`),
from the layers that read an input (`input_uses.py`), and, for masks, lengths and segments, from names.
"""

import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np

from keras_attn._states.cache import KEYS_ENTRY

from .._errors import InputError
from .._format.dtypes import UNWRITABLE_CHARACTER
from .._format.names import STRING, Arrays
from .._signature.signature import InputSpec, Signature
from .input_probes import CLASSES, HASHES, LOOKUPS, find_embedding_inputs, find_preprocessing, is_closed, is_word_piece
from .input_uses import InputUse, TensorSizes, find_input_uses, find_state
from .random_inputs import IdRange, IdSampler, Shape, draw_mask, draw_normal, draw_normal_around, draw_padded, resize
from .random_texts import TextGenerator

# Patterns of lengths by name: the function returns the lengths for a number of keys, through which the rows cycle.
LENGTH_PATTERNS: dict[str, Callable[[int], list[int]]] = {
    "mixed": lambda keys: [max(keys - 1, 1), 1, keys],
    "zero": lambda keys: [0],
    "one": lambda keys: [1],
    "full": lambda keys: [keys],
    "over-full": lambda keys: [keys + 3],
    "negative": lambda keys: [-1, keys],
    "every": lambda keys: [0, keys + 1, 1, keys, -2, keys // 2],
}

OVERFLOW_PATTERNS = ("over-full", "every")  # a cache has no capacity for the appended steps

# Arguments of layers of this package that are lengths, with the arguments whose steps they count.
COUNTED_ARGUMENTS = {"valid_lens": ("keys", "values", "scores", "memory"), "input_lens": ("inputs",)}
SEGMENT_NAMES = re.compile(r"segment|token_type")
# `mask_positions` are indices of masked tokens, a `masked_image` is an image.
NO_MASK_NAMES = re.compile(r"position|ind(ex|ices)|masked")
# Hashes are computed from decimal texts, so the integers have several numbers of digits and both signs.
HASHED_INTEGERS = (42, -805, 12345678, 2**31 - 1, -(2**31))

Draw = Callable[[Shape, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Lengths:
    """Rule for the lengths in an input."""

    # Returns the number of steps that the lengths count; `None` if only the sizes of a case are known.
    count_steps: Callable[[Arrays], int] | None = None
    # Inputs that are the counted keys or values: steps beyond a length of shape (B,) must not change outputs.
    padded_inputs: tuple[str, ...] = ()
    # Exclusive maximum: the rows of an `Embedding` that looks up the lengths, or the largest sampled cache length + 1.
    limit: int | None = None
    is_of_state: bool = False  # lengths of a cache to which steps are appended


@dataclass(frozen=True)
class InputGenerator:
    """Generator of arrays for one input."""

    draw: Draw
    lengths: Lengths | None = None  # rule for lengths, which replace the array from `draw`
    is_sampled: bool = False  # `draw` crops or repeats a sample
    is_mask: bool = False  # ones and zeros in an integer or float dtype
    is_normal: bool = False
    id_range: IdRange | None = None  # all valid ids
    sample_id_range: IdRange | None = None  # all valid ids of a sampled input
    padding: float | None = None  # fill value of skipped steps at the end of some rows
    texts: TextGenerator | None = None


@dataclass(frozen=True)
class _InputFacts:
    """Facts about one input, which decide its generator."""

    spec: InputSpec
    is_functional: bool  # all uses are known
    uses: list[InputUse]
    sizes: TensorSizes
    sample: np.ndarray | None
    is_mask: bool
    id_range: IdRange | None  # intersection of the ranges of all `Embedding` layers that read the input
    unreached_rows: set[int]  # numbers of rows of tables that no probe run reached
    readers: list[Any]  # preprocessing layers that read the input unchanged


def choose_generators(signature: Signature, samples: Arrays) -> dict[str, InputGenerator]:
    """Return a generator for every input.

    Floats are normal, booleans True with probability 1/2, embedding indices within their range, lengths up to the
    number of keys, masks and segment ids 0 and 1. Samples are resized.

    Raises:
        InputError: If the valid integers of an input without samples are unknown.
    """
    facts = _collect_facts(signature, samples)
    generators = {input_facts.spec.name: _apply_rules(input_facts) for input_facts in facts}
    if unknown := [input_facts for input_facts in facts if generators[input_facts.spec.name] is None]:
        raise InputError(_describe_unknown_inputs(unknown))
    return {name: generator for name, generator in generators.items() if generator is not None}


def _apply_rules(facts: _InputFacts) -> InputGenerator | None:
    generators = (rule(facts) for rule in RULES)
    return next((generator for generator in generators if generator is not None), None)


def _collect_facts(signature: Signature, samples: Arrays) -> list[_InputFacts]:
    embedding_ids, unreached_rows = find_embedding_inputs(signature, samples)
    readers = find_preprocessing(signature, samples)
    all_uses, sizes = find_input_uses(signature), TensorSizes(signature)
    facts = []
    for spec in signature.inputs:
        uses = all_uses.get(spec.name, [])
        tables = [use.operation for use in uses if isinstance(use.operation, keras.layers.Embedding)]
        ranges = [IdRange(0, table.input_dim - 1, bool(table.mask_zero)) for table in tables]
        ranges += [embedding_ids[spec.name]] if spec.name in embedding_ids else []
        # The name of the input, or of an argument that it is passed as, identifies a mask.
        names = [spec.name.lower(), *(use.argument for use in uses)]
        has_mask_name = any("mask" in name and not NO_MASK_NAMES.search(name) for name in names)
        is_mask = has_mask_name and not tables and spec.dtype != "bool"
        # A mask that is multiplied with ids reaches the table too.
        id_range = functools.reduce(IdRange.__and__, ranges) if ranges and not is_mask else None
        sample, layers = samples.get(spec.name), readers.get(spec.name, [])
        is_functional = signature.is_functional
        facts.append(_InputFacts(spec, is_functional, uses, sizes, sample, is_mask, id_range, unreached_rows, layers))
    return facts


def _describe_unknown_inputs(inputs: Iterable[_InputFacts]) -> str:
    """Return the error message about inputs with unknown valid integers."""
    descriptions = []
    for facts in inputs:
        users = ", ".join(dict.fromkeys(f"`{use.operation.name}`" for use in facts.uses))
        spec, used_by = facts.spec, f", used by {users}" if users else ""
        descriptions.append(f"`{spec.name}` ({spec.dtype}, shape {spec.shape}{used_by})")
    samples = ", ".join(f"{facts.spec.name!r}: ..." for facts in inputs)
    return (
        f"Cannot choose integers for input {' and '.join(descriptions)}: it indexes no Embedding, and is neither "
        f"`valid_lens` nor a mask. Pass example values: `sample_inputs={{{samples}}}` (`--samples`)."
    )


def _generate_texts(facts: _InputFacts) -> InputGenerator | None:
    if facts.spec.dtype != STRING:
        return None
    texts = build_text_generator(facts.readers)
    if facts.sample is None:
        return InputGenerator(texts.draw, texts=texts)
    return InputGenerator(partial(_resize_sample, facts.sample), is_sampled=True, texts=texts)


def _generate_lengths_by_use(facts: _InputFacts) -> InputGenerator | None:
    """Return the generator of an input that is an argument for lengths of a layer of this package."""
    use = next((use for use in facts.uses if use.argument in COUNTED_ARGUMENTS), None)
    if use is None:
        return None
    limit = None if facts.id_range is None else facts.id_range.high + 1
    arguments = [use.arguments.get(name) for name in COUNTED_ARGUMENTS[use.argument]]
    # A mapping is a cache, returned by `precompute`.
    counted_tensors = [tensor for tensor in arguments if tensor is not None and not isinstance(tensor, Mapping)]
    if not counted_tensors:  # a layer of the user: lengths are assumed to count axis 1 of its first tensor
        values = (value for name, value in use.arguments.items() if name != use.argument)
        first = next((value for value in values if len(getattr(value, "shape", ())) > 1), None)
        return InputGenerator(_draw_ones, Lengths(_build_step_counter(facts, use, first, 1), limit=limit))
    has_features = "scores" not in use.arguments
    padded = facts.sizes.find_input_names(counted_tensors if len(facts.spec.shape) == 1 and has_features else [])
    count = _build_step_counter(facts, use, counted_tensors[0], -2 if has_features else -1)
    return InputGenerator(_draw_ones, Lengths(count, padded, limit))


def _build_step_counter(facts: _InputFacts, use: InputUse, tensor: Any, axis: int) -> Callable[[Arrays], int] | None:
    return None if use.is_nested or tensor is None else partial(facts.sizes.get_size, tensor=tensor, axis=axis)


def _generate_state_lengths(facts: _InputFacts) -> InputGenerator | None:
    """Return the generator of the length of a cache with a fixed capacity."""
    states = [(use, state) for use in facts.uses if (state := find_state(use.arguments[use.argument])) is not None]
    if not states or not facts.spec.dtype.startswith("int"):
        return None
    use, state = states[0]
    appending_uses = [use for use, _ in states if use.argument not in ("keys", "values")]
    sizes = tuple(1 if use.is_nested else use.arguments.get("keys", 1) for use in appending_uses)
    count = None if use.is_nested else partial(facts.sizes.get_free_capacity, state=state[KEYS_ENTRY], tensors=sizes)
    limit = None if facts.sample is None else int(facts.sample.max()) + 1
    return InputGenerator(_draw_ones, Lengths(count, limit=limit, is_of_state=bool(sizes)))


def _generate_lengths_by_name(facts: _InputFacts) -> InputGenerator | None:
    """Return the generator of an input called `valid_lens`: of a subclassed model, or used to compute a mask."""
    is_lengths = not facts.is_functional or (facts.sample is None and facts.id_range is None)
    is_lengths = is_lengths and "valid_lens" in facts.spec.name and _is_integer(facts)
    return InputGenerator(_draw_ones, Lengths()) if is_lengths else None


def _generate_from_sample(facts: _InputFacts) -> InputGenerator | None:
    if facts.sample is None:
        return None
    return InputGenerator(partial(_resize_sample, facts.sample), is_sampled=True, sample_id_range=facts.id_range)


def _generate_ids_or_mask(facts: _InputFacts) -> InputGenerator | None:
    if facts.spec.dtype == "bool":
        return InputGenerator(lambda shape, rng: rng.random(shape) < 0.5)
    if facts.id_range is not None:
        return _generate_ids(facts, facts.id_range)
    padding = 0 if len(facts.spec.shape) == 2 else None
    return InputGenerator(draw_mask, is_mask=True, padding=padding) if facts.is_mask else None


def _generate_ids(facts: _InputFacts, ids: IdRange) -> InputGenerator:
    padding = 0 if ids.has_padding and len(facts.spec.shape) > 1 else None
    return InputGenerator(IdSampler(ids).draw, id_range=ids, padding=padding)


def _generate_floats(facts: _InputFacts) -> InputGenerator | None:
    if _is_integer(facts):
        return None
    masking = next((use.operation for use in facts.uses if isinstance(use.operation, keras.layers.Masking)), None)
    if masking is not None and len(facts.spec.shape) > 1:
        fill = float(masking.mask_value)
        return InputGenerator(partial(draw_padded, fill=fill), padding=fill)
    for layer in facts.readers:
        if isinstance(layer, keras.layers.Discretization) and layer.bin_boundaries:
            return InputGenerator(partial(_draw_around_boundaries, np.asarray(layer.bin_boundaries, np.float64)))
        if isinstance(layer, keras.layers.Normalization) and not layer.invert:
            mean, deviation = np.asarray(layer.mean), np.asarray(np.sqrt(layer.variance))
            return InputGenerator(partial(draw_normal_around, mean=mean, deviation=deviation))
    return InputGenerator(draw_normal, is_normal=True)


def _draw_around_boundaries(boundaries: np.ndarray, shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Return floats of every bucket, and its boundaries themselves."""
    # x = c + h u with the mean bucket width w = max(range, 1) / number of boundaries: c is a boundary, or w beyond the
    # first or last; h is 0, which draws a boundary itself, or 1/2; u is uniform in (-w, w).
    width = max(float(np.ptp(boundaries)), 1.0) / len(boundaries)
    centers = np.array([boundaries[0] - width, *boundaries, boundaries[-1] + width])
    values = rng.choice(centers, shape) + rng.choice([0.0, 0.5], shape) * rng.uniform(-width, width, shape)
    return np.asarray(values)


def _generate_vocabulary(facts: _InputFacts) -> InputGenerator | None:
    """Return the generator of classes, or of integers of vocabularies, with other integers if layers accept them."""
    if classes := [layer.num_tokens for layer in facts.readers if isinstance(layer, CLASSES)]:
        return _generate_ids(facts, IdRange(0, min(classes) - 1))
    readers = [layer for layer in facts.readers if not isinstance(layer, keras.layers.Normalization)]
    if not readers:
        return None
    lookups = [layer for layer in readers if isinstance(layer, LOOKUPS)]
    vocabulary = [int(word) for layer in lookups for word in layer.get_vocabulary(include_special_tokens=False)]
    largest = max(vocabulary, default=0)
    other_integers = [] if any(map(is_closed, lookups)) else [largest + 1, largest + 1000, -1, 0]
    hashed_integers = HASHED_INTEGERS if any(isinstance(layer, HASHES) for layer in readers) else ()
    numbers = np.array([*vocabulary, *other_integers, *hashed_integers], np.int64)
    return InputGenerator(lambda shape, rng: rng.choice(numbers, shape))


def _generate_other_integers(facts: _InputFacts) -> InputGenerator | None:
    """Return the generator of segment ids, bytes such as pixels, or ids of the table that no probe reached."""
    if SEGMENT_NAMES.search(facts.spec.name.lower()):
        return _generate_ids(facts, IdRange(0, 1))
    if not facts.unreached_rows and facts.spec.dtype in ("uint8", "int8"):
        ends = np.iinfo(facts.spec.dtype)
        return InputGenerator(lambda shape, rng: rng.integers(ends.min, ends.max, shape, endpoint=True))
    return _generate_ids(facts, IdRange(0, min(facts.unreached_rows) - 1)) if len(facts.unreached_rows) == 1 else None


RULES = (
    _generate_texts,
    _generate_lengths_by_use,
    _generate_state_lengths,
    _generate_lengths_by_name,
    _generate_from_sample,
    _generate_ids_or_mask,
    _generate_floats,
    _generate_vocabulary,
    _generate_other_integers,
)


def build_text_generator(readers: Iterable[Any]) -> TextGenerator:
    """Return the generator of strings for the preprocessing layers that read an input."""
    vocabulary: dict[str, None] = {}
    for layer in readers:
        if is_word_piece(layer):
            pieces = (str(piece).removeprefix(layer.suffix_indicator) for piece in layer.get_vocabulary())
            vocabulary |= dict.fromkeys(piece for piece in pieces if piece and not UNWRITABLE_CHARACTER.search(piece))
        elif not isinstance(layer, HASHES):
            vocabulary |= dict.fromkeys(map(str, layer.get_vocabulary(include_special_tokens=False)))
    lookups = [layer for layer in readers if isinstance(layer, LOOKUPS)]
    is_split = not readers or any(map(_is_splitting, readers))
    return TextGenerator(tuple(vocabulary), is_split, any(map(is_closed, lookups)))


def _is_splitting(layer: Any) -> bool:
    is_split_text = isinstance(layer, keras.layers.TextVectorization) and layer.get_config()["split"] is not None
    return is_word_piece(layer) or is_split_text


def _is_integer(facts: _InputFacts) -> bool:
    return bool(np.issubdtype(facts.spec.dtype, np.integer))


def _resize_sample(sample: np.ndarray, shape: Shape, rng: np.random.Generator) -> np.ndarray:
    return resize(sample, shape)


def _draw_ones(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    return np.ones(shape, np.int64)
