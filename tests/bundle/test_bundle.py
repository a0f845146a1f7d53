"""A bundle on disk: loading, running, verifying."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from bundles import Dk, alter_golden_outputs, alter_manifest, read_manifest, reseal, small_inputs
from tolerances import assert_identical

from keras_attn_export import BundleError, InputError, ParityError, ProviderError, load_bundle, verify_bundle
from keras_attn_export._bundle.bundle import checked_inputs
from keras_attn_export._standalone import verify
from keras_attn_export._standalone.verify import MODEL, load_cases

pytest_plugins = ("bundle_fixtures",)

SPECS = [
    {"name": "queries", "dtype": "float32", "shape": ["batch", "queries_length", 4]},
    {"name": "keys", "dtype": "float32", "shape": ["batch", "keys_length", 6]},
    {"name": "values", "dtype": "float32", "shape": ["batch", "keys_length", 5]},
    {"name": "valid_lens", "dtype": "int32", "shape": ["batch"]},
]


@pytest.fixture
def loaded(exported):
    return load_bundle(exported)


def checked(dtype, value, shape=("n",)):
    """Return one input after `checked_inputs`."""
    return checked_inputs({"inputs": [{"name": "x", "dtype": dtype, "shape": list(shape)}]}, {"x": value})["x"]


# -------------------------------------------------------------------- loading


def test_load_bundle(exported, loaded):
    assert loaded == load_bundle(str(exported))
    assert loaded.path == exported
    assert loaded.manifest == read_manifest(exported)
    assert loaded.manifest["inputs"] == SPECS
    assert loaded.report.passed
    assert loaded.report.saved_model_rows


@pytest.mark.parametrize("open_it", [load_bundle, verify_bundle])
def test_a_decoder_in_steps_is_no_longer_read(bundle, open_it):
    hashes = {f"{part}/{name}": "0" for part in ("encoder", "step") for name in ("manifest.json", MODEL)}
    alter_manifest(bundle, kind="decoder in steps", sha256=hashes)
    with pytest.raises(BundleError, match=r"is a decoder in steps, .* Load .*encoder and .*step; docs/whole-answers"):
        open_it(bundle)


def test_a_report_that_cannot_be_read(bundle):
    file = bundle / "parity" / "report.json"
    told = json.loads(file.read_text())
    senseless = ([], {}, {"cases": 9}, {"cases": 9, "refused": 0, "axes": [], "inputs": 1, "outputs": {}})
    texts = (
        "{",
        "[]",
        "{}",
        '{"rows": [{}], "saved_model_rows": []}',
        *(json.dumps(told | {"coverage": each}) for each in senseless),
    )
    for text in texts:
        file.write_text(text)
        reseal(bundle, "parity/report.json")
        with pytest.raises(BundleError, match=r"report\.json is not a parity report \(\w+\)"):
            verify_bundle(bundle)
    loaded = load_bundle(bundle)
    file.unlink()
    with pytest.raises(BundleError, match=r"report\.json is not a parity report \(FileNotFoundError\)"):
        loaded.report  # noqa: B018 - reading it is what fails


def test_a_replay_has_the_coverage_of_the_export(exported, bundle, loaded):
    report = verify_bundle(exported)
    assert report.warnings == loaded.report.warnings == ()
    assert report.coverage == loaded.report.coverage
    told = json.loads((bundle / "parity/report.json").read_text())
    told["coverage"]["outputs"] = {"context": {"varies": False}}
    (bundle / "parity/report.json").write_text(json.dumps(told))
    reseal(bundle, "parity/report.json")
    assert verify_bundle(bundle).warnings == (
        "Output `context` is the same whatever goes in, so that its match proves little.",
    )


# -------------------------------------------------------------------- running


def test_run_gives_keras_outputs(exported, loaded):
    for _, inputs, outputs, _ in load_cases(exported / "parity" / "cases.npz"):
        got = loaded.run(inputs)
        assert list(got) == ["context", "weights"]
        for name, expected in outputs.items():
            largest = np.abs(expected).max()  # a small number is a sum of large ones
            np.testing.assert_allclose(got[name], expected, rtol=1e-5, atol=1e-6 * max(1, largest), strict=True)


def test_run_takes_other_widths_and_lists(loaded):
    inputs = small_inputs()
    wanted = loaded.run(inputs)
    wide = {name: array.astype("int64" if name == "valid_lens" else "float64") for name, array in inputs.items()}
    lists = {name: array.tolist() for name, array in inputs.items()}
    turned = {name: np.asfortranarray(array) for name, array in inputs.items()}
    for other in (wide, lists, turned):
        for name, output in loaded.run(other).items():
            assert_identical(output, wanted[name])


TAKES = "The model takes ['queries', 'keys', 'values', 'valid_lens']."
WRONG_INPUTS = {  # what is changed (`...` removes an input), and what is said
    "one is missing": ({"keys": ...}, f"Inputs ['keys'] are missing. {TAKES}"),
    "two are missing": ({"queries": ..., "valid_lens": ...}, f"Inputs ['queries', 'valid_lens'] are missing. {TAKES}"),
    "unknown": ({"mask": [True], "lens": [1.0]}, f"Inputs ['mask', 'lens'] are unknown. {TAKES}"),
    **{
        f"{name} of {dtype}": (
            {name: small_inputs()[name].astype(dtype)},
            f"Input `{name}` must be of dtype {wanted}. Received: {small_inputs()[name].astype(dtype).dtype}.",
        )
        for name, dtype, wanted in (
            ("valid_lens", "float32", "int32"),
            ("valid_lens", "str", "int32"),
            ("keys", "complex64", "float32"),
            ("keys", "object", "float32"),
        )
    },
    "rank": ({"valid_lens": [[1], [2]]}, "Input `valid_lens` must have shape ('batch',). Received: (2, 1)."),
    "size": (
        {"keys": np.zeros((2, 7, 9))},
        "Input `keys` must have shape ('batch', 'keys_length', 6), where 6 is fixed. Received: (2, 7, 9).",
    ),
    "keys and values": (
        {"values": np.ones((2, 8, 5))},
        "`keys_length` is 7 in input `keys`. Received: (2, 8, 5)",
    ),
    "batches": ({"keys": np.ones((3, 7, Dk))}, "where `batch` is 2 in input `queries`. Received: (3, 7, 6)"),
    "batch of lengths": ({"valid_lens": [1]}, "where `batch` is 2 in input `queries`. Received: (1,)"),
    "lists of unequal lengths": (
        {"queries": [[[1.0] * 4], [[1.0] * 4, [2.0] * 4]]},
        "Input `queries` must be one array: ",
    ),
}


@pytest.mark.parametrize(("changed", "said"), WRONG_INPUTS.values(), ids=WRONG_INPUTS)
def test_wrong_inputs(loaded, changed, said):
    inputs = {name: value for name, value in (small_inputs() | changed).items() if value is not ...}
    with pytest.raises(InputError, match=re.escape(said)):
        loaded.run(inputs)


def test_a_size_that_is_no_multiple(bundle, monkeypatch):
    alter_manifest(bundle, multiples={"keys_length": 3})
    loaded = load_bundle(bundle)
    for Tq, Tk in ((4, 6), (1, 9), (3, 3)):
        assert loaded.run(small_inputs(Tq=Tq, Tk=Tk))["weights"].shape == (2, Tq, Tk)
    monkeypatch.setattr(verify, "run_session", lambda *_: pytest.fail("onnxruntime was asked"))
    said = (
        "Input `keys` must have shape ('batch', 'keys_length', 6), where `keys_length` is a multiple of 3. Received: "
    )
    with pytest.raises(InputError, match=re.escape(f"{said}(2, 7, 6).")):
        loaded.run(small_inputs(Tk=7))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int32", np.array([1, -5], "int64")),
        ("int32", np.array([1], "uint8")),
        ("int64", np.array([7], "uint64")),
        ("float32", np.array([1, 2**24], "int64")),
        ("float32", np.array([1.5, np.nan, np.inf, -np.inf])),
        ("float16", np.array([65504.0])),
        ("float64", np.array([1.5], "float32")),
        ("bool", np.array([True, False])),
        ("float32", np.array([1.5], ">f8")),
    ],
)
def test_conversions_that_keep_the_values(dtype, value):
    converted = checked(dtype, value)
    assert converted.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(converted, value)
    assert_identical(checked("float32", [0.1]), np.array([0.1], "float32"))  # rounding is no error


@pytest.mark.parametrize(
    ("dtype", "value", "said"),
    [
        ("int32", np.array([2**31]), "holds integers that do not fit int32"),
        ("int32", np.array([-(2**31) - 1]), "holds integers that do not fit int32"),
        ("int8", np.array([1, 200]), "holds integers that do not fit int8"),
        ("int64", np.array([2**64 - 1], "uint64"), "holds integers that do not fit int64"),
        ("float32", np.array([2**24 + 1]), "holds integers that do not fit float32"),
        ("float32", np.array([1.0, 1e300]), "holds numbers that are infinite in float32"),
        ("float16", np.array([-70000.0], "float32"), "holds numbers that are infinite in float16"),
        ("bool", [0, 1], "must be of dtype bool"),
        ("int32", [1.0], "must be of dtype int32"),
        ("uint8", [-1], "must be of dtype uint8"),
        ("float32", [1j], "must be of dtype float32"),
    ],
)
def test_conversions_that_would_change_values(dtype, value, said):
    with pytest.raises(InputError, match=f"Input `x` {said}"):
        checked(dtype, value)


def test_one_name_twice_in_one_input_and_the_order_of_the_manifest():
    assert checked("float32", np.zeros((3, 3)), ("n", "n")).shape == (3, 3)
    with pytest.raises(InputError, match="`n` is 3 in input `x`"):
        checked("float32", np.zeros((3, 4)), ("n", "n"))
    shuffled = dict(reversed(small_inputs().items()))
    assert list(checked_inputs({"inputs": SPECS}, shuffled)) == ["queries", "keys", "values", "valid_lens"]


def test_a_session_is_opened_once_for_its_options(exported, loaded):
    assert loaded.session() is loaded.session("cpu")
    assert loaded.session() is not load_bundle(exported).session()
    assert loaded.session().get_providers() == ["CPUExecutionProvider"]
    with pytest.raises(ProviderError, match="Received: 'tpu'"):
        loaded.session("tpu")
    inputs, entry = small_inputs(), {"session.intra_op.allow_spinning": "0"}
    session = loaded.session(threads=1, config=entry, enable_cpu_mem_arena=False)
    options = session.get_session_options()
    assert (options.intra_op_num_threads, options.enable_cpu_mem_arena) == (1, False)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.log_severity_level == 4
    assert session is loaded.session(config=entry, enable_cpu_mem_arena=False, threads=1)
    assert session is not loaded.session(threads=1, enable_cpu_mem_arena=False)
    assert session is not loaded.session()
    assert loaded.session(log_severity_level=3).get_session_options().log_severity_level == 3
    for actual, expected in zip(session.run(None, inputs), loaded.session().run(None, inputs), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"thread": 1}, r"\['thread'\] are unknown.*'intra_op_num_threads'"),
        ({"add_session_config_entry": 1}, "are unknown"),
        ({"threads": "two"}, "`intra_op_num_threads` does not take 'two'"),
        ({"config": {"session.intra_op.allow_spinning": 0}}, "strings to strings"),
        ({"config": ["session.intra_op.allow_spinning"]}, "must be a mapping"),
        ({"config": {"k" * 2000: "0"}}, "does not take"),
    ],
)
def test_options_that_sessions_have_not(loaded, asked, match):
    with pytest.raises(InputError, match=match):
        loaded.session(**asked)


def test_running_from_several_threads(loaded):
    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(lambda _: loaded.run(small_inputs())["context"], range(4))
    for result in others:
        assert_identical(result, first)


def test_a_model_that_onnxruntime_cannot_load(bundle):
    (bundle / MODEL).write_bytes(b"\x08\x08")  # an ONNX file with an ir version and nothing else
    reseal(bundle, MODEL)
    with pytest.raises(BundleError, match=r"cannot load .*model\.onnx"):
        load_bundle(bundle).run(small_inputs())


# ------------------------------------------------------------------ verifying


def test_verify_bundle(exported, loaded):
    report = verify_bundle(exported)
    assert report.passed
    assert (report.provider, report.saved_model_rows) == ("cpu", ())
    assert [(row.name, row.case, row.shape) for row in report.rows] == [
        (row.name, row.case, row.shape) for row in loaded.report.rows
    ]


def test_verify_bundle_shows_altered_golden_outputs(bundle):
    alter_golden_outputs(bundle)
    said = "ONNX output `context` is outside the tolerance in case `axes apart`"
    with pytest.raises(ParityError, match=said) as caught:
        verify_bundle(bundle)
    assert [(row.name, row.case) for row in caught.value.report.rows if not row.passed] == [("context", "axes apart")]
    assert len(caught.value.report.rows) == 2 * read_manifest(bundle)["parity"]["cases"]
