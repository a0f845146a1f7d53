"""Handlers that compute in a wider dtype because onnxruntime has no kernel for the dtype of the inputs."""

from typing import Any

import numpy as np
from onnx import TensorProto

from ..graph_builder import NodeReplacement, RejectionReason, constant_value
from ..kernel_dtypes import find_kernel_dtype, numpy_dtype

INT64 = TensorProto.INT64

WIDENED_OPS = {  # ONNX operators by TensorFlow operator
    "Less": "Less",
    "Greater": "Greater",
    "LessEqual": "LessOrEqual",
    "GreaterEqual": "GreaterOrEqual",
    "Relu": "Relu",
    "Sign": "Sign",
    "IsInf": "IsInf",
    "Range": "Range",
    "Cumsum": "CumSum",
}
REDUCTIONS = {"Sum": "ReduceSum", "Prod": "ReduceProd", "Mean": "ReduceMean"}


def convert_widened(graph: Any, node: Any) -> RejectionReason:
    """Convert an operator in `WIDENED_OPS` to its ONNX operator, in a dtype for which onnxruntime has a kernel."""
    op_type = WIDENED_OPS[node.type]
    dtype = graph.get_dtype(node.input[0])
    op = NodeReplacement(graph, node)
    computation_dtype = find_kernel_dtype(op_type, dtype)
    if computation_dtype is None and op_type == "Relu":
        return op.finish("Max", *op.inputs, op.number(0))  # `Max` has kernels for int64 and uint64
    if computation_dtype is None:
        return f"onnxruntime has no `{op_type}` of {numpy_dtype(dtype)}"
    attribute_names = ("exclusive", "reverse") if node.type == "Cumsum" else ()
    attributes = {name: int(node.get_attr_value(name, 0)) for name in attribute_names}
    if computation_dtype == dtype:
        return op.finish(op_type, *op.inputs, **attributes)
    # The second input of `Cumsum`, the axis, has a dtype of its own
    inputs = [op.Cast(name, to=computation_dtype) if graph.get_dtype(name) == dtype else name for name in op.inputs]
    if op.dtype == dtype:
        return op.finish("Cast", op(op_type, *inputs, **attributes), to=dtype)
    return op.finish(op_type, *inputs, **attributes)


def sum_prod_mean(graph: Any, node: Any) -> None:
    """Convert `Sum`, `Prod` and `Mean` of (x, axes) to `ReduceSum`, `ReduceProd` and `ReduceMean`."""
    # The mean of integers is truncated. onnxruntime's mean of an empty tensor is 0 instead of NaN. To correct it,
    # 0 / count is added: NaN for a count of 0, else 0. `ReduceSum` / count is no alternative, as the sum may overflow.
    x, axes = node.input
    shape = graph.get_shape(x)
    constant_axes = constant_value(graph, axes)
    dtype = graph.get_dtype(x)
    options = {"keepdims": int(node.get_attr_value("keep_dims", 0)), "noop_with_empty_axes": 1}
    op_type = REDUCTIONS[node.type]
    is_mean = node.type == "Mean"
    is_integer = numpy_dtype(dtype).kind in "iu"
    is_nonempty = shape is not None and constant_axes is not None and all(shape[k] > 0 for k in constant_axes.ravel())
    op = NodeReplacement(graph, node)
    if constant_axes is None:
        axes = op.Reshape(op.Cast(axes, to=INT64), [-1])
    else:
        axes = op.constant(constant_axes.ravel().astype("i8"))
    if is_integer and is_mean:
        total = op.ReduceSum(op.Cast(x, to=INT64), axes, **options)
        op.finish("Cast", op.Div(total, _count_elements(op, x, axes)), to=dtype)
    elif is_integer and op.computation_dtype(op_type) != dtype:
        op.finish("Cast", op(op_type, op.widen(x, op_type), axes, **options), to=dtype)
    elif is_nonempty or not is_mean:
        op.finish(op_type, x, axes, **options)
    else:
        zero_or_nan = op.Div(op.number(0), op.Cast(_count_elements(op, x, axes), to=dtype))
        op.finish("Add", op(op_type, x, axes, **options), zero_or_nan)


def _count_elements(op: NodeReplacement, x: str, axes: str) -> str:
    """Return the number of elements along `axes` as an int64 scalar."""
    return op.ReduceProd(op.Gather(op.Shape(x), axes, axis=0), keepdims=0)


def is_finite(graph: Any, node: Any) -> None:
    """Convert `IsFinite` to `x - x == 0`: x - x is NaN if x is infinite or NaN. `IsInf` has no float16 kernel."""
    zero = np.zeros((), numpy_dtype(graph.get_dtype(node.input[0])))
    op = NodeReplacement(graph, node)
    (x,) = op.inputs
    op.finish("Equal", op.Sub(x, x), zero)
