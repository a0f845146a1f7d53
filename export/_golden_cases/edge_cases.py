"""Golden cases for large values, unusual padding, full vocabularies, close choices, empty caches and long sequences."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_attn import AdditiveAttention, AttentionPooling

from .._array_comparison import alike
from .._format.names import Arrays, Case
from .._private_api.builtin_attention import WITH_HEADS, WITHOUT_HEADS
from .._thresholds import LARGE as LARGE_FORMS
from .dynamic_axes import BATCH, Axes, iterate_named_axes
from .golden_cases import LARGE, LONG, NOT_RUN, POISONED, Cases, Run
from .input_generators import InputGenerator
from .random_inputs import IdRange, move_padding
from .trial_runs import InputSampler

LONG_UNMASKED = "long, every key"
EMPTY_CACHE = "empty cache"
NUM_STATIC_CASES = 5  # of a model without a dynamic axis, whose sizes give one only
MAX_VOCABULARY_ROWS = 4096  # rows of the largest vocabulary of which every row is looked up
MAX_CHOICES = 4096  # integers or booleans in the case of many rows
SEARCH_FACTOR = 4  # times as many rows are drawn for it, of which those with the closest choices are taken
RELATIVE_PERTURBATIONS = (0.05, 0.3)  # relative, of the floats that show which choices are close
MAX_ROW_PRODUCTS = 2**24  # numbers between input and output, roughly
MAX_ELEMENTS = 2**21  # in an array of the case of many rows
MAX_LONG_ELEMENTS = 2**23  # in an array of the long cases
LONG_ROWS = 2
DEFAULT_UNITS = 8
ATTENTION = (AttentionPooling, *WITH_HEADS, *WITHOUT_HEADS)
ADDITIVE = (AdditiveAttention, keras.layers.AdditiveAttention)

Generators = Mapping[str, InputGenerator]
DrawRows = Callable[[int], Arrays]  # of that many rows, or of as many as there must be


class CaseSpec(NamedTuple):
    """A golden case to add."""

    name: str
    draw: Callable[[], Arrays | None]  # the inputs, `None` if the case does not apply
    allow_degenerate: bool = False  # whether outputs may be NaN
    refusal: str = ""  # the reason if the model must not run the case


@dataclass(frozen=True)
class CaseInputs:
    """Inputs of golden cases, for sizes by name."""

    generators: Generators
    sampler: InputSampler
    axes: Axes

    def draw(self, sizes: Mapping[str, int], lengths: str = "mixed") -> Arrays:
        """Return inputs of these sizes, with a pattern of lengths."""
        return self.sampler.draw(self.axes.get_axis_sizes(sizes), lengths)

    def draw_rows(self, rows: int, lengths: str = "full") -> Arrays:
        """Return inputs of `rows` rows, if the batch is dynamic."""
        base = self.axes.base
        return self.draw(base | ({BATCH: rows} if BATCH in base else {}), lengths)


def yield_edge_cases(
    inputs: CaseInputs, golden: Cases, run: Run, graph: Run | None, widest: int, long_lengths: Sequence[int]
) -> Iterator[CaseSpec]:
    """Yield edge cases, each of which must be added to `golden` before the next one.

    The model computes at most `widest` values for one of its positions, roughly. From each of these `lengths` on, the
    largest of which is first, a call of a layer may take the large form.
    """
    generators, axes, draw_rows = inputs.generators, inputs.axes, inputs.draw_rows
    draw = partial(inputs.draw, axes.distinct)
    yield CaseSpec(LARGE, lambda: magnify_floats(inputs.sampler.drawn_floats, draw()))
    yield CaseSpec(POISONED, lambda: poison_padding(generators, draw()))
    yield CaseSpec("padding elsewhere", lambda: move_input_padding(generators, draw()))
    is_sampled = golden.cases[0].name == "samples"
    for number in range(2, NUM_STATIC_CASES + 1) if not axes.base and not is_sampled else ():
        yield CaseSpec(f"again {number}", draw)
    yield CaseSpec("every id", lambda: draw_every_id(generators, golden.cases, draw_rows))
    yield CaseSpec("every text", lambda: draw_every_text(generators, draw_rows))
    yield CaseSpec("empty text", lambda: _check_graph_runs(graph, replace_texts_by_empty(generators, draw())), True)
    rows = choose_num_rows(golden.cases[0], widest)
    if BATCH in axes.base and rows:
        draw_mixed = partial(draw_rows, lengths="mixed")
        yield CaseSpec("many rows", lambda: draw_close_choices(generators, rows, draw_mixed, run))
    if growing := _find_growing_axes(axes, golden.cases):
        yield CaseSpec(EMPTY_CACHE, partial(inputs.draw, axes.distinct | dict.fromkeys(growing, 0)), True)
    yield from _yield_long_cases(inputs, golden, long_lengths)


def _check_graph_runs(graph: Run | None, inputs: Arrays | None) -> Arrays | None:
    """Return inputs that the graph of the model takes too, or raise: of others no file can be compared."""
    if graph is not None and inputs is not None:
        graph(inputs)
    return inputs


def _yield_long_cases(inputs: CaseInputs, golden: Cases, lengths: Sequence[int]) -> Iterator[CaseSpec]:
    """Yield cases of the largest of these lengths that the model takes, with padding and without."""
    sized = [(length, sizes) for length in lengths if (sizes := _choose_long_sizes(length, inputs.axes)) is not None]
    for length, sizes in sized:
        yield CaseSpec(LONG, partial(inputs.draw, sizes), refusal=_refuse_size(golden.count_elements_at(sizes)))
        if golden.cases[-1].name == LONG:
            fewer = [(f"{LONG_UNMASKED} of fewer", sized[-1][1])] if length > lengths[-1] else []
            for name, chosen in [(LONG_UNMASKED, sizes), *fewer]:
                yield CaseSpec(name, partial(_draw_unmasked, inputs, chosen))
            return


def _draw_unmasked(inputs: CaseInputs, sizes: Mapping[str, int]) -> Arrays | None:
    return unmask_keys(inputs.generators, inputs.draw(sizes, "full"))


def _refuse_size(numbers: int) -> str:
    return f"{NOT_RUN}: {numbers:,} numbers, too many for a bundle" if numbers > MAX_LONG_ELEMENTS else ""


def magnify_floats(names: Sequence[str], inputs: Arrays) -> Arrays | None:
    """Return inputs with the named floats 100 times as large, so that scores reach 1e4; `None` without floats."""
    return inputs | {name: inputs[name] * inputs[name].dtype.type(100) for name in names} if names else None


def poison_padding(generators: Generators, inputs: Arrays) -> Arrays | None:
    """Return inputs with NaN, infinity and 1e30 in the padding of keys and values; `None` without padding."""
    arrays = dict(inputs)
    counted = [
        (name, g.lengths.padded_inputs) for name, g in generators.items() if g.lengths and g.lengths.padded_inputs
    ]
    for lengths, padded in ((inputs[name], padded) for name, names in counted for padded in names):
        beyond = np.arange(arrays[padded].shape[1]) >= np.asarray(lengths)[:, np.newaxis]
        with np.errstate(over="ignore"):  # 1e30 is infinity in float16, which will do as well
            garbage = np.resize([np.nan, np.inf, 1e30, -np.inf], arrays[padded].shape).astype(arrays[padded].dtype)
        arrays[padded] = np.where(beyond[..., np.newaxis], garbage, arrays[padded])
    return arrays if counted else None


def move_input_padding(generators: Generators, inputs: Arrays) -> Arrays | None:
    """Return inputs whose padding stands at the start or in between; `None` without padding."""
    rng = np.random.default_rng(0)
    padded = [name for name, generator in generators.items() if generator.padding is not None]
    changed = {name: move_padding(inputs[name], rng) for name in padded}
    return inputs | changed if any((changed[name] != inputs[name]).any() for name in padded) else None


def unmask_keys(generators: Generators, inputs: Arrays) -> Arrays | None:
    """Return inputs without padding or masks; `None` if no length, id or mask can hide a key."""
    changed = dict(inputs)
    for name, generator in generators.items():
        if generator.is_mask or inputs[name].dtype == bool:
            changed[name] = np.ones_like(inputs[name])
        elif generator.padding is not None and generator.id_range is not None:
            other = next((id_ for id_ in generator.id_range.drawn_ids if id_ != generator.padding), generator.padding)
            changed[name] = np.where(inputs[name] == generator.padding, other, inputs[name]).astype(inputs[name].dtype)
    has_lengths = any(generator.lengths for generator in generators.values())
    return changed if has_lengths or any(changed[name] is not inputs[name] for name in inputs) else None


def replace_texts_by_empty(generators: Generators, inputs: Arrays) -> Arrays | None:
    """Return inputs in which all strings are empty; `None` if all strings are words of closed vocabularies."""
    free = [name for name, generator in generators.items() if generator.texts and not generator.texts.is_closed]
    return inputs | {name: np.full_like(inputs[name], "") for name in free} if free else None


def draw_every_text(generators: Generators, draw: DrawRows) -> Arrays | None:
    """Return inputs with all strings that are to be tried, one in each row; `None` without strings."""
    texts = {name: every for name, g in generators.items() if g.texts and (every := g.texts.case_texts)}
    if not texts:
        return None
    inputs = draw(max(map(len, texts.values())))
    return inputs | {name: np.resize(np.array(every, object), inputs[name].shape) for name, every in texts.items()}


def draw_every_id(generators: Generators, cases: Sequence[Case], draw: DrawRows) -> Arrays | None:
    """Return inputs with every id that none of the cases has; `None` if there is none. `draw` gives full lengths."""
    masks = [name for name, generator in generators.items() if generator.is_mask]
    # an id in a place that a mask or a length hides has not been looked up
    is_hidden = masks or any(generator.lengths for generator in generators.values())
    visible = [] if is_hidden else [case.inputs for case in cases]
    left = {name: _find_unused_ids(name, g.id_range, visible) for name, g in generators.items() if g.id_range}
    unseen = {name: ids for name, ids in left.items() if ids.size}
    if not unseen:
        return None
    row = {name: math.prod(draw(1)[name].shape[1:]) for name in unseen}
    rows = max(math.ceil(ids.size / row[name]) for name, ids in unseen.items())
    largest = max(output.size for output in cases[0].outputs.values())
    numbers = max(row[name] * largest / cases[0].inputs[name].size for name in unseen)  # in a row, about
    inputs = draw(max(1, min(rows, int(MAX_ELEMENTS / max(numbers, 1)))))
    inputs |= {name: np.ones_like(inputs[name]) for name in masks}
    return inputs | {
        name: np.resize(ids, inputs[name].shape).astype(inputs[name].dtype) for name, ids in unseen.items()
    }


def _find_unused_ids(name: str, ids: IdRange, seen: Sequence[Arrays]) -> np.ndarray:
    if len(ids.drawn_ids) > MAX_VOCABULARY_ROWS:
        return np.empty(0, np.int64)
    return np.setdiff1d(ids.drawn_ids, np.concatenate([np.empty(0), *(inputs[name].ravel() for inputs in seen)]))


def choose_num_rows(case: Case, widest: int) -> int:
    """Return the number of rows in which a slightly wrong choice shows: 0 if no output is an integer or boolean.

    A wrong score shows in any row; the integer or boolean that the score decides only in rows with close scores.
    """
    chosen = [max(output.size // max(len(output), 1), 1) for output in case.outputs.values() if _is_discrete(output)]
    if not chosen:
        return 0
    largest = max(
        array.size // max(len(array), 1) for array in (*case.inputs.values(), *case.outputs.values()) if array.ndim
    )
    limits = MAX_CHOICES // min(chosen), MAX_ELEMENTS // max(largest, 1), MAX_ROW_PRODUCTS // max(largest * widest, 1)
    return max(1, min(limits))


def draw_close_choices(generators: Generators, rows: int, draw: DrawRows, run: Callable[[Arrays], Arrays]) -> Arrays:
    """Return inputs of `rows` rows: of more rows those in which most choices change with slightly perturbed floats.

    A slightly wrong score changes these choices before any other.
    """
    first = draw(rows)
    floats = [name for name, g in generators.items() if first[name].dtype.kind == "f" and not g.is_mask]
    if not floats or any(array.shape[:1] != (rows,) for array in first.values()):
        return first
    rng = np.random.default_rng(0)
    drawn = [first, *(draw(rows) for _ in range(SEARCH_FACTOR - 1))]
    try:
        close = np.concatenate([_count_close_choices(inputs, floats, run, rng) for inputs in drawn])
    except Exception:  # noqa: BLE001 - a model may refuse perturbed numbers, with any exception
        return first
    closest = np.argsort(-close, kind="stable")[:rows]
    return {name: np.concatenate([inputs[name] for inputs in drawn])[closest] for name in first}


def _count_close_choices(
    inputs: Arrays, floats: Sequence[str], run: Callable[[Arrays], Arrays], rng: np.random.Generator
) -> np.ndarray:
    """Return by row the number of choices that change when floats are perturbed, of shape (B,)."""
    outputs = run(inputs)
    rows = len(inputs[floats[0]])
    count = np.zeros(rows, int)
    for share in RELATIVE_PERTURBATIONS:
        noise = {name: 1 + share * rng.standard_normal(inputs[name].shape) for name in floats}
        perturbed = run(inputs | {name: (inputs[name] * noise[name]).astype(inputs[name].dtype) for name in floats})
        for name, chosen in outputs.items():
            if _is_discrete(chosen) and len(chosen) == rows and perturbed[name].shape == chosen.shape:
                count += (perturbed[name] != chosen).reshape(rows, -1).sum(1)
    return count


def _is_discrete(output: np.ndarray) -> bool:
    return output.ndim > 0 and output.dtype.kind != "f"


def _find_growing_axes(axes: Axes, cases: Sequence[Case]) -> set[str]:
    """Return the names of axes along which an output is an input with more appended, in every case."""
    named = [(name, axis, symbol) for (name, axis), symbol in iterate_named_axes(axes.shapes) if symbol != BATCH]
    outputs = list(cases[0].outputs)
    return {symbol for name, axis, symbol in named if any(_is_growing(cases, name, output, axis) for output in outputs)}


def _is_growing(cases: Sequence[Case], name: str, output: str, axis: int) -> bool:
    """Return True if an output appends to an input, in some case not a multiple of the input, as where two join."""
    pairs = [(case.inputs[name], case.outputs[output]) for case in cases]
    if any(a.ndim != b.ndim or a.dtype != b.dtype or a.shape[axis] >= b.shape[axis] for a, b in pairs):
        return False
    begins = all(alike(np.take(after, np.arange(before.shape[axis]), axis), before) for before, after in pairs)
    return begins and any(after.shape[axis] % before.shape[axis] for before, after in pairs)


def list_large_form_positions(layers: Iterable[Any]) -> list[int]:
    """Return the numbers of positions from which some call of the layers may take the large form, largest first."""
    positions: set[int] = set()
    for layer in layers:
        if isinstance(layer, ADDITIVE):
            positions.add(LARGE_FORMS["additive"].each(_get_units(layer)).positions())
        elif isinstance(layer, ATTENTION):
            positions |= {least.positions() for kind, least in LARGE_FORMS.items() if kind != "additive"}
    return sorted(positions - {0}, reverse=True)


def _get_units(layer: Any) -> int:
    """Return the units of additive scores; few for a layer without weights: more positions do then."""
    if isinstance(layer, AdditiveAttention):
        return int(layer.num_hiddens)
    scale = getattr(layer, "scale", None)  # a layer that is never called has none
    return DEFAULT_UNITS if scale is None else int(scale.shape[0])


def _choose_long_sizes(length: int, axes: Axes) -> dict[str, int] | None:
    """Return sizes by name at which sequences have at least `length` positions; `None` if no input is a sequence.

    A sequence has one dynamic axis beside the batch. An image of that size would be too large.
    """
    alone = [[size for size in shape if isinstance(size, str) and size != BATCH] for shape in axes.shapes.values()]
    sequences = {symbol for symbols in alone if len(symbols) == 1 for symbol in symbols}
    if not sequences:
        return None
    steps = {symbol: axes.multiples.get(symbol, 1) for symbol in sequences}
    longer = {symbol: max(-(-length // step) * step, axes.distinct[symbol]) for symbol, step in steps.items()}
    return {**axes.distinct, **longer, **({BATCH: LONG_ROWS} if BATCH in axes.distinct else {})}
