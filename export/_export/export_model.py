"""`export_model`: validate options, load the model, write the bundle atomically."""

from __future__ import annotations

import functools
import shutil
import threading
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .._bundle.atomic_writes import atomic_folder
from .._bundle.bundle import Bundle, load_bundle
from .._bundle.bundle_files import find_overwrite_objection
from .._dependencies import check_export_packages
from .._errors import BundleError, ExportError, UnsupportedModelError, UntraceableError
from .._format.interruptible_session import check_provider
from .._format.names import MODEL
from .._lowering_names import ADAPTIVE
from .._options import Options, validate_options
from .._progress import ProgressCallback, progress_display
from .._signature.load_model import check_model, load_model
from .._tracing.saved_model_worker import SavedModelRun
from .export_run import ExportRun
from .storage_errors import translate_storage_errors

if TYPE_CHECKING:
    import keras

# An export changes state of the process and restores it: warning filters, tf2onnx's logger, the terminal. Two exports
# at the same time would restore each other's changes. The lock is reentrant for a model that exports another one.
_EXPORT_LOCK = threading.RLock()

IN_STEPS_MESSAGE = (
    "`in_steps` (--in-steps) was removed. Export the encoder and the step separately, and write the loop over them as "
    "in docs/whole-answers.md, under `As two files`."
)


class StaticAxisWarning(UserWarning):
    """Warning about an axis that is static although the model seems to allow several sizes."""


def export_model(
    model: keras.Model | str | Path,
    path: str | Path,
    *,
    sample_inputs: Mapping[str, Any] | Any = None,
    opset: int | None = None,
    lowering: str = ADAPTIVE,
    precision: str = "float32",
    provider: str = "cpu",
    tolerance: float | tuple[float, float] | None = None,
    overwrite: bool = False,
    progress: bool | ProgressCallback | None = None,
    safe_mode: bool = True,
    strict: bool = False,
    static_axes: Mapping[str, int] | None = None,
    calibration: Mapping[str, Any] | Any = None,
    limit: float | None = None,
    report: bool = False,
    target: str | None = None,
    saved_model: bool = True,
    **unknown: NoReturn,
) -> Bundle:
    """Export a Keras model to a bundle, which is written only if the outputs match Keras on the golden cases.

    The golden cases cover several batch sizes and lengths. The SavedModel runs them in a fresh process without Keras,
    and the ONNX file in onnxruntime; both are compared with the outputs of Keras (docs/export.md). If Keras runs on JAX
    or torch, the outputs of that backend are the reference, and a separate process with TensorFlow loads the saved
    model and traces it; custom classes must be importable in that process.

    Every variable of the model keeps its value, states of seed generators included, also if the export fails. Exports
    in several threads of a process run one after another.

    Args:
        model: A Keras model of any kind, or the path of a `.keras` file.
        path: The folder to write.
        sample_inputs: Arrays by input name, or a list in the order of the inputs, or the array itself if there is only
            one input. A subclassed model needs samples, by the argument names of its `call`. With `None`, inputs are
            drawn at random, according to the layers that read them.
        opset: ONNX opset, 18 to 24. `None` for 24 if the model has dot-product attention and the lowering is
            `"adaptive"` or `"fused"`, else 18.
        lowering: Form of attention layers in the file. `"adaptive"`: a small and a large form, selected by the sizes
            of each request; with `provider="cuda"`, forms for a GPU that compute the whole batch at once.
            `"portable"`: plain ONNX operators. `"fused"`: the ONNX operator `Attention` for scaled dot products. A
            layer without a form in a lowering is written in plain operators. The manifest lists the form of each layer.
        precision: `"float32"`; `"float16"`, in which operators such as softmax and statistics stay float32; or
            `"int8"`, with int8 weights of matrix products. Inputs and outputs keep their dtypes. The float32 file is
            checked first, and then the converted file, against the same outputs of Keras.
        provider: Execution provider for which the file is written, and on which it is checked: `"cpu"`, `"cuda"`,
            `"openvino"` and others (docs/export.md), or a name of onnxruntime such as `"OpenVINOExecutionProvider"`.
        tolerance: Allowed difference in addition to the measured rounding error: a number, relative to the scale of an
            element and with a tenth of it as absolute tolerance, or a pair (relative, absolute). `None` is zero.
        overwrite: Whether to replace an existing bundle. If not, an existing bundle is an error.
        safe_mode: Whether to refuse code in a `.keras` file; see `keras.saving.load_model`.
        strict: Whether warnings of the report, such as an output that never varies, are errors.
        static_axes: Sizes of axes that must not be dynamic, by their names in a bundle that is exported without this
            argument, such as `batch` or `keys_length`. An axis that TensorFlow cannot trace with an unknown size
            becomes static without this argument, at its size in `sample_inputs`, with a warning.
        target: Oldest onnxruntime release that the file must run on, such as `"1.19"`; or `"standard"` for any runtime:
            ONNX operators only, no functions, and no `If` that selects a form of attention. The target limits opset and
            forms. `None` for the best opset and forms of the installed onnxruntime.
        calibration: For `precision="int8"`: a few hundred typical rows, as arrays like `sample_inputs`, or the path of
            an `.npz` or Parquet file. Convolutions and products with weights are then quantized with fixed ranges,
            except in layers where the error is too large. With `None`, ranges are computed in each run, and
            convolutions stay float32.
        limit: Largest allowed difference between int8 and float32 on `calibration`, as a share of the largest float32
            value of the output, such as 0.05. `None` allows any, and warns from 0.1 on.
        saved_model: Whether the bundle contains the SavedModel, which TensorFlow Serving and `verify --trace` need. It
            is written and compared in any case.
        report: Whether to write an HTML report of the bundle NAME to NAME.html (`Bundle.write_report`).
        progress: `None` to show the current step on a terminal, and at the end the duration of each step on a terminal
            or in a notebook; `False` to show nothing; or a callback that receives the name of each step.
        **unknown: Raises `TypeError`; for the removed `in_steps`, an `ExportError` with the replacement.

    Returns:
        The bundle, loaded from disk.

    Raises:
        UnsupportedModelError: If the model, or an operator in it, cannot be exported.
        InputError: If samples or `calibration` do not match the model, samples are missing, or `static_axes` has an
            unknown axis.
        ParityError: If an output differs from Keras, or from float32 by more than `limit`; or, with `strict`, if the
            report has a warning.
        ProviderError: If the provider is missing, or did not compute all of attention.
        BundleError: If the folder cannot be written, or a bundle exists and `overwrite` is false.
        ExportError: If an argument is invalid, or a package is missing.
        TypeError: If an argument has an unknown name.
    """
    _reject_arguments(unknown)
    file = Path(model) if isinstance(model, str | Path) else None
    options = validate_options(
        file=file,
        samples=sample_inputs,
        opset=opset,
        lowering=lowering,
        precision=precision,
        provider=provider,
        tolerance=tolerance,
        # Only a file can contain unsafe code: the code of a model in memory has already run.
        safe_mode=safe_mode and file is not None,
        strict=strict,
        saved_model=saved_model,
        static_axes=static_axes,
        target=target,
        calibration=calibration,
        limit=limit,
    )
    check_model(model)
    check_export_packages()
    with _EXPORT_LOCK, progress_display(progress, verb="Exported") as on_step:
        on_step("Checking installed packages and the output path")
        _check_output_path(Path(path), options, report=report)
        _write_bundle(Path(path), model, options, on_step, overwrite=overwrite)
        bundle = load_bundle(path)
        if report:
            _write_report(bundle, on_step)
        return bundle


def _reject_arguments(arguments: Mapping[str, Any]) -> None:
    if "in_steps" in arguments:
        raise ExportError(IN_STEPS_MESSAGE)
    if arguments:
        raise TypeError(f"export_model() got an unexpected keyword argument {next(iter(arguments))!r}")


def _check_output_path(path: Path, options: Options, *, report: bool) -> None:
    """Raise if the provider is missing, or a bundle or its report cannot be written to the path."""
    check_provider(options.provider)
    if path.suffix == ".onnx" and not path.is_dir():  # a user who passes NAME.onnx expects a file
        raise BundleError(
            f"The path of a bundle must be a folder, which will contain the ONNX file. Received: {path}. Pass a name "
            f"such as {path.stem}: the file is then {path.stem}/{MODEL}."
        )
    if report:
        from .._report.write_report import check_report_path, default_report_path

        check_report_path(default_report_path(path), in_a_folder=False)  # the export creates the parent folders


def _write_report(bundle: Bundle, on_step: ProgressCallback) -> None:
    on_step("Writing the report")
    try:
        bundle.write_report()
    except ExportError as error:
        raise ExportError(f"The bundle is in {bundle.path}, but its report was not written: {error}") from error


def _write_bundle(
    path: Path, model: keras.Model | str | Path, options: Options, on_step: ProgressCallback, *, overwrite: bool
) -> None:
    """Write all files to a temporary folder, check that they can be read, and rename the folder."""
    overwrite_check = functools.partial(find_overwrite_objection, overwrite=overwrite)
    with atomic_folder(path, overwrite_check) as folder:
        # The worker imports TensorFlow while this process does.
        with translate_storage_errors(path, folder), SavedModelRun() as worker:
            on_step("Loading Keras and its backend")
            _export(ExportRun(folder, options, on_step, worker), load_model(model, options))
        _check_readable(folder)
        on_step("Renaming the temporary folder to the bundle")


def _check_readable(folder: Path) -> None:
    """Raise if `load_bundle` would refuse the new bundle, such as for too many outputs, before it replaces another."""
    try:
        load_bundle(folder).report  # noqa: B018 - reads the file
    except BundleError as error:
        problem = str(error).removesuffix(" Export the model again.")
        raise UnsupportedModelError(f"A bundle of this model could not be read: {problem}") from error


def _export(run: ExportRun, model: keras.Model) -> None:
    """Fill the empty folder, and warn about static axes that the user did not request."""
    from .._signature.keras_messages import silence_dot_warnings
    from .._signature.unchanged_variables import restore_variables

    with silence_dot_warnings(), restore_variables(model):
        static_axes = _fill_or_retry(run, model)
    for name, reason in static_axes.items():
        warnings.warn(f"Axis `{name}` is static in the bundle. {reason}", StaticAxisWarning, stacklevel=4)


def _fill_or_retry(run: ExportRun, model: keras.Model) -> dict[str, str]:
    """Fill the folder, and repeat with static axes if TensorFlow cannot trace these axes as unknown."""
    try:
        return _fill(run, model)
    except UntraceableError as error:
        run.on_step("Repeating with static axes, because TensorFlow cannot trace these axes as unknown")
        shutil.rmtree(run.folder)
        run.folder.mkdir()
        options = replace(run.options, untraceable_axes=error.reasons)
        with SavedModelRun() as worker:
            return _fill(replace(run, options=options, worker=worker), model)


def _fill(run: ExportRun, model: keras.Model) -> dict[str, str]:
    """Fill the folder, and return the reasons of static axes that the user did not request, by axis name."""
    import keras

    if keras.backend.backend() == "tensorflow":
        return _fill_on_tensorflow(run, model)
    return _fill_in_worker(run, model)


def _fill_on_tensorflow(run: ExportRun, model: keras.Model) -> dict[str, str]:
    from .._rounding.reference import build_reference
    from .._tracing.untraceable_axes import trace_or_raise
    from .write_contents import write_contents

    signature, reference = build_reference(model, run.options, run.on_step, trace_or_raise)
    write_contents(run, signature, reference)
    return reference.unrequested_static


def _fill_in_worker(run: ExportRun, model: keras.Model) -> dict[str, str]:
    """Compute the reference on JAX or torch, and fill the folder in a worker process with TensorFlow."""
    from .._rounding.reference import build_reference
    from .jax_and_torch import validate_custom_objects, write_contents_on_tensorflow

    run.worker.end()  # the worker process with TensorFlow starts another one
    import_paths = validate_custom_objects(model)
    signature, reference = build_reference(model, run.options, run.on_step)
    write_contents_on_tensorflow(run, signature, reference, import_paths)
    return reference.unrequested_static
