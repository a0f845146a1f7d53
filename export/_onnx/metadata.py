"""Metadata of an ONNX file: producer, model name, meanings of inputs and outputs, hashes."""

import json
from pathlib import Path

import onnx

from .._format.files import sha256
from .._format.manifest import Manifest
from .._format.names import CASES_FILE, MODEL, SCHEMA_VERSION
from .external_data import DATA_FILE
from .graph_edits import filter_in_place
from .traced_model import FUNCTION_DOMAIN
from .traversal import iter_nodes


def write_producer(model: onnx.ModelProto, name: str, precision: str, version: str) -> None:
    """Write this package and its version, the name of the Keras model and the precision into a model, in place."""
    model.producer_name = "keras-attn"
    model.producer_version = version
    model.domain = FUNCTION_DOMAIN
    model.doc_string = ""
    model.graph.name = name
    used_domains = {"", *(node.domain for graph in (model.graph, *model.functions) for node in iter_nodes(graph))}
    # A runtime may reject a file that imports an opset of an unknown domain, even if no node uses the domain
    filter_in_place(model.opset_import, lambda opset: opset.domain in used_domains)
    metadata = {"model": name, "precision": precision, "bundle_schema": str(SCHEMA_VERSION)}
    onnx.helper.set_model_props(model, metadata)


def write_bundle_metadata(folder: Path, manifest: Manifest) -> None:
    """Write the meanings of inputs and outputs, and the hashes of cases and weights, into the ONNX file of a bundle."""
    # Viewers and servers read the file without the manifest. The hash of the file itself is in the manifest only
    path = folder / MODEL
    model = onnx.load(str(path), load_external_data=False)
    for value in (*model.graph.input, *model.graph.output):
        value.doc_string = _meaning(value.name, manifest)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    meanings = {value.name: value.doc_string for value in (*model.graph.input, *model.graph.output) if value.doc_string}
    entries = {"meanings": meanings, "axis_multiples": dict(manifest.multiples)}
    metadata |= {key: json.dumps(entry, sort_keys=True) for key, entry in entries.items() if entry}
    hashed = [file for file in (CASES_FILE, DATA_FILE) if (folder / file).exists()]
    metadata |= {f"sha256:{file}": sha256(folder / file) for file in hashed}
    onnx.helper.set_model_props(model, metadata)
    path.write_bytes(model.SerializeToString())


def _meaning(name: str, manifest: Manifest) -> str:
    """Return the meaning of an input or output, or an empty string."""
    if name in manifest.counts:
        return f"How many positions of the axis `{manifest.counts[name]}` take part."
    if name in manifest.weights_of:
        return f"The weights of the attention layer `{manifest.weights_of[name]}`, queries by keys."
    return ""
