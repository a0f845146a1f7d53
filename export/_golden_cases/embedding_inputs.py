"""Find inputs that are embedding indices, and their valid ranges, by probe runs.

An `Embedding` may lie within a layer that has a `call` of its own, and what reaches it may be cast, reshaped, sliced or
shifted before. So every `Embedding` is watched while the model runs with 0 and with 1 in the place of each input, and
then with the smallest and the largest number that follow from these.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np

from .._format.dtypes import numpy_dtype
from .._format.names import STRING
from .._private_api.keras_internals import numbers_of, through_calls
from .._signature.keras_messages import quiet_keras
from .._signature.signature import InputSpec, Signature
from .random_inputs import Ids, resized

LENGTHS = (6, 16, 64, 256)  # of axes without a size: the first with which the model runs
LARGER = 8  # times such a length, golden cases reach at most: for ids that are counted from a position on


@dataclass(frozen=True)
class Read:
    """What an `Embedding` was asked for: the numbers as they came, which may lie outside its table."""

    table: Any
    asked: np.ndarray


@dataclass(frozen=True)
class Found:
    """What was found: ids by input; and the tables of which nothing was seen, such as those within a loop."""

    ids: dict[str, Ids]
    unseen: tuple[Any, ...]


def found_ids(signature: Signature, given: Mapping[str, np.ndarray]) -> Found:
    """Return what each input that is not `given` may hold to stay within every `Embedding` that reads it."""
    tables = [layer for layer in signature.layers if isinstance(layer, keras.layers.Embedding)]
    asked = [spec for spec in signature.inputs if spec.name not in given and spec.dtype not in ("bool", STRING)]
    if not tables or not asked:
        return Found({}, tuple(tables))
    for length in dict.fromkeys((*_lengths(signature, given), *LENGTHS)):
        probe = _Probe(signature, given, tables, length)
        if (reads := probe.reads({}, 1)) is not None:
            seen = {id(read.table) for read in reads}
            ids = {spec.name: found for spec in asked if (found := _ids_of(spec, probe))}
            return Found(ids, tuple(table for table in tables if id(table) not in seen))
    return Found({}, tuple(tables))


def _lengths(signature: Signature, given: Mapping[str, np.ndarray]) -> list[int]:
    free = [(spec.name, axis) for spec in signature.inputs for axis, size in enumerate(spec.shape) if size is None]
    return sorted({given[name].shape[axis] for name, axis in free if name in given and axis > 0})


@dataclass(frozen=True)
class _Probe:
    """Runs the model on numbers of which it matters only where they arrive."""

    signature: Signature
    given: Mapping[str, np.ndarray]
    tables: Sequence[Any]
    length: int
    known: dict[tuple[int, ...], list[Read] | None] = field(default_factory=dict)

    def reads(self, values: Mapping[str, int], others: int) -> list[Read] | None:
        """Return what was looked up with `values` in some inputs and `others` in all others; `None` if it fails."""
        asked = tuple(values.get(spec.name, others) for spec in self.signature.inputs)
        if asked not in self.known:
            self.known[asked] = self._reads(asked)
        return self.known[asked]

    def _reads(self, values: Sequence[int]) -> list[Read] | None:
        inputs = {
            spec.name: self._array(spec, value) for spec, value in zip(self.signature.inputs, values, strict=True)
        }
        try:
            with watched(self.tables) as reads, quiet_keras():
                self.signature.call(inputs)
        except Exception:  # noqa: BLE001 - the question is whether it runs; if not, other sizes are tried
            return None
        return reads

    def _array(self, spec: InputSpec, value: int) -> np.ndarray:
        sizes = ((2 if axis == 0 else self.length) if size is None else size for axis, size in enumerate(spec.shape))
        shape = tuple(sizes)
        if spec.name in self.given:
            return resized(self.given[spec.name], shape)
        return np.full(shape, str(value) if spec.dtype == STRING else value, numpy_dtype(spec.dtype))


def _ids_of(spec: InputSpec, probe: _Probe) -> Ids | None:
    """Return what an input may hold; `None` where no `Embedding` is seen to read it.

    A product with a mask hides an input while all others are 0, a choice by a mask may do so while they are 1. And 0
    itself may be replaced by another number before it is looked up.
    """
    is_float = not np.issubdtype(spec.dtype, np.integer)
    for others, first in ((1, 0),) if is_float else ((1, 0), (0, 0), (1, 1)):
        before, after = (probe.reads({spec.name: value}, others) for value in (first, first + 1))
        if before is None or after is None or not _of_same_lookups(before, after):
            continue
        pairs = enumerate(zip(before, after, strict=True))
        ranges = {index: _range(first, *pair, exact=is_float) for index, pair in pairs}
        reached = {index: ids for index, ids in ranges.items() if ids is not None}
        if not reached:
            continue
        ids = functools.reduce(Ids.__and__, reached.values())
        if not is_float:
            ids = ids & Ids(int(np.iinfo(spec.dtype).min), int(np.iinfo(spec.dtype).max))
        ends = [probe.reads({spec.name: end}, others) for end in (ids.low, ids.high) if ids.low <= ids.high]
        if ends and all(_stay(reads, reached) for reads in ends):
            return ids
    return None


def _of_same_lookups(first: list[Read], second: list[Read]) -> bool:
    """Tell whether tables were read in one order, as often each time, whatever was looked up in them."""
    pairs = zip(first, second, strict=False)
    same = (one.table is two.table and one.asked.shape == two.asked.shape for one, two in pairs)
    return len(first) == len(second) and all(same)


def _range(first: int, before: Read, after: Read, *, exact: bool) -> Ids | None:
    """Return the numbers that stay within a table, given what two numbers in a row in an input make of its lookups.

    What is looked up is a + s*x. Where s is 0, the input does not arrive.

    Args:
        first: The first number.
        before: What was looked up with it.
        after: What was looked up with the next.
        exact: Whether it must be x itself that is looked up: a float that becomes the number of a bucket is no id.
    """
    slope = after.asked - before.asked
    moved = slope != 0
    if not moved.any():
        return None
    slope = slope[moved]
    start = before.asked[moved] - first * slope
    if exact and not ((start == 0) & (slope == 1)).all():
        return None
    # what is counted from a position on reaches further in longer inputs
    further = np.where(start > start.min(), start * LARGER, start)
    bounds = np.sort([-start / slope, (before.table.input_dim - 1 - further) / slope], axis=0)
    skips_zero = bool(before.table.mask_zero and (start == 0).all())
    return Ids(math.ceil(bounds[0].max()), math.floor(bounds[1].min()), skips_zero)


def _stay(reads: list[Read] | None, reached: Iterable[int]) -> bool:
    """Tell whether what was asked for is within the tables, those that an input reaches."""
    if reads is None or len(reads) <= max(reached):
        return False
    return all(((reads[i].asked >= 0) & (reads[i].asked < reads[i].table.input_dim)).all() for i in reached)


@contextmanager
def watched(tables: Sequence[Any]) -> Iterator[list[Read]]:
    """Note, within the context, what the tables are asked for, and let none fail because it lies outside."""
    reads: list[Read] = []
    with through_calls(tables, lambda table, call: _watching(table, call, reads)):
        yield reads


def _watching(table: Any, call: Callable[..., Any], reads: list[Read]) -> Callable[..., Any]:
    @functools.wraps(call)
    def watching(inputs: Any, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(call).bind(inputs, *args, **kwargs).arguments
        if bound.get("reverse"):  # of a `ReversibleEmbedding`: its table as a matrix
            return call(inputs, *args, **kwargs)
        if (array := numbers_of(inputs)) is None:
            return call(inputs, *args, **kwargs)
        wide = array.astype(np.float64)
        whole = np.trunc(np.where(np.isfinite(wide), wide, 0))
        reads.append(Read(table, whole))
        within = np.clip(whole, 0, table.input_dim - 1).astype(array.dtype)
        return call(keras.ops.convert_to_tensor(within), *args, **kwargs)

    return watching
