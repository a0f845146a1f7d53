"""Run a SavedModel by the C interface of TensorFlow, which loads in a fraction of the time that its Python takes.

The interface is that of https://www.tensorflow.org/install/lang_c, in the libraries that the package for Python brings
along. There are platforms without them, and dtypes that are not in `DTYPES`: whoever calls this has another way then.
"""

import ctypes
import importlib.util
import os
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]

LIBRARIES = ("libtensorflow_framework*", "libtensorflow_cc*")  # the second needs the first
DTYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "int64": 9, "bool": 10, "uint16": 17,
    "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip
NAMES = {number: name for name, number in DTYPES.items()}
GROWTH = b"\x32\x02\x20\x01"  # a `ConfigProto` whose `gpu_options.allow_growth` is true


class _Place(ctypes.Structure):
    """`TF_Output`: an operation, and which of its results."""

    _fields_ = (("operation", c_void_p), ("index", c_int))


# what each function returns and takes
FUNCTIONS = {
    "TF_NewStatus": (c_void_p, ()),
    "TF_GetCode": (c_int, (c_void_p,)),
    "TF_Message": (c_char_p, (c_void_p,)),
    "TF_NewGraph": (c_void_p, ()),
    "TF_NewSessionOptions": (c_void_p, ()),
    "TF_SetConfig": (None, (c_void_p, c_char_p, c_size_t, c_void_p)),
    "TF_LoadSessionFromSavedModel": (
        c_void_p, (c_void_p, c_void_p, c_char_p, POINTER(c_char_p), c_int, c_void_p, c_void_p, c_void_p),
    ),
    "TF_DeleteSession": (None, (c_void_p, c_void_p)),
    "TF_DeleteGraph": (None, (c_void_p,)),
    "TF_GraphOperationByName": (c_void_p, (c_void_p, c_char_p)),
    "TF_SessionRun": (
        None,
        (
            c_void_p, c_void_p, POINTER(_Place), POINTER(c_void_p), c_int, POINTER(_Place), POINTER(c_void_p), c_int,
            c_void_p, c_int, c_void_p, c_void_p,
        ),
    ),
    "TF_AllocateTensor": (c_void_p, (c_int, POINTER(c_int64), c_int, c_size_t)),
    "TF_DeleteTensor": (None, (c_void_p,)),
    "TF_TensorData": (c_void_p, (c_void_p,)),
    "TF_TensorByteSize": (c_size_t, (c_void_p,)),
    "TF_TensorType": (c_int, (c_void_p,)),
    "TF_NumDims": (c_int, (c_void_p,)),
    "TF_Dim": (c_int64, (c_void_p, c_int)),
}  # fmt: skip


class SavedModel:
    """A SavedModel in a session, until it is closed.

    Args:
        folder: Where it is.
        inputs: The tensors behind the inputs, as `node:0`, by name.
        outputs: Those behind the outputs.

    Raises:
        OSError: The libraries are not there.
        RuntimeError: TensorFlow cannot load it.
    """

    def __init__(self, folder: Path, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> None:
        self._tf = _library()
        self._status = self._tf.TF_NewStatus()
        options, self._graph = self._tf.TF_NewSessionOptions(), self._tf.TF_NewGraph()
        self._tf.TF_SetConfig(options, GROWTH, len(GROWTH), self._status)
        self._session = self._tf.TF_LoadSessionFromSavedModel(
            options, None, os.fsencode(folder), (c_char_p * 1)(b"serve"), 1, self._graph, None, self._status
        )
        self._check()
        self._inputs, self._outputs = (
            {name: self._place(tensor) for name, tensor in tensors.items()} for tensors in (inputs, outputs)
        )

    def run(self, inputs: Arrays) -> Arrays:
        """Return the outputs for arrays by name.

        Raises:
            KeyError: A dtype is none of `DTYPES`.
            RuntimeError: TensorFlow cannot run it.
        """
        fed, fetched = self._inputs.values(), self._outputs.values()
        given = [self._tensor(inputs[name]) for name in self._inputs]
        found = (c_void_p * len(fetched))()
        self._tf.TF_SessionRun(
            self._session, None, (_Place * len(fed))(*fed), (c_void_p * len(fed))(*given), len(fed),
            (_Place * len(fetched))(*fetched), found, len(fetched), None, 0, None, self._status,
        )  # fmt: skip
        self._check()
        outputs = {name: self._array(tensor) for name, tensor in zip(self._outputs, found, strict=True)}
        for tensor in (*given, *found):
            self._tf.TF_DeleteTensor(tensor)
        return outputs

    def close(self) -> None:
        """Give its memory back."""
        self._tf.TF_DeleteSession(self._session, self._status)
        self._tf.TF_DeleteGraph(self._graph)

    def _check(self) -> None:
        if self._tf.TF_GetCode(self._status):
            raise RuntimeError(self._tf.TF_Message(self._status).decode(errors="replace"))

    def _place(self, tensor: str) -> _Place:
        node, _, index = tensor.partition(":")
        return _Place(self._tf.TF_GraphOperationByName(self._graph, node.encode()), int(index))

    def _tensor(self, array: np.ndarray) -> Any:
        sizes = (c_int64 * array.ndim)(*array.shape)
        tensor = self._tf.TF_AllocateTensor(DTYPES[array.dtype.name], sizes, array.ndim, array.nbytes)
        ctypes.memmove(self._tf.TF_TensorData(tensor), np.ascontiguousarray(array).ctypes.data, array.nbytes)
        return tensor

    def _array(self, tensor: Any) -> np.ndarray:
        shape = [self._tf.TF_Dim(tensor, axis) for axis in range(self._tf.TF_NumDims(tensor))]
        array = np.empty(shape, NAMES[self._tf.TF_TensorType(tensor)])
        ctypes.memmove(array.ctypes.data, self._tf.TF_TensorData(tensor), self._tf.TF_TensorByteSize(tensor))
        return array


def _library() -> Any:
    """Load the libraries of the package, without importing it."""
    found = importlib.util.find_spec("tensorflow")
    folders = [] if found is None else found.submodule_search_locations or []
    for name in LIBRARIES:
        file = next((file for folder in folders for file in Path(folder).glob(name)), None)
        if file is None:
            raise OSError(f"There is no {name}.")
        library = ctypes.CDLL(str(file))
    for name, (returned, taken) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = returned, taken
    return library
