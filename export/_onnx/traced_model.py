"""Traced ONNX model with static output shapes and weights outside the graph."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx

# Domain of the nodes for attention calls: a reversed DNS name, as ONNX requires, below `.alt`, which nobody can own
# (RFC 9476).
FUNCTION_DOMAIN = "alt.keras_attn"
CONTRIB = "com.microsoft"  # domain of onnxruntime's own operators
# Prefix of the names of nodes in an attention function, by which `verify` recognizes them in profiles
ATTENTION_NODE_PREFIX = "keras_attn"
Shapes = Mapping[str, tuple[int | None, ...]]
Weights = Mapping[str, np.ndarray]


@dataclass
class TracedModel:
    """Model between tracing and the file. Passes edit the model in place, and replace `weights`.

    Attributes:
        model: The model, with one node of the domain `alt.keras_attn` for each attention call until it is lowered.
        outputs: Static shapes of the outputs.
        weights: Weights outside the graph, by name: inputs of the graph until `finalize.py` removes these, then
            initializers that are added when the file is written.
        unfolded_variables: Variables that the converter does not fold into others, by name; see `compare_weights`.
    """

    model: onnx.ModelProto
    outputs: Shapes = field(default_factory=dict)
    weights: Weights = field(default_factory=dict)
    unfolded_variables: Weights = field(default_factory=dict)
