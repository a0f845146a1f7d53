"""Execution providers of onnxruntime."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from .names import ProviderError


class Provider(NamedTuple):
    """Execution provider of onnxruntime."""

    name: str  # in onnxruntime
    options: Mapping[str, str] = MappingProxyType({})  # select float32 arithmetic
    session_options: Mapping[str, Any] = MappingProxyType({})  # attributes of `onnxruntime.SessionOptions`
    lenience: float = 4.0  # factor on rounding limits, which are measured on a CPU: other devices sum in another order


PROVIDERS = {
    "cpu": Provider("CPUExecutionProvider", lenience=1.0),
    # TF32 rounds factors to 11 significant bits; float32 has 24. EXHAUSTIVE, the default search, times algorithms, so
    # that two sessions may use different ones. HEURISTIC and DEFAULT do not, and DEFAULT is slower
    # (microsoft/onnxruntime issue 19822).
    "cuda": Provider("CUDAExecutionProvider", {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}),
    # OpenVINO computes in bfloat16 by default if the processor supports it.
    "openvino": Provider("OpenVINOExecutionProvider", {"device_type": "CPU", "precision": "FP32"}, lenience=1.0),
    "tensorrt": Provider("TensorrtExecutionProvider"),
    "directml": Provider("DmlExecutionProvider", session_options={"enable_mem_pattern": False}),  # unsupported
    # All compute units would include the Neural Engine, which computes in float16.
    "coreml": Provider("CoreMLExecutionProvider", {"ModelFormat": "MLProgram", "MLComputeUnits": "CPUAndGPU"}),
    "webgpu": Provider("WebGpuExecutionProvider"),
    "migraphx": Provider("MIGraphXExecutionProvider"),
    "qnn": Provider("QNNExecutionProvider"),
    **{
        name.lower(): Provider(f"{name}ExecutionProvider")
        for name in ("Dnnl", "VitisAI", "Nnapi", "VSINPU", "Js", "Rknpu", "WebNN", "Xnnpack", "CANN")
    },
}


def short_name(provider: str) -> str:
    """Return the key of a provider in `PROVIDERS`, given by this key or by its name in onnxruntime."""
    for short, entry in PROVIDERS.items():
        if provider in (short, entry.name):
            return short
    known = f"{', '.join(PROVIDERS)}, or a name of onnxruntime such as {PROVIDERS['cpu'].name}"
    raise ProviderError(f"`provider` must be one of {known}. Received: {provider!r}.")


def provider_of(name: str) -> Provider:
    """Return a provider, given by either of its names."""
    return PROVIDERS[short_name(name)]
