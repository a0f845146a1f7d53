"""Dtype policies of quantized sublayers, through the config of the layer that owns them.

Quantization changes the policy of a sublayer alone. Unless the owner's config tells of it, a saved model makes the
sublayer anew in float and cannot load its int8 kernel: so it is with `keras.layers.MultiHeadAttention` in Keras 3.15.
"""

import re
from typing import Any

import keras

from ._private_keras import sublayers_of


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


def policy_of_sublayer(layer: Any, name: str) -> Any:
    """The policy for a sublayer of this name: that of the layer, unless the sublayer was saved quantized.

    Never the map itself: a quantized `Dense` that was given a map cannot be saved again, since
    `Dense._get_kernel_with_merged_lora` asks the map and not its entry for the mode (Keras 3.15).
    """
    policy = layer.dtype_policy
    return policy[f"{layer.name}/{name}"] if isinstance(policy, keras.dtype_policies.DTypePolicyMap) else policy
