"""The export as its caller sees it: check what was asked, load the model, write the bundle and put it in place."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._bundle.atomic_folder import staged_folder
from .._bundle.bundle import Bundle, load_bundle
from .._bundle.parity import checked_tolerance
from .._errors import UnsupportedModelError
from .._options import Options, check_options
from .._progress import Progress, shown_progress
from .._standalone import verify
from .._tracing.saved_model_run import SavedModelRun

if TYPE_CHECKING:
    import keras


def export_model(
    model: keras.Model | str | Path,
    path: str | Path,
    *,
    sample_inputs: Mapping[str, Any] | None = None,
    opset: int | None = None,
    lowering: str = "portable",
    precision: str = "float32",
    provider: str = "cpu",
    tolerance: float | tuple[float, float] | None = None,
    overwrite: bool = False,
    progress: bool | Progress | None = None,
    safe_mode: bool = True,
) -> Bundle:
    """Export a Keras model to a bundle that is proven equal to it, or write nothing and say why.

    The SavedModel is run in a fresh process without Keras, the ONNX file in onnxruntime, and both are compared with
    what Keras gives, over several batch sizes and lengths.

    Where Keras runs on JAX or torch, what it gives there is what is compared with; a process of its own, with
    TensorFlow, loads the saved model and traces it. Custom classes in it must be importable there.

    Args:
        model: A Keras model of any kind, or the path of a `.keras` file.
        path: The folder to write.
        sample_inputs: Arrays by input name; for a subclassed model by the argument names of its `call`, which are
            required. `None` draws inputs from what they feed.
        opset: ONNX opset, 18 to 24; `None` for the lowest that will do, which is 24 for `"fused"`, else 18.
        lowering: How the attention layers of `keras_attn` are written: `"portable"`, plain ONNX ops; `"fused"`, the
            ONNX op `Attention` for scaled dot products; `"ragged"`, over the keys that take part, in blocks; or
            `"auto"`, for each layer the fastest on `sample_inputs` with this provider. A layer that a lowering has no
            form for is written in plain ops; the manifest says how each is.
        precision: `"float32"`; `"float16"`, with softmax, statistics and whatever else needs it in float32; or
            `"int8"`, matrix products with int8 weights. Inputs and outputs keep their types. The float32 file is
            proven first, then the converted one, against the same outputs of Keras.
        provider: Where parity is checked, and where `"auto"` measures: `"cpu"` or `"cuda"`.
        tolerance: Largest relative difference, or (relative, absolute); `None` for (1e-5, 1e-6), in float16
            (1e-2, 1e-3), in int8 (1e-1, 1e-2). An output passes that is within either. Relative differences are
            against the largest magnitude of the output in that case.
        overwrite: Replace a bundle that is there; otherwise one that is there is an error.
        safe_mode: Whether a `.keras` file may hold no code; see `keras.saving.load_model`.
        progress: `None` shows steps on a terminal, `False` never; or a function that is called with each step's name.

    Returns:
        The bundle, loaded from disk.

    Raises:
        UnsupportedModelError: The model or an op in it cannot be exported.
        InputError: Samples do not fit or are needed.
        ParityError: An output differs.
        ProviderError: The provider is absent.
        BundleError: The place cannot be written, or a bundle is there.
        ExportError: An argument is wrong.
    """
    check_options(opset, lowering, precision, provider)
    tolerances = checked_tolerance(tolerance, precision)
    _check_model(model)
    target = Path(path)
    with shown_progress(progress) as step:
        step("Checking onnxruntime and the place to write")
        verify.check_provider(provider)
        with staged_folder(target, overwrite=overwrite) as folder:
            options = Options(opset, lowering, precision, provider, tolerances)
            _write_bundle(folder, model, sample_inputs, options, step, safe_mode=safe_mode)
            step("Putting the bundle in place")
        return load_bundle(target)


def _check_model(model: object) -> None:
    """Refuse what is no model without loading TensorFlow."""
    if isinstance(model, str | Path):
        file = Path(model)
        if not file.is_file():
            raise UnsupportedModelError(f"There is no model file at {file}.")
        if file.suffix != ".keras":
            raise UnsupportedModelError(f"{file} is not a `.keras` file. Save the model with `model.save('x.keras')`.")
    elif "keras" not in sys.modules or not isinstance(model, sys.modules["keras"].Model):
        received = type(model).__name__
        raise UnsupportedModelError(
            f"`model` must be a keras.Model or the path of a `.keras` file. Received: {received}."
        )


def _load(model: keras.Model | str | Path, safe_mode: bool) -> keras.Model:
    import keras

    import keras_attn  # noqa: F401 - registers the layers, so that files which hold them load

    from .._model.signature import first_line

    if isinstance(model, keras.Model):
        return model
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Model .* had a build config")  # it is built from the samples
            return keras.saving.load_model(model, compile=False, safe_mode=safe_mode)
    except Exception as error:
        # whatever is wrong with a stranger's file: zip, JSON, HDF5, an unknown or unsafe layer
        raise UnsupportedModelError(f"Keras cannot load {model}: {first_line(error)}") from error


def _write_bundle(
    folder: Path,
    model: keras.Model | str | Path,
    samples: Mapping[str, Any] | None,
    options: Options,
    step: Progress,
    *,
    safe_mode: bool,
) -> None:
    with SavedModelRun() as fresh:  # which imports TensorFlow meanwhile
        step("Loading Keras and its backend")
        loaded = _load(model, safe_mode)
        import keras

        from .._model.reference import reference_of, with_weights

        if isinstance(model, str | Path):
            loaded = with_weights(loaded, Path(model), samples)
        if keras.backend.backend() == "tensorflow":
            from .contents import write_contents

            write_contents(folder, reference_of(loaded, samples, step), options, step, fresh)
            return
    from .other_backend import checked_places, write_contents_on_tensorflow

    places = checked_places(loaded)
    reference = reference_of(loaded, samples, step)
    safe_mode = safe_mode and isinstance(model, str | Path)  # the code in a model of the caller's runs already
    write_contents_on_tensorflow(folder, reference, samples, options, step, places=places, safe_mode=safe_mode)
