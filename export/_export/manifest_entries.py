"""Manifest of an export."""

from __future__ import annotations

import logging
import sys
from typing import Any

from keras_attn import AttentionPooling, MaskedSoftmax

from .._format.manifest import Manifest, Spec
from .._format.names import dtype_name
from .._lowering_names import PORTABLE, UNRECOGNISED, describe_lowering
from .._lowerings.lowered_model import Lowered
from .._onnxruntime_releases import lowest_onnxruntime
from .._options import Options
from .._private_api.builtin_attention import is_stock_attention
from .._rounding.reference import Reference
from .._signature.signature import Signature
from .package_versions import versions_of

LOGGER = logging.getLogger(__name__)
PACKAGES = ("keras-attn", "tensorflow", "keras", "tf2onnx", "onnx", "numpy")
OF_TEXTS = ("keras-hub", "tensorflow-text")  # where they are imported; the SavedModel of a tokenizer needs the second


def _reason(layer: Any) -> str:
    """Return why a layer that handed no computation to the exporter is written in plain operators."""
    if isinstance(layer, MaskedSoftmax):
        return "it computes a softmax only"
    if isinstance(layer, AttentionPooling) or is_stock_attention(layer):
        return "no output of the model depends on its attention"
    return "its class is derived from an attention layer of Keras, and may compute attention in another way"


def _layer_entries(signature: Signature, lowered: Lowered, options: Options, opset: int) -> list[dict[str, str]]:
    """Return how each attention layer was lowered, and log it; hand-written attention is last."""
    by_owner = lowered.layers(opset)
    listed = [
        {
            "name": layer.path,
            "class": type(layer).__name__,
            "lowering": PORTABLE,
            "form": f"{UNRECOGNISED}{lowered.reasons.get(id(layer)) or _reason(layer)}",
            "precision": options.precision,
            **by_owner.get(id(layer), {}),
        }
        for layer in signature.manifest_layers
    ]
    owners = {id(layer) for layer in signature.manifest_layers}
    written = [
        {"name": call.layer, "class": "operations", **by_owner[call.owner], "precision": options.precision}
        for call in lowered.written
        if call.owner not in owners
    ]
    for entry in (*listed, *written):
        LOGGER.debug("%s", describe_lowering(entry))
    return [*listed, *written]


def manifest_of(signature: Signature, reference: Reference, lowered: Lowered, options: Options, opset: int) -> Manifest:
    golden, first = reference.golden, reference.golden.cases[0].outputs
    of_texts = [name for name in OF_TEXTS if name.replace("-", "_") in sys.modules]
    packages = dict.fromkeys((*PACKAGES, *of_texts, reference.backend, "onnxruntime"))
    return Manifest(
        model=signature.model.name,
        inputs=tuple(Spec(spec.name, spec.dtype, golden.axes[spec.name]) for spec in signature.inputs),
        outputs=tuple(Spec(name, dtype_name(first[name]), shape) for name, shape in lowered.outputs(golden).items()),
        counts=golden.lengths,
        weights_of=reference.weights_of,
        multiples=golden.multiples,
        static=golden.static,
        opset=opset,
        precision=options.precision,
        layers=_layer_entries(signature, lowered, options, opset),
        backend=reference.backend,
        versions=versions_of(packages),
        lowest_onnxruntime=lowest_onnxruntime(opset, lowered.lowerings.values()),
        parity={"tolerance": dict(options.tolerance), "cases": len(golden.cases)},
        sha256={},  # of what is not all written yet
    )
