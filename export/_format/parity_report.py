"""Parity report: results of all comparisons with Keras, as JSON, and the errors that they raise."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .compare import compare
from .manifest import BOOLEAN, COUNT, LIMIT, NUMBER, TEXT, TOLERANCE, JsonType, ListOf, OrNull, find_schema_error
from .names import Arrays, Case, ExportError
from .providers import provider_of
from .report_text import describe_coverage, describe_precision, describe_slowdown

ZERO_TOLERANCE = {"relative": 0.0, "absolute": 0.0}  # no tolerance in addition to the rounding limits
_DIFFERENCES = ("max_abs", "max_rel")
_SHARES = ("rounding", "rounding_in_precision", "seen_in_precision", "ties")
# `encode_nonfinite` writes infinities and NaN, which JSON lacks, as strings.
_MEASURE = JsonType("a number, inf or nan", lambda value: NUMBER.accepts(value) or value in ("inf", "-inf", "nan"))
_ROW = {
    "name": TEXT,
    "case": TEXT,
    "shape": ListOf(COUNT),
    "dtype": TEXT,
    "max_abs": _MEASURE,
    "max_rel": _MEASURE,
    "of_limit": _MEASURE,
    "ties": COUNT,
    "tolerance": TOLERANCE,
    "passed": BOOLEAN,
    "problem?": OrNull(TEXT),
}
_CALIBRATION_ERROR = {
    **dict.fromkeys(("largest", "mean", "scale", "share"), LIMIT),
    **dict.fromkeys(("differ?", "same_choices?"), LIMIT),
}
_VALUES = {"drawn": TEXT, "nan?": ListOf(TEXT)}
_REPORT = {
    "provider": TEXT,
    "rows": ListOf(_ROW),
    "saved_model_rows": ListOf(_ROW),
    "refused?": {"*": TEXT},
    "float32_clone?": OrNull({"policies": ListOf(TEXT), "max_abs": _MEASURE, "max_rel": _MEASURE}),
    "precision?": OrNull(
        {
            "name": TEXT,
            "size_ratio": NUMBER,
            "time_ratio": NUMBER,
            "float32_milliseconds?": NUMBER,
            "timed_case?": TEXT,
            "changes_nothing?": BOOLEAN,
            "top1?": {"*": {"agreement": NUMBER, "rows": COUNT}},
            "ranges?": {"float32_layers": {"*": _MEASURE}, "near_limit": {"*": _MEASURE}, "drawn_inputs": {"*": TEXT}},
            "calibration?": {
                "rows": COUNT,
                "int8_layers": ListOf(TEXT),
                "float32_layers": ListOf(TEXT),
                "outputs": {"*": _CALIBRATION_ERROR},
                "limit": OrNull(LIMIT),
            },
        }
    ),
    "coverage?": OrNull(
        {
            "cases": COUNT,
            "refused": COUNT,
            "axes": {"*": ListOf(COUNT)},
            "inputs": {"*": {"moves": OrNull(ListOf(TEXT)), "ids?": COUNT, "ids_seen?": COUNT, "values?": _VALUES}},
            "outputs": {
                "*": {"varies": BOOLEAN, "seen_in_case?": TEXT, **{f"{key}?": OrNull(_MEASURE) for key in _SHARES}}
            },
            "small_only?": ListOf(TEXT),
            "weights?": dict.fromkeys(("variables", "unchanged", "other_constants"), COUNT),
        }
    ),
}

# For tensors inside the graph, which have no measured rounding limits: 84 times the float32 epsilon.
ROUGH_TOLERANCE = {"relative": 1e-5, "absolute": 1e-6}


@dataclass(frozen=True)
class ParityRow:
    """Comparison of one output of one golden case."""

    name: str  # of the output
    case: str
    shape: tuple[int, ...]  # of the output in Keras
    dtype: str  # of the output in Keras
    max_abs: float  # largest absolute difference
    max_rel: float  # largest difference / max(`compare.scale_of`, rounding limit)
    of_limit: float  # largest difference / limit; an output passes up to 1
    ties: int  # integers or booleans that rounding changed, such as an argmax of equal scores
    tolerance: dict[str, float]  # `relative` and `absolute`, in addition to rounding limits
    passed: bool
    problem: str | None = None


@dataclass(frozen=True)
class ParityReport:
    """Comparison of a bundle with the outputs of Keras.

    Attributes:
        provider: The provider that ran the ONNX file, such as `"cpu"`.
        rows: Comparisons of ONNX in onnxruntime with Keras, one row for each output of each case.
        saved_model_rows: Comparisons of the SavedModel, run in a worker process; empty if a bundle is replayed.
        float32_clone: For a model that computes in half precision: its `policies`, and the largest `max_abs` and
            `max_rel` between the model and its float32 clone, which was exported.
        precision: For float16 and int8: the `name`; `bytes` and `milliseconds` of the converted file and of the float32
            file, their ratios, and the `timed_case`; the largest `float32_max_abs` and `float32_max_rel` before the
            conversion; and for class scores the `top1` agreement. A float16 file has `ranges`: the largest magnitude in
            `float32_layers`, which exceed float16, and in layers `near_limit`, and for each of the `drawn_inputs` the
            layer that larger values would overflow. For int8, `changes_nothing` is True if the outputs equal those
            of the float32 file in all golden cases. A calibrated int8 file has its `calibration`: the number of rows,
            the layers in int8 and in float32, and the quantization error of each of the `outputs` on these rows. The
            `rows` of such a report compare the file with the float reference of its own graph.
        refused: Cases that Keras itself could not run, with the reason; they were not compared.
        coverage: Behaviour that the golden cases exercise: the numbers of `cases` compared and `refused`; the sizes of
            the `axes`; for each of the `inputs`, the outputs that it changes (`moves`, `None` if it could not be
            varied), and the number of `ids` that were used (`ids_seen`); for each of the `outputs`, whether it
            `varies`, and the shares of `rounding` and `ties`; in `small_only` the layers whose large form no
            case ran; and in `weights` the numbers of floating-point `variables` of the model, of variables `unchanged`
            in the ONNX file, and of `other_constants` of 4 KiB or more in the file.
    """

    provider: str
    rows: tuple[ParityRow, ...]
    saved_model_rows: tuple[ParityRow, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    float32_clone: dict[str, Any] | None = None
    precision: dict[str, Any] | None = None
    coverage: dict[str, Any] | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about behaviour without a golden case, and about a precision that is slower than float32."""
        return (*self._match_warnings, *(() if self.precision is None else describe_slowdown(self.precision)))

    @property
    def _match_warnings(self) -> tuple[str, ...]:
        case_warnings = () if self.coverage is None else describe_coverage(self.coverage)
        precision_warnings = () if self.precision is None else describe_precision(self.precision)
        return (*case_warnings, *precision_warnings)

    @property
    def passed(self) -> bool:
        """Verdict: True if there are outputs, and all outputs of all cases are within their limits."""
        return bool(self.rows) and all(row.passed for row in (*self.rows, *self.saved_model_rows))

    def to_json(self) -> str:
        """Return the report as JSON, with infinite differences and NaN as strings."""
        content = {"passed": self.passed, "warnings": self.warnings, **asdict(self)}
        return json.dumps(encode_nonfinite(content), indent=2)

    @classmethod
    def from_json(cls, text: str) -> ParityReport:
        """Parse the text of `to_json`; raise `ValueError` if it does not fit the schema."""
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, content: Any) -> ParityReport:
        """Build a report from parsed JSON; raise `ValueError` if it does not fit the schema."""
        if problem := find_schema_error(content, _REPORT):
            raise ValueError(problem)
        entries = {entry.name: content[entry.name] for entry in fields(cls) if entry.name in content}
        for part in ("rows", "saved_model_rows"):
            rows = ({key: row[key] for key in row if key in ParityRow.__annotations__} for row in content[part])
            entries[part] = to_parity_rows(_decode_nonfinite(row, (*_DIFFERENCES, "of_limit")) for row in rows)
        if (clone := content.get("float32_clone")) is not None:
            entries["float32_clone"] = _decode_nonfinite(clone, _DIFFERENCES)
        if (coverage := content.get("coverage")) is not None:
            outputs = {name: _decode_nonfinite(output, _SHARES) for name, output in coverage["outputs"].items()}
            entries["coverage"] = coverage | {"outputs": outputs}
        return cls(**entries)

    def summary(self) -> str:
        """Return one line with the number of cases and outputs, and the largest differences."""
        if not self.rows:
            return "nothing was compared"
        rows = (*self.rows, *self.saved_model_rows)
        count = len(self.rows)
        failed = sum(not row.passed for row in self.rows)
        verdict = f"{failed} of {count} outputs differ" if failed else f"all {count} outputs match"
        saved_failed, saved_count = sum(not row.passed for row in self.saved_model_rows), len(self.saved_model_rows)
        saved_text = f"; of the SavedModel, {saved_failed} of {saved_count} outputs differ" if saved_failed else ""
        max_abs, max_rel, of_limit = (max(getattr(row, key) for row in rows) for key in (*_DIFFERENCES, "of_limit"))
        cases = len({row.case for row in rows})
        refused_text = f" ({len(self.refused)} more that Keras itself cannot run)" if self.refused else ""
        largest = f"largest difference {max_abs:.1e} absolute, {max_rel:.1e} relative, {of_limit:.2g} of its limit"
        ties = sum(row.ties for row in rows)
        ties_text = f"; {ties} integers differ where rounding decides" if ties else ""
        return f"{verdict} over {cases} cases{refused_text}{saved_text}; {largest}{ties_text}"

    def raise_if_failed(self) -> None:
        """Raise a `ParityError` with the failed outputs if a comparison failed, or if nothing was compared."""
        if self.passed:
            return
        if not self.rows:
            raise ParityError("Nothing was compared with Keras's outputs, so the bundle is not checked.", self)
        onnx = f"ONNX in {self.precision['name']}" if self.precision else "ONNX"
        parts = ((onnx, self.rows), ("SavedModel", self.saved_model_rows))
        failures = [
            f"{part} output `{row.name}` {row.problem} in case `{row.case}` (shape {row.shape}, "
            f"max abs {row.max_abs:.1e}, max rel {row.max_rel:.1e})"
            for part, rows in parts
            for row in rows
            if not row.passed
        ]
        first_failures = "; ".join(failures[:3])
        omitted_text = f"; and {len(failures) - 3} more in the error's `report`" if len(failures) > 3 else ""
        raise ParityError(f"Outputs differ from Keras's: {first_failures}{omitted_text}.", self)

    def raise_if_warned(self) -> None:
        """Raise a `ParityError` if there are warnings about the match; a slow precision does not count."""
        if sentences := self._match_warnings:
            raise ParityError(f"All outputs match, but `strict` asks for more: {' '.join(sentences)}", self)


class ParityError(ExportError):
    """Error if outputs differ from Keras's, or for warnings with `strict`. `report` contains all comparisons."""

    def __init__(self, message: str, report: ParityReport) -> None:
        """Store the report."""
        super().__init__(message)
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the report."""
        return type(self), (str(self), self.report)


def compare_cases(
    cases: Iterable[Case], actual: Iterable[Arrays], tolerance: Mapping[str, float], provider: str = "cpu"
) -> tuple[ParityRow, ...]:
    """Compare the outputs of each golden case with `actual`, computed by a provider, and return all rows in order."""
    factor = provider_of(provider).limit_factor
    pairs = zip(cases, actual, strict=True)
    return to_parity_rows(row for case, outputs in pairs for row in compare(case, outputs, tolerance, factor))


def measure_differences(expected: Arrays, actual: Arrays) -> dict[str, float]:
    """Return the largest difference of each output; infinite if shapes, dtypes or NaN differ."""
    return {row["name"]: row["max_abs"] for row in compare(Case("", {}, expected), actual, ZERO_TOLERANCE)}


def to_parity_rows(rows: Iterable[Mapping[str, Any]]) -> tuple[ParityRow, ...]:
    """Convert the rows of `compare` to `ParityRow`s."""
    return tuple(ParityRow(**{**row, "shape": tuple(row["shape"])}) for row in rows)


def encode_nonfinite(content: Any, text: Callable[[float], str] = str) -> Any:
    """Return nested content in which strings replace infinities and NaN, which JSON lacks."""
    if isinstance(content, float) and not math.isfinite(content):
        return text(content)
    if isinstance(content, dict):
        return {key: encode_nonfinite(value, text) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [encode_nonfinite(value, text) for value in content]
    return content


def _decode_nonfinite(content: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Convert the strings that `encode_nonfinite` wrote back to floats, for some keys of a JSON object."""
    return {**content, **{key: float(content[key]) for key in keys if content.get(key) is not None}}
