"""Store weights as initializers, or as external data beyond protobuf's 2 GiB."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path

import numpy as np
import onnx

from .traced_model import Weights

# Bytes of weights: protobuf allows 2 GiB in a message, of which 128 MiB are left to the graph
MAX_EMBEDDED_WEIGHT_BYTES = 2**31 - 2**27
DATA_FILE = "model.onnx.data"
# onnxruntime maps weights from the file, instead of reading a copy, if they start at a page
PAGE_BYTES = 4096


def fits_in_one_file(size: int) -> bool:
    """Return True if weights of a number of bytes are stored in the file of the graph."""
    return size <= MAX_EMBEDDED_WEIGHT_BYTES


def add_weights(model: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Return a model with weights as initializers, whose data are in a second file if they exceed `LIMIT` bytes."""
    complete = deepcopy(model)
    if fits_in_one_file(_count_bytes(weights)):
        complete.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
        return complete
    for name, array, offset in _iter_layout(weights):
        elem_type, location = onnx.helper.np_dtype_to_tensor_dtype(array.dtype), onnx.TensorProto.EXTERNAL
        tensor = onnx.TensorProto(name=name, data_type=elem_type, dims=array.shape, data_location=location)
        for key, value in (("location", DATA_FILE), ("offset", offset), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        complete.graph.initializer.append(tensor)
    return complete


def extract_external_weights(graph: onnx.GraphProto, folder: Path) -> Weights:
    """Remove the initializers with external data, and return their data as arrays that are mapped from the file."""
    weights: dict[str, np.ndarray] = {}
    for index in reversed(range(len(graph.initializer))):
        tensor = graph.initializer[index]
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            offset = int(entries.get("offset", 0))
            weights[tensor.name] = np.memmap(folder / entries["location"], dtype, "r", offset, tuple(tensor.dims))
            del graph.initializer[index]
    return weights


def write_external_data(folder: Path, weights: Mapping[str, np.ndarray]) -> None:
    """Write the second file that the model of `add_weights` refers to, if any."""
    if fits_in_one_file(_count_bytes(weights)):
        return
    with (folder / DATA_FILE).open("wb") as file:
        for _, array, offset in _iter_layout(weights):
            file.seek(offset)
            np.ascontiguousarray(array).tofile(file)


def _count_bytes(weights: Mapping[str, np.ndarray]) -> int:
    return sum(array.nbytes for array in weights.values())


def _iter_layout(weights: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray, int]]:
    """Yield each name and array with its offset in the second file, in bytes."""
    offset = 0
    for name, array in weights.items():
        yield name, array, offset
        offset += -(-array.nbytes // PAGE_BYTES) * PAGE_BYTES
