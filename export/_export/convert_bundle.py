"""A bundle's SavedModel in another format, checked on the bundle's golden cases before it is written."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._bundle.folder import SAVED_MODEL
from .._bundle.parity import ParityError, ParityReport, ParityRow, rows_of
from .._errors import ExportError, UnsupportedModelError
from .._loaded_bundle import Bundle, load_bundle
from .._options import FLOAT32
from .._places import check_place, unless_a_file, unless_of_kind, unless_overwriting
from .._standalone import verify
from .._standalone.verify import Arrays, Case
from .._whole_file import whole_file
from .litert import check_litert, run_litert, to_litert

LITERT = "litert"
TARGETS = (LITERT,)


def convert_bundle(path: str | Path, out: str | Path, *, to: str = LITERT, overwrite: bool = False) -> ParityReport:
    """Convert a bundle's SavedModel to a LiteRT file, and write it only if it matches Keras.

    Every golden case runs in ai-edge-litert, at its own sizes. Its outputs are compared with Keras's by the rule and
    the limits of the bundle. TensorFlow loads the SavedModel, which is code of whoever made the bundle.

    Args:
        path: The bundle; its precision must be float32.
        out: The file to write.
        to: The format, `"litert"`.
        overwrite: Whether to replace an existing LiteRT file; without it, an existing file is an error.

    Returns:
        The comparison; its `provider` is `"litert"`.

    Raises:
        BundleError: As for `load_bundle`.
        UnsupportedModelError: The bundle is not in float32, or LiteRT lacks an operator that the model needs.
        ParityError: An output differs, or LiteRT cannot run a case; the error's `report` holds every comparison.
        ExportError: The place cannot be written, or ai-edge-litert is not installed.
    """
    if to not in TARGETS:
        raise ExportError(f"`to` must be one of {list(TARGETS)}. Received: {to!r}.")
    bundle, target = load_bundle(path), Path(out)
    exported = bundle.report
    _check_precision(bundle)
    refusal = functools.partial(_unless_litert, overwrite=overwrite)
    check_place(target, refusal)
    check_litert()
    content, rows = _converted(bundle)
    report = ParityReport(to, rows, refused=exported.refused, coverage=_of_saved_model(exported.coverage))
    if not report.passed:
        raise ParityError(_difference(report), report)
    with whole_file(target, refusal) as partial:
        partial.write_bytes(content)
    return report


def _check_precision(bundle: Bundle) -> None:
    """Refuse limits wider than float32's rounding: they would check a LiteRT file in float32 too loosely."""
    if (precision := bundle.entries.precision) != FLOAT32:
        raise UnsupportedModelError(
            f"{bundle.path} is of precision {precision}, and the limits of its golden cases allow for that. They are "
            "too wide to check its SavedModel, which is in float32. Export the model in float32, and convert that "
            "bundle."
        )


def _unless_litert(there: Path, *, overwrite: bool) -> str | None:
    return (
        unless_a_file(there)
        or unless_overwriting(there, overwrite=overwrite)
        or unless_of_kind(there, "LiteRT file", lambda content: content[4:8] == b"TFL3")
    )


def _converted(bundle: Bundle) -> tuple[bytes, tuple[ParityRow, ...]]:
    """Return the content of the file, and the comparison of its outputs with Keras's."""
    tolerance = bundle.entries.parity["tolerance"]
    cases = verify.golden_cases(bundle.path, bundle.entries)
    content = to_litert(bundle.path / SAVED_MODEL)
    hashes = bundle.entries.sha256
    read = [name for name in hashes if name.startswith(f"{SAVED_MODEL}/") or name == verify.CASES]
    verify.check_hashes(bundle.path, hashes, read)  # another bundle may have been put there since
    results = zip(cases, run_litert(content, [case.inputs for case in cases]), strict=True)
    return content, tuple(row for case, result in results for row in _rows(case, result, tolerance))


def _rows(case: Case, result: Arrays | str, tolerance: Mapping[str, float]) -> Iterator[ParityRow]:
    """Yield the comparison of a case; LiteRT works on a CPU, and is given no more than onnxruntime is there."""
    if isinstance(result, str):
        for row in rows_of(verify.compare(case, {}, tolerance)):
            yield replace(row, problem=f"cannot be computed by LiteRT ({result})")
    else:
        yield from rows_of(verify.compare(case, result, tolerance))


def _of_saved_model(coverage: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return what golden cases show of a model, without the forms of layers, which are those of the ONNX file."""
    return None if coverage is None else {name: known for name, known in coverage.items() if name != "small_only"}


def _difference(report: ParityReport) -> str:
    failed = [row for row in report.rows if not row.passed]
    first = failed[0]
    far = (
        f" ({first.of_limit:.2g} times its limit, max abs {first.max_abs:.1e})" if first.of_limit < float("inf") else ""
    )
    return (
        f"{len(failed)} of {len(report.rows)} outputs of the LiteRT file differ from Keras's, so it was not written: "
        f"`{first.name}` in case `{first.case}` {first.problem}{far}{', and more' if len(failed) > 1 else ''}."
    )
