"""Serves a bundle in MLServer, which loads this file from beside `model-settings.json`.

It imports nothing of keras-attn: the machine that serves needs mlserver, onnxruntime and numpy. Each request runs by
itself, so one that is refused, with 400 (gRPC: INVALID_ARGUMENT) and a sentence, changes no other. onnxruntime refuses
wrong names, dtypes, ranks and fixed sizes, and ids outside an embedding; what it would take is refused here.
"""

import asyncio
import hashlib
import json
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from mlserver import MLModel
from mlserver.codecs.numpy import to_datatype, to_dtype
from mlserver.errors import InferenceError
from mlserver.types import InferenceRequest, InferenceResponse, MetadataTensor, RequestInput, ResponseOutput
from mlserver.utils import get_model_uri

MOST_NUMBERS, DEEPEST = 2**20, 32  # of an input, and of lists in lists
MOST_LETTERS = 2**14  # of a string: what splits texts has room for as many in each of a batch
KINDS = {"b": "b", "i": "iu", "u": "iu", "f": "fiu"}  # what a kind of number may be given as: an integer never as 1.5


class BundleModel(MLModel):
    """A bundle whose files are what its manifest says."""

    async def load(self) -> bool:
        """Check the hashes, and open the model on the provider of the settings."""
        bundle = Path(await get_model_uri(self.settings))
        self.manifest = json.loads((bundle / "manifest.json").read_bytes())
        for name, digest in self.manifest["sha256"].items():
            with (bundle / name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    raise RuntimeError(f"{bundle / name} is not the file that was exported. Lay the bundle out again.")
        provider = self.settings.parameters.extra["provider"]
        # as the bundle was checked: without TF32, and by the same algorithm for a convolution in each session
        cuda = {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}
        options = cuda if provider == "CUDAExecutionProvider" else {}
        if options and hasattr(ort, "preload_dlls"):
            ort.preload_dlls()
        self.session = ort.InferenceSession(bundle / "model.onnx", providers=[(provider, options)])
        if self.session.get_providers()[0] != provider:  # else the CPU takes over in silence
            raise RuntimeError(f"onnxruntime has no {provider}, only {self.session.get_providers()}.")
        self.options = ort.RunOptions()
        is_main = threading.current_thread() is threading.main_thread()  # no other thread may take signals
        for number in (signal.SIGINT, signal.SIGTERM) if is_main else ():  # on which MLServer waits for what computes
            signal.signal(number, self._ending(signal.getsignal(number)))
        self.inputs, self.outputs = ([_described(**spec) for spec in self.manifest[k]] for k in ("inputs", "outputs"))
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Run one request, while others are read and run."""
        return await asyncio.to_thread(self._answer, payload)

    def _ending(self, before: Any) -> Callable[[int, Any], None]:
        def end(*signalled: Any) -> None:
            self.options.terminate = True
            if callable(before):
                before(*signalled)

        return end

    def _answer(self, payload: InferenceRequest) -> InferenceResponse:
        names = [each.name for each in payload.outputs or self.outputs]
        try:
            feeds = {each.name: self._array(each) for each in payload.inputs}
            if len(feeds) < len(payload.inputs):
                raise ValueError("an input is given twice.")
            self._check_axes(feeds)
            found = self.session.run(names, feeds, self.options)
        except Exception as error:
            raise InferenceError(f"These inputs cannot be run: {str(error).partition(chr(10))[0]}") from error
        # not by MLServer's own codec, which makes (B, 1) of an output (B,)
        outputs = [
            ResponseOutput(name=name, shape=[*a.shape], datatype=_datatype(a.dtype), data=a.ravel().tolist())
            for name, a in zip(names, found, strict=True)
        ]
        return InferenceResponse(model_name=self.name, outputs=outputs)

    def _array(self, given: RequestInput) -> np.ndarray:
        is_text = any(spec["name"] == given.name and spec["dtype"] == "string" for spec in self.manifest["inputs"])
        return _strings(given) if is_text else _numbers(given)

    def _check_axes(self, feeds: dict[str, np.ndarray]) -> None:
        """Refuse sizes that disagree: onnxruntime would repeat what has size 1."""
        sizes: dict[str, int] = {}
        for spec in self.manifest["inputs"]:
            shape = feeds[spec["name"]].shape if spec["name"] in feeds else ()
            for axis, size in zip(spec["shape"], shape, strict=True) if len(shape) == len(spec["shape"]) else ():
                step = self.manifest.get("multiples", {}).get(axis, 1)
                if isinstance(axis, str) and (sizes.setdefault(axis, size) != size or size % step):
                    rule = f"`{axis}` is {sizes[axis]}" if sizes[axis] != size else f"`{axis}` is a multiple of {step}"
                    raise ValueError(f"input `{spec['name']}` has size {size} where {rule}.")


def _numbers(given: RequestInput) -> np.ndarray:
    data, dtype = getattr(given.data, "root", given.data), to_dtype(given)
    if (_count(given.name, data) if isinstance(data, list) else len(data)) > MOST_NUMBERS:
        raise ValueError(f"input `{given.name}` holds more than {MOST_NUMBERS} numbers. Send fewer rows at once.")
    raw = np.asarray(data)
    array = raw.astype(dtype).reshape(given.shape)
    changed = dtype.kind in "biu" and (array.ravel() != raw.ravel()).any()
    if raw.size and (changed or raw.dtype.kind not in KINDS.get(dtype.kind, "")):
        raise ValueError(f"the data of input `{given.name}` are not numbers of its datatype.")
    return array


def _strings(given: RequestInput) -> np.ndarray:
    """Return strings, which gRPC brings as bytes."""
    flat = [getattr(given.data, "root", given.data)]
    for _ in range(DEEPEST):
        if not any(isinstance(each, list) for each in flat):
            break
        flat = [inner for each in flat for inner in (each if isinstance(each, list) else [each])]
        if len(flat) > MOST_NUMBERS:
            raise ValueError(f"input `{given.name}` holds more than {MOST_NUMBERS} strings. Send fewer rows at once.")
    if given.datatype != "BYTES" or not all(isinstance(each, str | bytes) for each in flat):
        raise ValueError(f"the data of input `{given.name}` are not strings, of datatype BYTES.")
    texts = [each.decode() if isinstance(each, bytes) else each for each in flat]
    if any(len(each) > MOST_LETTERS or "\0" in each for each in texts):
        raise ValueError(f"input `{given.name}` holds a string of more than {MOST_LETTERS} letters, or a zero.")
    array = np.empty(len(flat), object)
    array[:] = texts
    return array.reshape(given.shape)


def _datatype(dtype: np.dtype[Any]) -> Any:
    return "BYTES" if dtype.kind == "O" else to_datatype(dtype)


def _count(name: str, data: list[object], depth: int = 1) -> int:
    """Count numbers and lists, before NumPy makes arrays of them; of text it would make each as long as the longest."""
    kinds = set(map(type, data))
    if kinds - {bool, int, float, list} or depth > DEEPEST:
        raise ValueError(f"the data of input `{name}` are not numbers of its datatype.")
    lists = [each for each in data if isinstance(each, list)] if list in kinds else []
    return len(data) + sum(_count(name, each, depth + 1) for each in lists)


def _described(name: str, dtype: str, shape: list[int | str]) -> MetadataTensor:
    sizes = [-1 if isinstance(size, str) else size for size in shape]
    return MetadataTensor(name=name, datatype=_datatype(np.dtype(object if dtype == "string" else dtype)), shape=sizes)
