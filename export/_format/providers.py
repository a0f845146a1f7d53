"""Execution providers of onnxruntime."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from .names import ProviderError


class Provider(NamedTuple):
    """Name in onnxruntime, options that select float32, attributes of `SessionOptions`, factor on rounding limits."""

    name: str
    options: Mapping[str, str] = MappingProxyType({})
    session_options: Mapping[str, Any] = MappingProxyType({})
    limit_factor: float = 4.0  # limits are measured on a CPU, and a GPU sums in a different order


PROVIDERS = {
    "cpu": Provider("CPUExecutionProvider", limit_factor=1.0),
    # TF32 rounds factors to 11 significant bits; float32 has 24. EXHAUSTIVE, the default search, times algorithms, so
    # two sessions may choose different ones. HEURISTIC and DEFAULT always choose the same, and DEFAULT is slower
    # (microsoft/onnxruntime issue 19822).
    "cuda": Provider("CUDAExecutionProvider", {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}),
    # OpenVINO computes in bfloat16 by default if the processor supports it.
    "openvino": Provider("OpenVINOExecutionProvider", {"device_type": "CPU", "precision": "FP32"}, limit_factor=1.0),
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
    """Return the key in `PROVIDERS` of a provider that is named by this key or by its name in onnxruntime."""
    for short, entry in PROVIDERS.items():
        if provider in (short, entry.name):
            return short
    valid_names = f"{', '.join(PROVIDERS)}, or a name of onnxruntime such as {PROVIDERS['cpu'].name}"
    raise ProviderError(f"`provider` must be one of {valid_names}. Received: {provider!r}.")


def provider_of(name: str) -> Provider:
    """Return the provider with a short name or a name of onnxruntime."""
    return PROVIDERS[short_name(name)]
