"""Sessions on one provider: options, errors with remedies, and the placement of attention."""

import json
import re
import sys
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import pytest
from handwritten_bundles import write_onnx_bundle
from small_bundle import draw_small_inputs

from keras_attn_export import BundleError, ExportError, ProviderError
from keras_attn_export._format.interruptible_session import check_provider, open_session, run_session
from keras_attn_export._format.names import MODEL
from keras_attn_export._format.providers import PROVIDERS, provider_of, short_name
from keras_attn_export._format.session import check_placement
from keras_attn_export._format.stop_signals import stop_at_signals

HAS_CUDA = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
requires_no_cuda = pytest.mark.skipif(HAS_CUDA, reason="needs an onnxruntime without CUDA; .ci/run installs [runtime]")


@requires_no_cuda
def test_absent_providers_are_refused_with_the_package_to_install():
    assert check_provider("cpu") is onnxruntime
    with pytest.raises(ProviderError) as error:
        check_provider("tpu")
    message = str(error.value)
    assert message.startswith("`provider` must be one of cpu, cuda, openvino, tensorrt, directml, coreml, webgpu, ")
    assert message.endswith("Received: 'tpu'.")
    with pytest.raises(
        ProviderError,
        match=r"has no CUDAExecutionProvider, only .*CPU.*: uninstall it, then run pip install .keras-attn\[gpu\]",
    ):
        check_provider("cuda")
    with pytest.raises(ProviderError, match=r"has no DmlEx\w+, only .*CPU.*, then install onnxruntime-directml"):
        check_provider("DmlExecutionProvider")


def test_every_provider_of_onnxruntime_has_a_short_name():
    """Azure's provider calls a remote service; releases after 1.19 lack the other excluded providers."""
    short_names = {provider.name: name for name, provider in PROVIDERS.items()}
    excluded_providers = {f"{name}ExecutionProvider" for name in ("Azure", "ROCM", "ArmNN", "ACL", "Tvm")}
    assert {*short_names} >= {*onnxruntime.get_all_providers()} - excluded_providers
    assert all(short_name(provider) == name == short_name(name) for provider, name in short_names.items())


def test_session_gets_the_options_of_its_provider(exported, monkeypatch):
    session_arguments = {}

    def create_session(file, options, providers, **_):
        ((name, session_arguments["options"]),) = providers
        session_arguments.update(name=name, pattern=options.enable_mem_pattern)
        return types.SimpleNamespace(get_providers=lambda: [name])

    monkeypatch.setattr(onnxruntime, "InferenceSession", create_session)
    names = [provider.name for provider in PROVIDERS.values()]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: names)
    for name, options, pattern in (
        ("openvino", {"device_type": "CPU", "precision": "FP32"}, True),
        ("CoreMLExecutionProvider", {"ModelFormat": "MLProgram", "MLComputeUnits": "CPUAndGPU"}, True),
        ("directml", {}, False),
    ):
        open_session(exported / MODEL, name)
        assert session_arguments == {"name": provider_of(name).name, "options": options, "pattern": pattern}


NO_DEVICE = "CUDA failure 100: no CUDA-capable device is detected"
FAILURES = {  # provider, error of onnxruntime, error of the package
    "loop": (
        "openvino",
        "/ov.cc:28 auto f(A&&) [OpenVINO-EP] Reading network:\n Tanh_4 node not found in graph cache\n",
        (BundleError, r"cannot load \S+: [^/]*supports no `Loop`"),
    ),
    "operator": (
        "openvino",
        "No Op registered for X",
        (BundleError, r"cannot load \S+: [^/]*Export with `provider='openvino'`"),
    ),
    "no device": (
        "cuda",
        f"/src/cuda_call.cc:154 CudaCall(ERRTYPE) [with int] {NO_DEVICE} ; GPU=-1 ; hostname=mine\nmore",
        (ProviderError, rf"onnxruntime [\d.]+ cannot use CPU\w+: {re.escape(NO_DEVICE)}$"),
    ),
}


@pytest.mark.parametrize(("provider", "error_text", "expected"), FAILURES.values(), ids=FAILURES)
def test_session_that_fails_names_the_remedy_of_its_provider(provider, error_text, expected, exported, monkeypatch):
    def create_session(*arguments, **options):
        raise RuntimeError(error_text)

    error, match = expected
    cpu_provider = PROVIDERS[provider]._replace(name="CPUExecutionProvider")  # an available provider
    monkeypatch.setitem(PROVIDERS, provider, cpu_provider)
    monkeypatch.setattr(onnxruntime, "InferenceSession", create_session)
    with pytest.raises(error, match=match):
        open_session(exported / MODEL, provider)
    with pytest.raises(BundleError, match=r"cannot load \S+: [^?`]*$"):
        open_session(exported / MODEL, "cpu")


def test_missing_or_broken_onnxruntime_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ProviderError, match=r"^onnxruntime cannot be imported \(.*\[runtime\].*\[gpu\]"):
        check_provider("cpu")
    monkeypatch.setitem(sys.modules, "onnxruntime", types.ModuleType("onnxruntime"))
    with pytest.raises(ProviderError, match=r"onnxruntime is broken.*Uninstall both"):
        check_provider("cpu")


def test_session_that_falls_back_to_the_cpu_is_an_error(monkeypatch, exported, capsys):
    class Fallback(types.ModuleType):
        SessionOptions = onnxruntime.SessionOptions
        cuda_version = "13.0"

        def get_available_providers(self):
            return ["CUDAExecutionProvider", "CPUExecutionProvider"]

        def preload_dlls(self):
            print("Failed to load libcudnn.so.9\nand more")

        def InferenceSession(self, model, options, providers, enable_fallback):  # noqa: N802 - onnxruntime's name
            cuda = {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}
            assert (providers, enable_fallback) == ([("CUDAExecutionProvider", cuda)], 0)
            return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    monkeypatch.setitem(sys.modules, "onnxruntime", Fallback("onnxruntime"))
    message = r"fell back to CPU\w+ although CUDA\w+ was requested\. Failed to load libcudnn.so.9\. It is built"
    with pytest.raises(ProviderError, match=message):
        open_session(exported / MODEL, "cuda")
    assert capsys.readouterr().out == ""


def test_placement_is_read_from_a_profile(exported, tmp_path):
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    session = open_session(exported / MODEL, session_options=options)
    run_session(session, draw_small_inputs())
    profile = tmp_path / session.end_profiling()
    assert check_placement(profile, "cpu") > 3
    with pytest.raises(ProviderError, match=r"No node ran on CUDA\w+: onnxruntime placed them on \['CPU\w+'\]"):
        check_placement(profile, "cuda")


ATTENTION = "keras_attn/encoder/self attention/dot_product_0"


def build_event(name, provider, output_shapes, *, input_shapes=((2, 5, 4),), dtype="float", cat="Node"):
    """Return an event of a profile in the format of onnxruntime."""
    arguments = {
        "op_name": name.rpartition("/")[2].partition("_")[0],
        "provider": f"{provider}ExecutionProvider",
        "input_type_shape": [{dtype: list(shape)} for shape in input_shapes],
        "output_type_shape": [{dtype: list(shape)} for shape in output_shapes],
    }
    return {"cat": cat, "name": f"{name}_kernel_time", "args": arguments}


def write_profile(tmp_path, *events):
    file = tmp_path / "profile.json"
    file.write_text(json.dumps([{"cat": "Session", "name": "model_run"}, *events]))
    return file


def test_placement_check_names_attention_on_the_cpu(tmp_path):
    """Two layers, one of them in part; onnxruntime or onnx has changed the names of nodes."""
    file = write_profile(
        tmp_path,
        build_event("dense/MatMul", "CUDA", [(2, 5, 4)]),
        build_event(f"_inlfunc_dot_product_0_{ATTENTION}/MatMul_3", "CUDA", [(2, 5, 5)]),
        build_event(f"_inlfunc_dot_product_0_{ATTENTION}/Softmax_7", "CPU", [(2, 5, 5)]),
        build_event(f"_inlfunc_dot_product_0_{ATTENTION}/Softmax_7", "CPU", [(2, 9, 9)]),
        build_event("keras_attn/last/additive_12/Tanh_4__3", "CPU", [(2, 5, 5, 8)], dtype="float16"),
        build_event("keras_attn/last/additive_12/MatMul_5/MatMulScaleFusion/", "CPU", [(2, 5, 5, 1)]),
    )
    with pytest.raises(ProviderError) as error:
        check_placement(file, "cuda")
    assert str(error.value) == (
        "Attention did not run on CUDAExecutionProvider alone: of layer `encoder/self attention` Softmax_7 on "
        "CPUExecutionProvider; of layer `last` Tanh_4, MatMul_5 on CPUExecutionProvider."
    )


@pytest.mark.parametrize(
    "event",
    [
        build_event(f"{ATTENTION}/Concat_3", "CPU", [(3,)], input_shapes=[(1,), (1,)], dtype="int64"),
        build_event(f"{ATTENTION}/LessOrEqual_9", "CPU", [(5, 5)], input_shapes=[(5, 1), (5,)], dtype="int64"),
        build_event("dense/MatMul", "CPU", [(2, 5, 4)]),
        build_event(f"{ATTENTION}/MatMul_9", "CPU", [(2, 5, 4)], cat="Session"),
    ],
    ids=lambda event: event["name"],
)
def test_placement_check_allows_sizes_and_other_layers_on_the_cpu(event, tmp_path):
    """onnxruntime places nodes on the CPU that depend on sizes alone, also masks made of sizes."""
    check_placement(write_profile(tmp_path, build_event(f"{ATTENTION}/MatMul_1", "CUDA", [(2, 5, 5)]), event), "cuda")


def test_operator_that_cuda_lacks_is_named_with_a_remedy():
    def run(names, inputs, options):
        raise RuntimeError("[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Non-zero status code: Mode: 3")

    session = types.SimpleNamespace(get_providers=lambda: ["CUDAExecutionProvider"], get_outputs=list, run=run)
    with pytest.raises(ProviderError, match=r"NOT_IMPLEMENTED.*Export with `provider='cuda'`"):
        run_session(session, {})
    session.get_providers = list  # a provider without this remedy
    with pytest.raises(ExportError, match=r"NOT_IMPLEMENTED.*Mode: 3$"):
        run_session(session, {})


def test_error_of_onnxruntime_names_the_inputs(tmp_path, capfd):
    nodes = "table = Constant <value = float[2] {0, 1}> ()\n rows = Gather <axis = 0> (table, ids)"
    bundle = write_onnx_bundle(tmp_path / "bundle", nodes, {"ids": ("int64", ["n"])}, {"rows": ("float32", ["n"])})
    session = open_session(bundle / MODEL)
    assert run_session(session, {"ids": np.array([1])})["rows"].tolist() == [1.0]
    with pytest.raises(ExportError, match=r"onnxruntime cannot run the model on inputs `ids` \(1,\): .*Gather"):
        run_session(session, {"ids": np.array([2])})
    assert capfd.readouterr() == ("", "")  # onnxruntime would print the error as well


def test_signal_handlers_stay_outside_the_main_thread():
    def enter_context():
        with stop_at_signals() as signals:
            return signals

    with ThreadPoolExecutor() as pool:
        assert pool.submit(enter_context).result() == []
