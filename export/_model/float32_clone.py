"""Clone a model that computes in half precision as one that computes in float32, with the same weights."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import numpy as np

from .._errors import UnsupportedModelError
from .._internals.keras_internals import inputs_structure, operation_of
from .._options import NO_MORE
from .._standalone.verify import Case, compare
from .golden_cases import LARGE
from .signature import Signature, model_signature

FAR = 0.25  # relative; bfloat16 has 8 bits, and a deep model loses a few of them

HALF = ("mixed_float16", "mixed_bfloat16", "bfloat16", "float16")  # the longer names first: they hold the shorter


def half_policies(signature: Signature) -> list[str]:
    """Return the names of the half-precision policies in a model, sorted."""
    names = {layer.dtype_policy.name for layer in signature.layers}
    return sorted(name for name in names if name.endswith(HALF))


def float32_clone(signature: Signature) -> Signature:
    """Return the model with every half-precision policy replaced by float32.

    tf2onnx writes bfloat16 as float16, and onnxruntime lacks many half-precision kernels on the CPU; float32 is what a
    mixed-precision model keeps its weights in. Inputs keep their dtypes.

    Args:
        signature: A model of any kind; a subclass must have `get_config`.

    Raises:
        UnsupportedModelError: The model cannot be made again from its configuration.
    """
    try:
        return clone_with_policies(signature, "float32", HALF)
    except Exception as error:
        # from_config, get_config and build are the user's own code
        raise UnsupportedModelError(
            f"Model `{signature.model.name}` computes in {', '.join(half_policies(signature))} and has no float32 "
            f"clone: {error}"
        ) from error


def clone_with_policies(
    signature: Signature, dtype: str, replaced: Sequence[str], *, inputs_too: bool = False
) -> Signature:
    """Return the model with the same weights, and with a dtype in the place of some others in every policy.

    Args:
        signature: A model of any kind.
        dtype: `"float32"` or `"float64"`.
        replaced: How the names of policies end that are replaced; a longer one before one that it ends with.
        inputs_too: Whether inputs of a functional model change their dtype likewise.
    """

    def input_of(tensor: keras.KerasTensor) -> keras.KerasTensor:
        kind = dtype if tensor.dtype in replaced else tensor.dtype
        return keras.Input(batch_shape=tensor.shape, dtype=kind, name=operation_of(tensor).name)

    def clone_layer(layer: Any) -> Any:
        return type(layer).from_config(_with_policies(layer.get_config(), dtype, replaced))

    model, functional = signature.model, signature.functional
    policy, drawn = keras.config.dtype_policy(), random.getstate()
    keras.config.set_dtype_policy(dtype)  # for layers that a subclass makes without saying their dtype
    try:
        if signature.is_functional:
            inputs = keras.tree.map_structure(input_of, inputs_structure(functional)) if inputs_too else None
            clone = keras.models.clone_model(model, input_tensors=inputs, clone_function=clone_layer)
        else:
            clone = clone_layer(model)
        cloned = model_signature(clone, signature.samples)  # a subclass has no weights before this, its first call
        clone.set_weights([_float32_array(weight) for weight in model.weights])
        for layer in cloned.layers:
            if hasattr(layer, "finalize_state"):
                layer.finalize_state()  # preprocessing layers compute with what they make of their weights here
    finally:
        keras.config.set_dtype_policy(policy)
        random.setstate(drawn)  # Keras takes seeds from it for the weights that are then replaced
    return cloned


def distance(signature: Signature, cases: Iterable[Case]) -> dict[str, Any]:
    """Return how far a half-precision model's outputs lie from those of its float32 clone, over the golden cases.

    Returns:
        `policies`, and the largest `max_abs` and `max_rel` of any output, as in a row of the parity report.

    Raises:
        UnsupportedModelError: They lie further apart than precision explains.
    """
    rows = []
    for case in cases:
        if case.name == LARGE:
            continue  # at scores of 1e4 half precision resolves whole numbers only
        outputs = signature.call(case.inputs).values()
        actual = {key: _float32_array(output) for key, output in zip(case.outputs, outputs, strict=True)}
        wide = {key: np.asarray(array, np.float32) for key, array in case.outputs.items()}
        rows += compare(Case(case.name, {}, wide), actual, NO_MORE)
    finite = [row for row in rows if np.isfinite(row["max_rel"])]  # half may overflow where float32 does not
    worst = {key: max((row[key] for row in finite), default=0.0) for key in ("max_abs", "max_rel")}
    policies = half_policies(signature)
    if worst["max_rel"] > FAR:
        raise UnsupportedModelError(
            f"The float32 clone of `{signature.model.name}`, a model in {', '.join(policies)}, gives other outputs "
            f"(max rel {worst['max_rel']:.1e}): a layer holds something that is neither in `get_config` nor a weight."
        )
    return {"policies": policies, **worst}


def _float32_array(tensor: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32")))


def _with_policies(value: Any, dtype: str, replaced: Sequence[str]) -> Any:
    """Return a layer's configuration with a dtype in its own policy, and in those of layers within it."""
    if isinstance(value, list | tuple):
        return type(value)(_with_policies(each, dtype, replaced) for each in value)
    if not isinstance(value, dict):
        return value
    mapped = {key: _with_policies(each, dtype, replaced) for key, each in value.items()}
    if str(value.get("class_name")).endswith("DTypePolicy"):  # quantized policies too: int8_from_mixed_float16
        mapped["config"] = {key: _renamed(each, dtype, replaced) for key, each in mapped["config"].items()}
    return mapped


def _renamed(name: Any, dtype: str, replaced: Sequence[str]) -> Any:
    end = next((end for end in replaced if isinstance(name, str) and name.endswith(end)), None)
    return name if end is None else name.removesuffix(end) + dtype
