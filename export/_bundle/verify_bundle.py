"""`verify_bundle`: comparison of a bundle with its golden cases, and with Keras on user samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._errors import InputError
from .._format.dtypes import numpy_dtype
from .._format.input_arrays import widen_outputs
from .._format.interruptible_session import run_cases
from .._format.names import MODEL
from .._format.parity_report import ParityReport, ParityRow, compare_cases
from .._format.providers import short_name
from .._options import Options
from .._signature.load_model import check_model, load_model
from .bundle import Bundle, load_bundle
from .untrusted_input import read_golden_cases

if TYPE_CHECKING:
    import keras

# Case names of user samples; the second one if the bundle has a golden case `samples`.
SAMPLES_CASE, SECOND_SAMPLES_CASE = "samples", "samples of this run"


def verify_bundle(
    path: str | Path,
    *,
    provider: str = "cpu",
    samples: Mapping[str, Any] | None = None,
    model: keras.Model | str | Path | None = None,
    safe_mode: bool = True,
) -> ParityReport:
    """Run the golden cases of a bundle in onnxruntime, and compare the outputs with the stored outputs of Keras.

    With `samples` and `model`, your own arrays are compared in one more case, called "samples": Keras runs the model,
    and onnxruntime the bundle, with the tolerance of the golden cases. Keras and its backend are loaded only for this.

    Args:
        path: The bundle.
        provider: Execution provider, as in `export_model`.
        samples: Arrays by input name, all with the same batch size, as for `export_model`.
        model: The model that was exported, or the path of its `.keras` file.
        safe_mode: Whether code in that file is refused; see `keras.saving.load_model`.

    Returns:
        The report of the comparison, in which every output matches.

    Raises:
        BundleError: As for `load_bundle`.
        ProviderError: If the provider is missing, or onnxruntime used another one.
        ParityError: If an output differs; the `report` of the error has every comparison.
        InputError: If `samples` do not fit, or only one of `samples` and `model` is given.
        UnsupportedModelError: If Keras cannot load the model.
    """
    if samples is None and model is not None:
        raise InputError("`model` needs `samples`: the outputs of Keras for the golden cases are in the bundle.")
    if samples is not None:
        if model is None:
            raise InputError(
                "`samples` need `model`, the Keras model that was exported or its `.keras` file: only Keras can "
                "compute the expected outputs of arrays other than the golden cases."
            )
        check_model(model)
    provider = short_name(provider)
    bundle, report = replay_bundle(path, provider)
    if samples is not None and model is not None:
        file = Path(model) if isinstance(model, str | Path) else None
        precision = bundle.entries.precision
        options = Options(file=file, samples=samples, precision=precision, provider=provider, safe_mode=safe_mode)
        rows = _compare_samples(bundle, report, model, options)
        report = replace(report, rows=(*report.rows, *rows))
    report.raise_if_failed()
    return report


def replay_bundle(path: str | Path, provider: str = "cpu") -> tuple[Bundle, ParityReport]:
    """Return a bundle and the report of its golden cases in onnxruntime, also if outputs differ."""
    bundle = load_bundle(path)
    export_report = bundle.report
    cases = read_golden_cases(bundle.path, bundle.entries)
    outputs = run_cases(bundle.path / MODEL, cases, provider)
    rows = compare_cases(cases, outputs, bundle.entries.parity["tolerance"], provider)
    return bundle, ParityReport(provider, rows, refused=export_report.refused, coverage=export_report.coverage)


def _compare_samples(
    bundle: Bundle, report: ParityReport, model: keras.Model | str | Path, options: Options
) -> tuple[ParityRow, ...]:
    names = {row.case for row in report.rows}  # among them `SAMPLES_CASE`, if the export had samples
    try:
        keras_model = load_model(model, options)

        from .._rounding.reference import build_user_case
        from .._signature.unchanged_variables import restore_variables

        dtypes = {spec.name: numpy_dtype(spec.dtype) for spec in bundle.entries.outputs}
        with restore_variables(keras_model):
            case = widen_outputs(
                build_user_case(SECOND_SAMPLES_CASE if SAMPLES_CASE in names else SAMPLES_CASE, keras_model, options),
                dtypes,
            )
    except InputError as error:  # names the argument of `export_model`
        raise InputError(str(error).replace("`sample_inputs", "`samples")) from error
    actual = bundle.run(case.inputs, provider=options.provider)
    return compare_cases([case], [actual], bundle.entries.parity["tolerance"], options.provider)
