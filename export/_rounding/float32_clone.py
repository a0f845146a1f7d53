"""Float32 clone of a half-precision model, with the same weights."""

import random
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np

from keras_attn._keras.private_api import direct_sublayers

from .._errors import UnsupportedModelError
from .._format.compare import compare
from .._format.names import Case
from .._format.parity_report import ZERO_TOLERANCE
from .._golden_cases.golden_cases import LARGE_VALUES
from .._options import FLOAT32
from .._private_api.keras_internals import get_functional, get_own_weights, get_quantization
from .._signature.keras_messages import shorten_message, silence_keras
from .._signature.signature import Signature, build_named_signature

# A bfloat16 has 8 significant bits, of which a deep model loses a few. A larger difference is attributed to lost state.
MAX_RELATIVE_DIFFERENCE = 0.25
# Longer names first, because the shorter names are their suffixes.
HALF_DTYPES = ("mixed_float16", "mixed_bfloat16", "bfloat16", "float16")

FLOAT32_ADVICE = (
    "`get_config` of each layer must hold all arguments of `__init__`. Or build or load the model with "
    "`dtype='float32'` and its weights, and export it with `precision='float16'` for a file in half precision."
)


def find_half_policies(signature: Signature) -> list[str]:
    """Return the names of the half-precision policies in a model, sorted."""
    return sorted({_get_policy_name(layer) for layer in signature.layers if layer.compute_dtype in HALF_DTYPES})


def _get_policy_name(layer: Any) -> str:
    # Derived from the dtypes, because Keras deletes the names when it serializes a map of policies.
    mixed = "" if layer.compute_dtype == layer.variable_dtype else "mixed_"
    quantization = get_quantization(layer)
    return f"{quantization}_from_{mixed}{layer.compute_dtype}" if quantization else f"{mixed}{layer.compute_dtype}"


def clone_to_float32(signature: Signature) -> Signature:
    """Return the model with every half-precision policy replaced by float32.

    tf2onnx writes bfloat16 as float16, and onnxruntime lacks many half-precision kernels on the CPU. A mixed-precision
    model stores its weights in float32 anyway. Inputs keep their dtypes.

    Args:
        signature: A model of any class; a subclass must have `get_config`.

    Raises:
        UnsupportedModelError: If the model cannot be rebuilt from its configuration.
    """
    try:
        return _clone(signature)
    except Exception as error:
        # from_config, get_config and build are the user's own code
        raise UnsupportedModelError(
            f"Model `{signature.model.name}` computes in {', '.join(find_half_policies(signature))} and has no float32 "
            f"clone: {shorten_message(error).rstrip('.')}. {FLOAT32_ADVICE}"
        ) from error


def _clone(signature: Signature) -> Signature:
    def clone_layer(layer: Any) -> Any:
        return type(layer).from_config(_replace_half_policies(layer.get_config()))

    def build_and_copy_weights(clone: Any) -> Signature:
        # A subclass has no weights before its first call.
        clone_signature = build_named_signature(clone, signature.samples)
        for original, copy in _pair_layers(model, clone):
            _copy_weights(original, copy)
        for layer in clone_signature.layers:
            if hasattr(layer, "finalize_state"):
                layer.finalize_state()  # preprocessing layers compute with values that they derive from weights
        return clone_signature

    model = signature.model
    policy, random_state = keras.config.dtype_policy(), random.getstate()
    keras.config.set_dtype_policy(FLOAT32)  # for layers that a subclass creates without a dtype
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
        random.setstate(random_state)  # Keras drew seeds for initial weights, which have been replaced


def _copy_weights(layer: Any, clone: Any) -> None:
    """Copy the weights that a layer itself holds, without those of its sublayers, to its clone."""
    if getattr(layer, "lora_enabled", False) and not clone.lora_enabled:
        # `get_config` of a container lacks the LoRA arguments of its layers.
        clone.enable_lora(layer.lora_rank, lora_alpha=layer.lora_alpha)
    weights, clone_weights = get_own_weights(layer), get_own_weights(clone)
    if {weight.name for weight in weights} == {copy.name for copy in clone_weights}:
        # LoRA before quantization changes the order of weights. Names are unique within a layer.
        weights.sort(key=lambda weight: weight.name)
        clone_weights.sort(key=lambda copy: copy.name)
    for weight, copy in zip(weights, clone_weights, strict=True):
        copy.assign(keras.ops.cast(weight, copy.dtype))


def _pair_layers(layer: Any, clone: Any) -> Iterator[tuple[Any, Any]]:
    """Yield pairs of a layer and its clone: the layer itself, then all nested layers; raises if one has none."""
    # `Model.weights` of both may differ in order and length: a layer that a model shares with a nested model is one
    # layer in the model and two layers in the clone.
    yield layer, clone
    sources, clones = direct_sublayers(layer), direct_sublayers(clone)
    if (functional := get_functional(layer)) is not None:
        # A functional clone is paired by name: names are unique in a graph, and a subclass of a functional model has
        # layers outside the graph, which the clone lacks. A clone from `__init__` is paired by order: Keras may choose
        # different names for its layers, but no layer is missing.
        named_sources = {source.name: source for source in (*sources, *functional.operations)}
        if all(clone_layer.name in named_sources for clone_layer in clones):
            sources = [named_sources[clone_layer.name] for clone_layer in clones]
    for source, clone_layer in zip(sources, clones, strict=True):
        yield from _pair_layers(source, clone_layer)


def measure_clone_difference(signature: Signature, cases: Iterable[Case]) -> dict[str, Any]:
    """Measure the difference between a half-precision model and its float32 clone, whose outputs are in `cases`.

    Returns:
        `policies`, and the largest `max_abs` and `max_rel` of any output, as in a row of the parity report.

    Raises:
        UnsupportedModelError: If the difference exceeds `MAX_RELATIVE_DIFFERENCE`.
    """
    rows = []
    for case in cases:
        if case.name == LARGE_VALUES:
            continue  # half precision resolves only integers near the scores of 1e4 in this case
        with silence_keras():
            outputs = signature.call(case.inputs).values()
        actual = {key: _to_float32_array(output) for key, output in zip(case.outputs, outputs, strict=True)}
        expected = {key: np.asarray(array, np.float32) for key, array in case.outputs.items()}
        rows += compare(Case(case.name, {}, expected), actual, ZERO_TOLERANCE)
    finite_rows = [row for row in rows if np.isfinite(row["max_rel"])]  # half precision may overflow unlike float32
    worst = {key: max((row[key] for row in finite_rows), default=0.0) for key in ("max_abs", "max_rel")}
    policies = find_half_policies(signature)
    if worst["max_rel"] > MAX_RELATIVE_DIFFERENCE:
        raise UnsupportedModelError(
            f"The float32 clone of `{signature.model.name}`, a model in {', '.join(policies)}, gives other outputs "
            f"(max rel {worst['max_rel']:.1e}): a layer has state that is neither in `get_config` nor a weight. "
            f"{FLOAT32_ADVICE}"
        )
    return {"policies": policies, **worst}


def _to_float32_array(tensor: Any) -> np.ndarray:
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float32")))


def _replace_half_policies(value: Any) -> Any:
    """Return the configuration of a layer with float32 in its dtype policy and in those of nested layers."""
    if isinstance(value, keras.DTypePolicy):
        value = keras.dtype_policies.serialize(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_replace_half_policies, value))
    if not isinstance(value, dict):
        return value
    new_config = {key: _replace_half_policies(part) for key, part in value.items()}
    if "DTypePolicy" in str(value.get("class_name")):  # also policies of quantized layers, and maps of policies
        new_config["config"] = {key: _to_float32_name(name) for key, name in new_config["config"].items()}
    return new_config


def _to_float32_name(name: Any) -> Any:
    """Return the name of a policy in float32: `int8_from_float32` for `int8_from_mixed_float16`."""
    suffix = next((suffix for suffix in HALF_DTYPES if isinstance(name, str) and name.endswith(suffix)), None)
    return name if suffix is None else name.removesuffix(suffix) + FLOAT32
