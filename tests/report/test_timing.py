"""How long layers take: every operator that onnxruntime runs is placed, once, whatever its optimizers make of it."""

import numpy as np
import pytest
from bundles import small_inputs
from onnx import TensorProto, helper, numpy_helper, parser, save

from keras_attn_export import ExportError, ProviderError
from keras_attn_export._graphs.read_only import load_graph
from keras_attn_export._report import timing
from keras_attn_export._report.layers import OTHER, read_layers
from keras_attn_export._report.timing import NOT_PLACED, layer_times

pytest_plugins = ("bundle_fixtures",)


def event(name, start, taken, kind="Node", op="Op"):
    name = f"{name}_kernel_time" if kind == "Node" else name
    return {"cat": kind, "name": name, "ts": start, "dur": taken, "args": {"op_name": op}}


def run_of(start, taken):
    return event("model_run", start, taken, kind="Session")


def test_a_bundle(exported):
    file = exported / "model.onnx"
    layers = read_layers(file, ["attention"])
    before = sorted(path.name for path in exported.iterdir())
    times = layer_times(file, layers, small_inputs(), seconds=0.05)
    assert set(times) - {NOT_PLACED} == {layer.name for layer in layers}
    assert times["attention"] > 0.9 * sum(times.values()) > 0
    assert times.get(NOT_PLACED, 0.0) < 0.1 * sum(times.values())
    assert sorted(path.name for path in exported.iterdir()) == before


def test_an_operator_within_another_counts_once():
    branch = [event("if", 10, 50), event("inner", 20, 10), event("inner", 35, 10)]
    (first, second) = timing._runs([run_of(0, 100), *branch, event("next", 61, 5), run_of(200, 9), event("if", 201, 7)])
    assert [(each["name"], within) for each, within in first] == [("if_kernel_time", 2), ("next_kernel_time", 0)]
    assert [(each["dur"], within) for each, within in second] == [(7, 0)]


def written(folder, nodes, weight, *functions):
    """A model from `x` to `y` with one weight."""
    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, None)] for name in "xy"]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    graph = helper.make_graph(nodes, "g", *ports, [weight])
    save(helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=9), folder / "model.onnx")
    return folder / "model.onnx"


@pytest.fixture
def chain(tmp_path):
    """A convolution, its activation and a product, in layers; onnxruntime makes one operator of the first two."""
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["a"], name="net_1/conv_1/convolution"),
        helper.make_node("Relu", ["a"], ["b"], name="net_1/relu_1/Relu"),
        helper.make_node("ReduceMean", ["b"], ["c"], name="net_1/mean_1/Mean"),
        helper.make_node("half", ["c"], ["y"], domain="own", name="net_1/half_1/half"),
    ]
    half = parser.parse_function(
        '<opset_import: ["" : 18], domain: "own"> '
        "half (x) => (y) { two = Constant <value_float = 2.0> () y = Div(x, two) }"
    )
    return written(tmp_path, nodes, numpy_helper.from_array(np.ones((32, 32, 3, 3), "float32"), "k"), half)


X = {"x": np.ones((1, 32, 24, 24), "float32")}


def test_what_is_fused_counts_for_the_layer_that_it_is_called_after(chain):
    layers = read_layers(chain, [])
    assert [layer.name for layer in layers] == ["conv", "relu", "mean", "half"]
    times = layer_times(chain, layers, X, seconds=0.05)
    assert set(times) == {"conv", "relu", "mean", "half"}  # nothing that is not placed
    assert 0.5 * sum(times.values()) < times["conv"] < 50  # milliseconds, and not micro
    assert times["relu"] == 0
    assert times["half"] > 0  # the body of a function


def test_what_lays_out_is_for_what_it_lays_out(chain):
    places = timing._Places(load_graph(chain), read_layers(chain, []))
    run = [
        (event("ReorderInput", 0, 3, op="ReorderInput"), 0),
        (event("b_nchwc", 3, 20, op="Conv"), 0),
        (event("ReorderOutput_token_3", 23, 4, op="ReorderOutput"), 0),
        (event("made up", 27, 5), 0),
        (event("@2@17", 32, 6, op="ReduceMean"), 4),
        (event("made up", 38, 7), 0),
    ]
    assert places.times(run, cost=1.5) == {"conv": 27, NOT_PLACED: 12, "mean": 0}
    assert places.times([*run, (event("@2@18", 45, 1, op="ReduceMean"), 0)], cost=1.0)["mean"] == 2 + 7 + 1


def test_weights_in_a_file_of_their_own(tmp_path):
    weights = np.ones((64, 64), "float32")
    (tmp_path / "model.onnx.data").write_bytes(weights.tobytes())
    kernel = numpy_helper.from_array(weights, "k")
    kernel.ClearField("raw_data")
    kernel.data_location = TensorProto.EXTERNAL
    kernel.external_data.add(key="location", value="model.onnx.data")
    file = written(tmp_path, [helper.make_node("MatMul", ["x", "k"], ["y"], name="net_1/dense_1/MatMul")], kernel)
    times = layer_times(file, read_layers(file, []), {"x": weights}, seconds=0.01)
    assert times["dense"] > 0


def test_what_cannot_be_timed(chain):
    layers = read_layers(chain, [])
    with pytest.raises(ExportError, match=r"onnxruntime cannot run the model on inputs `x` \(2, 2\)"):
        layer_times(chain, layers, {"x": np.ones((2, 2), "float32")})
    with pytest.raises(ProviderError, match="must be one of"):
        layer_times(chain, layers, X, provider="tpu")


def test_a_graph_of_another_file(chain, exported):
    times = layer_times(chain, read_layers(exported / "model.onnx", []), X, seconds=0.01)
    assert times[NOT_PLACED] == pytest.approx(sum(times.values()))
    assert OTHER not in times
