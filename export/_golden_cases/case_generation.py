"""Generate golden cases: inputs at several sizes and lengths, and the outputs of Keras."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from .._errors import InputError, UnsupportedModelError
from .._format.names import Arrays, Case
from .._options import Options
from .._private_api.keras_internals import mistaken_biases
from .._signature.keras_messages import first_line
from .._signature.signature import Signature
from .coverage import input_coverage
from .determinism import refuse_unsteady
from .dynamic_axes import BATCH, Axes, name_axes
from .edge_cases import (
    growing_axes,
    large_form_positions,
    long_sizes,
    magnified,
    poisoned,
    rows_for_choices,
    with_close_choices,
    with_empty_texts,
    with_every_id,
    with_every_key,
    with_every_text,
    with_padding_elsewhere,
)
from .golden_cases import LONG, NOT_RUN, Cases, Sizes
from .input_generators import LENGTHS, InputGenerator, input_generators
from .input_sampler import InputSampler
from .random_inputs import resized
from .sample_inputs import flat_samples
from .special_values import (
    SPECIAL,
    Run,
    Trial,
    few_of_each,
    finite_trials,
    outputs_or_none,
    runnable_trials,
    special_values,
    with_trials,
)
from .trial_runs import TrialRuns, nan_rows

LARGEST, MANY = 64, 2**18
LARGE = "large values"  # scores reach 1e4
POISONED = "poisoned padding"
FULL = "lengths full"
EVERY_KEY = "long, every key"
EMPTY_CACHE = "empty cache"
MISTAKEN = "by sizes that are equal Keras takes a summand for a bias, along another axis: keras PR 20386"
STATIC_CASES = 5  # of a model without a dynamic axis, whose sizes give one only
NUMBERS = 2**23  # an array of the long cases holds at most

Check = Callable[[Signature, Cases], Run | None]
Draw = Callable[[], Arrays | None]  # `None` if a case does not apply to the model


class CaseSizes(NamedTuple):
    """Name of a golden case, its sizes by axis name, and its pattern of lengths."""

    name: str
    sizes: Sizes
    lengths: str = "mixed"


def unchecked(signature: Signature, golden: Cases) -> None:
    """Raise nothing, and know of no graph."""


def golden_cases(signature: Signature, options: Options, check: Check = unchecked) -> Cases:
    """Draw inputs over batch sizes and lengths, and run Keras on each.

    Samples are cut, or repeated, where an axis is static at another size than theirs. `check` is called with the first
    case: it raises an error if the model cannot be traced, or returns a function that runs the traced graph.

    Raises:
        InputError: Keras cannot run the model on the samples, or on any size of drawn inputs.
        UnsupportedModelError: The model gives other outputs when it is called again.
    """
    samples = flat_samples(signature)
    generators = input_generators(signature, samples)
    sampler = InputSampler(signature.inputs, generators)
    runs = TrialRuns(signature, sampler)
    axes = name_axes(signature, samples, runs, options)
    refuse_unsteady(signature, sampler.inputs(axes.sizes(axes.base)))
    builder = CaseBuilder(signature.run, generators, sampler, runs, axes)
    has_all_samples = len(samples) == len(signature.inputs)
    if has_all_samples:
        builder.add_samples(samples)
    builder.add_sizes(partial(check, signature))
    builder.add_values()
    if not axes.base and not has_all_samples:
        builder.add_redraws()
    builder.add_vocabularies()
    builder.add_choices(max((variable.shape[-1] for variable in signature.model.weights if variable.shape), default=1))
    builder.add_empty_caches()
    builder.add_long(large_form_positions(signature.layers))
    builder.add_special()
    return builder.finished()


class CaseBuilder:
    """Adds golden cases to a record; the order of the calls decides the drawn arrays."""

    def __init__(
        self,
        run: Run,
        generators: Mapping[str, InputGenerator],
        sampler: InputSampler,
        runs: TrialRuns,
        axes: Axes,
    ) -> None:
        self._run = run
        self._generators = generators
        self._sampler = sampler
        self._runs = runs
        self._axes = axes
        self._golden = Cases(axes.shapes, multiples=axes.multiples, static=axes.static, drawn=sampler.floats)
        self._mistaken: set[str] = set()  # names of cases in which Keras takes a summand for a bias
        self._graph: Run | None = None

    def _add(self, name: str, draw: Draw, *, allow_degenerate: bool = False) -> None:
        """Add a case, or the reason why the model refuses the case."""
        try:
            inputs = draw()
            if inputs is None:
                return
            if not allow_degenerate and (problem := self._runs.static_failure(inputs)):
                self._golden.refused[name] = problem
                return
            with mistaken_biases() as biases:
                case = Case(name, inputs, self._run(inputs))
                if self._sampler.has_texts and not allow_degenerate:
                    case = self._without_nan_rows(case)
        except Exception as error:  # noqa: BLE001 - any failure of the user's own model; it is kept in the report
            self._golden.refused[name] = first_line(error)
            return
        if not allow_degenerate and self._runs.is_degenerate(case.outputs):
            self._golden.refused[name] = "Keras gives NaN, or an empty output"
            return
        if any(biases):
            self._mistaken.add(name)
        self._golden.append(case)

    def _without_nan_rows(self, case: Case) -> Case:
        """Return a case whose rows with NaN outputs are replaced by copies of other rows."""
        rows = nan_rows(case.inputs, case.outputs)
        count = int(np.count_nonzero(rows))
        if not count:
            return case
        self._golden.refused[f"{count} row{'s' * (count > 1)} of {case.name}"] = "Keras gives NaN"
        for name in (name for name, generator in self._generators.items() if generator.words):
            texts = [" ".join(row) for row in case.inputs[name][rows].reshape(count, -1)]
            self._golden.nan_texts.setdefault(name, []).extend(texts)
        index = np.arange(len(rows))
        index[rows] = np.resize(index[~rows], count)
        inputs = {name: array[index] for name, array in case.inputs.items()}
        return Case(case.name, inputs, self._run(inputs))

    def _draw(self, sizes: Mapping[str, int], lengths: str = "mixed") -> Arrays:
        return self._sampler.inputs(self._axes.sizes(sizes), lengths)

    def _draw_rows(self, rows: int, lengths: str = "full") -> Arrays:
        base = self._axes.base
        return self._draw(base | ({BATCH: rows} if BATCH in base else {}), lengths)

    def add_samples(self, samples: Arrays) -> None:
        """Add the samples of the user, with the sizes of static axes."""
        fixed = self._axes.fixed
        shapes = {
            name: tuple(fixed.get((name, axis), size) for axis, size in enumerate(array.shape))
            for name, array in samples.items()
        }
        fitted = {name: resized(array, shapes[name]) for name, array in samples.items()}
        self._add("samples", lambda: fitted, allow_degenerate=True)
        if "samples" in self._golden.refused:
            raise InputError(f"Keras itself cannot run the model on `sample_inputs`: {self._golden.refused['samples']}")

    def add_sizes(self, check: Callable[[Cases], Run | None]) -> None:
        """Add a case for each size of an axis, and each pattern of lengths; check the first case."""
        is_checked = False
        golden = self._golden
        for name, sizes, lengths in _sized_cases(self._axes, any(g.lengths for g in self._generators.values())):
            # rows without keys may be NaN in other layers
            self._add(name, partial(self._draw, sizes, lengths), allow_degenerate=name.startswith("lengths"))
            if golden.cases and not is_checked and golden.cases[-1].name not in self._mistaken:
                self._graph = check(replace(golden, cases=golden.cases[-1:], sizes=golden.sizes[-1:]))
                is_checked = True

    def add_values(self) -> None:
        """Add cases of large values, poisoned padding, and padding in unusual places."""
        changes: dict[str, Callable[[Arrays], Arrays | None]] = {
            LARGE: partial(magnified, self._sampler.floats),
            POISONED: partial(poisoned, self._generators),
            "padding elsewhere": partial(with_padding_elsewhere, self._generators),
        }
        for name, change in changes.items():
            self._add(name, lambda change=change: change(self._draw(self._axes.apart)))  # type: ignore[misc]
        self._golden.refused.pop(POISONED, None)  # a model that reads its padding elsewhere too promises nothing of it

    def add_redraws(self) -> None:
        """Add further draws for a model without a dynamic axis."""
        for number in range(2, STATIC_CASES + 1):
            self._add(f"again {number}", partial(self._draw, self._axes.apart))

    def add_vocabularies(self) -> None:
        """Add cases of all ids, all strings, and empty strings."""
        generators, draw_rows = self._generators, self._draw_rows
        self._add("every id", lambda: with_every_id(generators, self._golden.cases, draw_rows))
        self._add("every text", lambda: with_every_text(generators, draw_rows))
        self._add("empty text", self._draw_empty_texts, allow_degenerate=True)

    def _draw_empty_texts(self) -> Arrays | None:
        """Return inputs that the graph of the model takes too: without outputs of Keras's graph no file is compared."""
        inputs = with_empty_texts(self._generators, self._draw(self._axes.apart))
        if self._graph is not None and inputs is not None:
            self._graph(inputs)
        return inputs

    def add_choices(self, widest: int) -> None:
        """Add a case of many rows if an output is chosen; `widest` is the largest layer of the model."""
        rows = rows_for_choices(self._golden.cases[0], widest)
        if BATCH in self._axes.base and rows:
            draw = partial(self._draw_rows, lengths="mixed")
            self._add("many rows", lambda: with_close_choices(self._generators, rows, draw, self._run))

    def add_empty_caches(self) -> None:
        """Add a case in which all inputs that the model appends to are empty."""
        if growing := growing_axes(self._axes, self._golden.cases):
            empty = self._axes.apart | dict.fromkeys(growing, 0)
            self._add(EMPTY_CACHE, partial(self._draw, empty), allow_degenerate=True)

    def add_long(self, lengths: list[int]) -> None:
        """Add cases of the largest of these lengths that the model takes, with padding and without."""
        golden = self._golden
        sized = [(length, sizes) for length in lengths if (sizes := long_sizes(length, self._axes)) is not None]
        for length, sizes in sized:
            if (numbers := golden.numbers_at(sizes)) > NUMBERS:
                golden.refused[LONG] = f"{NOT_RUN}: {numbers:,} numbers, too many for a bundle"
                continue
            self._add(LONG, partial(self._draw, sizes))
            if golden.cases[-1].name == LONG:
                golden.refused.pop(LONG, None)  # of more positions, which the model does not take
                self._add_every_key(EVERY_KEY, sizes)
                if length > lengths[-1]:
                    self._add_every_key(f"{EVERY_KEY} of fewer", sized[-1][1])
                return

    def _add_every_key(self, name: str, sizes: Sizes) -> None:
        self._add(name, lambda: with_every_key(self._generators, self._draw(sizes, "full")))

    def add_special(self) -> None:
        """Add a case with values that break operators, one value in each row.

        If the batch size is fixed, each value gets a case of its own. Values that Keras or its graph refuses are left
        out.
        """
        first = self._golden.cases[0].inputs
        has_rows = all(self._axes.shapes[name][:1] == (BATCH,) for name in first)
        values = special_values(self._generators, first)
        trials = [Trial(*value, row + 1 if has_rows else 0) for row, value in enumerate(values)]
        rows = {BATCH: _distinct_size(len(trials) + 1, self._axes.apart)} if has_rows else {}
        inputs = outputs_or_none(partial(self._draw, lengths="full"), self._axes.apart | rows) if trials else None
        if inputs is None:
            return
        for group in self._runnable_groups(trials, inputs, has_rows):
            changed = with_trials(inputs, group)
            outputs = outputs_or_none(self._run, changed)
            if outputs is None:
                return
            name = f"{SPECIAL} {len(self._golden.trials) + 1}" if self._golden.trials else SPECIAL
            self._golden.trials[name] = group
            self._golden.append(Case(name, changed, outputs))

    def _runnable_groups(self, trials: list[Trial], inputs: Arrays, has_rows: bool) -> list[list[Trial]]:
        """Return the trials that Keras and its graph take: in one group, or with a fixed batch in one group each."""
        groups = [trials] if has_rows else [[trial] for trial in trials]
        finite = [finite_trials(group, inputs, self._run) for group in groups]
        if self._graph is not None:
            finite = [runnable_trials(group, inputs, self._graph) for group in finite]
        if has_rows:
            return [group for group in finite if group]
        return [[trial] for trial in few_of_each([trial for group in finite for trial in group], STATIC_CASES)]

    def finished(self) -> Cases:
        """Return the golden cases with what they show of the inputs.

        Raises:
            UnsupportedModelError: An output is bfloat16.
        """
        golden = self._golden
        self._drop_mistaken()
        for output, array in golden.cases[0].outputs.items():
            if str(array.dtype) == "bfloat16":
                raise UnsupportedModelError(
                    f"Output `{output}` is bfloat16, which NumPy does not have. Cast it to float32."
                )
        golden.inputs = input_coverage(golden, self._generators, self._draw, self._run)
        golden.lengths = self._counted_axes()
        return golden

    def _drop_mistaken(self) -> None:
        """Drop cases in which Keras takes a summand for a bias, by sizes that are equal there alone.

        If Keras does so in all cases, the sizes are those of the model, and known to whatever traces it as well.
        """
        if any(case.name not in {*self._mistaken, *self._golden.trials} for case in self._golden.cases):
            self._golden.drop(self._mistaken - {"samples"}, MISTAKEN)

    def _counted_axes(self) -> dict[str, str]:
        """Return for inputs that are lengths the axis that they count: full lengths are as large as its size."""
        cases = zip(self._golden.cases, self._golden.sizes, strict=True)
        case, sizes = next(((case, sizes) for case, sizes in cases if case.name == FULL), (None, {}))
        if case is None:
            return {}
        rules = {name: generator.lengths for name, generator in self._generators.items()}
        counting = [name for name, rule in rules.items() if rule is not None and not rule.is_of_state]
        axes = ((name, axis) for name in counting for axis, size in sizes.items() if size == case.inputs[name].max())
        return {name: axis for name, axis in axes if axis != BATCH}  # the sizes differ from each other


def _distinct_size(size: int, others: Mapping[str, int]) -> int:
    """Return a size, or the next larger, that no other axis has: Keras may take two that are equal for one."""
    taken = {other for symbol, other in others.items() if symbol != BATCH}
    return next(larger for larger in range(size, size + len(taken) + 1) if larger not in taken)


def _sized_cases(axes: Axes, has_lengths: bool) -> Iterator[CaseSizes]:
    """Yield each axis alone over small and large sizes, and each pattern of lengths once."""
    apart = axes.apart
    yield CaseSizes("base", axes.base)
    if apart:
        yield CaseSizes("axes apart", apart)
    for symbol, size in apart.items():
        step = axes.multiples.get(symbol, 1)
        # beyond the base where that is cheap: the features of additive attention grow with the product of all sizes
        cheap = size <= LARGEST and math.prod(apart.values()) <= MANY
        beyond = 2 * size + step if cheap else (size // 2 // step + 1) * step
        for other in (1, 2, beyond) if symbol == BATCH else (step, beyond):
            yield CaseSizes(f"{symbol} {other}", apart | {symbol: other})
    for pattern in LENGTHS if has_lengths else ():
        yield CaseSizes(f"lengths {pattern}", apart, pattern)
