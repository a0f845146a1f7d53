"""Manifest of an export."""

import logging
import sys

from .._format.manifest import Manifest, Spec
from .._format.names import dtype_name
from .._lowering_names import describe_lowering
from .._onnxruntime_releases import lowest_onnxruntime
from .._options import Options
from .._rounding.reference import Reference
from .float32_file import Float32File
from .package_versions import PACKAGES, versions_of

LOGGER = logging.getLogger(__name__)
OF_TEXTS = ("keras-hub", "tensorflow-text")  # where they are imported; the SavedModel of a tokenizer needs the second


def manifest_of(reference: Reference, file: Float32File, options: Options) -> Manifest:
    """Return the manifest of a bundle, without what is known only at its end: hashes, calibration, input values."""
    lowered, opset = file.lowered, file.opset
    golden, first = reference.golden, reference.golden.cases[0].outputs
    layers = lowered.manifest_entries(opset)
    for entry in layers:
        LOGGER.debug("%s", describe_lowering(entry))
    of_texts = [name for name in OF_TEXTS if name.replace("-", "_") in sys.modules]
    packages = dict.fromkeys((*PACKAGES, *of_texts, reference.backend, "onnxruntime"))
    return Manifest(
        model=reference.model,
        inputs=reference.inputs,
        outputs=tuple(Spec(name, dtype_name(first[name]), shape) for name, shape in lowered.outputs(golden).items()),
        counts=golden.lengths,
        weights_of=reference.weights_of,
        multiples=golden.multiples,
        static=golden.static,
        opset=opset,
        precision=options.precision,
        layers=layers,
        backend=reference.backend,
        versions=versions_of(packages),
        lowest_onnxruntime=lowest_onnxruntime(opset, lowered.lowerings.values()),
        parity={"tolerance": dict(options.tolerance), "cases": len(golden.cases)},
        sha256={},  # of what is not all written yet
    )
