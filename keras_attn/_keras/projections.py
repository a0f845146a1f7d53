"""The `Dense` layers by which a layer projects, and the options of their kernels, which several layers take alike."""

import re
from typing import Any

import keras

from .private_api import sublayers_of

_OPTIONS = {
    "kernel_initializer": keras.initializers,
    "kernel_regularizer": keras.regularizers,
    "kernel_constraint": keras.constraints,
}


def set_kernel_options(layer: Any, kernel_initializer: Any, kernel_regularizer: Any, kernel_constraint: Any) -> None:
    """Makes attributes of a layer of these arguments, each in any form that Keras takes."""
    options = kernel_initializer, kernel_regularizer, kernel_constraint
    for (name, kind), option in zip(_OPTIONS.items(), options, strict=True):
        setattr(layer, name, kind.get(option))


def kernel_config(layer: Any) -> dict[str, Any]:
    """The part of a layer's config that tells its kernel options."""
    return {name: kind.serialize(getattr(layer, name)) for name, kind in _OPTIONS.items()}


def projection(layer: Any, name: str, units: int, **options: Any) -> Any:
    """Return a `Dense` layer without bias, not built yet, named `name`, for a layer with kernel options to own.

    Further arguments of `Dense` take precedence over these options.
    """
    options = {"use_bias": False, **{name: getattr(layer, name) for name in _OPTIONS}, **options}
    options = {name: _clone_initializer(option) for name, option in options.items()}
    return keras.layers.Dense(units, dtype=sublayer_policy(layer, name), name=name, **options)


def is_plain_matmul(layer: Any) -> bool:
    """Whether a layer is a product with its kernel: int8 has one of its own, and a subclass may have put another."""
    plain = type(layer) is keras.layers.Dense and layer.activation is keras.activations.linear
    return plain and not layer.use_bias and layer.quantization_mode is None


def _clone_initializer(option: Any) -> Any:
    """An initializer of its own: one draws the same numbers each time, and kernels must not start as copies."""
    return option.clone() if isinstance(option, keras.initializers.Initializer) else option


def policy_with_quantized_sublayers(layer: Any) -> Any | None:
    """A map of the policies of the quantized sublayers, or None when no sublayer is quantized.

    The keys are patterns of paths, because a model that is loaded may build its layers under another prefix.
    """
    quantized = {
        rf"(.*/)?{re.escape(layer.name + sublayer.path.removeprefix(layer.path))}": sublayer.dtype_policy
        for sublayer in sublayers_of(layer)
        if sublayer.quantization_mode is not None
    }
    if not quantized:
        return None
    default = getattr(layer.dtype_policy, "default_policy", layer.dtype_policy)
    return keras.dtype_policies.DTypePolicyMap(default, quantized)


def sublayer_policy(layer: Any, name: str) -> Any:
    """The policy for a sublayer of this name: that of the layer, unless the sublayer was saved quantized.

    Never the map itself: a quantized `Dense` that was given a map cannot be saved again, since
    `Dense._get_kernel_with_merged_lora` asks the map and not its entry for the mode (Keras 3.15).
    """
    policy = layer.dtype_policy
    return policy[f"{layer.name}/{name}"] if isinstance(policy, keras.dtype_policies.DTypePolicyMap) else policy
