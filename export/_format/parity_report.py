"""Parity report: result of every comparison with Keras, its JSON form and its errors."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from .compare import compare
from .manifest import BOOLEAN, COUNT, LIMIT, NUMBER, TEXT, TOLERANCE, Each, Kind, OrNull, problem_of
from .names import Arrays, Case, ExportError
from .providers import provider_of
from .report_text import coverage_warnings, precision_warnings, time_warning

NO_MORE = {"relative": 0.0, "absolute": 0.0}  # no tolerance in addition to the rounding limits
_DISTANCES = ("max_abs", "max_rel")
_SHARES = ("rounding", "rounding_in_precision", "seen_in_precision", "ties")
# as `finite` writes floats
_MEASURE = Kind("a number, inf or nan", lambda value: NUMBER.holds(value) or value in ("inf", "-inf", "nan"))
_ROW = {
    "name": TEXT,
    "case": TEXT,
    "shape": Each(COUNT),
    "dtype": TEXT,
    "max_abs": _MEASURE,
    "max_rel": _MEASURE,
    "of_limit": _MEASURE,
    "ties": COUNT,
    "tolerance": TOLERANCE,
    "passed": BOOLEAN,
    "problem?": OrNull(TEXT),
}
_APART = {
    **dict.fromkeys(("largest", "mean", "scale", "share"), LIMIT),
    **dict.fromkeys(("differ?", "same_choices?"), LIMIT),
}
_VALUES = {"drawn": TEXT, "nan?": Each(TEXT)}
_REPORT = {
    "provider": TEXT,
    "rows": Each(_ROW),
    "saved_model_rows": Each(_ROW),
    "refused?": {"*": TEXT},
    "float32_clone?": OrNull({"policies": Each(TEXT), "max_abs": _MEASURE, "max_rel": _MEASURE}),
    "precision?": OrNull(
        {
            "name": TEXT,
            "size_ratio": NUMBER,
            "time_ratio": NUMBER,
            "float32_milliseconds?": NUMBER,
            "timed_case?": TEXT,
            "changes_nothing?": BOOLEAN,
            "top1?": {"*": {"agreement": NUMBER, "rows": COUNT}},
            "ranges?": {
                "float32_layers": {"*": _MEASURE},
                "near_limit": {"*": _MEASURE},
                "drawn_inputs": {"*": TEXT},
            },
            "calibration?": {
                "rows": COUNT,
                "int8_layers": Each(TEXT),
                "float32_layers": Each(TEXT),
                "outputs": {"*": _APART},
                "limit": OrNull(LIMIT),
            },
        }
    ),
    "coverage?": OrNull(
        {
            "cases": COUNT,
            "refused": COUNT,
            "axes": {"*": Each(COUNT)},
            "inputs": {
                "*": {"moves": OrNull(Each(TEXT)), "ids?": COUNT, "ids_seen?": COUNT, "values?": _VALUES},
            },
            "outputs": {
                "*": {"varies": BOOLEAN, "seen_in_case?": TEXT, **{f"{key}?": OrNull(_MEASURE) for key in _SHARES}}
            },
            "small_only?": Each(TEXT),
            "weights?": dict.fromkeys(("variables", "unchanged", "other_constants"), COUNT),
        }
    ),
}

ROUGH = {"relative": 1e-5, "absolute": 1e-6}  # for tensors without rounding limits


@dataclass(frozen=True)
class ParityRow:
    """Comparison of one output of one golden case."""

    name: str  # of the output
    case: str
    shape: tuple[int, ...]  # in Keras, as `dtype`
    dtype: str
    max_abs: float  # largest difference
    max_rel: float  # relative to the scale of the number (`compare.scale_of`), or to its rounding limit if larger
    of_limit: float  # as a share of its limit; an output passes up to 1
    ties: int  # integers or booleans that differ because of rounding, as in an argmax of equal scores
    tolerance: dict[str, float]  # `relative` and `absolute`, in addition to rounding limits
    passed: bool
    problem: str | None = None


@dataclass(frozen=True)
class ParityReport:
    """Comparison of a bundle with the outputs of Keras.

    Attributes:
        provider: The provider that ran the ONNX file, such as `"cpu"`.
        rows: ONNX in onnxruntime compared with Keras, one row for each output of each case.
        saved_model_rows: The SavedModel, in a fresh process, compared with Keras; empty if a bundle is replayed.
        float32_clone: For a model that computes in half precision: its `policies`, and the largest `max_abs` and
            `max_rel` between it and the float32 clone that was exported.
        precision: For a precision other than float32: its `name`; `bytes` and `milliseconds` of the converted file and
            of the float32 file, their ratios, and the `timed_case`; the largest `float32_max_abs` and
            `float32_max_rel` before the conversion; and for class scores the `top1` agreement. A float16
            file has `ranges`: the largest magnitude in `float32_layers`, beyond float16, and in layers `near_limit`,
            and for each of the `drawn_inputs` the layer that larger values overflow. For int8,
            `changes_nothing` is whether the file gives the floats of the float32 file in all golden cases. An int8 file
            with fixed ranges has its `calibration` too: the number of rows, which layers are int8 and which stayed
            float32, and how far each of the `outputs` is from float32 on these rows. The `rows` of such a report
            compare the file with what its own graph specifies.
        refused: Cases that Keras itself could not run, with its reason; they were not compared.
        coverage: What the golden cases show of the model: how many `cases` were compared and how many `refused`; the
            sizes of each of the `axes`; for each of the `inputs`, which outputs it `moves` (`None` if it could not be
            changed), and how many of its `ids` were used (`ids_seen`); for each of the `outputs`, whether it `varies`,
            and how much of it is left to `rounding` or `ties`; in `small_only` the layers whose form for large
            sizes no case ran; and of the `weights` how many floating-point `variables` the model has, how many are
            `unchanged` in the ONNX file, and how many `other_constants` of 4 KiB or more are in the file.
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
        """Sentences about the limits of a match, such as few cases, and about a precision that is slower."""
        return (*self._left_open, *(() if self.precision is None else time_warning(self.precision)))

    @property
    def _left_open(self) -> tuple[str, ...]:
        of_cases = () if self.coverage is None else coverage_warnings(self.coverage)
        of_precision = () if self.precision is None else precision_warnings(self.precision)
        return (*of_cases, *of_precision)

    @property
    def passed(self) -> bool:
        """True if there are outputs, and every output of every case is within its limit."""
        return bool(self.rows) and all(row.passed for row in (*self.rows, *self.saved_model_rows))

    def to_json(self) -> str:
        """Return the report as JSON, in which infinite differences and NaN are strings."""
        content = {"passed": self.passed, "warnings": self.warnings, **asdict(self)}
        return json.dumps(finite(content), indent=2)

    @classmethod
    def from_json(cls, text: str) -> ParityReport:
        """Return the report for the text of `to_json`, or raise `ValueError`."""
        return cls.of(json.loads(text))

    @classmethod
    def of(cls, content: Any) -> ParityReport:
        """Return the report for parsed JSON, or raise `ValueError`."""
        if problem := problem_of(content, _REPORT):
            raise ValueError(problem)
        entries = {entry.name: content[entry.name] for entry in fields(cls) if entry.name in content}
        for part in ("rows", "saved_model_rows"):
            rows = ({key: row[key] for key in row if key in ParityRow.__annotations__} for row in content[part])
            entries[part] = rows_of(_with_floats(row, (*_DISTANCES, "of_limit")) for row in rows)
        if (clone := content.get("float32_clone")) is not None:
            entries["float32_clone"] = _with_floats(clone, _DISTANCES)
        if (coverage := content.get("coverage")) is not None:
            outputs = {name: _with_floats(output, _SHARES) for name, output in coverage["outputs"].items()}
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
        saved = sum(not row.passed for row in self.saved_model_rows)
        also = f"; of the SavedModel, {saved} of {len(self.saved_model_rows)} outputs differ" if saved else ""
        max_abs, max_rel, of_limit = (max(getattr(row, key) for row in rows) for key in (*_DISTANCES, "of_limit"))
        cases = len({row.case for row in rows})
        left_out = f" ({len(self.refused)} more that Keras itself cannot run)" if self.refused else ""
        largest = f"largest difference {max_abs:.1e} absolute, {max_rel:.1e} relative, {of_limit:.2g} of its limit"
        ties = sum(row.ties for row in rows)
        decided = f"; {ties} integers differ where rounding decides" if ties else ""
        return f"{verdict} over {cases} cases{left_out}{also}; {largest}{decided}"

    def raise_if_failed(self) -> None:
        """Raise a `ParityError` that names what failed, unless everything passed."""
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
        shown = "; ".join(failures[:3])
        more = f"; and {len(failures) - 3} more in the error's `report`" if len(failures) > 3 else ""
        raise ParityError(f"Outputs differ from Keras's: {shown}{more}.", self)

    def raise_if_warned(self) -> None:
        """Raise a `ParityError` with what a match leaves open, if anything; a slow precision does not count."""
        if left_open := self._left_open:
            raise ParityError(f"All outputs match, but `strict` asks for more: {' '.join(left_open)}", self)


class ParityError(ExportError):
    """Outputs differ from Keras's, or there are warnings with `strict`. `report` holds all comparisons."""

    def __init__(self, message: str, report: ParityReport) -> None:
        """Store the report."""
        super().__init__(message)
        self.report = report

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with the report."""
        return type(self), (str(self), self.report)


def compared(
    cases: Iterable[Case], actual: Iterable[Arrays], tolerance: Mapping[str, float], provider: str = "cpu"
) -> tuple[ParityRow, ...]:
    """Return the rows of every case: Keras's outputs against `actual`, as computed by a provider, in order."""
    lenience = provider_of(provider).lenience
    pairs = zip(cases, actual, strict=True)
    return rows_of(row for case, outputs in pairs for row in compare(case, outputs, tolerance, lenience))


def differences(expected: Arrays, actual: Arrays) -> dict[str, float]:
    """Return the largest difference of each output; infinite if shapes, dtypes or NaN differ."""
    return {row["name"]: row["max_abs"] for row in compare(Case("", {}, expected), actual, NO_MORE)}


def rows_of(rows: Iterable[Mapping[str, Any]]) -> tuple[ParityRow, ...]:
    """Return the rows of `compare` as `ParityRow`s."""
    return tuple(ParityRow(**{**row, "shape": tuple(row["shape"])}) for row in rows)


def finite(content: Any, text: Callable[[float], str] = str) -> Any:
    """Return nested content with a string for each float that JSON lacks."""
    if isinstance(content, float) and not math.isfinite(content):
        return text(content)
    if isinstance(content, dict):
        return {key: finite(value, text) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [finite(value, text) for value in content]
    return content


def _with_floats(content: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    """Return a JSON object in which the strings of `finite` are floats again."""
    return {**content, **{key: float(content[key]) for key in keys if content.get(key) is not None}}
