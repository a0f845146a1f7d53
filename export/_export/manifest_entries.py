"""Manifest of an export."""

from __future__ import annotations

import sys
from typing import Any

from keras_attn import AttentionPooling, MaskedSoftmax

from .._format.manifest import Manifest, Spec
from .._format.names import dtype_name
from .._lowering_names import PORTABLE
from .._onnxruntime_releases import lowest_onnxruntime
from .._options import Options
from .._private_api.builtin_attention import is_stock_attention
from .._rounding.reference import Reference
from .._signature.signature import Signature
from .float32_file import Float32File
from .package_versions import PACKAGES, versions_of

OF_TEXTS = ("keras-hub", "tensorflow-text")  # where they are imported; the SavedModel of a tokenizer needs the second


def _reason(layer: Any) -> str:
    """Return why a layer that handed no computation to the exporter is written in plain operators."""
    if isinstance(layer, MaskedSoftmax):
        return "it computes a softmax only"
    if isinstance(layer, AttentionPooling) or is_stock_attention(layer):
        return "no output of the model depends on its attention"
    return "its class is derived from an attention layer of Keras, and may compute attention in another way"


def manifest_of(signature: Signature, reference: Reference, file: Float32File, options: Options) -> Manifest:
    """Return the manifest of a bundle, without what is known only at its end: hashes, calibration, input values."""
    lowered, opset = file.lowered, file.opset
    golden, first = reference.golden, reference.golden.cases[0].outputs
    of_texts = [name for name in OF_TEXTS if name.replace("-", "_") in sys.modules]
    packages = dict.fromkeys((*PACKAGES, *of_texts, reference.backend, "onnxruntime"))
    told = lowered.layers(opset)
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
        layers=[
            {
                "name": layer.path,
                "class": type(layer).__name__,
                "lowering": PORTABLE,
                "form": f"plain operators: {lowered.reasons.get(id(layer)) or _reason(layer)}",
                "precision": options.precision,
                **told.get(id(layer), {}),
            }
            for layer in signature.manifest_layers
        ]
        + [
            {"name": call.layer, "class": "operations", **told[call.owner], "precision": options.precision}
            for call in lowered.written
            if call.owner not in map(id, signature.manifest_layers)
        ],
        backend=reference.backend,
        versions=versions_of(packages),
        lowest_onnxruntime=lowest_onnxruntime(opset, lowered.lowerings.values()),
        parity={"tolerance": dict(options.tolerance), "cases": len(golden.cases)},
        sha256={},  # of what is not all written yet
    )
