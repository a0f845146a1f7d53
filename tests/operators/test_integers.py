"""Quotients of integers cost no more than one operator where nothing negative is divided, and two by a power of two."""

import numpy as np
import pytest
import tensorflow as tf
from traced_functions import Converted

X = np.array([-9, -8, -1, 0, 5, 8], "int32")
COSTS = {
    "by a power of two": (lambda x: x // 4, {"BitwiseAnd", "Div"}),
    "by another": (lambda x: x // 3, {"Div", "Mod", "Sub"}),
    "of a size": (lambda x: tf.shape(x)[0] // 3, {"Shape", "Cast", "Squeeze", "Slice", "Gather", "Div"}),
}


@pytest.mark.parametrize(("function", "operators"), COSTS.values(), ids=COSTS)
def test_what_a_quotient_costs(function, operators):
    converted = Converted(function, x=X)
    assert {node.op_type for node in converted.model.graph.node} <= operators
    converted.assert_same()
