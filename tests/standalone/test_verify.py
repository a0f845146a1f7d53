"""`verify.py`, in the package and as the `verify.py` that travels with a bundle."""

import itertools
import json
import re
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnxruntime
import pytest
from bundles import PACKAGES, alter_golden_outputs, assert_one_line, flip_byte, python, read_manifest, small_inputs
from onnx_bundles import onnx_bundle

from keras_attn_export import BundleError, ExportError, ProviderError
from keras_attn_export._standalone import verify
from keras_attn_export._standalone.verify import CASES, MODEL, Case

TOLERANCE = {"relative": 1e-5, "absolute": 1e-6}
HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
needs_no_cuda = pytest.mark.skipif(
    HAS_CUDA, reason="shows what an onnxruntime without CUDA says; .ci/run installs [runtime]"
)


def floats(*values, dtype="float32"):
    return np.array(values, dtype)


def compare(case, expected, actual, tolerance, rounding=MappingProxyType({})):
    return verify.compare(Case(case, {}, expected, rounding), actual, tolerance)


ODD = (np.nan, np.inf, -np.inf)


def one_more_in_front(array):
    """Return another array, with 1 added to its first row."""
    other = array.copy()
    other[0] += other.dtype.type(1)
    return other


def test_row_describes_one_comparison():
    (row,) = compare("keys 17", {"out": floats([2, 4, -8])}, {"out": floats([2, 4.5, -8])}, TOLERANCE)
    assert row == {
        "name": "out",
        "case": "keys 17",
        "shape": [1, 3],
        "dtype": "float32",
        "max_abs": 0.5,
        "max_rel": 0.5 / 4,
        "of_limit": 0.5 / 4e-5,
        "ties": 0,
        "tolerance": TOLERANCE,
        "passed": False,
        "problem": "is outside the tolerance",
    }


def test_all_problems_of_a_case_are_rows():
    expected = {"gone": floats(1), "shape": floats(1, 2), "dtype": floats(1), "value": floats(1), "good": floats(1)}
    actual = {
        "extra": np.array([1]),
        "shape": floats(1),
        "dtype": floats(1, dtype="float64"),
        "value": floats(2),
        "good": floats(1),
    }
    assert {row["name"]: row["problem"] for row in compare("base", expected, actual, TOLERANCE)} == {
        "gone": "is missing",
        "shape": "has shape (1,), expected (2,)",
        "dtype": "has dtype float64, expected float32",
        "value": "is outside the tolerance",
        "good": None,
        "extra": "was not expected",
    }


OUTSIDE, ELSEWHERE = "is outside the tolerance", "has NaN or infinity in other places than expected"
WIDE = {"relative": 1, "absolute": 9}
INTEGERS = np.array([[1, 2], [3, 4]], "int32"), np.array([[2**62, 1], [0, 5]]), np.zeros((2, 2), bool)
JUDGED = [  # expected, actual, tolerance, what is said
    *(  # either tolerance is enough: the difference is 5e-3, and 5e-4 of 10
        (floats(10, 1, dtype="float64"), floats(10, 1.005, dtype="float64"), dict(relative=r, absolute=a), said)
        for r, a, said in ((1e-3, 1e-2, None), (1e-3, 1e-4, None), (1e-5, 1e-2, None), (1e-5, 1e-4, OUTSIDE))
    ),
    (floats(1), floats(1.5), {"relative": 0.5, "absolute": 0}, None),  # exactly the tolerance
    (floats(0, 0), floats(0, 1e-3), TOLERANCE, OUTSIDE),
    *((floats(1, odd, 2), floats(1, odd, 2), TOLERANCE, None) for odd in ODD),
    *((floats(1, odd, 2), floats(1, odd, 3), TOLERANCE, OUTSIDE) for odd in ODD),
    *(
        (floats(1, one), floats(1, other), TOLERANCE, ELSEWHERE)
        for one, other in itertools.permutations((1.0, *ODD), 2)
    ),
    *((expected, expected.copy(), WIDE, None) for expected in INTEGERS),
    # two places, each within the tolerances that floats would have
    *((expected, one_more_in_front(expected), WIDE, "differs in 2 of 4 places") for expected in INTEGERS),
    (np.zeros((0, 3), "float32"), np.zeros((0, 3), "float32"), TOLERANCE, None),
    (np.float32(2), np.float32(3), TOLERANCE, OUTSIDE),
]


def test_outputs_pass_within_either_tolerance():
    for expected, actual, tolerance, said in JUDGED:
        (row,) = compare("base", {"out": expected}, {"out": actual}, tolerance)
        assert (row["problem"], row["passed"]) == (said, said is None), (expected, actual)
        assert said != OUTSIDE or expected.any() or row["max_rel"] == float("inf")


def test_half_precision_is_compared_in_double():
    expected, actual = floats(60000, dtype="float16"), floats(-60000, dtype="float16")
    (row,) = compare("base", {"out": expected}, {"out": actual}, TOLERANCE)
    assert row["max_abs"] == 2 * float(expected[0])  # infinite in float16


FILLS = (-1e9, -3.4e38, -1e4, -np.inf, np.inf)
SCALES = [  # an array, and the scale of each of its numbers; `...` where that of a fill says nothing
    (  # a large number elsewhere has no say: the smaller of row and channel
        [[1e6, 0.5, 0.001], [2e6, 0.25, 0.002], [1e-3, 1e-4, 1e-5]],
        [[1e6, 0.5, 0.002], [2e6, 0.5, 0.002], [1e-3, 1e-3, 1e-3]],
    ),
    *(
        ([[1.0, fill, 0.1], [fill, 2.0, 0.2], [fill, fill, 0.3]], [[1.0, ..., 0.3], [..., 2.0, 0.3], [..., ..., 0.3]])
        for fill in FILLS
    ),
    (  # fills to which scores were added
        [[0.5, -1e9 + 300], [0.25, 4.0], [-1e9 - 80, -1e9]],
        [[0.5, ...], [0.5, ...], [..., ...]],
    ),
    ([[3.0], [-2.0], [0.001]], [[3.0], [3.0], [3.0]]),  # a row of one number is seen against its channel
    ([3.0, -2.0], [3.0, 3.0]),  # one axis is that of the batch
    (-2.0, 2.0),
]


@pytest.mark.parametrize(("array", "scale"), SCALES)
def test_scale_of_a_number_is_the_smaller_of_row_and_channel(array, scale):
    found = verify.scale_of(np.array(array))
    wanted = np.array(scale, object)
    assert found[wanted != ...].tolist() == wanted[wanted != ...].tolist()


def test_large_results_are_not_taken_for_fills():
    for results in np.array([[3e4, 5e4], [1e5, 2e4]]), np.array([100.0, 100.0, 100.0]):
        assert verify.without_fills(results).tolist() == results.tolist()


def test_rounding_widens_the_limit_and_cuda_does_by_four():
    expected, rounding = floats([1, 1, 1]), {"out": np.array([[1e-3, 0, 1e-3]])}
    none = {"relative": 0.0, "absolute": 0.0}
    for actual, passed in ([1.0009, 1, 1], True), ([1, 1.0009, 1], False), ([1, 1, 1.002], False):
        (row,) = compare("base", {"out": expected}, {"out": floats(actual)}, none, rounding)
        assert row["passed"] is passed
    assert row["of_limit"] == pytest.approx(2, rel=1e-3)
    case = Case("base", {}, {"out": expected}, rounding)
    (row,) = verify.compare(case, {"out": floats(actual)}, none, verify.PROVIDERS["cuda"].lenience)
    assert row["of_limit"] == pytest.approx(0.5, rel=1e-3)
    assert verify.PROVIDERS["cpu"].lenience == 1


def test_integers_may_differ_where_rounding_decides():
    expected, tied = np.array([1, 2, 3]), {"out": np.array([False, True, True])}
    (row,) = compare("base", {"out": expected}, {"out": np.array([1, 7, 3])}, TOLERANCE, tied)
    assert row["passed"]
    assert row["ties"] == 1
    assert "ok (1 decided by rounding)" in verify.format_rows([row])[1]
    (row,) = compare("base", {"out": expected}, {"out": np.array([0, 7, 3])}, TOLERANCE, tied)
    assert row["problem"] == "differs in 1 of 3 places"


def test_rounding_is_saved_without_loss_of_its_bound(tmp_path):
    sizes = np.array([[0, 1e-31, 1e-7], [3e-5, 0.5, 700.0]])
    outputs = {"out": np.ones((2, 3), "float32"), "top": np.ones(2, int)}
    rounding = {"out": sizes, "top": np.array([True, False])}
    verify.save_cases(tmp_path / "cases.npz", [Case("base", {}, outputs, rounding)])
    (read,) = verify.load_cases(tmp_path / "cases.npz")
    assert read.rounding["out"][0, 0] == 0
    share = read.rounding["out"].reshape(-1)[1:] / sizes.reshape(-1)[1:]
    assert np.all((share >= 1 - 1e-12) & (share < 1.4143))
    assert read.rounding["top"].tolist() == [True, False]


def test_golden_cases_are_equal_after_saving_and_loading(tmp_path):
    inputs = {
        "flag": np.array([True, False]),
        "long": np.array(2**62),
        "half": floats(1, np.nan, dtype="float16"),
        "empty": np.zeros((0, 3), "float32"),
        "by column": np.zeros((2, 3), order="F"),
        "file": np.array([[1]], "int8"),
    }
    names = ("block/attention", "0/inputs/flag", "weights.npy", "Größe, x y", "cases", "")
    outputs = {name: floats(number) for number, name in enumerate(names)}
    cases = [Case(f"case {index} 長さ", {**inputs, "index": np.array(index)}, outputs) for index in range(12)]
    verify.save_cases(tmp_path / "cases.npz", cases)
    read = verify.load_cases(tmp_path / "cases.npz")
    assert [case.name for case in read] == [case.name for case in cases]
    for (_, *wanted), (_, *got) in zip(cases, read, strict=True):
        for want, have in zip(wanted, got, strict=True):
            assert list(have) == list(want)
            for name, array in want.items():
                np.testing.assert_array_equal(have[name], array, strict=True)


NO_CASES = {
    "none": (lambda file: verify.save_cases(file, []), "holds no golden case"),
    "rounding": (
        lambda file: verify.save_cases(file, [Case("base", {}, {"out": np.ones((2, 3))}, {"out": np.ones(3)})]),
        "its rounding does not fit the outputs",
    ),
    "pickled": (lambda file: np.savez(file, cases=np.array([{}], object)), "is not a file of golden cases"),
    "text": (lambda file: file.write_bytes(b"text"), "is not a file of golden cases .*it is no zip archive"),
}


@pytest.mark.parametrize(("make", "said"), NO_CASES.values(), ids=NO_CASES)
def test_other_files_than_golden_cases_are_refused(tmp_path, make, said):
    make(tmp_path / "cases.npz")
    with pytest.raises(BundleError, match=said):
        verify.load_cases(tmp_path / "cases.npz")


@needs_no_cuda
def test_absent_providers_are_refused_with_the_package_to_install():
    assert verify.check_provider("cpu") is onnxruntime
    here = ", ".join(onnxruntime.get_available_providers())
    with pytest.raises(ProviderError) as error:
        verify.check_provider("tpu")
    said = str(error.value)
    assert said.startswith("`provider` must be one of cpu, cuda, openvino, tensorrt, directml, coreml, webgpu, ")
    assert said.endswith(f"Received: 'tpu'. The onnxruntime that is installed has {here}.")
    with pytest.raises(
        ProviderError, match=r"has no CUDAExecutionProvider, only .*CPU.* and install another: .*keras-attn\[gpu\]"
    ):
        verify.check_provider("cuda")
    with pytest.raises(ProviderError, match=r"has no DmlEx\w+, only .*CPU.* install another: onnxruntime-directml"):
        verify.check_provider("DmlExecutionProvider")


def test_every_provider_of_onnxruntime_has_a_short_name():
    """Azure's computes nothing: it asks a service. The others left out are gone from later releases than 1.19."""
    known = {each.name: name for name, each in verify.PROVIDERS.items()}
    left_out = {f"{name}ExecutionProvider" for name in ("Azure", "ROCM", "ArmNN", "ACL", "Tvm")}
    assert {*known} >= {*onnxruntime.get_all_providers()} - left_out
    assert all(verify.short_name(each) == name == verify.short_name(name) for each, name in known.items())
    assert [name for name, each in verify.PROVIDERS.items() if each.seen] == ["cpu", "cuda", "openvino"]


def test_session_gets_the_options_of_its_provider(exported, monkeypatch):
    told = {}

    def session(file, options, **more):
        told.update(more, pattern=options.enable_mem_pattern)
        return types.SimpleNamespace(get_providers=lambda: [more["providers"][0]])

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [p.name for p in verify.PROVIDERS.values()])
    for name, options, pattern in (
        ("openvino", {"device_type": "CPU", "precision": "FP32"}, True),
        ("CoreMLExecutionProvider", {"ModelFormat": "MLProgram", "MLComputeUnits": "CPUAndGPU"}, True),
        ("directml", {}, False),
    ):
        verify.open_session(exported / MODEL, name)
        assert (told["provider_options"], told["pattern"]) == ([options], pattern)
        assert told["providers"] == [verify.provider_of(name).name]


NO_DEVICE = "CUDA failure 100: no CUDA-capable device is detected"
FAILURES = {  # provider, error of onnxruntime, error of the package
    "loop": (
        "openvino",
        "/ov.cc:28 auto f(A&&) [OpenVINO-EP] Reading network:\n Tanh_4 node not found in graph cache\n",
        (BundleError, r"cannot load \S+: [^/]*loads no `Loop`"),
    ),
    "operator": (
        "openvino",
        "No Op registered for X",
        (BundleError, r"cannot load \S+: [^/]*Was it exported with `provider='openvino'`\?"),
    ),
    "no device": (
        "cuda",
        f"/src/cuda_call.cc:154 CudaCall(ERRTYPE) [with int] {NO_DEVICE} ; GPU=-1 ; hostname=mine\nmore",
        (ProviderError, rf"onnxruntime [\d.]+ cannot use CPU\w+: {re.escape(NO_DEVICE)}$"),
    ),
}


@pytest.mark.parametrize(("provider", "said", "expected"), FAILURES.values(), ids=FAILURES)
def test_session_that_fails_names_the_remedy_of_its_provider(provider, said, expected, exported, monkeypatch):
    def session(*arguments, **options):
        raise RuntimeError(said)

    error, match = expected
    as_cpu = verify.PROVIDERS[provider]._replace(name="CPUExecutionProvider")  # which is there
    monkeypatch.setitem(verify.PROVIDERS, provider, as_cpu)
    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    with pytest.raises(error, match=match):
        verify.open_session(exported / MODEL, provider)
    with pytest.raises(BundleError, match=r"cannot load \S+: [^?`]*$"):
        verify.open_session(exported / MODEL, "cpu")


def test_missing_or_broken_onnxruntime_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ProviderError, match=r"^onnxruntime cannot be imported \(.*\[runtime\].*\[gpu\]"):
        verify.check_provider("cpu")
    monkeypatch.setitem(sys.modules, "onnxruntime", types.ModuleType("onnxruntime"))
    with pytest.raises(ProviderError, match=r"onnxruntime is broken.*Uninstall both"):
        verify.check_provider("cpu")


def test_session_that_falls_back_to_the_cpu_is_an_error(monkeypatch, exported, capsys):
    class Fallback(types.ModuleType):
        SessionOptions = onnxruntime.SessionOptions
        cuda_version = "13.0"

        def get_available_providers(self):
            return ["CUDAExecutionProvider", "CPUExecutionProvider"]

        def preload_dlls(self):
            print("Failed to load libcudnn.so.9\nand more")

        def InferenceSession(self, model, options, **given):  # noqa: N802 - onnxruntime's name
            cuda = {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}
            wanted = {"providers": ["CUDAExecutionProvider"], "provider_options": [cuda], "enable_fallback": False}
            assert given == wanted
            return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    monkeypatch.setitem(sys.modules, "onnxruntime", Fallback("onnxruntime"))
    said = r"fell back to CPU\w+ although CUDA\w+ was asked for\. It is built for CUDA 13\.0\. Failed to load libcudnn"
    with pytest.raises(ProviderError, match=said):
        verify.open_session(exported / MODEL, "cuda")
    assert capsys.readouterr().out == ""


def test_placement_is_read_from_a_profile(exported, tmp_path):
    session = verify.open_session(exported / MODEL, profile_prefix=str(tmp_path / "profile"))
    verify.run_session(session, small_inputs())
    profile = tmp_path / session.end_profiling()
    verify.check_placement(profile, "cpu")
    with pytest.raises(ProviderError, match=r"No node ran on CUDA\w+: onnxruntime placed them on \['CPU\w+'\]"):
        verify.check_placement(profile, "cuda")
    found = verify.attention_nodes(json.loads(profile.read_text()))
    assert {(each.layer, each.provider) for each in found} == {("attention", "CPUExecutionProvider")}
    assert {"MatMul", "Softmax"} <= {each.node.partition("_")[0] for each in found}


ATTENTION = "keras_attn/encoder/self attention/dot_product_0"


def node(name, provider, shapes, *, takes=((2, 5, 4),), kind="float", cat="Node"):
    """An event of a profile as onnxruntime writes it."""
    arguments = {
        "op_name": name.rpartition("/")[2].partition("_")[0],
        "provider": f"{provider}ExecutionProvider",
        "input_type_shape": [{kind: list(shape)} for shape in takes],
        "output_type_shape": [{kind: list(shape)} for shape in shapes],
    }
    return {"cat": cat, "name": f"{name}_kernel_time", "args": arguments}


def placed(tmp_path, *events):
    file = tmp_path / "profile.json"
    file.write_text(json.dumps([{"cat": "Session", "name": "model_run"}, *events]))
    return file


def test_placement_check_names_attention_on_the_cpu(tmp_path):
    """Of two layers, one partly, in a name that onnxruntime or onnx has changed."""
    file = placed(
        tmp_path,
        node("dense/MatMul", "CUDA", [(2, 5, 4)]),
        node(f"_inlfunc_dot_product_0_{ATTENTION}/MatMul_3", "CUDA", [(2, 5, 5)]),
        node(f"_inlfunc_dot_product_0_{ATTENTION}/Softmax_7", "CPU", [(2, 5, 5)]),
        node(f"_inlfunc_dot_product_0_{ATTENTION}/Softmax_7", "CPU", [(2, 9, 9)]),
        node("keras_attn/last/additive_12/Tanh_4__3", "CPU", [(2, 5, 5, 8)], kind="float16"),
        node("keras_attn/last/additive_12/MatMul_5/MatMulScaleFusion/", "CPU", [(2, 5, 5, 1)]),
    )
    with pytest.raises(ProviderError) as error:
        verify.check_placement(file, "cuda")
    assert str(error.value) == (
        "Attention did not run on CUDAExecutionProvider alone: of layer `encoder/self attention` Softmax_7 on "
        "CPUExecutionProvider; of layer `last` Tanh_4, MatMul_5 on CPUExecutionProvider."
    )


@pytest.mark.parametrize(
    "event",
    [
        node(f"{ATTENTION}/Concat_3", "CPU", [(3,)], takes=[(1,), (1,)], kind="int64"),
        node(f"{ATTENTION}/LessOrEqual_9", "CPU", [(5, 5)], takes=[(5, 1), (5,)], kind="int64"),
        node("dense/MatMul", "CPU", [(2, 5, 4)]),
        node(f"{ATTENTION}/MatMul_9", "CPU", [(2, 5, 4)], cat="Session"),
    ],
    ids=lambda event: event["name"],
)
def test_placement_check_allows_sizes_and_other_layers_on_the_cpu(event, tmp_path):
    """onnxruntime places nodes on the CPU that depend on sizes alone, also masks made of sizes."""
    verify.check_placement(placed(tmp_path, node(f"{ATTENTION}/MatMul_1", "CUDA", [(2, 5, 5)]), event), "cuda")


def test_operator_that_cuda_lacks_is_named_with_a_remedy():
    def run(names, inputs, options):
        raise RuntimeError("[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Non-zero status code: Mode: 3")

    session = types.SimpleNamespace(get_providers=lambda: ["CUDAExecutionProvider"], get_outputs=list, run=run)
    with pytest.raises(ProviderError, match=r"NOT_IMPLEMENTED.*Export with `provider='cuda'`"):
        verify.run_session(session, {})
    session.get_providers = list  # now on another, where that is none
    with pytest.raises(ExportError, match=r"NOT_IMPLEMENTED.*Mode: 3$"):
        verify.run_session(session, {})


def test_error_of_onnxruntime_names_the_inputs(tmp_path, capfd):
    nodes = "table = Constant <value = float[2] {0, 1}> ()\n rows = Gather <axis = 0> (table, ids)"
    bundle = onnx_bundle(tmp_path / "bundle", nodes, {"ids": ("int64", ["n"])}, {"rows": ("float32", ["n"])})
    session = verify.open_session(bundle / MODEL)
    assert verify.run_session(session, {"ids": np.array([1])})["rows"].tolist() == [1.0]
    with pytest.raises(ExportError, match=r"onnxruntime cannot run the model on inputs `ids` \(1,\): .*Gather"):
        verify.run_session(session, {"ids": np.array([2])})
    assert capfd.readouterr() == ("", "")  # onnxruntime would print the error as well


def test_verify_script_passes_without_the_package(bundle):
    before = sorted(bundle.rglob("*"))
    assert (bundle / "verify.py").read_bytes() == Path(verify.__file__).read_bytes()
    done = python(bundle / "verify.py", cwd=bundle.parent, blocked=PACKAGES)
    assert (done.returncode, done.stderr) == (0, "")
    header, *rows, last = done.stdout.splitlines()
    assert header.split()[:3] == ["case", "output", "shape"]
    assert len(rows) == 2 * read_manifest(bundle)["parity"]["cases"]
    assert all(row.endswith(" ok") for row in rows)
    assert last == f"all {len(rows)} outputs match on CPUExecutionProvider."
    assert sorted(bundle.rglob("*")) == before
    code = f"import sys; print([name for name in {PACKAGES} if sys.modules.get(name, 0) is not None])"
    assert python("-c", code, cwd=bundle.parent, blocked=PACKAGES).stdout == "[]\n"


@needs_no_cuda
def test_verify_script_fails_with_its_table_or_in_one_line(bundle, monkeypatch, capsys):
    monkeypatch.setattr(verify, "__file__", str(bundle / "verify.py"))
    alter_golden_outputs(bundle)
    assert verify.main([]) == 1
    out, err = capsys.readouterr()
    assert err == ""
    (failed,) = [line for line in out.splitlines() if "FAILED" in line]
    assert failed.endswith("FAILED: is outside the tolerance")
    total = 2 * read_manifest(bundle)["parity"]["cases"]
    assert out.endswith(f"1 of {total} outputs differ on CPUExecutionProvider.\n")
    for alter, arguments, said in (
        (lambda _: None, ["--provider", "cuda"], "keras-attn[gpu]"),
        (flip_byte, [], f"{CASES} is not the file that was exported"),
    ):
        alter(bundle / CASES)
        assert verify.main(arguments) == 1
        out, err = capsys.readouterr()
        assert out == ""
        assert_one_line(err)
        assert said in err


def test_verify_script_ends_quietly_when_its_output_is_closed(bundle, monkeypatch, capsys):
    def closed(_):
        raise BrokenPipeError

    monkeypatch.setattr(verify, "__file__", str(bundle / "verify.py"))
    monkeypatch.setattr(sys.stdout, "write", closed)
    assert verify.main([]) == 141
    assert capsys.readouterr().err == ""


def test_signal_handlers_stay_outside_the_main_thread():
    def heeded():
        with verify.stopping_at_signals() as signals:
            return signals

    with ThreadPoolExecutor() as pool:
        assert pool.submit(heeded).result() == []
