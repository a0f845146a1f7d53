"""`Dense` sublayers for projections, and the kernel options that attention layers share."""

import re
from typing import Any

import keras

from .private_api import all_sublayers

_OPTIONS = {
    "kernel_initializer": keras.initializers,
    "kernel_regularizer": keras.regularizers,
    "kernel_constraint": keras.constraints,
}


def set_kernel_options(layer: Any, kernel_initializer: Any, kernel_regularizer: Any, kernel_constraint: Any) -> None:
    """Set kernel options, in any form that Keras accepts, as attributes of a layer."""
    options = kernel_initializer, kernel_regularizer, kernel_constraint
    for (name, keras_module), option in zip(_OPTIONS.items(), options, strict=True):
        setattr(layer, name, keras_module.get(option))


def kernel_config(layer: Any) -> dict[str, Any]:
    """Return the kernel options of a layer for its config."""
    return {name: keras_module.serialize(getattr(layer, name)) for name, keras_module in _OPTIONS.items()}


def make_projection(layer: Any, name: str, units: int, **options: Any) -> Any:
    """Create an unbuilt `Dense` sublayer without bias, with the kernel options of `layer`; `options` override them."""
    options = {"use_bias": False, **{name: getattr(layer, name) for name in _OPTIONS}, **options}
    options = {name: _clone_initializer(option) for name, option in options.items()}
    return keras.layers.Dense(units, dtype=sublayer_policy(layer, name), name=name, **options)


def is_plain_matmul(layer: Any) -> bool:
    """Return True if a layer is a `Dense`, and no subclass of it, without quantization, bias or activation."""
    is_linear_dense = type(layer) is keras.layers.Dense and layer.activation is keras.activations.linear
    return is_linear_dense and not layer.use_bias and layer.quantization_mode is None


def _clone_initializer(option: Any) -> Any:
    # An initializer with a seed draws the same values in each use, so kernels that share it would be equal.
    return option.clone() if isinstance(option, keras.initializers.Initializer) else option


def make_policy_map(layer: Any) -> Any | None:
    """Return a `DTypePolicyMap` of quantized sublayers, or None if no sublayer is quantized."""
    # The keys are patterns, because a loaded model may build its layers under another path prefix.
    policies_by_pattern = {
        rf"(.*/)?{re.escape(layer.name + sublayer.path.removeprefix(layer.path))}": sublayer.dtype_policy
        for sublayer in all_sublayers(layer)
        if sublayer.quantization_mode is not None
    }
    if not policies_by_pattern:
        return None
    default = getattr(layer.dtype_policy, "default_policy", layer.dtype_policy)
    return keras.dtype_policies.DTypePolicyMap(default, policies_by_pattern)


def sublayer_policy(layer: Any, name: str) -> Any:
    """Return the dtype policy of a sublayer: its entry if the policy of `layer` is a map, else that policy itself."""
    # A `Dense` must not get the whole map. Keras 3.15 cannot save a quantized `Dense` whose policy is a map, because
    # `Dense._get_kernel_with_merged_lora` reads the quantization mode of the map instead of that of the entry.
    policy = layer.dtype_policy
    return policy[f"{layer.name}/{name}"] if isinstance(policy, keras.dtype_policies.DTypePolicyMap) else policy
