"""Bundles on disk: loading, running, verification."""

import hashlib
import itertools
import json
import re

import numpy as np
import onnx
import pytest
from handwritten_bundles import build_manifest
from small_bundle import Dk, alter_manifest, draw_small_inputs, read_manifest, refresh_checksum
from tolerances import assert_identical

import keras_attn
from keras_attn_export import BundleError, InputError, ProviderError, load_bundle, verify_bundle
from keras_attn_export._bundle.first_difference import find_first_difference
from keras_attn_export._format.input_arrays import validate_inputs
from keras_attn_export._format.manifest import Spec
from keras_attn_export._format.names import MODEL, SCHEMA_VERSION
from keras_attn_export._onnx.traced_model import FUNCTION_DOMAIN
from keras_attn_export._onnx.traversal import iter_nodes

SPECS = [
    {"name": "queries", "dtype": "float32", "shape": ["batch", "queries_length", 4]},
    {"name": "keys", "dtype": "float32", "shape": ["batch", "keys_length", 6]},
    {"name": "values", "dtype": "float32", "shape": ["batch", "keys_length", 5]},
    {"name": "valid_lens", "dtype": "int32", "shape": ["batch"]},
]


@pytest.fixture
def loaded_bundle(exported):
    return load_bundle(exported)


def validate_input(dtype, value, shape=("n",)):
    """Return one input after `validate_inputs`."""
    return validate_inputs(build_manifest([Spec("x", dtype, shape)]), {"x": value})["x"]


def test_load_bundle_reads_manifest_and_report(exported, loaded_bundle):
    assert loaded_bundle == load_bundle(str(exported))
    assert loaded_bundle.path == exported
    assert loaded_bundle.manifest == read_manifest(exported)
    assert loaded_bundle.manifest["inputs"] == SPECS
    assert loaded_bundle.report.passed
    assert loaded_bundle.report.saved_model_rows


def test_onnx_file_contains_its_metadata(exported):
    model = onnx.load(exported / MODEL)
    assert (model.producer_name, model.producer_version) == ("keras-attn", keras_attn.__version__)
    assert (model.domain, model.graph.name) == (FUNCTION_DOMAIN, "small")
    counts = "How many positions of the axis `keys_length` take part."
    weights = "The weights of the attention layer `attention`, queries by keys."
    meanings = {"valid_lens": counts, "weights": weights}
    values = (*model.graph.input, *model.graph.output)
    assert {value.name: value.doc_string for value in values if value.doc_string} == meanings
    metadata = {prop.key: prop.value for prop in model.metadata_props}
    cases = hashlib.sha256((exported / "parity" / "cases.npz").read_bytes()).hexdigest()
    assert metadata == {
        "model": "small",
        "precision": "float32",
        "bundle_schema": str(SCHEMA_VERSION),
        "meanings": json.dumps(meanings),
        "sha256:parity/cases.npz": cases,
    }


@pytest.mark.slow
def test_bundle_of_an_earlier_release_is_read(bundle, loaded_bundle):
    """Earlier files have another domain for attention, numbered names of tf2onnx, and no metadata."""
    model = onnx.load(bundle / MODEL)
    nodes = [*iter_nodes(model.graph), *(node for function in model.functions for node in iter_nodes(function))]
    imports = [model.opset_import, *(function.opset_import for function in model.functions)]
    parts = [part for part in itertools.chain(nodes, model.functions, *imports) if part.domain == FUNCTION_DOMAIN]
    assert len(parts) > 2
    for part in parts:
        part.domain = "keras_attn"
    numbered_names = {name: f"{name}__{number}" for number, name in enumerate(node.name for node in model.graph.node)}
    for node in model.graph.node:
        node.name = numbered_names[node.name]
        node.input[:] = [numbered_names.get(name, name) for name in node.input]
        node.output[:] = [numbered_names.get(name, name) for name in node.output]
    del model.metadata_props[:]
    model.producer_name, model.producer_version, model.graph.name = "keras-attn", "1.17.0 None", "tf2onnx"
    onnx.save(model, bundle / MODEL)
    refresh_checksum(bundle, MODEL)
    assert verify_bundle(bundle).passed
    earlier_bundle = load_bundle(bundle)
    for name, array in loaded_bundle.run(draw_small_inputs()).items():
        assert_identical(earlier_bundle.run(draw_small_inputs())[name], array)
    assert find_first_difference(earlier_bundle, ["base"], {"relative": 0, "absolute": 0}).first is None


def test_bundle_of_a_decoder_in_steps_is_refused(bundle):
    hashes = {f"{part}/{name}": "0" for part in ("encoder", "step") for name in ("manifest.json", MODEL)}
    alter_manifest(bundle, kind="decoder in steps", sha256=hashes)
    with pytest.raises(
        BundleError,
        match=r"removed format `decoder in steps`, .* Load .*encoder and .*step; docs/whole-answers",
    ):
        load_bundle(bundle)


def test_damaged_report_is_refused(bundle):
    file = bundle / "parity" / "report.json"
    invalid_coverage = {"cases": 9, "refused": 0, "axes": [], "inputs": 1, "outputs": {}}
    coverages = [json.dumps(json.loads(file.read_text()) | {"coverage": value}) for value in ({}, invalid_coverage)]
    for text in ("{", "{}", '{"rows": [{}], "saved_model_rows": []}', *coverages):
        file.write_text(text)
        refresh_checksum(bundle, "parity/report.json")
        with pytest.raises(BundleError, match=r"report\.json is not a parity report: (it|`\w+|Expecting)"):
            verify_bundle(bundle)
    loaded_bundle = load_bundle(bundle)
    file.unlink()
    with pytest.raises(BundleError, match=r"Cannot read .*report\.json: No such file"):
        loaded_bundle.report  # noqa: B018 - the property reads the file


def test_run_converts_widths_lists_and_orders(loaded_bundle):
    inputs = draw_small_inputs()
    expected = loaded_bundle.run(inputs)
    wide_arrays = {name: array.astype("int64" if name == "valid_lens" else "float64") for name, array in inputs.items()}
    lists = {name: array.tolist() for name, array in inputs.items()}
    fortran_arrays = {name: np.asfortranarray(array) for name, array in inputs.items()}
    for variant in (wide_arrays, lists, fortran_arrays):
        for name, output in loaded_bundle.run(variant).items():
            assert_identical(output, expected[name])


EXPECTED_NAMES = "The model takes ['queries', 'keys', 'values', 'valid_lens']."
INVALID_INPUTS = {  # changed inputs (`...` removes one), message
    "one is missing": ({"keys": ...}, f"Inputs ['keys'] are missing. {EXPECTED_NAMES}"),
    "unknown": ({"mask": [True], "lens": [1.0]}, f"Inputs ['mask', 'lens'] are unknown. {EXPECTED_NAMES}"),
    "rank": ({"valid_lens": [[1], [2]]}, "Input `valid_lens` must have shape ('batch',). Received: (2, 1)."),
    "size": (
        {"keys": np.zeros((2, 7, 9))},
        "Input `keys` must have shape ('batch', 'keys_length', 6), where 6 is fixed. Received: (2, 7, 9).",
    ),
    "keys and values": ({"values": np.ones((2, 8, 5))}, "`keys_length` is 7 in input `keys`. Received: (2, 8, 5)"),
    "batches": ({"keys": np.ones((3, 7, Dk))}, "where `batch` is 2 in input `queries`. Received: (3, 7, 6)"),
}


@pytest.mark.parametrize(("changes", "message"), INVALID_INPUTS.values(), ids=INVALID_INPUTS)
def test_run_refuses_wrong_inputs(loaded_bundle, changes, message):
    loaded_bundle.run(draw_small_inputs())  # the bundle now skips the checks for inputs of these dtypes and shapes
    inputs = {name: value for name, value in (draw_small_inputs() | changes).items() if value is not ...}
    with pytest.raises(InputError, match=re.escape(message)):
        loaded_bundle.run(inputs)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int32", np.array([1, -5], "int64")),
        ("float32", np.array([1, 2**24], "int64")),
        ("float32", np.array([1.5, np.nan, np.inf, -np.inf])),
        ("float16", np.array([65504.0])),
        ("bool", np.array([True, False])),
        ("float32", np.array([1.5], ">f8")),
    ],
)
def test_inputs_are_converted_if_values_stay(dtype, value):
    result = validate_input(dtype, value)
    assert result.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(result, value)
    assert_identical(validate_input("float32", [0.1]), np.array([0.1], "float32"))  # rounding is no error


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        ("int32", np.array([2**31]), "holds integers that do not fit int32"),
        ("int64", np.array([2**64 - 1], "uint64"), "holds integers that do not fit int64"),
        ("float32", np.array([2**24 + 1]), "holds integers that do not fit float32"),
        ("float32", np.array([1.0, 1e300]), "holds numbers that are infinite in float32"),
        ("bool", [0, 1], "must be of dtype bool"),
        ("int32", [1.0], "must be of dtype int32"),
        ("float32", [1j], "must be of dtype float32"),
    ],
)
def test_inputs_are_refused_if_conversion_changes_values(dtype, value, message):
    with pytest.raises(InputError, match=f"Input `x` {message}"):
        validate_input(dtype, value)


def test_axis_named_twice_has_one_size_and_inputs_keep_the_order_of_the_manifest():
    assert validate_input("float32", np.zeros((3, 3)), ("n", "n")).shape == (3, 3)
    with pytest.raises(InputError, match="`n` is 3 in input `x`"):
        validate_input("float32", np.zeros((3, 4)), ("n", "n"))
    inputs = dict(reversed(draw_small_inputs().items()))
    assert list(validate_inputs(build_manifest(map(Spec.from_dict, SPECS)), inputs)) == list(draw_small_inputs())


def test_session_is_opened_once_for_equal_options(exported, loaded_bundle):
    assert loaded_bundle.session() is loaded_bundle.session("cpu")
    assert loaded_bundle.session() is not load_bundle(exported).session()
    assert loaded_bundle.session().get_providers() == ["CPUExecutionProvider"]
    with pytest.raises(ProviderError, match="Received: 'tpu'"):
        loaded_bundle.session("tpu")
    inputs, config = draw_small_inputs(), {"session.intra_op.allow_spinning": "0"}
    session = loaded_bundle.session(threads=1, config=config, enable_cpu_mem_arena=False)
    options = session.get_session_options()
    assert (options.intra_op_num_threads, options.enable_cpu_mem_arena) == (1, False)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.log_severity_level == 4
    assert session is loaded_bundle.session(config=config, enable_cpu_mem_arena=False, threads=1)
    assert session is not loaded_bundle.session()
    for actual, expected in zip(session.run(None, inputs), loaded_bundle.session().run(None, inputs), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"thread": 1}, r"\['thread'\] are unknown.*'intra_op_num_threads'"),
        ({"threads": "two"}, "`intra_op_num_threads` has a value of the wrong type: 'two'"),
        ({"config": {"session.intra_op.allow_spinning": 0}}, "strings to strings"),
        ({"config": ["session.intra_op.allow_spinning"]}, "must be a mapping"),
    ],
)
def test_unknown_session_options_are_refused(loaded_bundle, options, match):
    with pytest.raises(InputError, match=match):
        loaded_bundle.session(**options)


def test_verify_bundle_repeats_the_comparisons_of_the_export(exported, loaded_bundle):
    report = verify_bundle(exported)
    assert report.passed
    assert report.warnings == loaded_bundle.report.warnings == ()
    assert report.coverage == loaded_bundle.report.coverage
    assert (report.provider, report.saved_model_rows) == ("cpu", ())
    assert [(row.name, row.case, row.shape) for row in report.rows] == [
        (row.name, row.case, row.shape) for row in loaded_bundle.report.rows
    ]
