"""Clone a half-precision model in float32 with the same weights."""

import random
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from keras_attn._keras.private_api import children_of

from .._errors import UnsupportedModelError
from .._format.compare import compare
from .._format.names import Case
from .._format.parity_report import NO_MORE
from .._golden_cases.golden_cases import LARGE
from .._options import FLOAT32
from .._private_api.keras_internals import functional_of, own_weights_of, quantization_of
from .._signature.keras_messages import first_line, quiet_keras
from .._signature.signature import Signature, signature_with_samples

FAR = 0.25  # relative; bfloat16 has 8 bits, and a deep model loses a few of them

HALF = ("mixed_float16", "mixed_bfloat16", "bfloat16", "float16")  # the longer names first: they hold the shorter

FLOAT32_INSTEAD = (
    "`get_config` of each layer must hold all arguments of `__init__`. Or build or load the model with "
    "`dtype='float32'` and its weights, and export it with `precision='float16'` for a file in half precision."
)


def half_policies(signature: Signature) -> list[str]:
    """Return the names of the half-precision policies in a model, sorted."""
    return sorted({_policy_name(layer) for layer in signature.layers if layer.compute_dtype in HALF})


def _policy_name(layer: Any) -> str:
    """Return the name of a layer's policy from its dtypes: Keras deletes names when it serializes a map of policies."""
    mixed = "" if layer.compute_dtype == layer.variable_dtype else "mixed_"
    quantization = quantization_of(layer)
    return f"{quantization}_from_{mixed}{layer.compute_dtype}" if quantization else f"{mixed}{layer.compute_dtype}"


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
        return _clone(signature)
    except Exception as error:
        # from_config, get_config and build are the user's own code
        raise UnsupportedModelError(
            f"Model `{signature.model.name}` computes in {', '.join(half_policies(signature))} and has no float32 "
            f"clone: {first_line(error).rstrip('.')}. {FLOAT32_INSTEAD}"
        ) from error


def _clone(signature: Signature) -> Signature:
    def clone_layer(layer: Any) -> Any:
        return type(layer).from_config(_with_float32(layer.get_config()))

    def build_and_copy_weights(clone: Any) -> Signature:
        # A subclass has no weights before its first call.
        cloned = signature_with_samples(clone, signature.samples)
        for original, copy in _pair_layers(model, clone):
            _copy_weights(original, copy)
        for layer in cloned.layers:
            if hasattr(layer, "finalize_state"):
                layer.finalize_state()  # preprocessing layers compute with what they make of their weights here
        return cloned

    model = signature.model
    policy, drawn = keras.config.dtype_policy(), random.getstate()
    keras.config.set_dtype_policy(FLOAT32)  # for layers that a subclass makes without saying their dtype
    try:
        if signature.is_functional:
            try:
                return build_and_copy_weights(keras.models.clone_model(model, clone_function=clone_layer))
            except Exception:
                # A backbone of KerasHub stores policies of quantized layers at any depth, and constructs layers from
                # arguments that `get_config` of these layers lacks: only its own `get_config` has all arguments.
                if type(model).get_config.__module__.startswith("keras.src."):
                    raise
        return build_and_copy_weights(clone_layer(model))
    finally:
        keras.config.set_dtype_policy(policy)
        random.setstate(drawn)  # Keras takes seeds from it for the weights that are then replaced


def _copy_weights(layer: Any, clone: Any) -> None:
    """Assign to each weight that a clone itself holds the value of its counterpart in the layer."""
    if getattr(layer, "lora_enabled", False) and not clone.lora_enabled:
        clone.enable_lora(layer.lora_rank, lora_alpha=layer.lora_alpha)  # not in `get_config` of a container
    weights, copies = own_weights_of(layer), own_weights_of(clone)
    if {weight.name for weight in weights} == {copy.name for copy in copies}:
        # LoRA before quantization changes the order of weights; names are unique within a layer
        weights.sort(key=lambda weight: weight.name)
        copies.sort(key=lambda copy: copy.name)
    for weight, copy in zip(weights, copies, strict=True):
        copy.assign(keras.ops.cast(weight, copy.dtype))


def _pair_layers(layer: Any, clone: Any) -> Iterator[tuple[Any, Any]]:
    """Yield a layer with its clone, then all layers within, at any depth, with their clones.

    `Model.weights` of the two may differ in order and length: a layer that a model shares with a model nested in it is
    a single layer there and two in the clone.

    Raises:
        ValueError: If layers of the clone have no counterpart.
    """
    yield layer, clone
    sources, copies = children_of(layer), children_of(clone)
    if (functional := functional_of(layer)) is not None:
        # A functional clone is paired by name: names are unique in a graph, and a subclass of a functional model holds
        # layers beside the graph, which the clone lacks. A clone from `__init__` is paired by order: Keras may choose
        # other names for its layers, but none is missing.
        by_name = {source.name: source for source in (*sources, *functional.operations)}
        if all(copy.name in by_name for copy in copies):
            sources = [by_name[copy.name] for copy in copies]
    for source, copy in zip(sources, copies, strict=True):
        yield from _pair_layers(source, copy)


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
        with quiet_keras():
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
            f"(max rel {worst['max_rel']:.1e}): a layer holds something that is neither in `get_config` nor a weight. "
            f"{FLOAT32_INSTEAD}"
        )
    return {"policies": policies, **worst}


def _float32_array(tensor: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32")))


def _with_float32(value: Any) -> Any:
    """Return a layer's configuration with float32 in its own policy, and in those of layers within it."""
    if isinstance(value, keras.DTypePolicy):
        value = keras.dtype_policies.serialize(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_with_float32, value))
    if not isinstance(value, dict):
        return value
    mapped = {key: _with_float32(part) for key, part in value.items()}
    if "DTypePolicy" in str(value.get("class_name")):  # quantized policies and maps too: int8_from_mixed_float16
        mapped["config"] = {key: _float32_name(name) for key, name in mapped["config"].items()}
    return mapped


def _float32_name(name: Any) -> Any:
    end = next((end for end in HALF if isinstance(name, str) and name.endswith(end)), None)
    return name if end is None else name.removesuffix(end) + FLOAT32
