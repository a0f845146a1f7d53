"""Element types of onnxruntime's CPU kernels, and wider ones to compute in instead.

If onnxruntime has no kernel of a dtype, a handler widens: it casts the inputs, computes, and casts the result back.
"""

from typing import Any

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

BOOL, STRING = TensorProto.BOOL, TensorProto.STRING
FLOAT, FLOAT16, DOUBLE = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE
INT8, INT16, INT32, INT64 = TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64
UINT8, UINT16, UINT32, UINT64 = TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64

FLOATS = {FLOAT, FLOAT16, DOUBLE}
_NUMBERS = {FLOAT, DOUBLE, INT32, INT64}

# From docs/OperatorKernels.md of onnxruntime, CPUExecutionProvider: the dtypes of all releases from 1.15 on. Float16 is
# listed if onnxruntime itself casts it to float32 and back. `ScatterND` has more dtypes, but not with `reduction`.
KERNEL_DTYPES = {
    **dict.fromkeys(("CumSum", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Range", "Sign"), _NUMBERS),
    **dict.fromkeys(("ReduceProd", "ReduceSum", "ScatterND", "TopK"), _NUMBERS),
    "IsInf": {FLOAT, DOUBLE},
    "ReduceMax": _NUMBERS | {FLOAT16},
    "Relu": {FLOAT, DOUBLE, INT32},
    "Sum": FLOATS,
    "MatMul": {*_NUMBERS, FLOAT16, UINT32, UINT64},
    "SpaceToDepth": {*FLOATS, UINT8},
    "Trilu": {BOOL, FLOAT, DOUBLE, INT64},
    "Where": {*_NUMBERS, FLOAT16, STRING},
}

# Wider dtypes hold all values. Integers that overflow stay right, because the cast back from 64 bits wraps around too
WIDER_DTYPES: dict[int, tuple[int, ...]] = {
    FLOAT16: (FLOAT, DOUBLE),
    FLOAT: (DOUBLE,),
    INT32: (INT64, DOUBLE),
    UINT32: (INT64, DOUBLE),
    UINT64: (INT64,),
    **dict.fromkeys((BOOL, INT8, INT16, UINT8, UINT16), (INT64, INT32, DOUBLE)),
}
# For handlers that only select elements, diagonals of matrices and max pooling: 32 bits suffice without sums.
WIDER_SELECTION_DTYPES = WIDER_DTYPES | dict.fromkeys((BOOL, INT8, INT16, UINT8, UINT16), (INT32,))


def find_kernel_dtype(op_type: str, dtype: int, wider_dtypes: dict[int, tuple[int, ...]] = WIDER_DTYPES) -> int | None:
    """Return the element type to compute an operator in: `dtype` or the first wider one with a kernel, else None."""
    kernels = KERNEL_DTYPES[op_type]
    return next((candidate for candidate in (dtype, *wider_dtypes.get(dtype, ())) if candidate in kernels), None)


def numpy_dtype(elem_type: int) -> np.dtype[Any]:
    """Return NumPy's dtype for an element type of ONNX."""
    dtype: np.dtype[Any] = np.dtype(tensor_dtype_to_np_dtype(elem_type))
    return dtype
