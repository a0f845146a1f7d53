"""The export as its caller sees it: check what was asked, load the model, write the bundle and put it in place."""

from __future__ import annotations

import shutil
import threading
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .._bundle.atomic_folder import staged_folder
from .._errors import BundleError, ExportError, UnsupportedModelError, UntraceableError
from .._loaded_bundle import Bundle, load_bundle
from .._options import ADAPTIVE, Options, checked_options
from .._progress import Progress, shown_progress
from .._report.write_report import beside, check_page
from .._standalone import verify
from .._tracing.fresh_process import SavedModelRun
from .model_file import check_model, loaded_model

if TYPE_CHECKING:
    import keras

    from .._model.reference import Reference
    from .._model.signature import Signature

# What an export changes for a while belongs to the process: the warnings that Python shows, the logger of tf2onnx, the
# terminal. Two at once would put back what the other had set. It is reentrant for a model that exports another.
_ONE_AT_A_TIME = threading.RLock()


IN_STEPS_REFUSED = (
    "There is no `in_steps` (--in-steps). Export the encoder and the step by themselves, and write the loop around "
    "them: docs/whole-answers.md has one, under `As two files`."
)


class StaticAxisWarning(UserWarning):
    """An axis is static that the model seems to take in several sizes."""


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
    **refused: NoReturn,
) -> Bundle:
    """Export a Keras model to a bundle that is proven equal to it, or write nothing and say why.

    The SavedModel is run in a fresh process without Keras, the ONNX file in onnxruntime, and both are compared with
    what Keras gives, over several batch sizes and lengths.

    Where Keras runs on JAX or torch, what it gives there is what is compared with; a process of its own, with
    TensorFlow, loads the saved model and traces it. Custom classes in it must be importable there.

    Exports in several threads of one process take turns.

    Args:
        model: A Keras model of any kind, or the path of a `.keras` file.
        path: The folder to write.
        sample_inputs: Arrays by input name, or in the order of the inputs, one alone as it is; for a subclassed model
            by the argument names of its `call`, which are required. `None` draws inputs from what they feed.
        opset: ONNX opset, 18 to 24; `None` for the one that the lowering is best at: 24 for `"adaptive"` and `"fused"`
            where there are dot products, else 18.
        lowering: How attention layers are written: `"adaptive"`, a file that decides by the sizes of each request
            between forms for small and large; `"portable"`, plain ONNX ops; `"fused"`, the ONNX op `Attention` for
            scaled dot products. With `provider="cuda"`, `"adaptive"` takes all examples at once, in forms for a GPU.
            A layer that a lowering has no form for is written in plain ops; the manifest says how each is.
        precision: `"float32"`; `"float16"`, with softmax, statistics and whatever else needs it in float32; or
            `"int8"`, matrix products with int8 weights. Inputs and outputs keep their types. The float32 file is
            proven first, then the converted one, against the same outputs of Keras.
        provider: Where the file is to run, and parity is checked: `"cpu"`, `"cuda"`, `"openvino"` or another execution
            provider, also by onnxruntime's name of it, as `"OpenVINOExecutionProvider"`. docs/export.md has them all.
        tolerance: What is allowed beside what rounding does to the model, which is measured: a relative difference, of
            what stands beside a number, and a tenth of it absolute; or (relative, absolute). `None` allows no more.
        overwrite: Replace a bundle that is there; otherwise one that is there is an error.
        safe_mode: Whether a `.keras` file may hold no code; see `keras.saving.load_model`.
        strict: Whether what the report warns of, such as an output that never varies, is an error too.
        static_axes: Sizes of axes that shall not be dynamic, by the names they have in a bundle without it, such as
            `batch` or `keys_length`. An axis that TensorFlow cannot trace as unknown is made static unasked, at the
            size it has in `sample_inputs`, with a warning.
        target: The lowest onnxruntime that the file shall run on, as `"1.19"`; or `"standard"` for ONNX operators
            alone, no functions, and no `If` that decides how attention is computed, for any runtime. Opset and forms
            follow from it. `None` for whatever is best with the onnxruntime that is installed.
        calibration: For `precision="int8"`: some hundreds of rows of what the model will be used on, as arrays like
            those of `sample_inputs`, or the path of an `.npz` or Parquet file. Convolutions and products with weights
            are then of integers whose ranges are fixed, where that does little harm. `None` measures ranges whenever
            the model runs, and leaves convolutions in float32.
        limit: How far int8 may be from float32 on `calibration`, the largest difference as a share of the largest
            number of an output: 0.05, say. `None` allows any, and warns from 0.1 on.
        report: Whether to write a page that shows the bundle, `Bundle.write_report`, beside it with its name.
        progress: `None` shows steps on a terminal, `False` never; or a function that is called with each step's name.
        **refused: Nothing: any other name is an error, and for `in_steps` it says what there is instead.

    Returns:
        The bundle, loaded from disk.

    Raises:
        UnsupportedModelError: The model or an op in it cannot be exported.
        InputError: Samples or `calibration` do not fit, samples are needed, or `static_axes` names an axis that is not
            there.
        ParityError: An output differs, or is further from float32 than `limit`; or, with `strict`, the report has a
            warning.
        ProviderError: The provider is absent, or did not compute all of attention.
        BundleError: The place cannot be written, or a bundle is there.
        ExportError: An argument is wrong.
        TypeError: There is no argument of that name.
    """
    if "in_steps" in refused:
        raise ExportError(IN_STEPS_REFUSED)
    if refused:
        raise TypeError(f"export_model() got an unexpected keyword argument {next(iter(refused))!r}")
    file = Path(model) if isinstance(model, str | Path) else None
    options = checked_options(
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
        static_axes=static_axes,
        target=target,
        calibration=calibration,
        limit=limit,
    )
    check_model(model)
    place = Path(path)
    with _ONE_AT_A_TIME, shown_progress(progress) as step:
        step("Checking onnxruntime and the place to write")
        verify.check_provider(options.provider)
        if report:
            check_page(beside(place), in_a_folder=False)  # an export makes what is above it
        with staged_folder(place, overwrite=overwrite) as folder:
            _write_bundle(folder, model, options, step)
            _check_readable(folder)
            step("Putting the bundle in place")
        bundle = load_bundle(place)
        if report:
            step("Writing the report")
            try:
                bundle.write_report()
            except ExportError as error:
                raise ExportError(f"The bundle is in {place}, but its report was not written: {error}") from error
        return bundle


def _write_bundle(folder: Path, model: keras.Model | str | Path, options: Options, step: Progress) -> None:
    with SavedModelRun() as fresh:  # which imports TensorFlow meanwhile
        step("Loading Keras and its backend")
        loaded = loaded_model(model, options)

        from .._model.keras_messages import silence_on_dots

        with silence_on_dots():
            try:
                signature, reference = _filled(folder, loaded, options, step, fresh)
            except UntraceableError as found:
                step("Again with static axes, since TensorFlow cannot trace them as unknown")
                shutil.rmtree(folder)
                folder.mkdir()
                options = replace(options, untraceable=found.reasons)
                with SavedModelRun() as again:
                    signature, reference = _filled(folder, loaded, options, step, again)
    for name, why in reference.golden.static.items():
        # that of a subclass which Keras runs on one size only was never said to be dynamic
        if name in options.untraceable or (name not in options.static_axes and signature.is_functional):
            warnings.warn(f"Axis `{name}` is static in the bundle. {why}", StaticAxisWarning, stacklevel=3)


def _check_readable(folder: Path) -> None:
    """Raise before anything is replaced where names or numbers of a bundle are beyond what is read of one."""
    try:
        load_bundle(folder).report  # noqa: B018 - which is read when it is asked for
    except BundleError as error:
        said = str(error).removesuffix(" Export the model again.")
        raise UnsupportedModelError(f"A bundle of this model could not be read: {said}") from error


def _filled(
    folder: Path, model: keras.Model, options: Options, step: Progress, fresh: SavedModelRun
) -> tuple[Signature, Reference]:
    """Fill the empty folder of a bundle, here or from a process with TensorFlow; return the model and what it gives."""
    import keras

    from .._model.reference import reference_of

    if keras.backend.backend() == "tensorflow":
        from .._tracing.untraceable import check_traceable
        from .contents import write_contents

        signature, reference = reference_of(model, options, step, check_traceable)
        write_contents(folder, signature, reference, options, step, fresh)
    else:
        from .other_backend import checked_places, write_contents_on_tensorflow

        fresh.end()  # the process with TensorFlow has one of its own
        places = checked_places(model)
        signature, reference = reference_of(model, options, step)
        write_contents_on_tensorflow(folder, signature, reference, options, step, places)
    return signature, reference
