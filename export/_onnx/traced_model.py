"""A traced ONNX model with static output shapes and weights kept outside the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

# Of the nodes that stand for calls of attention layers. ONNX asks for a name of the DNS in reverse, and what ends in
# `.alt` there is nobody's (RFC 9476).
DOMAIN = "alt.keras_attn"
CONTRIB = "com.microsoft"  # operators of onnxruntime's own
OF_ATTENTION = "keras_attn"  # what the names of nodes in such a call begin with, by which `verify` knows them
Shapes = Mapping[str, tuple[int | None, ...]]
Weights = Mapping[str, np.ndarray]


@dataclass
class Traced:
    """A model on its way from TensorFlow to a file. Passes edit the model in place, and replace `weights`.

    Attributes:
        model: Nodes of the domain `alt.keras_attn` stand for the calls of attention layers that are lowered.
        outputs: Static shapes of the outputs.
        weights: Those that are kept out of the graph, by name: its inputs until it is finished, then initializers that
            are put in when it is written.
        unfolded: Variables into which the converter folds nothing, by name; see `compare_weights`.
    """

    model: onnx.ModelProto
    outputs: Shapes = field(default_factory=dict)
    weights: Weights = field(default_factory=dict)
    unfolded: Weights = field(default_factory=dict)
