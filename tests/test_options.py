"""The choices of an export."""

import pytest

from keras_attn_export import ExportError
from keras_attn_export._options import LOWEST_ONNXRUNTIME, OPSETS, check_options


def test_every_opset_has_a_lowest_onnxruntime():
    assert set(LOWEST_ONNXRUNTIME) == set(OPSETS) == set(range(18, 25))


def test_the_default_opset():
    assert check_options(None, "portable", "float32", "cpu") == 18


@pytest.mark.parametrize("opset", [17, 25, "18", 18.0, True])
def test_an_opset_out_of_range(opset):
    with pytest.raises(ExportError, match="`opset` must be an integer from 18 to 24"):
        check_options(opset, "portable", "float32", "cpu")


@pytest.mark.parametrize("name", ["lowering", "precision", "provider"])
def test_unknown_choices(name):
    options = {"opset": 18, "lowering": "portable", "precision": "float32", "provider": "cpu"} | {name: "best"}
    with pytest.raises(ExportError, match=rf"`{name}` must be one of .* Received: 'best'"):
        check_options(**options)
