"""The table of operators: each is TensorFlow's, and tf2onnx has no mapping of those that it is said to have none of."""

from tensorflow.python.framework import op_def_registry
from tf2onnx import handler

from keras_attn_export._operators.table import OPERATORS, TOKENS

MAPPED = {name for domain in handler.tf_op.get_opsets().values() for opset in domain for name in opset}


def test_each_is_an_operator_of_tensorflow_in_a_row_of_its_own():
    names = [row.name for row in OPERATORS]
    assert len({*names}) == len(names)
    elsewhere = {row.name for row in TOKENS}
    assert [name for name in names if op_def_registry.get(name) is None and name not in elsewhere] == []


def test_what_has_no_mapping_has_none():
    """Where it fails, a new release of tf2onnx has one: compare that, and take the row out where it will do."""
    without = {row.name for row in OPERATORS if row.why.startswith("no mapping")}
    assert without & MAPPED == set()
    assert {"SelectV2", "While"} <= MAPPED
