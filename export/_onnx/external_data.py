"""Store weights as initializers, or as external data beyond protobuf's 2 GiB."""

from __future__ import annotations

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
    """Tell whether weights of so many bytes are held in the file of the graph."""
    return size <= LIMIT


def with_weights(model: onnx.ModelProto, weights: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Return a model with these weights as initializers, those beyond 2 GiB with their content in a second file."""
    whole = deepcopy(model)
    if fit_in_one_file(_all_bytes(weights)):
        whole.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in weights.items())
        return whole
    for name, array, offset in _layout(weights):
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        tensor = onnx.TensorProto(name=name, data_type=kind, dims=array.shape, data_location=onnx.TensorProto.EXTERNAL)
        for key, value in (("location", DATA), ("offset", offset), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        whole.graph.initializer.append(tensor)
    return whole


def take_out(graph: onnx.GraphProto, folder: Path) -> Weights:
    """Remove the initializers whose content lies in a second file, and return that content, which stays on the disk."""
    weights: dict[str, np.ndarray] = {}
    for index in reversed(range(len(graph.initializer))):
        tensor = graph.initializer[index]
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            where = {each.key: each.value for each in tensor.external_data}
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
            offset, shape = int(where.get("offset", 0)), tuple(tensor.dims)
            weights[tensor.name] = np.memmap(folder / where["location"], dtype, "r", offset, shape)
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
