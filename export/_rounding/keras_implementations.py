"""Compare the implementations of a Keras model: an eager call, `predict`, and another backend.

Golden outputs are those of eager calls. A user runs `predict`, which traces a graph on TensorFlow and JAX, and a model
on JAX or torch is traced on TensorFlow. A layer whose result depends on the implementation has no single correct
output: a file can match only one implementation.
"""

from collections.abc import Callable, Sequence
from inspect import signature as signature_of
from pathlib import Path

import keras
import numpy as np

from .._format.dtypes import decoded
from .._format.names import Arrays, Case
from .._format.parity_report import ParityError, ParityReport, ParityRow
from .._signature.keras_messages import quiet_keras
from .._signature.signature import Signature
from .tie_errors import abs_error

# A difference begins in the first layer whose relative difference exceeds SHARE times that of the model's outputs, and
# ROUNDING, which layers with long sums reach.
SHARE = 0.1
ROUNDING = 20 * float(np.finfo(np.float32).eps)
LAYER_OUTPUTS = "layer_outputs.npz"
NO_TRAINING = (
    " If the model has layers such as `RandomFlip`: `{}` takes no `training`, so `predict` leaves these layers, and "
    "those behind them, in training mode (keras#23166). Give `call` the argument `training=None`, and pass it on."
)


class PredictError(ParityError):
    """Outputs of `predict` differ from those of an eager call. `report` holds this comparison alone."""


def outputs_of_predict(signature: Signature, case: Case) -> Arrays | None:
    """Return the outputs of `predict` for a golden case; states of seed generators may change.

    Returns:
        `None` if the model has its own `predict_step`, which may return anything; if `predict` raises, as for a `call`
        with several arguments; or if shapes differ, since the outputs of replicas of the model are concatenated.
    """
    if type(signature.model).predict_step is not keras.Model.predict_step:
        return None
    outputs = _predicted(signature, signature.model, case.inputs) or []
    has_same_shapes = [output.shape for output in outputs] == [array.shape for array in case.outputs.values()]
    return dict(zip(case.outputs, outputs, strict=True)) if has_same_shapes else None


def check_predict(model: keras.Model, rows: Sequence[ParityRow], find_layer: Callable[[], str | None]) -> None:
    """Check that `predict` gives the outputs of an eager call.

    Args:
        model: The model.
        rows: The comparison of the outputs of both.
        find_layer: Returns the first layer that differs, if that is known.

    Raises:
        PredictError: If an output differs by more than rounding.
    """
    row = next((row for row in rows if not row.passed), None)
    if row is not None:
        takes_training = "training" in signature_of(model.call).parameters
        advice = "" if takes_training else NO_TRAINING.format(f"{type(model).__name__}.call")
        raise PredictError(
            f"`predict` and an eager call of `{model.name}` differ in output `{row.name}`, which {row.problem} in case "
            f"`{row.case}` (max abs {row.max_abs:.1e}, max rel {row.max_rel:.1e}), so no file can match both."
            f"{begins_in(find_layer())}{advice}",
            ParityReport("cpu", tuple(rows)),
        )


def begins_in(layer: str | None, where: str = "") -> str:
    """Return the sentence that names the layer where a difference begins, or nothing if that is unknown."""
    return "" if layer is None else f" The difference begins in layer `{layer}`{where}."


def save_layer_outputs(signature: Signature, case: Case, file: Path) -> None:
    """Save the outputs of every layer of a functional model in a golden case, for `layer_differing_from`."""
    if signature.is_functional:
        names, arrays = zip(*signature.layer_outputs(case.inputs), strict=True)
        np.savez(file, *map(_without_texts, arrays), case=np.array(case.name), names=np.array(names))


def layer_differing_from(file: Path, signature: Signature, cases: Sequence[Case]) -> str | None:
    """Return the first layer whose outputs differ from those that `save_layer_outputs` saved on another backend."""
    if not file.exists():
        return None
    with np.load(file) as saved:
        case = next(case for case in cases if case.name == saved["case"])
        names, ours = zip(*signature.layer_outputs(case.inputs), strict=True)
        if list(names) != list(saved["names"]):
            return None
        theirs = [saved[f"arr_{index}"] for index in range(len(names))]
    return _first_differing_layer(len(case.outputs), names, ours, theirs)


def _first_differing_layer(
    num_outputs: int, names: Sequence[str], ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]
) -> str | None:
    """Return the name of the first layer whose outputs differ by a share of the difference of the model's outputs."""
    shares = [_relative_difference(*map(_without_texts, pair)) for pair in zip(ours, theirs, strict=True)]
    threshold = max(SHARE * max(shares[-num_outputs:]), ROUNDING)
    return next((name for name, share in zip(names, shares, strict=True) if share > threshold), None)


def _without_texts(array: np.ndarray) -> np.ndarray:
    """Return an array, or an empty one in place of texts, which `np.load` refuses without pickle."""
    return array if array.dtype.kind in "biuf" else np.zeros(0)


def _relative_difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    if ours.shape != theirs.shape:
        return np.inf
    if ours.dtype.kind != "f":
        return float(np.any(ours != theirs))
    largest = np.abs(np.nan_to_num(ours.astype(np.float64), posinf=0, neginf=0)).max(initial=0.0)
    return float(abs_error(ours, theirs).max(initial=0.0) / max(largest, np.finfo(np.float32).tiny))


def layer_differing_in_predict(signature: Signature, case: Case) -> str | None:
    """Return the first layer of a functional model whose outputs differ between `predict` and an eager call."""
    if not signature.is_functional:
        return None
    predicted = _predicted(signature, signature.every_layer, case.inputs)
    names, eager = zip(*signature.layer_outputs(case.inputs), strict=True)
    if predicted is None or len(predicted) != len(names):
        return None
    return _first_differing_layer(len(case.outputs), names, eager, predicted)


def _predicted(signature: Signature, model: keras.Model, inputs: Arrays) -> list[np.ndarray] | None:
    """Return the outputs of `predict` of a model for one batch, or `None` if `predict` does not take the inputs."""
    predict_function = model.predict_function
    try:
        with quiet_keras():
            outputs = model.predict_on_batch(signature.packed(inputs))
            return [np.asarray(decoded(array)) for array in keras.tree.flatten(outputs) if array is not None]
    except Exception:  # noqa: BLE001 - whatever the model's own code raises in `predict`; the export needs no `predict`
        return None
    finally:
        model.predict_function = predict_function
