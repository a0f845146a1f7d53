"""Handlers that compute in a wider dtype because onnxruntime lacks a kernel for the given one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from ..graph_builder import Replacement, constant_of

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
    """`Sum`, `Prod` and `Mean`: that of integers is cut, and that of nothing, 0 in onnxruntime, is NaN."""
    x, axes = node.input
    shape, known, dtype = graph.get_shape(x), constant_of(graph, axes), graph.get_dtype(x)
    kind = np.dtype(tensor_dtype_to_np_dtype(dtype))
    options = {"keepdims": int(node.get_attr_value("keep_dims", 0)), "noop_with_empty_axes": 1}
    op, is_mean, is_whole = REDUCED[node.type], node.type == "Mean", kind.kind in "iu"
    some = shape is not None and known is not None and all(shape[axis] > 0 for axis in known.ravel())
    write = Replacement(graph, node)
    axes = _flat(write, axes) if known is None else write.constant(known.ravel().astype("i8"))
    if is_whole and is_mean:
        total = write("ReduceSum", write("Cast", x, to=INT64), axes, **options)
        write.last("Cast", write("Div", total, _count(write, x, axes)), to=dtype)
    elif is_whole and dtype not in NUMBERS:
        write.last("Cast", write(op, _wide(write, x, dtype), axes, **options), to=dtype)
    elif some or not is_mean:
        write.last(op, x, axes, **options)
    else:  # 0 is added, or NaN; a sum over the count may overflow
        nothing = write("Div", np.zeros((), kind), write("Cast", _count(write, x, axes), to=dtype))
        write.last("Add", write(op, x, axes, **options), nothing)


def _count(write: Replacement, x: str, axes: str) -> str:
    return write("ReduceProd", write("Gather", write("Shape", x), axes, axis=0), keepdims=0)


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
