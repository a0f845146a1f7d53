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
from .._bundle.bundle_files import must_be_replaceable
from .._dependencies import check_export_packages
from .._errors import BundleError, ExportError, UnsupportedModelError, UntraceableError
from .._format.interruptible_session import check_provider
from .._format.names import MODEL
from .._lowering_names import ADAPTIVE
from .._options import Options, validate_options
from .._progress import Progress, shown_progress
from .._signature.load_model import check_model, loaded_model
from .._tracing.saved_model_worker import SavedModelRun
from .export_run import ExportRun
from .storage_errors import translate_storage_errors

if TYPE_CHECKING:
    import keras

# What an export changes for a while belongs to the process: the warnings that Python shows, the logger of tf2onnx, the
# terminal. Two at once would put back what the other had set. It is reentrant for a model that exports another.
_EXPORT_LOCK = threading.RLock()


IN_STEPS_REFUSED = (
    "There is no `in_steps` (--in-steps). Export the encoder and the step by themselves, and write the loop around "
    "them: docs/whole-answers.md has one, under `As two files`."
)


class StaticAxisWarning(UserWarning):
    """An axis is static although the model seems to take several sizes of it."""


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
    progress: bool | Progress | None = None,
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
    """Export a Keras model to a bundle, and write it only if its outputs match Keras's on the golden cases.

    Every variable of the model keeps its value, states of seed generators included, also if the export fails.

    The golden cases cover several batch sizes and lengths. The SavedModel runs them in a fresh process without Keras,
    and the ONNX file in onnxruntime; both are compared with Keras's outputs. `docs/export.md` says what this covers.

    If Keras runs on JAX or torch, its outputs there are the reference. A separate process with TensorFlow then loads
    the saved model and traces it; custom classes must be importable there.

    Exports in several threads of one process take turns.

    Args:
        model: A Keras model of any kind, or the path of a `.keras` file.
        path: The folder to write.
        sample_inputs: Arrays by input name, or a list in the order of the inputs, or the array itself if there is only
            one input. A subclassed model needs them, by the argument names of its `call`. With `None`, inputs are
            drawn at random, according to the layers that they feed.
        opset: ONNX opset, 18 to 24. `None` for the best one for the lowering: 24 for `"adaptive"` and `"fused"` if the
            model has dot products, else 18.
        lowering: How attention layers are written. `"adaptive"`: two forms, for small and large sizes, between which
            the file chooses by the sizes of each request. `"portable"`: plain ONNX operators. `"fused"`: the ONNX
            operator `Attention` for scaled dot products. With `provider="cuda"`, `"adaptive"` computes all examples at
            once, in forms for a GPU. A layer that a lowering has no form for is written in plain operators; the
            manifest says how each layer was written.
        precision: `"float32"`; `"float16"`, in which softmax, statistics and whatever else needs it stay float32; or
            `"int8"`, matrix products with int8 weights. Inputs and outputs keep their types. The float32 file is
            checked first, and then the converted one, against the same outputs of Keras.
        provider: Where the file is to run, and where it is checked: `"cpu"`, `"cuda"`, `"openvino"` or another
            execution provider. onnxruntime's name, such as `"OpenVINOExecutionProvider"`, works too. `docs/export.md`
            lists all of them.
        tolerance: What is allowed in addition to rounding, which is measured: a relative difference (relative to the
            scale of a number, with a tenth of it as an absolute one), or a pair (relative, absolute). `None` allows
            nothing more.
        overwrite: Whether to replace an existing bundle; without it, an existing bundle is an error.
        safe_mode: Whether code in a `.keras` file is refused; see `keras.saving.load_model`.
        strict: Whether the warnings of the report, such as an output that never varies, are errors.
        static_axes: Sizes of axes that must not be dynamic, by the names that they have in a bundle without this
            argument, such as `batch` or `keys_length`. An axis that TensorFlow cannot trace with an unknown size
            becomes static by itself, at its size in `sample_inputs`, with a warning.
        target: The oldest onnxruntime that the file must run on, such as `"1.19"`; or `"standard"` for any runtime:
            ONNX operators only, no functions, and no `If` that decides how attention is computed. It decides the opset
            and the forms. `None` for the best ones with the installed onnxruntime.
        calibration: For `precision="int8"`: some hundreds of rows of data like those the model will be used on, as
            arrays like those of `sample_inputs`, or the path of an `.npz` or Parquet file. Convolutions and products
            with weights then use integers with fixed ranges, unless that does much harm. With `None`, ranges are
            measured whenever the model runs, and convolutions stay float32.
        limit: The largest difference of int8 from float32 that is allowed on `calibration`, as a share of the largest
            number of an output, such as 0.05. `None` allows any, and warns from 0.1 on.
        saved_model: Whether the bundle holds the SavedModel, which TensorFlow Serving and `verify --trace` need. It is
            written and compared in any case.
        report: Whether to write a page that shows the bundle (`Bundle.write_report`), beside it and with its name.
        progress: With `None`, a terminal shows the current step, and a terminal or a notebook shows at the end how
            long each step took. `False` shows nothing. A function is called with the name of each step.
        **refused: Nothing: any other name is an error. For `in_steps`, the error says what to use instead.

    Returns:
        The bundle, loaded from disk.

    Raises:
        UnsupportedModelError: The model, or an operator in it, cannot be exported.
        InputError: Samples or `calibration` do not fit, samples are needed, or `static_axes` names an unknown axis.
        ParityError: An output differs, or is further from float32 than `limit`; or, with `strict`, the report has a
            warning.
        ProviderError: The provider is missing, or did not compute all of attention.
        BundleError: The folder cannot be written, or a bundle already exists there.
        ExportError: An argument is wrong, or a package is missing.
        TypeError: An argument has an unknown name.
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
        # the code in a model of the caller's runs already, so only what is in a file may be unsafe
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
    with _EXPORT_LOCK, shown_progress(progress, done="Exported") as on_step:
        on_step("Checking what is installed and the place to write")
        _check_output_path(Path(path), options, report=report)
        _write_bundle(Path(path), model, options, on_step, overwrite=overwrite)
        bundle = load_bundle(path)
        if report:
            _write_report(bundle, on_step)
        return bundle


def _reject_arguments(arguments: Mapping[str, Any]) -> None:
    if "in_steps" in arguments:
        raise ExportError(IN_STEPS_REFUSED)
    if arguments:
        raise TypeError(f"export_model() got an unexpected keyword argument {next(iter(arguments))!r}")


def _check_output_path(path: Path, options: Options, *, report: bool) -> None:
    """Refuse a provider that is missing, and paths at which a bundle or its report cannot be written."""
    check_provider(options.provider)
    if path.suffix == ".onnx" and not path.is_dir():  # the user would expect the ONNX file there
        raise BundleError(
            f"{path} names a file, and a bundle is a folder that has the ONNX file in it. Choose a name for the "
            f"folder, such as {path.stem}: the file is then {path.stem}/{MODEL}."
        )
    if report:
        from .._report.write_report import check_report_path, default_report_path

        check_report_path(default_report_path(path), in_a_folder=False)  # the export creates the parent folders


def _write_report(bundle: Bundle, on_step: Progress) -> None:
    on_step("Writing the report")
    try:
        bundle.write_report()
    except ExportError as error:
        raise ExportError(f"The bundle is in {bundle.path}, but its report was not written: {error}") from error


def _write_bundle(
    path: Path, model: keras.Model | str | Path, options: Options, on_step: Progress, *, overwrite: bool
) -> None:
    """Write all files to a temporary folder, check that they can be read, and rename the folder."""
    overwrite_check = functools.partial(must_be_replaceable, overwrite=overwrite)
    with atomic_folder(path, overwrite_check) as folder:
        with (
            translate_storage_errors(path, folder),
            SavedModelRun() as worker,
        ):  # which imports TensorFlow at the same time
            on_step("Loading Keras and its backend")
            _export(ExportRun(folder, options, on_step, worker), loaded_model(model, options))
        _check_readable(folder)
        on_step("Putting the bundle in place")


def _check_readable(folder: Path) -> None:
    """Raise if names or numbers of the new bundle exceed the limits of `load_bundle`, before anything is replaced."""
    try:
        load_bundle(folder).report  # noqa: B018 - reads the file
    except BundleError as error:
        problem = str(error).removesuffix(" Export the model again.")
        raise UnsupportedModelError(f"A bundle of this model could not be read: {problem}") from error


def _export(run: ExportRun, model: keras.Model) -> None:
    """Fill the empty folder, and warn of axes that are static although the user did not ask for it."""
    from .._signature.keras_messages import silence_on_dots
    from .._signature.unchanged_variables import unchanged_variables

    with silence_on_dots(), unchanged_variables(model):
        static_axes = _fill_or_retry(run, model)
    for name, reason in static_axes.items():
        warnings.warn(f"Axis `{name}` is static in the bundle. {reason}", StaticAxisWarning, stacklevel=4)


def _fill_or_retry(run: ExportRun, model: keras.Model) -> dict[str, str]:
    """Fill the folder; if TensorFlow cannot trace some axes as unknown, start again with these axes static."""
    try:
        return _fill(run, model)
    except UntraceableError as error:
        run.on_step("Again with static axes, since TensorFlow cannot trace them as unknown")
        shutil.rmtree(run.folder)
        run.folder.mkdir()
        options = replace(run.options, untraceable=error.reasons)
        with SavedModelRun() as worker:
            return _fill(replace(run, options=options, worker=worker), model)


def _fill(run: ExportRun, model: keras.Model) -> dict[str, str]:
    """Fill the folder, and return the axes that are static although the user did not ask for it, with the reasons."""
    import keras

    if keras.backend.backend() == "tensorflow":
        return _fill_on_tensorflow(run, model)
    return _fill_in_worker(run, model)


def _fill_on_tensorflow(run: ExportRun, model: keras.Model) -> dict[str, str]:
    from .._rounding.reference import reference_of
    from .._tracing.untraceable_axes import check_traceable
    from .write_contents import write_contents

    signature, reference = reference_of(model, run.options, run.on_step, check_traceable)
    write_contents(run, signature, reference)
    return reference.unrequested_static


def _fill_in_worker(run: ExportRun, model: keras.Model) -> dict[str, str]:
    """Compute the reference on JAX or torch, and let a process with TensorFlow fill the folder."""
    from .._rounding.reference import reference_of
    from .jax_and_torch import validate_custom_objects, write_contents_on_tensorflow

    run.worker.end()  # the process with TensorFlow has one of its own
    import_paths = validate_custom_objects(model)
    signature, reference = reference_of(model, run.options, run.on_step)
    write_contents_on_tensorflow(run, signature, reference, import_paths)
    return reference.unrequested_static
