from tensorflow.python.framework import op_def_registry
from tf2onnx import handler

from keras_attn_export._operators.table import HANDLERS, TOKENS

MAPPED = {name for domain in handler.tf_op.get_opsets().values() for opset in domain for name in opset}


def test_rows_name_different_operators_of_tensorflow():
    names = [row.name for row in HANDLERS]
    assert len({*names}) == len(names)
    elsewhere = {row.name for row in TOKENS}
    assert [name for name in names if op_def_registry.get(name) is None and name not in elsewhere] == []


def test_tf2onnx_has_no_mapping_of_the_operators_that_it_is_said_to_lack():
    """If a release of tf2onnx maps one, compare the two, and remove the row if tf2onnx is right."""
    without = {row.name for row in HANDLERS if row.why.startswith("no mapping")}
    assert without & MAPPED == set()
    assert {"SelectV2", "While"} <= MAPPED
