"""Store weights as initializers, or as external data beyond protobuf's 2 GiB."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path

import numpy as np
import onnx

from .traced_model import Weights

LIMIT = 2**31 - 2**27  # bytes of weights that still fit one protobuf together with the graph
DATA = "model.onnx.data"
_PAGE = 4096  # onnxruntime maps weights from the file when they start at a page


def fit_in_one_file(size: int) -> bool:
    """Return whether weights of a number of bytes are stored in the file of the graph."""
    return size <= LIMIT


def with_weights(model: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Return a model with weights as initializers, the content of which is in a second file if it exceeds 2 GiB."""
    complete = deepcopy(model)
    if fit_in_one_file(_all_bytes(weights)):
        complete.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
        return complete
    for name, array, offset in _layout(weights):
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = onnx.TensorProto(name=name, data_type=kind, dims=array.shape, data_location=onnx.TensorProto.EXTERNAL)
        for key, value in (("location", DATA), ("offset", offset), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        complete.graph.initializer.append(tensor)
    return complete


def take_out(graph: onnx.GraphProto, folder: Path) -> Weights:
    """Remove the initializers with external data, and return the data as arrays that are mapped from the file."""
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


def write_data(folder: Path, weights: Mapping[str, np.ndarray]) -> None:
    """Write the second file that `with_weights` refers to, if it refers to one."""
    if fit_in_one_file(_all_bytes(weights)):
        return
    with (folder / DATA).open("wb") as file:
        for _, array, offset in _layout(weights):
            file.seek(offset)
            np.ascontiguousarray(array).tofile(file)


def _all_bytes(weights: Mapping[str, np.ndarray]) -> int:
    return sum(array.nbytes for array in weights.values())


def _layout(weights: Mapping[str, np.ndarray]) -> Iterator[tuple[str, np.ndarray, int]]:
    offset = 0
    for name, array in weights.items():
        yield name, array, offset
        offset += -(-array.nbytes // _PAGE) * _PAGE
