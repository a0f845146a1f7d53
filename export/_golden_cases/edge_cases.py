"""Golden cases for large values, unusual padding, full vocabularies, close choices, empty caches and long sequences."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import keras
import numpy as np

from keras_attn import AdditiveAttention, AttentionPooling

from .._array_comparison import arrays_match
from .._format.names import Arrays, Case
from .._private_api.builtin_attention import MULTI_HEAD_LAYERS, SINGLE_HEAD_LAYERS
from .._thresholds import LARGE_THRESHOLDS as LARGE_FORMS
from .dynamic_axes import BATCH, Axes, iterate_named_axes
from .golden_cases import LARGE_VALUES, LONG, NOT_RUN_PREFIX, POISONED, GoldenCases, Run
from .input_generators import InputGenerator
from .random_inputs import IdRange, move_padding
from .trial_runs import InputSampler

LONG_UNMASKED = "long, every key"
EMPTY_CACHE = "empty cache"
NUM_STATIC_CASES = 5  # if no axis is dynamic
# The MAX constants bound the time and memory of golden cases. Larger vocabularies are not looked up completely.
MAX_VOCABULARY_ROWS, MAX_LONG_ELEMENTS, LONG_ROWS = 4096, 2**23, 2
# Of the case "many rows": choices in the outputs, elements of an array, elements of the largest activation.
MAX_CHOICES, MAX_ELEMENTS, MAX_ACTIVATION_ELEMENTS = 4096, 2**21, 2**24
# Of SEARCH_FACTOR times as many rows it has those in which most choices change if floats x become x (1 + p z), for each
# p of RELATIVE_PERTURBATIONS and normal z. A small p finds the closest choices, a large p some in every model.
SEARCH_FACTOR, RELATIVE_PERTURBATIONS = 4, (0.05, 0.3)
DEFAULT_UNITS = 8  # without weights; fewer units need longer sequences
ATTENTION = (AttentionPooling, *MULTI_HEAD_LAYERS, *SINGLE_HEAD_LAYERS)
ADDITIVE = (AdditiveAttention, keras.layers.AdditiveAttention)

Generators = Mapping[str, InputGenerator]
DrawRows = Callable[[int], Arrays]  # takes the number of rows, which a static batch ignores


class CaseSpec(NamedTuple):
    """Golden case to add."""

    name: str
    draw: Callable[[], Arrays | None]  # returns the inputs, or `None` if the case does not apply
    allow_degenerate: bool = False  # outputs may be NaN or empty
    refusal: str = ""  # reason if the case must not run


@dataclass(frozen=True)
class CaseInputs:
    """Source of inputs for golden cases, by sizes of named axes."""

    generators: Generators
    sampler: InputSampler
    axes: Axes

    def draw(self, sizes: Mapping[str, int], lengths: str = "mixed") -> Arrays:
        """Return inputs of the given sizes, with a pattern of lengths."""
        return self.sampler.draw(self.axes.get_axis_sizes(sizes), lengths)

    def draw_rows(self, rows: int, lengths: str = "full") -> Arrays:
        """Return inputs of the base sizes with `rows` rows, or with the static batch."""
        base = self.axes.base
        return self.draw(base | ({BATCH: rows} if BATCH in base else {}), lengths)


def yield_edge_cases(
    inputs: CaseInputs, golden: GoldenCases, run: Run, graph: Run | None, widest: int, long_lengths: Sequence[int]
) -> Iterator[CaseSpec]:
    """Yield edge cases; the consumer must add a case to `golden` before it requests the next one.

    `run` and `graph` run the model and its traced graph. `widest` is the largest number of features of a position. From
    each of `long_lengths` on, in descending order, a layer may use its large form.
    """
    generators, axes, draw_rows = inputs.generators, inputs.axes, inputs.draw_rows
    draw = partial(inputs.draw, axes.distinct)
    yield CaseSpec(LARGE_VALUES, lambda: magnify_floats(inputs.sampler.drawn_floats, draw()))
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
    if growing_axes := _find_growing_axes(axes, golden.cases):
        yield CaseSpec(EMPTY_CACHE, partial(inputs.draw, axes.distinct | dict.fromkeys(growing_axes, 0)), True)
    yield from _yield_long_cases(inputs, golden, long_lengths)


def _check_graph_runs(graph: Run | None, inputs: Arrays | None) -> Arrays | None:
    """Return inputs unchanged if the graph accepts them too; raises otherwise, since no file could be compared."""
    if graph is not None and inputs is not None:
        graph(inputs)
    return inputs


def _yield_long_cases(inputs: CaseInputs, golden: GoldenCases, lengths: Sequence[int]) -> Iterator[CaseSpec]:
    """Yield cases of the largest length that the model accepts, with padding and without."""
    options = [(length, sizes) for length in lengths if (sizes := _choose_long_sizes(length, inputs.axes)) is not None]
    for length, sizes in options:
        yield CaseSpec(LONG, partial(inputs.draw, sizes), refusal=_refuse_size(golden.count_elements_at(sizes)))
        if golden.cases[-1].name == LONG:
            shorter_cases = [(f"{LONG_UNMASKED} of fewer", options[-1][1])] if length > lengths[-1] else []
            for name, unmasked_sizes in [(LONG_UNMASKED, sizes), *shorter_cases]:
                yield CaseSpec(name, partial(_draw_unmasked, inputs, unmasked_sizes))
            return


def _draw_unmasked(inputs: CaseInputs, sizes: Mapping[str, int]) -> Arrays | None:
    return unmask_keys(inputs.generators, inputs.draw(sizes, "full"))


def _refuse_size(elements: int) -> str:
    return f"{NOT_RUN_PREFIX}: {elements:,} numbers, too many for a bundle" if elements > MAX_LONG_ELEMENTS else ""


def magnify_floats(names: Sequence[str], inputs: Arrays) -> Arrays | None:
    """Return inputs with the named floats multiplied by 100, so that scores reach 1e4; `None` without names."""
    return inputs | {name: inputs[name] * inputs[name].dtype.type(100) for name in names} if names else None


def poison_padding(generators: Generators, inputs: Arrays) -> Arrays | None:
    """Return inputs with NaN, infinity and 1e30 in the padding of keys and values; `None` without padded inputs."""
    arrays = dict(inputs)
    rules = {name: g.lengths for name, g in generators.items() if g.lengths and g.lengths.padded_inputs}
    for lengths, padded in ((inputs[name], padded) for name, rule in rules.items() for padded in rule.padded_inputs):
        is_padding = np.arange(arrays[padded].shape[1]) >= np.asarray(lengths)[:, np.newaxis]
        with np.errstate(over="ignore"):  # 1e30 is infinity in float16
            garbage = np.resize([np.nan, np.inf, 1e30, -np.inf], arrays[padded].shape).astype(arrays[padded].dtype)
        arrays[padded] = np.where(is_padding[..., np.newaxis], garbage, arrays[padded])
    return arrays if rules else None


def move_input_padding(generators: Generators, inputs: Arrays) -> Arrays | None:
    """Return inputs with padding at the start of rows or between steps; `None` without padding."""
    rng = np.random.default_rng(0)
    padded = [name for name, generator in generators.items() if generator.padding is not None]
    moved = {name: move_padding(inputs[name], rng) for name in padded}
    return inputs | moved if any((moved[name] != inputs[name]).any() for name in padded) else None


def unmask_keys(generators: Generators, inputs: Arrays) -> Arrays | None:
    """Return inputs without padding or masked keys; `None` if no length, id or mask can mask a key."""
    unmasked = dict(inputs)
    for name, generator in generators.items():
        if generator.is_mask or inputs[name].dtype == bool:
            unmasked[name] = np.ones_like(inputs[name])
        elif generator.padding is not None and generator.id_range is not None:
            other = next((id_ for id_ in generator.id_range.drawn_ids if id_ != generator.padding), generator.padding)
            unmasked[name] = np.where(inputs[name] == generator.padding, other, inputs[name]).astype(inputs[name].dtype)
    has_lengths = any(generator.lengths for generator in generators.values())
    return unmasked if has_lengths or any(unmasked[name] is not inputs[name] for name in inputs) else None


def replace_texts_by_empty(generators: Generators, inputs: Arrays) -> Arrays | None:
    """Return inputs with empty strings; `None` if all string inputs have closed vocabularies."""
    names = [name for name, generator in generators.items() if generator.texts and not generator.texts.is_closed]
    return inputs | {name: np.full_like(inputs[name], "") for name in names} if names else None


def draw_every_text(generators: Generators, draw: DrawRows) -> Arrays | None:
    """Return inputs with every text to test, one per row; `None` without string inputs."""
    texts = {name: rows for name, g in generators.items() if g.texts and (rows := g.texts.case_texts)}
    if not texts:
        return None
    inputs = draw(max(map(len, texts.values())))
    return inputs | {name: np.resize(np.array(rows, object), inputs[name].shape) for name, rows in texts.items()}


def draw_every_id(generators: Generators, cases: Sequence[Case], draw: DrawRows) -> Arrays | None:
    """Return inputs with every id that no case has looked up; `None` without such ids. `draw` returns full lengths."""
    masks = [name for name, generator in generators.items() if generator.is_mask]
    # The effect of an id at a position that is masked or beyond a length is unknown.
    is_masked = masks or any(generator.lengths for generator in generators.values())
    arrays = [] if is_masked else [case.inputs for case in cases]
    unused = {name: _find_unused_ids(name, g.id_range, arrays) for name, g in generators.items() if g.id_range}
    unused = {name: ids for name, ids in unused.items() if ids.size}
    if not unused:
        return None
    ids_per_row = {name: math.prod(draw(1)[name].shape[1:]) for name in unused}
    rows = max(math.ceil(ids.size / ids_per_row[name]) for name, ids in unused.items())
    # Elements of the largest output per row, roughly: outputs grow with the ids.
    largest = max(output.size for output in cases[0].outputs.values())
    elements = max(ids_per_row[name] * largest / cases[0].inputs[name].size for name in unused)
    inputs = draw(max(1, min(rows, int(MAX_ELEMENTS / max(elements, 1)))))
    inputs |= {name: np.ones_like(inputs[name]) for name in masks}
    for name, ids in unused.items():
        inputs[name] = np.resize(ids, inputs[name].shape).astype(inputs[name].dtype)
    return inputs


def _find_unused_ids(name: str, id_range: IdRange, cases: Sequence[Arrays]) -> np.ndarray:
    ids = id_range.drawn_ids
    if len(ids) > MAX_VOCABULARY_ROWS:
        return np.empty(0, np.int64)
    return np.setdiff1d(ids, np.concatenate([np.empty(0), *(inputs[name].ravel() for inputs in cases)]))


def choose_num_rows(case: Case, widest: int) -> int:
    """Return the number of rows of the case "many rows": 0 if no output is an integer or boolean."""
    # A wrong score changes a float in any row, but an integer or boolean only in rows with close scores.
    choices = [_count_row_elements(output) for output in case.outputs.values() if _is_discrete(output)]
    if not choices:
        return 0
    arrays = [array for array in (*case.inputs.values(), *case.outputs.values()) if array.ndim]
    largest = max(max(map(_count_row_elements, arrays)), 1)
    max_rows = MAX_ACTIVATION_ELEMENTS // max(largest * widest, 1)
    return max(1, min(MAX_CHOICES // max(min(choices), 1), MAX_ELEMENTS // largest, max_rows))


def _count_row_elements(array: np.ndarray) -> int:
    return array.size // max(len(array), 1)


def draw_close_choices(generators: Generators, rows: int, draw: DrawRows, run: Callable[[Arrays], Arrays]) -> Arrays:
    """Return inputs of `rows` rows with close choices, selected from `SEARCH_FACTOR` times as many rows."""
    first = draw(rows)
    floats = [name for name, g in generators.items() if first[name].dtype.kind == "f" and not g.is_mask]
    if not floats or any(array.shape[:1] != (rows,) for array in first.values()):
        return first
    rng = np.random.default_rng(0)
    batches = [first, *(draw(rows) for _ in range(SEARCH_FACTOR - 1))]
    try:
        counts = np.concatenate([_count_close_choices(inputs, floats, run, rng) for inputs in batches])
    except Exception:  # noqa: BLE001 - a model may refuse perturbed floats with any exception
        return first
    closest_rows = np.argsort(-counts, kind="stable")[:rows]
    return {name: np.concatenate([inputs[name] for inputs in batches])[closest_rows] for name in first}


def _count_close_choices(
    inputs: Arrays, floats: Sequence[str], run: Callable[[Arrays], Arrays], rng: np.random.Generator
) -> np.ndarray:
    """Return the number of choices in each row that change if floats are perturbed, shape (B,)."""
    outputs = run(inputs)
    rows = len(inputs[floats[0]])
    count = np.zeros(rows, int)
    for relative in RELATIVE_PERTURBATIONS:
        noise = {name: 1 + relative * rng.standard_normal(inputs[name].shape) for name in floats}
        results = run(inputs | {name: (inputs[name] * noise[name]).astype(inputs[name].dtype) for name in floats})
        for name, output in outputs.items():
            if _is_discrete(output) and len(output) == rows and results[name].shape == output.shape:
                count += (results[name] != output).reshape(rows, -1).sum(1)
    return count


def _is_discrete(output: np.ndarray) -> bool:
    return output.ndim > 0 and output.dtype.kind != "f"


def _find_growing_axes(axes: Axes, cases: Sequence[Case]) -> set[str]:
    """Return the names of cache axes: along them, an output is an input followed by more steps, in every case."""
    input_axes = [(name, axis, symbol) for (name, axis), symbol in iterate_named_axes(axes.shapes) if symbol != BATCH]
    outputs = list(cases[0].outputs)
    return {
        symbol for name, axis, symbol in input_axes if any(_is_growing(cases, name, output, axis) for output in outputs)
    }


def _is_growing(cases: Sequence[Case], name: str, output: str, axis: int) -> bool:
    """Return True if an output begins with an input in all cases, and is not always a multiple of its length."""
    pairs = [(case.inputs[name], case.outputs[output]) for case in cases]
    if any(a.ndim != b.ndim or a.dtype != b.dtype or a.shape[axis] >= b.shape[axis] for a, b in pairs):
        return False
    # A multiple in every case is a concatenation of inputs of equal lengths, and no cache.
    is_prefix = all(arrays_match(np.take(cache, np.arange(past.shape[axis]), axis), past) for past, cache in pairs)
    return is_prefix and any(cache.shape[axis] % past.shape[axis] for past, cache in pairs)


def list_large_form_positions(layers: Iterable[Any]) -> list[int]:
    """Return the numbers of positions from which the layers may use their large forms, in descending order."""
    positions: set[int] = set()
    for layer in layers:
        if isinstance(layer, ADDITIVE):
            positions.add(LARGE_FORMS["additive"].scale_pairs(_get_units(layer)).find_min_length())
        elif isinstance(layer, ATTENTION):
            positions |= {threshold.find_min_length() for name, threshold in LARGE_FORMS.items() if name != "additive"}
    return sorted(positions - {0}, reverse=True)


def _get_units(layer: Any) -> int:
    """Return the number of units of an additive layer, or `DEFAULT_UNITS` without weights."""
    if isinstance(layer, AdditiveAttention):
        return int(layer.num_hiddens)
    scale = getattr(layer, "scale", None)  # `None` before the first call
    return DEFAULT_UNITS if scale is None else int(scale.shape[0])


def _choose_long_sizes(length: int, axes: Axes) -> dict[str, int] | None:
    """Return sizes by name at which sequences have at least `length` positions; `None` if no input is a sequence."""
    # A sequence has one dynamic axis besides the batch. Images of that size would be too large.
    symbols = [[size for size in shape if isinstance(size, str) and size != BATCH] for shape in axes.shapes.values()]
    sequences = {names[0] for names in symbols if len(names) == 1}
    if not sequences:
        return None
    multiples = {symbol: axes.multiples.get(symbol, 1) for symbol in sequences}
    long_sizes = {symbol: max(-(-length // n) * n, axes.distinct[symbol]) for symbol, n in multiples.items()}
    return {**axes.distinct, **long_sizes, **({BATCH: LONG_ROWS} if BATCH in axes.distinct else {})}
