"""What comes of special values: which kinds the file gives as Keras does, and by which operator it gives others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from .._analysis.first_difference import Comparison, first_difference
from .._analysis.onnx_graph import OnnxGraph
from .._bundle.parity import ROUGH, ParityError, ParityReport, ParityRow, compared
from .._errors import ExportError, ProviderError
from .._internals.keras_internals import mistaken_biases
from .._loaded_bundle import Bundle
from .._model.golden_cases import Cases
from .._model.signature import Signature
from .._model.special_values import INFINITY, NAN, Trial
from .._model.special_verdicts import apart, differing
from .._operators.deviations import deviation, operators_for
from .._standalone import verify
from .._standalone.verify import Arrays, Case, Manifest
from .._tracing.to_onnx import layer_of

BIAS = (
    " Here Keras itself adds along another axis than in a graph: `keras.ops.add(x, y)` takes `y` for a bias where its "
    "one size is the last of `x` (keras PR 20386). Write `keras.ops.subtract(x, -y)`."
)
LARGE_INTEGERS = "large integers"
ROUGHLY = {"relative": 1e-3, "absolute": 1e-6}  # beside what is not finite: other cases show the rest
MERGED = "operators that onnxruntime merges"


def outputs_of(model: Path, golden: Cases, provider: str) -> list[Arrays]:
    """Return what onnxruntime gives for the golden cases, and the others: nothing for one that it cannot run.

    Raises:
        ProviderError: As for `open_session`.
        ExportError: It cannot run a golden case; the message says what is tried in it.
    """
    try:
        return verify.run_cases(model, [*golden.cases, *golden.others], provider)
    except ProviderError:
        raise
    except ExportError:
        pass
    found: list[Arrays] = []
    for case in (*golden.cases, *golden.others):
        try:
            found += verify.run_cases(model, [case], provider)
        except ProviderError:
            raise
        except ExportError as error:
            if case in golden.others:
                found.append({})
                continue
            tried = ", ".join(f"`{trial.input}` holds {trial.kind}" for trial in golden.trials.get(case.name, ()))
            raise ExportError(f"{error}{f' In this case {tried}.' if tried else ''}") from error
    return found


class Special:
    """Judges cases of special values, and names the operator where the file differs."""

    def __init__(self, folder: Path, signature: Signature, golden: Cases, manifest: Manifest) -> None:
        """Judge nothing yet."""
        self._signature, self._golden = signature, golden
        self._bundle = Bundle(folder, asdict(manifest))

    def judged(
        self, actual: Sequence[Arrays], saved: Sequence[Arrays], tolerance: Mapping[str, float], provider: str
    ) -> tuple[Cases, set[str], tuple[ParityRow, ...]]:
        """Return the golden cases with what was tried in their coverage, which are none for a known reason, and rows.

        What Keras's own graph, the SavedModel, gives otherwise than Keras is not defined. The rows are of examples that
        differ because others, beside them, hold infinities and NaN.
        """
        differ: dict[tuple[str, str], dict[str, str]] = {}
        undefined: set[tuple[str, str]] = set()
        left_out: set[str] = set()
        failed: tuple[ParityRow, ...] = ()
        for number, case in enumerate((*self._golden.cases, *self._golden.others)):
            if case.name not in self._golden.trials:
                continue
            is_finite = number < len(self._golden.cases)
            limits = tolerance if is_finite else {key: max(tolerance[key], ROUGHLY[key]) for key in ROUGHLY}
            unlike, _ = differing(case, self._golden.trials[case.name], saved[number], limits)
            undefined |= {(trial.input, trial.kind) for trial in unlike}
            found, is_known = self._differing(case, actual[number], unlike, limits, provider)
            if is_known or not is_finite:
                differ |= found
                left_out |= {case.name} if found else set()
            if not is_finite and actual[number]:
                plain, taken = apart(case, self._golden.trials[case.name])
                if all(row.passed for row in compared([plain], [taken(saved[number])], limits)):
                    found_rows = compared([plain], [taken(actual[number])], limits, provider)
                    failed += tuple(row for row in found_rows if not row.passed)
        cases = [case for case in self._golden.cases if case.name not in left_out]
        sizes = [size for size, case in zip(self._golden.sizes, self._golden.cases, strict=True) if case in cases]
        inputs = {
            name: known | {"values": known["values"] | self._tried(name, differ, undefined)}
            for name, known in self._golden.coverage["inputs"].items()
        }
        coverage = self._golden.coverage | {"inputs": inputs, "cases": len(cases)}
        return replace(self._golden, cases=cases, sizes=sizes, coverage=coverage), left_out, failed

    def _tried(
        self, name: str, differ: Mapping[tuple[str, str], Any], undefined: Collection[tuple[str, str]]
    ) -> dict[str, Any]:
        """Return which kinds of values of an input are equal, and which differ where."""
        trials = [trial for trials in self._golden.trials.values() for trial in trials if trial.input == name]
        kinds = dict.fromkeys(trial.kind for trial in trials)
        in_range = {trial.kind for trial in trials if trial.is_near}
        return {
            "equal": [kind for kind in kinds if (name, kind) not in {*differ, *undefined} and kind not in in_range],
            "differ": {kind: differ[name, kind] for kind in kinds if (name, kind) in differ},
        }

    def _differing(
        self, case: Case, actual: Arrays, undefined: Collection[Trial], tolerance: Mapping[str, float], provider: str
    ) -> tuple[dict[tuple[str, str], dict[str, str]], bool]:
        """Return where a case differs, by input and kind, and whether that is written down for all of it."""
        trials = self._golden.trials[case.name]
        wrong, others = differing(case, trials, actual, tolerance, provider)
        wrong = [trial for trial in wrong if trial not in undefined]
        is_known = not others
        differ: dict[tuple[str, str], dict[str, str]] = {}
        for kind in dict.fromkeys(map(_kind, wrong)):
            of_kind = [trial for trial in wrong if _kind(trial) == kind]
            place, why = self._place(case, of_kind, kind)
            is_known &= bool(why)
            differ |= {(trial.input, trial.kind): {"in": place, "why": why} for trial in of_kind}
        return differ, is_known

    def _place(self, case: Case, trials: Sequence[Trial], kind: str) -> tuple[str, str]:
        """Return where the rows of some trials begin to differ, and why if that is written down.

        Of NaN that is the first operator that reads one and is known to take it otherwise: TensorFlow's own graphs
        differ among each other in more.
        """
        rows = sorted({trial.row for trial in trials})
        inputs = {name: array[rows] for name, array in case.inputs.items()} if rows[0] else case.inputs
        try:
            if kind in (INFINITY, NAN):
                graph = OnnxGraph(self._bundle.path / verify.MODEL)
                for operator, names in graph.readers_of_nan(operators_for(NAN), inputs, "cpu"):
                    known = deviation((operator,), NAN)
                    layers = (layer_of(name, self._signature.layer_names) for name in names)
                    layer = next(filter(None, layers), None)
                    return f"`{operator}`{f' of layer `{layer}`' if layer else ''}", known.why if known else ""
            part = Case(case.name, inputs, self._signature.run(inputs))
            found = first_difference(self._bundle, [case.name], ROUGH, among=[part])
        except (ExportError, OSError, ValueError):
            return MERGED, ""
        known = deviation(found.operators, kind)
        return _named(found, kind), known.why if known else ""

    def hint(self, error: ParityError, actual: Sequence[Arrays], tolerance: Mapping[str, float]) -> str:
        """Return what further sentences are worth saying of a mismatch: for which values, and in which operator."""
        report: ParityReport = error.report
        failed = next((row.case for row in (*report.saved_model_rows, *report.rows) if not row.passed), None)
        if failed is None:
            return ""
        everything = (*self._golden.cases, *self._golden.others)
        number, case = next(each for each in enumerate(everything) if each[1].name == failed)
        if any(not row.passed for row in report.saved_model_rows):
            with mistaken_biases() as found_biases:
                self._signature.run(case.inputs)
            return BIAS if any(found_biases) else ""
        wrong, _ = differing(case, self._golden.trials.get(failed, ()), actual[number], tolerance)
        values = ", ".join(dict.fromkeys(f"`{trial.input}` holds {trial.kind}" for trial in wrong))
        try:
            found = first_difference(self._bundle, [failed], ROUGH, among=[case])
        except (ExportError, OSError, ValueError):
            found = None
        place = f" It begins in {_named(found)}." if found is not None and found.first is not None else ""
        return f"{f' They do where {values}.' if values else ''}{place}"


def _kind(trial: Trial) -> str:
    return LARGE_INTEGERS if isinstance(trial.value, int) and not trial.is_near else trial.kind


def _named(found: Comparison, kind: str = "") -> str:
    """Return where something begins to differ: of several operators the one of which that is known, or the last."""
    if found.first is None:
        return MERGED
    known = [each for each in found.operators if deviation((each,), kind)]
    operators = [*known, *reversed(found.operators)]
    return f"{f'`{operators[0]}` of ' if operators else ''}layer `{found.first.layer}`"
