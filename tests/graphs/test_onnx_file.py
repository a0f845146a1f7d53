"""The finished ONNX file: opset, ir version, named axes, full check."""

import pytest
from onnx import helper, parser

from keras_attn_export import ExportError
from keras_attn_export._graphs.onnx_file import finish, write
from keras_attn_export._graphs.traced import Traced
from keras_attn_export._options import OPSETS


def small_model():
    return parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[unk__1, 3] x) => (float[unk__2, 3] y) { y = Relu (x) }'
    )


@pytest.mark.parametrize("opset", OPSETS)
def test_file_has_the_opset_its_ir_version_and_named_axes(opset):
    made = finish(Traced(small_model()), {"x": ("batch", 3)}, {"y": ("batch", 3)}, opset).model
    assert made.opset_import[0].version == opset
    assert made.ir_version == helper.find_min_ir_version_for(list(made.opset_import))
    assert [dim.dim_param for dim in made.graph.output[0].type.tensor_type.shape.dim] == ["batch", ""]


def test_input_missing_in_the_graph_is_an_error():
    with pytest.raises(ExportError, match=r"has \['x'\] where \['z'\] were expected"):
        finish(Traced(small_model()), {"z": ("batch", 3)}, {"y": ("batch", 3)}, 18)


def test_invalid_graph_is_an_error(tmp_path):
    model = small_model()
    model.graph.node[0].input[0] = "nowhere"
    with pytest.raises(ExportError, match="full check"):
        write(Traced(model), tmp_path / "model.onnx")
