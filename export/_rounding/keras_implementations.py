"""Comparison of the implementations of a Keras model: an eager call, `predict`, and another backend.

Golden outputs come from eager calls. A user runs `predict`, which traces a graph on TensorFlow and JAX, and a model on
JAX or torch is traced on TensorFlow for the export. If the result of a layer depends on the implementation, a file can
match only one of them. The difference begins in the first layer, in the order of the graph, with outputs a and b and

    max |a - b| / max |a| > max(LAYER_DIFFERENCE_SHARE * ratio of the model's outputs, MIN_RELATIVE_DIFFERENCE)
"""

from collections.abc import Callable, Sequence
from inspect import signature as signature_of
from pathlib import Path

import keras
import numpy as np

from .._format.dtypes import decode_strings
from .._format.names import Arrays, Case
from .._format.parity_report import ParityError, ParityReport, ParityRow
from .._signature.keras_messages import silence_keras
from .._signature.signature import Signature
from .tie_errors import compute_abs_error

# A smaller share finds layers that differ by rounding only, a larger one skips a difference that grows in later layers.
LAYER_DIFFERENCE_SHARE = 0.1
MIN_RELATIVE_DIFFERENCE = 20 * float(np.finfo(np.float32).eps)  # rounding of long sums
LAYER_OUTPUTS_FILE = "layer_outputs.npz"
NO_TRAINING_ADVICE = (
    " If the model has layers such as `RandomFlip`: `{}` has no argument `training`, so `predict` runs these layers, "
    "and all later layers, in training mode (keras#23166). Add `training=None` to `call`, and pass it to the layers."
)


class PredictError(ParityError):
    """Outputs of `predict` differ from those of an eager call. `report` has only this comparison."""


def run_predict(signature: Signature, case: Case) -> Arrays | None:
    """Run `predict` on the inputs of a golden case; states of seed generators may change.

    Returns:
        The outputs by name. `None` if the model overrides `predict_step`; if `predict` raises, as for a `call` with
        several arguments; or if shapes differ, as in a distributed model, which concatenates outputs of replicas.
    """
    if type(signature.model).predict_step is not keras.Model.predict_step:
        return None
    outputs = _predict_batch(signature, signature.model, case.inputs) or []
    has_same_shapes = [output.shape for output in outputs] == [array.shape for array in case.outputs.values()]
    return dict(zip(case.outputs, outputs, strict=True)) if has_same_shapes else None


def check_predict(model: keras.Model, rows: Sequence[ParityRow], find_layer: Callable[[], str | None]) -> None:
    """Check that `predict` returns the outputs of an eager call, by the `rows` of their comparison.

    `find_layer` returns the name of the first layer that differs, or `None` if it is unknown.

    Raises:
        PredictError: If an output differs by more than rounding.
    """
    row = next((row for row in rows if not row.passed), None)
    if row is not None:
        takes_training = "training" in signature_of(model.call).parameters
        advice = "" if takes_training else NO_TRAINING_ADVICE.format(f"{type(model).__name__}.call")
        raise PredictError(
            f"`predict` and an eager call of `{model.name}` differ in output `{row.name}`, which {row.problem} in case "
            f"`{row.case}` (max abs {row.max_abs:.1e}, max rel {row.max_rel:.1e}), so no file can match both."
            f"{name_differing_layer(find_layer())}{advice}",
            ParityReport("cpu", tuple(rows)),
        )


def name_differing_layer(layer: str | None, suffix: str = "") -> str:
    """Return a sentence that names the layer in which a difference begins; empty if `layer` is `None`."""
    return "" if layer is None else f" The difference begins in layer `{layer}`{suffix}."


def save_layer_outputs(signature: Signature, case: Case, file: Path) -> None:
    """Save the outputs of every layer of a functional model in a golden case, for `find_layer_differing_from_saved`."""
    if signature.is_functional:
        names, arrays = zip(*signature.run_layers(case.inputs), strict=True)
        np.savez(file, *map(_drop_texts, arrays), case=np.array(case.name), names=np.array(names))


def find_layer_differing_from_saved(file: Path, signature: Signature, cases: Sequence[Case]) -> str | None:
    """Return the first layer whose outputs differ from those saved by `save_layer_outputs` on another backend."""
    if not file.exists():
        return None
    with np.load(file) as archive:
        case = next(case for case in cases if case.name == archive["case"])
        names, outputs = zip(*signature.run_layers(case.inputs), strict=True)
        if list(names) != list(archive["names"]):
            return None
        saved_outputs = [archive[f"arr_{index}"] for index in range(len(names))]
    return _find_first_differing_layer(len(case.outputs), names, outputs, saved_outputs)


def _find_first_differing_layer(
    num_outputs: int, names: Sequence[str], expected: Sequence[np.ndarray], actual: Sequence[np.ndarray]
) -> str | None:
    """Return the first layer that differs; the last `num_outputs` arrays are the outputs of the model."""
    differences = [_compute_relative_difference(*map(_drop_texts, pair)) for pair in zip(expected, actual, strict=True)]
    threshold = max(LAYER_DIFFERENCE_SHARE * max(differences[-num_outputs:]), MIN_RELATIVE_DIFFERENCE)
    return next((name for name, value in zip(names, differences, strict=True) if value > threshold), None)


def _drop_texts(array: np.ndarray) -> np.ndarray:
    """Return an array, or an empty array instead of strings, which `np.load` cannot read without pickle."""
    return array if array.dtype.kind in "biuf" else np.zeros(0)


def _compute_relative_difference(expected: np.ndarray, actual: np.ndarray) -> float:
    if expected.shape != actual.shape:
        return np.inf
    if expected.dtype.kind != "f":
        return float(np.any(expected != actual))
    largest = np.abs(np.nan_to_num(expected.astype(np.float64), posinf=0, neginf=0)).max(initial=0.0)
    return float(compute_abs_error(expected, actual).max(initial=0.0) / max(largest, np.finfo(np.float32).tiny))


def find_layer_differing_in_predict(signature: Signature, case: Case) -> str | None:
    """Return the first layer of a functional model whose outputs differ between `predict` and an eager call."""
    if not signature.is_functional:
        return None
    predict_outputs = _predict_batch(signature, signature.layer_outputs_model, case.inputs)
    names, eager_outputs = zip(*signature.run_layers(case.inputs), strict=True)
    if predict_outputs is None or len(predict_outputs) != len(names):
        return None
    return _find_first_differing_layer(len(case.outputs), names, eager_outputs, predict_outputs)


def _predict_batch(signature: Signature, model: keras.Model, inputs: Arrays) -> list[np.ndarray] | None:
    """Return the outputs of `predict` for one batch, or `None` if `predict` raises."""
    predict_function = model.predict_function
    try:
        with silence_keras():
            outputs = model.predict_on_batch(signature.pack_inputs(inputs))
            return [np.asarray(decode_strings(array)) for array in keras.tree.flatten(outputs) if array is not None]
    except Exception:  # noqa: BLE001 - the model's own code may raise anything; the export needs no `predict`
        return None
    finally:
        model.predict_function = predict_function
