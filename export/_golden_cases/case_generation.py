"""Generate golden cases: inputs at several sizes and lengths, and the outputs of Keras."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from .._errors import InputError, UnsupportedModelError
from .._format.names import Arrays, Case
from .._options import Options
from .._private_api.keras_internals import mistaken_biases
from .._signature.keras_messages import first_line
from .._signature.signature import Signature
from .axis_groups import Axis
from .cache_axes import EMPTY_CACHE, growing_axes
from .dynamic_axes import BATCH, Axes, name_axes, named_axes
from .edge_cases import (
    EMPTY_TEXT,
    EVERY_ID,
    EVERY_TEXT,
    MANY_ROWS,
    PADDED_ELSEWHERE,
    rows_to_choose_in,
    with_close_choices,
    with_empty_texts,
    with_every_id,
    with_every_text,
    with_padding_elsewhere,
)
from .golden_cases import Cases, Sizes
from .input_effects import known_of_inputs
from .input_generators import LENGTHS, Source, sources
from .input_sampler import Drawer
from .long_sequence_cases import EVERY_KEY, LONG, NOT_RUN, NUMBERS, long_sizes, positions, with_every_key
from .nan_rows import nan_rows, texts_of, with_other_rows
from .random_inputs import resized
from .sample_inputs import flat_samples
from .special_values import SPECIAL, Run, Trial, accepted, drawn, few_of_each, special_values, that_run, with_trials

LARGEST, MANY = 64, 2**18
LARGE = "large values"  # scores reach 1e4
POISONED = "poisoned padding"
FULL = "lengths full"
MISTAKEN = "by sizes that are equal Keras takes a summand for a bias, along another axis: keras PR 20386"
MAX_NAN_TEXTS = 3  # in the report
STATIC_CASES = 5  # of a model without a dynamic axis, whose sizes give one only


Check = Callable[[Signature, Cases], Run | None]


def unchecked(signature: Signature, golden: Cases) -> None:
    """Raise nothing, and know of no graph."""


def golden_cases(signature: Signature, options: Options, check: Check = unchecked) -> Cases:
    """Draw inputs over batch sizes and lengths, and run Keras on each.

    Samples are cut, or repeated, where an axis is static at another size than theirs. `check` is called with the first
    case, and raises what it shows to be against the model, or gives what runs its graph.

    Raises:
        InputError: Keras cannot run the model on the samples, or on any size of drawn inputs.
        UnsupportedModelError: The model gives other outputs when it is called again.
    """
    given = flat_samples(signature)
    made = sources(signature, given)
    drawer = Drawer(signature, made)
    axes = name_axes(signature, given, drawer, options)
    drawer.refuse_unsteady(axes.sizes(axes.base))
    result = Cases(axes.shapes, multiples=axes.multiples, static=axes.static, drawn=drawer.floats)

    mistaken: set[str] = set()

    def add(name: str, draw: Callable[[], Arrays | None], *, may_be_degenerate: bool) -> None:
        try:
            inputs = draw()
            if inputs is None:
                return
            if not may_be_degenerate and (problem := drawer.static_problem(inputs)):
                result.refused[name] = problem
                return
            with mistaken_biases() as biases:
                outputs = signature.run(inputs)
                has_texts = any(source.words for source in made.values())
                if has_texts and not may_be_degenerate and (rows := nan_rows(inputs, outputs)).any():
                    count = int(np.count_nonzero(rows))
                    result.refused[f"{count} row{'s' * (count > 1)} of {name}"] = "Keras gives NaN"
                    for input_name, texts in texts_of(made, inputs, rows).items():
                        result.nan_texts.setdefault(input_name, []).extend(texts)
                    inputs = with_other_rows(inputs, rows)
                    outputs = signature.run(inputs)
        except Exception as error:  # noqa: BLE001 - any failure of the user's own model; it is kept in the report
            result.refused[name] = first_line(error)
            return
        if not may_be_degenerate and drawer.is_degenerate(outputs):
            result.refused[name] = "Keras gives NaN, or an empty output"
            return
        if any(biases):
            mistaken.add(name)
        result.cases.append(Case(name, inputs, outputs))
        result.sizes.append({symbol: inputs[name].shape[axis] for (name, axis), symbol in named_axes(axes.shapes)})

    if len(given) == len(signature.inputs):
        add("samples", lambda: _fitted(given, axes.fixed), may_be_degenerate=True)
        if "samples" in result.refused:
            raise InputError(f"Keras itself cannot run the model on `sample_inputs`: {result.refused['samples']}")
    checked, graph = False, None
    for name, sizes, lengths in _sweep(axes, any(source.lengths for source in made.values())):
        draw = partial(drawer.inputs, axes.sizes(sizes), lengths)
        add(name, draw, may_be_degenerate=name.startswith("lengths"))  # rows without keys may be NaN in other layers
        if result.cases and not checked and result.cases[-1].name not in mistaken:
            graph = check(signature, replace(result, cases=result.cases[-1:], sizes=result.sizes[-1:]))
            checked = True
    apart = axes.sizes(axes.apart)

    def many(rows: int, lengths: str = "full") -> Arrays:
        return drawer.inputs(axes.sizes(axes.base | ({BATCH: rows} if BATCH in axes.base else {})), lengths)

    add(LARGE, lambda: drawer.magnified(drawer.inputs(apart)), may_be_degenerate=False)
    add(POISONED, lambda: drawer.poisoned(drawer.inputs(apart)), may_be_degenerate=False)
    result.refused.pop(POISONED, None)  # a model that reads its padding elsewhere too promises nothing of it
    add(PADDED_ELSEWHERE, lambda: with_padding_elsewhere(made, drawer.inputs(apart)), may_be_degenerate=False)
    for number in range(2, STATIC_CASES + 1) if not axes.base and len(given) < len(signature.inputs) else ():
        add(f"again {number}", partial(drawer.inputs, apart), may_be_degenerate=False)
    if result.cases:
        widest = max((variable.shape[-1] for variable in signature.model.weights if len(variable.shape)), default=1)
        add(EVERY_ID, partial(with_every_id, made, result.cases, many), may_be_degenerate=False)
        add(EVERY_TEXT, partial(with_every_text, made, many), may_be_degenerate=False)
        no_texts = partial(_if_it_runs, graph, lambda: with_empty_texts(made, drawer.inputs(apart)))
        add(EMPTY_TEXT, no_texts, may_be_degenerate=True)
        if BATCH in axes.base and (rows := rows_to_choose_in(result.cases[0], widest)):
            rows_of = partial(with_close_choices, made, rows, partial(many, lengths="mixed"), signature.run)
            add(MANY_ROWS, rows_of, may_be_degenerate=False)
        if growing := growing_axes(axes.shapes, result.cases):
            empty = axes.sizes(axes.apart | dict.fromkeys(growing, 0))
            add(EMPTY_CACHE, partial(drawer.inputs, empty), may_be_degenerate=True)
        _add_long(result, axes, made, positions(signature.layers), drawer, add)
        _add_special(result, axes, made, drawer, signature, graph)
    _drop_mistaken(result, mistaken)
    for output, array in result.cases[0].outputs.items():
        if str(array.dtype) == "bfloat16":
            raise UnsupportedModelError(
                f"Output `{output}` is bfloat16, which NumPy does not have. Cast it to float32."
            )
    state_lengths = [name for name, source in made.items() if source.appended]
    drawn_cases = [index for index, case in enumerate(result.cases) if case.name != "samples"]  # samples may be large
    # keys of an empty state change no output
    filled = [index for index in drawn_cases if all(result.cases[index].inputs[name].any() for name in state_lengths)]
    at = (filled or drawn_cases or [0])[0]
    again = partial(drawer.inputs, axes.sizes(result.sizes[at]))
    ordinary = [case for case in result.cases if case.name not in result.trials]
    tried = [trial for trials in result.trials.values() for trial in trials]
    near = {name: [int(each.value) for each in tried if each.input == name and each.is_near] for name in made}
    result.inputs = known_of_inputs(made, ordinary, at, again, signature.run, near)
    for name, source in made.items():
        usual = [case.inputs[name] for case in ordinary]
        of_it = [trial for trial in tried if trial.input == name]
        result.inputs[name]["values"] = {"drawn": drawn(source, usual, of_it)}
        if texts := result.nan_texts.get(name):
            result.inputs[name]["values"]["nan"] = sorted({*texts})[:MAX_NAN_TEXTS]
    result.lengths = _counted_axes(result, made)
    return result


def _if_it_runs(graph: Run | None, draw: Callable[[], Arrays | None]) -> Arrays | None:
    """Return inputs that the graph of the model takes too; of others no file can be compared."""
    inputs = draw()
    if graph is not None and inputs is not None:
        graph(inputs)
    return inputs


def _drop_mistaken(result: Cases, mistaken: Collection[str]) -> None:
    """Drop cases in which Keras takes a summand for a bias, by sizes that are equal there alone.

    Where it does so in all of them, the sizes are those of the model, and known to whatever traces it as well.
    """
    right = [number for number, case in enumerate(result.cases) if case.name not in mistaken or case.name == "samples"]
    if all(case.name in mistaken for case in result.cases if case.name not in result.trials):
        return
    result.refused |= {case.name: MISTAKEN for case in result.cases if case.name in {*mistaken} - {"samples"}}
    result.cases, result.sizes = [result.cases[n] for n in right], [result.sizes[n] for n in right]


def _counted_axes(result: Cases, made: Mapping[str, Source]) -> dict[str, str]:
    """Return for inputs that are lengths the axis they count along: where they are full, they are as large as it."""
    full = next((index for index, case in enumerate(result.cases) if case.name == FULL), None)
    if full is None:
        return {}
    sizes, inputs = result.sizes[full], result.cases[full].inputs  # the sizes differ from each other
    counting = [name for name, source in made.items() if source.lengths and not source.appended]
    largest = {name: int(inputs[name].max()) for name in counting}
    axes = ((name, axis) for name, most in largest.items() for axis, size in sizes.items() if size == most)
    return {name: axis for name, axis in axes if axis != BATCH}


def _add_long(
    result: Cases,
    axes: Axes,
    made: Mapping[str, Source],
    enough: Sequence[int],
    drawer: Drawer,
    add: Callable[..., None],
) -> None:
    """Add cases of as many positions as the model takes of what is enough, the most first, with padding and without."""

    def add_full(name: str, sizes: Sizes) -> None:
        full = partial(drawer.inputs, axes.sizes(sizes), "full")
        add(name, lambda: with_every_key(made, full()), may_be_degenerate=False)

    for length in enough:
        sizes = long_sizes(length, axes.shapes, axes.apart, axes.multiples)
        if sizes is None:
            return
        if (numbers := result.numbers_at(sizes)) > NUMBERS:
            result.refused[LONG] = f"{NOT_RUN}: {numbers:,} numbers, too many for a bundle"
            continue
        add(LONG, partial(drawer.inputs, axes.sizes(sizes)), may_be_degenerate=False)
        if result.cases[-1].name != LONG:
            continue
        result.refused.pop(LONG, None)  # of more positions, which the model does not take
        add_full(EVERY_KEY, sizes)
        fewest = long_sizes(enough[-1], axes.shapes, axes.apart, axes.multiples)
        if length > enough[-1] and fewest is not None:
            add_full(f"{EVERY_KEY} of fewer", fewest)
        return


def _add_special(
    result: Cases, axes: Axes, made: Mapping[str, Source], drawer: Drawer, signature: Signature, graph: Run | None
) -> None:
    """Add a case with values that break operators, one value in each row.

    If the batch size is fixed, each value gets a case of its own. Values that Keras or its graph refuses are left out.
    """
    first = result.cases[0].inputs
    has_rows = all(axes.shapes[name][:1] == (BATCH,) for name in first)
    values = special_values(made, first)
    if not values:
        return
    trials = [Trial(*value, row + 1 if has_rows else 0) for row, value in enumerate(values)]
    sizes = axes.apart | ({BATCH: _unlike(len(trials) + 1, axes.apart)} if has_rows else {})
    try:
        inputs = drawer.inputs(axes.sizes(sizes), "full")
        runs = [partial(accepted, run=signature.run)]
        runs += [] if graph is None else [partial(that_run, run=graph)]
        groups = [trials] if has_rows else [[trial] for trial in trials]
        for taken in runs:
            groups = [taken(group, inputs) for group in groups]
        if not has_rows:
            groups = [[trial] for trial in few_of_each(itertools.chain(*groups), STATIC_CASES)]
        for number, group in enumerate(filter(None, groups), 1):
            case = f"{SPECIAL} {number}" if number > 1 else SPECIAL
            changed = with_trials(inputs, group)
            result.cases.append(Case(case, changed, signature.run(changed)))
            result.trials[case] = group
            result.sizes.append({symbol: changed[n].shape[axis] for (n, axis), symbol in named_axes(axes.shapes)})
    except Exception:  # noqa: BLE001 - the model refuses such inputs, in eager mode or as a graph
        return


def _unlike(size: int, others: Mapping[str, int]) -> int:
    """Return a size, or the next larger, that no other axis has: Keras may take two that are equal for one."""
    taken = {other for symbol, other in others.items() if symbol != BATCH}
    return next(each for each in range(size, size + len(taken) + 1) if each not in taken)


def _sweep(axes: Axes, has_lengths: bool) -> Iterator[tuple[str, Sizes, str]]:
    """Yield (case name, sizes, pattern of lengths): each axis alone over small and large sizes, each pattern once."""
    apart = axes.apart
    yield "base", axes.base, "mixed"
    if apart:
        yield "axes apart", apart, "mixed"
    for symbol, size in apart.items():
        step = axes.multiples.get(symbol, 1)
        # beyond the base where that is cheap: the features of additive attention grow with the product of all sizes
        cheap = size <= LARGEST and math.prod(apart.values()) <= MANY
        beyond = 2 * size + step if cheap else (size // 2 // step + 1) * step
        for other in (1, 2, beyond) if symbol == BATCH else (step, beyond):
            yield f"{symbol} {other}", apart | {symbol: other}, "mixed"
    if has_lengths:
        for pattern in LENGTHS:
            yield f"lengths {pattern}", apart, pattern


def _fitted(samples: Arrays, fixed: Mapping[Axis, int]) -> Arrays:
    """Return samples with the sizes of static axes."""
    return {
        name: resized(array, tuple(fixed.get((name, axis), size) for axis, size in enumerate(array.shape)))
        for name, array in samples.items()
    }
