"""Search for inputs that embeddings or preprocessing layers read, by probe runs on marked inputs.

A layer may be nested in a layer with its own `call`, and an input may be cast, reshaped, sliced or shifted before it
arrives. So the calls of all these layers are recorded while the model runs on inputs filled with one number each.

- A preprocessing layer reads an input if a number or text that is in no vocabulary arrives unchanged.
- An `Embedding` looks up a + s x if an input is filled with x. Two runs, on x = x0 and x = x0 + 1, determine the slope
  s as the difference of the indices, and a = index - s x0. The valid range of x follows from 0 <= a + s x < rows, and
  is checked by runs on both ends. With s = 0 the input does not reach the table.
"""

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import numpy as np

from .._format.dtypes import numpy_dtype
from .._format.names import STRING, Arrays
from .._private_api.keras_internals import to_numpy_or_none, wrap_layer_calls
from .._signature.keras_messages import silence_keras
from .._signature.signature import InputSpec, Signature
from .random_inputs import IdRange, resize

PROBE_LENGTHS = (6, 16, 64, 256)  # the first on which the model runs
# Offsets a > min(a) are ids that depend on a position; golden cases may be this many times as long as a probe.
LENGTH_GROWTH = 8
FIRST_MARK = 7_000_003  # in no vocabulary
MARKED_DTYPES = ("int32", "int64", "uint32", "uint64", "float32", "float64")  # these hold marks exactly
# Pairs (value of all other inputs, x0). A product with a mask of zeros, or a choice by a mask of ones, removes the
# input, and x = 0 may be replaced by another id before the lookup.
PROBES = ((1, 0), (0, 0), (1, 1))

LOOKUPS = (keras.layers.StringLookup, keras.layers.IntegerLookup)
HASHES = (keras.layers.Hashing, keras.layers.HashedCrossing)
CLASSES = keras.layers.CategoryEncoding
PREPROCESSING = (
    *LOOKUPS,
    *HASHES,
    CLASSES,
    keras.layers.TextVectorization,
    keras.layers.Discretization,
    keras.layers.Normalization,
)

Value = int | str
Probe = Callable[[tuple[int, ...]], "list[_TableLookup] | None"]  # its arguments are one value per input
Observe = Callable[[Any, Any], Any]  # takes a layer and its inputs; returns the inputs to call the layer with


def _run_probe(
    signature: Signature,
    samples: Arrays,
    length: int,
    values: Mapping[str, Value | None],
    layers: Sequence[Any],
    observe: Observe,
) -> bool:
    """Run the model on inputs filled with `values`, and return True if no layer raised; `observe` sees `layers`.

    Dynamic axes have size `length`, the batch 2. Inputs without a value are samples, or ones.
    """
    inputs = {spec.name: _fill_input(spec, values.get(spec.name), samples, length) for spec in signature.inputs}
    try:
        with wrap_layer_calls(layers, partial(_observe_call, observe)), silence_keras():
            signature.call(inputs)
    except Exception:  # noqa: BLE001 - the type of the error depends on the model; other sizes follow
        return False
    return True


def _fill_input(spec: InputSpec, value: Value | None, samples: Arrays, length: int) -> np.ndarray:
    sizes = ((2 if axis == 0 else length) if size is None else size for axis, size in enumerate(spec.shape))
    shape = tuple(sizes)
    if value is None and spec.name in samples:
        return resize(samples[spec.name], shape)
    fill_value = 1 if value is None else value
    return np.full(shape, str(fill_value) if spec.dtype == STRING else fill_value, numpy_dtype(spec.dtype))


def _observe_call(observe: Observe, layer: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def observed(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = inspect.signature(call).bind(inputs, *args, **kwargs).arguments
        # In reverse, a `ReversibleEmbedding` multiplies by its table.
        return call(inputs if arguments.get("reverse") else observe(layer, inputs), *args, **kwargs)

    return observed


@dataclass(frozen=True)
class _TableLookup:
    """Call of an `Embedding`, with the original indices, which may be outside the table."""

    table: Any
    indices: np.ndarray


def find_embedding_inputs(signature: Signature, samples: Arrays) -> tuple[dict[str, IdRange], set[int]]:
    """Return id ranges of inputs without samples, and row counts of tables that no probe reached, as in loops."""
    tables = [layer for layer in signature.layers if isinstance(layer, keras.layers.Embedding)]
    specs = [spec for spec in signature.inputs if spec.dtype not in ("bool", STRING) and spec.name not in samples]
    axes = [(spec.name, axis) for spec in signature.inputs for axis, size in enumerate(spec.shape) if size is None]
    sampled_sizes = {samples[name].shape[axis] for name, axis in axes if name in samples and axis > 0}
    for length in dict.fromkeys((*sorted(sampled_sizes), *PROBE_LENGTHS)) if tables and specs else ():
        probe: Probe = functools.cache(partial(_record_lookups, signature, samples, tables, length))
        lookups = probe((1,) * len(signature.inputs))
        if lookups is not None:
            reached_tables = {id(lookup.table) for lookup in lookups}
            ranges = {spec.name: _find_id_range(spec, signature.inputs, probe) for spec in specs}
            ids = {name: id_range for name, id_range in ranges.items() if id_range is not None}
            return ids, {table.input_dim for table in tables if id(table) not in reached_tables}
    return {}, {table.input_dim for table in tables}


def _record_lookups(
    signature: Signature, samples: Arrays, tables: Sequence[Any], length: int, values: tuple[int, ...]
) -> list[_TableLookup] | None:
    """Return all lookups of a run on one value per input, ignored for samples; `None` if a layer raises."""
    pairs = zip(signature.inputs, values, strict=True)
    probe_values = {spec.name: value for spec, value in pairs if spec.name not in samples}
    lookups: list[_TableLookup] = []
    has_run = _run_probe(signature, samples, length, probe_values, tables, partial(_record_lookup, lookups))
    return lookups if has_run else None


def _record_lookup(lookups: list[_TableLookup], table: Any, inputs: Any) -> Any:
    """Record a lookup, and return indices clipped to the table, so that no lookup fails."""
    array = to_numpy_or_none(inputs)
    if array is None:
        return inputs
    values = array.astype(np.float64)
    indices = np.trunc(np.where(np.isfinite(values), values, 0))
    lookups.append(_TableLookup(table, indices))
    return keras.ops.convert_to_tensor(np.clip(indices, 0, table.input_dim - 1).astype(array.dtype))


def _find_id_range(spec: InputSpec, specs: Sequence[InputSpec], probe: Probe) -> IdRange | None:
    """Return the valid ids of an input; `None` if no `Embedding` reads it in any probe run."""
    is_float = not np.issubdtype(spec.dtype, np.integer)
    limits = [] if is_float else [IdRange(int(np.iinfo(spec.dtype).min), int(np.iinfo(spec.dtype).max))]
    for fill, start in PROBES[:1] if is_float else PROBES:
        lookups = partial(_probe_value, probe, specs, spec, fill)
        first, second = lookups(start), lookups(start + 1)
        if first is None or second is None or not _have_same_tables(first, second):
            continue
        ranges = [_solve_valid_range(start, *pair, exact=is_float) for pair in zip(first, second, strict=True)]
        reached_ranges = {index: ids for index, ids in enumerate(ranges) if ids is not None}
        if not reached_ranges:
            continue
        ids = functools.reduce(IdRange.__and__, [*reached_ranges.values(), *limits])
        if ids.low <= ids.high and all(_are_within(lookups(end), reached_ranges) for end in (ids.low, ids.high)):
            return ids
    return None


def _probe_value(
    probe: Probe, specs: Sequence[InputSpec], spec: InputSpec, fill: int, value: int
) -> list[_TableLookup] | None:
    return probe(tuple(value if other is spec else fill for other in specs))


def _have_same_tables(first: list[_TableLookup], second: list[_TableLookup]) -> bool:
    pairs = zip(first, second, strict=False)
    is_same = (a.table is b.table and a.indices.shape == b.indices.shape for a, b in pairs)
    return len(first) == len(second) and all(is_same)


def _solve_valid_range(start: int, first: _TableLookup, second: _TableLookup, *, exact: bool) -> IdRange | None:
    """Return the x whose index stays within a table, from lookups of `start` and `start` + 1; `None` if s = 0.

    If `exact`, s must be 1 and a 0: a float that is converted to the index of a bucket is no id.
    """
    slopes = second.indices - first.indices
    slope = slopes[slopes != 0]
    offset = first.indices[slopes != 0] - start * slope
    if not slope.size or (exact and not ((offset == 0) & (slope == 1)).all()):
        return None
    max_offset = np.where(offset > offset.min(), offset * LENGTH_GROWTH, offset)
    bounds = np.sort([-offset / slope, (first.table.input_dim - 1 - max_offset) / slope], axis=0)
    skips_zero = bool(first.table.mask_zero and (offset == 0).all())
    return IdRange(math.ceil(bounds[0].max()), math.floor(bounds[1].min()), skips_zero)


def _are_within(lookups: list[_TableLookup] | None, reached: Iterable[int]) -> bool:
    """Return True if the lookups with the indices `reached` stay within their tables."""
    if lookups is None or len(lookups) <= max(reached):
        return False
    pairs = [(lookups[index].indices, lookups[index].table.input_dim) for index in reached]
    return all(((indices >= 0) & (indices < rows)).all() for indices, rows in pairs)


def find_preprocessing(signature: Signature, samples: Arrays) -> dict[str, list[Any]]:
    """Return the preprocessing layers that read each input unchanged, by input name."""
    layers = [layer for layer in signature.layers if isinstance(layer, PREPROCESSING) or is_word_piece(layer)]
    marks = {spec.name: mark for index, spec in enumerate(signature.inputs) if (mark := _choose_mark(spec, index))}
    readers: dict[str, list[Any]] = {}
    for length in PROBE_LENGTHS if layers and marks else ():
        # A layer may raise for a mark after it was recorded.
        if _run_probe(signature, samples, length, marks, layers, partial(_record_marks, readers, marks)) or readers:
            break
    return readers


def _choose_mark(spec: InputSpec, index: int) -> Value | None:
    if spec.dtype == STRING:
        return f"kerasattnmark{index}x"
    return FIRST_MARK + index if spec.dtype in MARKED_DTYPES else None


def _record_marks(readers: dict[str, list[Any]], marks: Mapping[str, Value], layer: Any, inputs: Any) -> Any:
    """Record a layer for each mark in its inputs, and return inputs on which the layer does not raise."""
    arrays = [array for tensor in keras.tree.flatten(inputs) if (array := to_numpy_or_none(tensor)) is not None]
    for array in arrays:
        for name, mark in marks.items():
            if _has_mark(array, mark) and not any(reader is layer for reader in readers.get(name, ())):
                readers.setdefault(name, []).append(layer)
    if isinstance(layer, CLASSES):
        return keras.ops.zeros_like(inputs)
    if isinstance(layer, LOOKUPS) and is_closed(layer):
        word = layer.get_vocabulary(include_special_tokens=False)[0]
        return keras.ops.convert_to_tensor(np.full(inputs.shape, word, object if isinstance(word, str) else None))
    return inputs


def _has_mark(array: np.ndarray, mark: Value) -> bool:
    if isinstance(mark, str):
        return array.dtype == object and any(mark.encode() in text for text in array.flat)
    return array.dtype.kind in "iuf" and bool((array == mark).any())


def is_word_piece(layer: Any) -> bool:
    """Return True for a `WordPieceTokenizer` of KerasHub, an optional package."""
    return hasattr(layer, "tokenize") and hasattr(layer, "suffix_indicator")


def is_closed(layer: Any) -> bool:
    """Return True if a lookup layer raises for values outside its vocabulary."""
    return bool(layer.num_oov_indices == 0 and not layer.invert)
