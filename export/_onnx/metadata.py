"""Metadata of an ONNX file: producer, model name, meanings of inputs and outputs, hashes."""

from __future__ import annotations

import json
from pathlib import Path

import onnx

from .._format.files import sha256
from .._format.manifest import Manifest
from .._format.names import CASES, MODEL, SCHEMA_VERSION
from .external_data import DATA
from .graph_edits import keep
from .traced_model import DOMAIN
from .traversal import all_nodes


def describe(model: onnx.ModelProto, name: str, precision: str, version: str) -> None:
    """Let a finished file say, in place, what it holds and what wrote it.

    Args:
        model: The file.
        name: That of the Keras model.
        precision: That of the file.
        version: That of this package.
    """
    model.producer_name, model.producer_version, model.domain = "keras-attn", version, DOMAIN
    model.graph.name, model.doc_string = name, ""
    used = {"", *(node.domain for holder in (model.graph, *model.functions) for node in all_nodes(holder))}
    keep(model.opset_import, lambda opset: opset.domain in used)  # a runtime may refuse one that it does not know
    about = {"model": name, "precision": precision, "bundle_schema": str(SCHEMA_VERSION)}
    onnx.helper.set_model_props(model, about)


def tell(folder: Path, manifest: Manifest) -> None:
    """Let the file of a bundle say what its inputs and outputs mean, and which cases and weights belong to it.

    Programs that show or serve it have it from there, with no manifest beside it. The hash of the file itself cannot be
    in it, and the manifest has that.

    Args:
        folder: The bundle; its file is written anew.
        manifest: What it says of them.
    """
    path = folder / MODEL
    model = onnx.load(str(path), load_external_data=False)
    for value in (*model.graph.input, *model.graph.output):
        value.doc_string = _meaning(value.name, manifest)
    about = {each.key: each.value for each in model.metadata_props}
    meanings = {value.name: value.doc_string for value in (*model.graph.input, *model.graph.output) if value.doc_string}
    told = {"meanings": meanings, "axis_multiples": dict(manifest.multiples)}
    about |= {key: json.dumps(entry, sort_keys=True) for key, entry in told.items() if entry}
    hashed = [file for file in (CASES, DATA) if (folder / file).exists()]
    about |= {f"sha256:{file}": sha256(folder / file) for file in hashed}
    onnx.helper.set_model_props(model, about)
    path.write_bytes(model.SerializeToString())


def _meaning(name: str, manifest: Manifest) -> str:
    """Return in words what an input or output is, where more is known than its shape says."""
    if name in manifest.counts:
        return f"How many positions of the axis `{manifest.counts[name]}` take part."
    if name in manifest.weights_of:
        return f"The weights of the attention layer `{manifest.weights_of[name]}`, queries by keys."
    return ""
