"""Generation of golden cases: inputs at several sizes and lengths, and the outputs of Keras."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from .._errors import InputError, UnsupportedModelError
from .._format.names import Arrays, Case
from .._options import Options
from .._private_api.keras_internals import detect_additions_along_wrong_axis
from .._signature.keras_messages import shorten_message
from .._signature.signature import Signature
from .axis_groups import Axis
from .coverage import find_counted_axes, measure_input_coverage
from .dynamic_axes import BATCH, name_axes
from .edge_cases import CaseInputs, CaseSpec, list_large_form_positions, yield_edge_cases
from .golden_cases import POISONED, GoldenCases, Run
from .input_generators import LENGTH_PATTERNS, choose_generators
from .random_inputs import resize
from .sample_inputs import flatten_samples
from .special_values import yield_special_cases
from .trial_runs import InputSampler, TrialRuns, find_nan_rows, refuse_nondeterministic

# An axis is doubled up to this size and this product of all sizes, else halved: the features of additive attention
# grow with the product of all sizes.
MAX_DOUBLED_SIZE, MAX_DOUBLED_PRODUCT = 64, 2**18
MISTAKEN_BIAS = "Keras adds a summand along the wrong axis at these sizes (bug: keras PR 20386)"

CheckTrace = Callable[[Signature, GoldenCases], Run | None]


def skip_check(signature: Signature, golden: GoldenCases) -> None:
    """Check nothing, and return no function that runs a graph."""


def generate_golden_cases(signature: Signature, options: Options, check: CheckTrace = skip_check) -> GoldenCases:
    """Draw inputs of several batch sizes and lengths, and run Keras on them.

    Samples are cropped or repeated along static axes of a different size. `check` is called with the first case: it
    raises an error if the model cannot be traced, or returns a function that runs the traced graph.

    Raises:
        InputError: If Keras cannot run the model on the samples, or on any drawn inputs.
        UnsupportedModelError: If the model returns different outputs for the same inputs.
    """
    samples = flatten_samples(signature)
    generators = choose_generators(signature, samples)
    sampler = InputSampler(signature.inputs, generators)
    runs = TrialRuns(signature, sampler)
    axes = name_axes(signature, samples, runs, options)
    refuse_nondeterministic(signature, sampler.draw(axes.get_axis_sizes(axes.base)))
    inputs = CaseInputs(generators, sampler, axes)
    builder = CaseBuilder(signature.run, inputs, runs)
    if len(samples) == len(signature.inputs):
        builder.add_samples(_fit_samples(samples, axes.fixed))
    graph = builder.add_sizes(partial(check, signature))
    widest = max((weight.shape[-1] for weight in signature.model.weights if len(weight.shape)), default=1)
    long_lengths = list_large_form_positions(signature.layers)
    for spec in yield_edge_cases(inputs, builder.golden, signature.run, graph, widest, long_lengths):
        builder.add(spec)
    for case, injected_values in yield_special_cases(inputs, builder.golden, signature.run, graph):
        builder.golden.append(case)
        builder.golden.injections_by_case[case.name] = injected_values
    golden = builder.finish()
    golden.inputs = measure_input_coverage(golden, generators, inputs.draw, signature.run)
    golden.counted_axes = find_counted_axes(golden, generators)
    return golden


class CaseBuilder:
    """Builder of golden cases; the order of the calls decides the drawn arrays."""

    def __init__(self, run: Run, inputs: CaseInputs, runs: TrialRuns) -> None:
        axes, floats = inputs.axes, inputs.sampler.drawn_floats
        self.golden = GoldenCases(axes.shapes, multiples=axes.multiples, static=axes.static, drawn_floats=floats)
        self._run = run
        self._inputs = inputs
        self._runs = runs
        self._mistaken: set[str] = set()  # names of cases with the bug of `MISTAKEN_BIAS`

    def add(self, spec: CaseSpec) -> None:
        """Add a case, or the reason why the model fails on it."""
        name, draw, allow_degenerate, refusal = spec
        if refusal:
            self.golden.refusals[name] = refusal
            return
        try:
            inputs = draw()
            if inputs is None:
                return
            if not allow_degenerate and (reason := self._runs.find_static_failure(inputs)):
                self.golden.refusals[name] = reason
                return
            with detect_additions_along_wrong_axis() as biases:
                case = Case(name, inputs, self._run(inputs))
                if self._inputs.sampler.has_texts and not allow_degenerate:
                    case = self._replace_nan_rows(case)
        except Exception as error:  # noqa: BLE001 - the model of the user may raise anything; the report has the message
            self.golden.refusals[name] = shorten_message(error)
            return
        if not allow_degenerate and self._runs.is_degenerate(case.outputs):
            self.golden.refusals[name] = "Keras returns NaN, or an empty output"
            return
        if any(biases):
            self._mistaken.add(name)
        self.golden.append(case)

    def _replace_nan_rows(self, case: Case) -> Case:
        """Return a case in which copies of other rows replace rows with NaN outputs."""
        rows = find_nan_rows(case.inputs, case.outputs)
        count = int(np.count_nonzero(rows))
        if not count:
            return case
        self.golden.refusals[f"{count} row{'s' * (count > 1)} of {case.name}"] = "Keras returns NaN"
        for name in (name for name, generator in self._inputs.generators.items() if generator.texts):
            texts = [" ".join(row) for row in case.inputs[name][rows].reshape(count, -1)]
            self.golden.nan_texts.setdefault(name, []).extend(texts)
        index = np.arange(len(rows))
        index[rows] = np.resize(index[~rows], count)
        inputs = {name: array[index] for name, array in case.inputs.items()}
        return Case(case.name, inputs, self._run(inputs))

    def add_samples(self, samples: Arrays) -> None:
        """Add the samples of the user; raise `InputError` if Keras cannot run the model on them."""
        self.add(CaseSpec("samples", lambda: samples, allow_degenerate=True))
        if "samples" in self.golden.refusals:
            raise InputError(f"Keras itself cannot run the model on `sample_inputs`: {self.golden.refusals['samples']}")

    def add_sizes(self, check: Callable[[GoldenCases], Run | None]) -> Run | None:
        """Add a case for each size of an axis and pattern of lengths, and return the result of `check`."""
        graph, is_checked, golden = None, False, self.golden
        for spec in _yield_sized_cases(self._inputs):
            self.add(spec)
            if golden.cases and not is_checked and golden.cases[-1].name not in self._mistaken:
                graph = check(replace(golden, cases=golden.cases[-1:], sizes=golden.sizes[-1:]))
                is_checked = True
        return graph

    def finish(self) -> GoldenCases:
        """Return the golden cases without those with the bug of `MISTAKEN_BIAS`, unless all have it.

        In this case the sizes are static in the model, and the traced graph has the bug too.
        """
        golden = self.golden
        # A model may read its padding in other layers, so that a failure in this case is no error.
        golden.refusals.pop(POISONED, None)
        names = {case.name for case in golden.cases}
        golden.refusals = {name: reason for name, reason in golden.refusals.items() if name not in names}
        if names - set(golden.injections_by_case) - self._mistaken:
            golden.refusals |= {case.name: MISTAKEN_BIAS for case in golden.cases if self._is_dropped(case)}
            rows = zip(golden.cases, golden.sizes, strict=True)
            remaining_cases = [(case, sizes) for case, sizes in rows if not self._is_dropped(case)]
            golden.cases = [case for case, _ in remaining_cases]
            golden.sizes = [sizes for _, sizes in remaining_cases]
        for name, array in golden.cases[0].outputs.items():
            if str(array.dtype) == "bfloat16":
                raise UnsupportedModelError(f"Output `{name}` is bfloat16, which NumPy does not have. Cast to float32.")
        return golden

    def _is_dropped(self, case: Case) -> bool:
        return case.name in self._mistaken and case.name != "samples"


def _fit_samples(samples: Arrays, fixed: Mapping[Axis, int]) -> Arrays:
    """Return samples cropped or repeated to the sizes of static axes."""
    return {
        name: resize(array, tuple(fixed.get((name, axis), size) for axis, size in enumerate(array.shape)))
        for name, array in samples.items()
    }


def _yield_sized_cases(inputs: CaseInputs) -> Iterator[CaseSpec]:
    """Yield cases in which one axis has a small or large size, and a case for each pattern of lengths."""
    axes, sizes, draw = inputs.axes, inputs.axes.distinct, inputs.draw
    yield CaseSpec("base", partial(draw, axes.base))
    if sizes:
        yield CaseSpec("axes apart", partial(draw, sizes))
    for symbol, size in sizes.items():
        multiple = axes.multiples.get(symbol, 1)
        is_doubled = size <= MAX_DOUBLED_SIZE and math.prod(sizes.values()) <= MAX_DOUBLED_PRODUCT
        large_size = 2 * size + multiple if is_doubled else (size // 2 // multiple + 1) * multiple
        for changed in (1, 2, large_size) if symbol == BATCH else (multiple, large_size):
            yield CaseSpec(f"{symbol} {changed}", partial(draw, sizes | {symbol: changed}))
    for pattern in LENGTH_PATTERNS if any(generator.lengths for generator in inputs.generators.values()) else ():
        # Fully masked rows may be NaN in layers of others.
        yield CaseSpec(f"lengths {pattern}", partial(draw, sizes, pattern), allow_degenerate=True)
