"""The table of operator handlers, its kernel dtypes, and the graph builder of the handlers."""

from types import SimpleNamespace
from typing import NamedTuple

import pytest
from onnx import TensorProto
from onnxruntime.capi import onnxruntime_pybind11_state
from tensorflow.python.framework import op_def_registry
from tf2onnx import handler

from keras_attn_export._operators import table
from keras_attn_export._operators.graph_builder import GraphBuilder
from keras_attn_export._operators.kernel_dtypes import KERNEL_DTYPES, WIDER_SELECTION_DTYPES, find_kernel_dtype
from keras_attn_export._operators.table import HANDLERS, TOKENS

MAPPED_NAMES = {name for domain in handler.tf_op.get_opsets().values() for opset in domain for name in opset}


def test_each_row_names_a_different_operator_of_tensorflow():
    names = [row.name for row in HANDLERS]
    assert len({*names}) == len(names)
    token_names = {row.name for row in TOKENS}
    assert [name for name in names if op_def_registry.get(name) is None and name not in token_names] == []


def test_tf2onnx_has_no_mapping_of_the_operators_listed_without_one():
    """If a release of tf2onnx maps an operator, compare both mappings, and remove the row if tf2onnx is right."""
    unmapped_names = {row.name for row in HANDLERS if row.reason.startswith("no mapping")}
    assert unmapped_names & MAPPED_NAMES == set()
    assert {"SelectV2", "While"} <= MAPPED_NAMES


class StubGraph(NamedTuple):
    """Stub of tf2onnx's graph and node."""

    name: str = "layer/op"

    def make_node(self, *inputs, **options):
        return SimpleNamespace(output=["values", "indices"])


def test_reason_returned_by_a_handler_becomes_an_error_with_the_node(monkeypatch):
    rows = [table.Handler("Refused", lambda graph, node: "of a test", ""), table.Handler("Kept", lambda *_: None, "")]
    monkeypatch.setattr(table, "HANDLERS", rows)
    handlers = table.build_handlers()
    (refuse, _), (keep, _) = handlers["Refused"], handlers["Kept"]
    assert keep(None, StubGraph(), "layer/op", []) is None
    with pytest.raises(table.RejectedNodeError) as error:
        refuse(None, StubGraph(), "layer/op", [])
    assert (error.value.op_type, error.value.node, error.value.reason) == ("Refused", "layer/op", "of a test")


def list_dtype_names(kernel):
    constraints = {key: value for key, value in kernel.type_constraints.items() if key != "I"}
    types = constraints.get("T") or constraints["T1"]
    return {name.removeprefix("tensor(").removesuffix(")") for name in types}


@pytest.mark.parametrize("op_type", KERNEL_DTYPES)
def test_dtypes_of_the_table_have_kernels_in_onnxruntime(op_type):
    """Float16 is exempt: onnxruntime inserts casts to float32 itself."""
    kernels = [
        kernel
        for kernel in onnxruntime_pybind11_state.get_all_opkernel_def()
        if (kernel.op_name, kernel.domain, kernel.provider) == (op_type, "", "CPUExecutionProvider")
    ]
    supported = set().union(*map(list_dtype_names, kernels))
    for dtype in KERNEL_DTYPES[op_type] - {TensorProto.FLOAT16}:
        assert TensorProto.DataType.Name(dtype).lower() in supported


def test_integers_without_a_kernel_are_computed_without_loss():
    assert find_kernel_dtype("Less", TensorProto.INT8) == TensorProto.INT64
    assert find_kernel_dtype("Relu", TensorProto.INT16) == TensorProto.INT32
    assert find_kernel_dtype("Relu", TensorProto.INT64) is None
    assert find_kernel_dtype("Less", TensorProto.FLOAT16) == TensorProto.FLOAT
    assert find_kernel_dtype("Where", TensorProto.BOOL, WIDER_SELECTION_DTYPES) == TensorProto.INT32


def test_lists_with_a_float_are_folded_as_floats():
    fold = GraphBuilder(None).fold
    assert fold.Neg([1, 2.5]).tolist() == [-1, -2.5]
    assert fold.Neg([]).dtype == "int64"
    assert not hasattr(fold, "shape")


def test_unrequested_outputs_are_not_returned():
    assert GraphBuilder(StubGraph()).multi_output("TopK", [False, True], "x", "k") == ["indices"]
