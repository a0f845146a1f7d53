"""What Triton reads: a version folder with the ONNX file, and `config.pbtxt`, the text form of its `ModelConfig`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from .._loaded_bundle import Bundle
from .._standalone import verify
from .._standalone.verify import Manifest, Spec
from .batching import why_not_merged
from .copying import copy_files, onnx_files
from .specs import datatype, unchecked_multiples

SERVER = "Triton"
CONFIG = "config.pbtxt"
MAX_BATCH = 64
DELAY = 1000  # microseconds that a request may wait for others
KINDS = {"cpu": "KIND_CPU", "cuda": "KIND_GPU"}
TYPES = {
    "bool": "TYPE_BOOL",
    "string": "TYPE_STRING",
    **{f"float{bits}": f"TYPE_FP{bits}" for bits in (16, 32, 64)},
    **{f"{u}int{bits}": f"TYPE_{u.upper()}INT{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)},
}
# The options that it was checked with, which onnxruntime does not set by itself
_PARAMETERS = "\n".join(
    f'      parameters {{ key: "{key}" value: "{value}" }}' for key, value in verify.PROVIDERS["cuda"].options.items()
)
ACCELERATOR = f"""\
optimization {{
  execution_accelerators {{
    gpu_execution_accelerator {{
      name: "cuda"
{_PARAMETERS}
    }}
  }}
}}"""


def fill(folder: Path, bundle: Bundle, name: str, provider: str) -> list[str]:
    """Fill the folder of a model; return what its user should know."""
    reason = why_not_merged(bundle)
    text = config(bundle.entries, name, provider, merged=reason is None)
    copy_files(bundle, onnx_files(bundle), folder / "1")
    (folder / CONFIG).write_text(text, encoding="utf-8")
    return [*_told(bundle.entries, reason), *unchecked_multiples(bundle.entries, SERVER)]


def _told(manifest: Manifest, reason: str | None) -> Iterator[str]:
    if reason is not None:
        yield f"requests are not merged: {reason}"
        return
    yield f"requests may be merged: up to {MAX_BATCH} examples a batch"
    if single := [f"`{spec.name}`" for spec in manifest.specs if len(spec.shape) == 1]:
        yield f"{', '.join(single)}: of shape (batch, 1) here, as Triton has none without a second axis"


def command(repository: Path, name: str) -> str:
    """Return the command that starts the server, on this machine alone.

    Without its last options Triton would listen on all interfaces, and put a batch size of its own in the place of 0.
    """
    place = shlex.quote(f"--model-repository={repository}")
    return f"tritonserver {place} --http-address=127.0.0.1 --grpc-address=127.0.0.1 --disable-auto-complete-config"


def config(manifest: Manifest, name: str, provider: str, *, merged: bool) -> str:
    """Return the text of `config.pbtxt`.

    Args:
        manifest: What the bundle says.
        name: What the model is called.
        provider: `"cpu"` or `"cuda"`.
        merged: Whether requests may be merged along the first axis, which then is no part of `dims`.

    Raises:
        UnsupportedModelError: Triton lacks a dtype.
    """
    lines = [
        f"name: {quoted(name)}",
        'backend: "onnxruntime"',
        f"default_model_filename: {quoted(verify.MODEL)}",
        f"max_batch_size: {MAX_BATCH if merged else 0}",
    ]
    for kind, specs in (("input", manifest.inputs), ("output", manifest.outputs)):
        for spec in specs:
            lines += [f"{kind} {{", *(f"  {line}" for line in _tensor(spec, merged)), "}"]
    lines.append(f"instance_group {{ count: 1 kind: {KINDS[provider]} }}")
    if merged:  # of requests whose other axes are equal: lengths must be padded alike
        lines.append(f"dynamic_batching {{ max_queue_delay_microseconds: {DELAY} }}")
    if provider == "cuda":
        lines.append(ACCELERATOR)
    return "\n".join(lines) + "\n"


def _tensor(spec: Spec, merged: bool) -> Iterator[str]:
    dims = [-1 if isinstance(size, str) else size for size in spec.shape[1 if merged else 0 :]]
    yield f"name: {quoted(spec.name)}"
    yield f"data_type: {datatype(spec, TYPES, SERVER)}"
    yield f"dims: {dims or [1]}"
    if not dims:  # which may not be empty: a client sends a 1, and Triton takes it away
        yield "reshape { shape: [] }"


def quoted(text: str) -> str:
    """Return a string of protobuf's text format; what is not plain ASCII by its bytes in octal."""
    plain = (chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\' else f"\\{byte:03o}" for byte in text.encode())
    return f'"{"".join(plain)}"'
