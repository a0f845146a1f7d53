"""Bundles of hand-written graphs with golden cases, which take milliseconds to write."""

from handwritten_bundles import write_onnx_bundle
from small_bundle import refresh_checksum

from keras_attn_export import load_bundle
from keras_attn_export._format.case_writing import save_cases
from keras_attn_export._format.names import CASES_FILE
from keras_attn_export._format.parity_report import ParityReport


def write_bundle(folder, nodes, inputs, outputs, cases, **entries):
    """Write and load the bundle of a graph in ONNX's text format.

    `inputs` and `outputs` map names to dtypes and shapes; `cases` are `Case`s.
    """
    write_onnx_bundle(folder, nodes, inputs, outputs, **entries)
    save_cases(folder / CASES_FILE, cases)
    refresh_checksum(folder, CASES_FILE)
    bundle = load_bundle(folder)
    bundle.__dict__["report"] = ParityReport("cpu", ())
    return bundle
