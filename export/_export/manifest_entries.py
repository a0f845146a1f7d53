"""Manifest of an exported bundle."""

import logging
import sys

from .._format.manifest import Manifest, Spec
from .._format.names import dtype_name
from .._lowering_names import describe_lowering
from .._onnxruntime_releases import find_lowest_onnxruntime
from .._options import Options
from .._rounding.reference import Reference
from .float32_file import Float32File
from .package_versions import PACKAGES, read_versions

LOGGER = logging.getLogger(__name__)
TEXT_PACKAGES = ("keras-hub", "tensorflow-text")  # if imported; a SavedModel with a tokenizer needs tensorflow-text


def build_manifest(reference: Reference, file: Float32File, options: Options) -> Manifest:
    """Return the manifest of a bundle without hashes, calibration and input values, which later stages compute."""
    lowered, opset = file.lowered, file.opset
    golden, outputs = reference.golden_cases, reference.golden_cases.cases[0].outputs
    layers = lowered.make_manifest_entries(opset)
    for entry in layers:
        LOGGER.debug("%s", describe_lowering(entry))
    text_packages = [name for name in TEXT_PACKAGES if name.replace("-", "_") in sys.modules]
    packages = dict.fromkeys((*PACKAGES, *text_packages, reference.backend, "onnxruntime"))
    return Manifest(
        model=reference.model,
        inputs=reference.inputs,
        outputs=tuple(
            Spec(name, dtype_name(outputs[name]), shape) for name, shape in lowered.name_output_axes(golden).items()
        ),
        counts=golden.counted_axes,
        weights_of=reference.weights_of,
        multiples=golden.multiples,
        static=golden.static,
        opset=opset,
        precision=options.precision,
        layers=layers,
        backend=reference.backend,
        versions=read_versions(packages),
        lowest_onnxruntime=find_lowest_onnxruntime(opset, lowered.lowerings.values()),
        parity={"tolerance": dict(options.tolerance), "cases": len(golden.cases)},
        sha256={},  # some files are not written yet
    )
