"""A traced ONNX model with static output shapes and weights outside the graph."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

# Domain of the nodes for attention calls: a reversed DNS name, as ONNX requires, below `.alt`, which nobody can own
# (RFC 9476).
DOMAIN = "alt.keras_attn"
CONTRIB = "com.microsoft"  # operators of onnxruntime
OF_ATTENTION = "keras_attn"  # prefix of the names of nodes in such a call, by which `verify` recognizes them
Shapes = Mapping[str, tuple[int | None, ...]]
Weights = Mapping[str, np.ndarray]


@dataclass
class Traced:
    """A model on its way from TensorFlow to a file. Passes edit the model in place, and replace `weights`.

    Attributes:
        model: The model, with one node of the domain `alt.keras_attn` for each attention call until it is lowered.
        outputs: Static shapes of the outputs.
        weights: Weights outside the graph, by name: inputs of the graph until it is finished, then initializers that
            are added when the file is written.
        unfolded: Variables into which the converter folds nothing, by name; see `compare_weights`.
    """

    model: onnx.ModelProto
    outputs: Shapes = field(default_factory=dict)
    weights: Weights = field(default_factory=dict)
    unfolded: Weights = field(default_factory=dict)
