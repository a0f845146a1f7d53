"""Operators that onnxruntime has in few dtypes, or wrongly in others: computed in a wider one that holds each value."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from .writing import Replacement, constant_of

INT64, FLOAT = TensorProto.INT64, TensorProto.FLOAT
NUMBERS = {FLOAT, TensorProto.DOUBLE, TensorProto.INT32, INT64}


class _Form(NamedTuple):
    """An operator of ONNX, the names of the attributes that it takes over, and how many inputs are made wider."""

    op: str
    attributes: tuple[str, ...] = ()
    wide: int | None = None


FORMS = {
    "Less": _Form("Less"),
    "Greater": _Form("Greater"),
    "LessEqual": _Form("LessOrEqual"),
    "GreaterEqual": _Form("GreaterOrEqual"),
    "Relu": _Form("Relu"),
    "Sign": _Form("Sign"),
    "IsInf": _Form("IsInf"),
    "Range": _Form("Range"),
    "Cumsum": _Form("CumSum", ("exclusive", "reverse"), 1),
}
REDUCED = {"Sum": "ReduceSum", "Prod": "ReduceProd", "Mean": "ReduceMean"}


def widened(graph: Any, node: Any) -> None:
    """Write one of the forms."""
    form, dtype = FORMS[node.type], graph.get_dtype(node.input[0])
    attributes = {name: int(node.get_attr_value(name, 0)) for name in form.attributes}
    write = Replacement(graph, node)
    inputs = [*write.inputs]
    inputs[: form.wide] = [_wide(write, each, dtype) for each in inputs[: form.wide]]
    if write.dtype == dtype and dtype not in NUMBERS:
        write.last("Cast", write(form.op, *inputs, **attributes), to=dtype)
    else:
        write.last(form.op, *inputs, **attributes)


def reduced(graph: Any, node: Any) -> None:
    """`Sum`, `Prod` and `Mean`; the mean of nothing, which is 0 in onnxruntime, is NaN."""
    shape, known, dtype = (
        graph.get_shape(node.input[0]),
        constant_of(graph, node.input[1]),
        graph.get_dtype(node.input[0]),
    )
    options = {"keepdims": int(node.get_attr_value("keep_dims", 0)), "noop_with_empty_axes": 1}
    op, is_mean = REDUCED[node.type], node.type == "Mean"
    some = shape is not None and known is not None and all(shape[axis] > 0 for axis in known.ravel())
    write = Replacement(graph, node)
    x, axes = write.inputs
    axes = write.constant(known.ravel().astype("i8")) if known is not None else _flat(write, axes)
    if not is_mean and dtype not in NUMBERS and np.dtype(tensor_dtype_to_np_dtype(dtype)).kind in "iu":
        write.last("Cast", write(op, _wide(write, x, dtype), axes, **options), to=dtype)
    elif some or not is_mean:
        write.last(op, x, axes, **options)
    else:
        count = write("ReduceProd", write("Gather", write("Shape", x), axes, axis=0), keepdims=0)
        write.last("Div", write("ReduceSum", x, axes, **options), write("Cast", count, to=dtype))


def is_finite(graph: Any, node: Any) -> None:
    """`IsFinite`: what is left of itself is 0, and NaN otherwise."""
    dtype = tensor_dtype_to_np_dtype(graph.get_dtype(node.input[0]))
    write = Replacement(graph, node)
    (x,) = write.inputs
    write.last("Equal", write("Sub", x, x), np.zeros((), dtype))


def _wide(write: Replacement, tensor: str, dtype: int) -> str:
    if dtype in NUMBERS:
        return tensor
    is_float = np.dtype(tensor_dtype_to_np_dtype(dtype)).kind == "f"
    return write("Cast", tensor, to=FLOAT if is_float else INT64)


def _flat(write: Replacement, axes: str) -> str:
    return write("Reshape", write("Cast", axes, to=INT64), [-1])
