"""Form coverage: a form for large sizes that no golden case runs causes a warning, or an error with `strict`."""

from types import SimpleNamespace

import keras
import numpy as np
import onnx
import pytest
from export_models import build_attention_inputs
from keras import layers
from traced_models import run_model
from unchecked_export import UncheckedExport

from keras_attn import DotProductAttention
from keras_attn_export import ParityError, export_model
from keras_attn_export._golden_cases.case_generation import generate_golden_cases
from keras_attn_export._golden_cases.golden_cases import LONG
from keras_attn_export._lowerings.form_coverage import _add_size_outputs, find_layers_without_large_case
from keras_attn_export._options import Options
from keras_attn_export._thresholds import LARGE_THRESHOLDS, SizeThreshold

WARNING = "No case is long enough for the large form of layer `attend`."


def build_strided_model(stride, attend):
    """Return a model whose attention has `stride` times fewer positions than its input."""
    x = keras.Input((None, 4), name="x")
    y = layers.Conv1D(4, stride, strides=stride, padding="same")(x) if stride > 1 else x
    return keras.Model(x, attend(y))


def attend_keras_attn(y):
    return DotProductAttention(name="attend")(y, y, y)


def attend_keras(y):
    return layers.MultiHeadAttention(2, 2, name="attend")(y, y)


def find_uncovered_layers(model, folder):
    """Return the layers whose form for large sizes no golden case runs, and the cases that Keras refuses."""
    traced = UncheckedExport(model)
    file, golden = traced.write(folder), generate_golden_cases(traced.signature, Options())
    return find_layers_without_large_case(file.traced, file.adaptive_calls, golden, folder / "scratch"), golden.refusals


@pytest.mark.slow
@pytest.mark.parametrize("attend", [attend_keras_attn, attend_keras])
@pytest.mark.parametrize(("stride", "expected"), [(1, []), (4, ["attend"])])
def test_form_that_no_golden_case_runs_is_detected(stride, expected, attend, tmp_path):
    assert find_uncovered_layers(build_strided_model(stride, attend), tmp_path)[0] == expected


@pytest.mark.slow
def test_uncovered_form_causes_a_warning_and_an_error_with_strict(tmp_path):
    model = build_strided_model(4, attend_keras_attn)
    assert export_model(model, tmp_path / "portable", lowering="portable").report.warnings == ()
    with pytest.raises(ParityError, match="No case is long enough") as caught:
        export_model(model, tmp_path / "strict", strict=True)
    assert caught.value.report.warnings == (WARNING,)


def test_form_that_is_never_chosen_needs_no_golden_case(tmp_path, monkeypatch):
    monkeypatch.setitem(LARGE_THRESHOLDS, "flash", SizeThreshold(0, 2**62))
    assert find_uncovered_layers(build_strided_model(4, attend_keras_attn), tmp_path) == ([], {})


@pytest.mark.parametrize(("stride", "expected"), [(16, ["attend"]), (1, [])])
def test_queries_and_keys_are_counted_separately(stride, expected, tmp_path, monkeypatch):
    monkeypatch.setitem(LARGE_THRESHOLDS, "examples", SizeThreshold(0, 400))
    q, k, v, lens = build_attention_inputs(queries=6, keys=6)
    model = keras.Model([q, k, v, lens], DotProductAttention(name="attend")(q[:, ::stride], k, v, lens))
    assert find_uncovered_layers(model, tmp_path)[0] == expected


@pytest.mark.slow
def test_static_query_sizes_leave_no_form_uncovered(tmp_path):
    q, k = keras.Input((1, 4), name="q"), keras.Input((None, 4), name="k")
    model = keras.Model([q, k], layers.MultiHeadAttention(2, 2)(q, k))
    assert find_uncovered_layers(model, tmp_path)[0] == []
    assert UncheckedExport(model).write(tmp_path).layers[0]["form"].endswith("since the model fixes the sizes")


class PositionTable(layers.Layer):
    """Sum of the input and a table of nine positions."""

    def build(self, shape):
        self.table = self.add_weight(shape=(9, shape[-1]), initializer="normal")

    def call(self, x):
        return x + keras.ops.take(self.table, keras.ops.arange(keras.ops.shape(x)[1]), axis=0)


def test_model_of_few_positions_leaves_no_form_uncovered(tmp_path):
    """No request can be longer than the golden cases, since Keras refuses longer inputs."""
    x = keras.Input((None, 4), name="x")
    uncovered, refused = find_uncovered_layers(keras.Model(x, attend_keras_attn(PositionTable()(x))), tmp_path)
    assert LONG in refused
    assert uncovered == []


def test_attention_layer_without_a_call_writes_no_function(tmp_path):
    class UncalledAttention(layers.Layer):
        def __init__(self):
            super().__init__()
            self.unused = layers.AdditiveAttention()

        def build(self, shape):
            pass

        def call(self, x):
            return x * 2

    x = keras.Input((None, 4), name="x")
    assert UncheckedExport(keras.Model(x, UncalledAttention()(x))).write(tmp_path).functions == []


LOOP_MODEL = """
<ir_version: 8, opset_import: ["" : 18, "alt.keras_attn" : 1]>
looped (float[b, q, 2] x, float[b, k, 2] y, int64 count) => (float[b, n, 2] out, float[s, b, m, 2] inputs)
{
    yes = Constant <value = bool {1}> ()
    no_step = Constant <value = int64 {0}> ()
    before = alt.keras_attn.first (y, x, x)
    out, inputs = Loop <body = outer (int64 i, bool go, float[b, n, 2] a)
        => (bool go_on, float[b, n, 2] a_on, float[b, q, 2] input)
    {
        go_on = Identity (go)
        longer = Concat <axis = 1> (a, x)
        is_first = Equal (i, no_step)
        chosen = If <
            then_branch = then () => (float[b, n, 2] attended) { attended = alt.keras_attn.chosen (longer, y, y) },
            else_branch = other () => (float[b, n, 2] unchanged) { unchanged = Identity (longer) }
        > (is_first)
        a_on = Loop <body = inner (int64 j, bool go_inner, float[b, n, 2] c)
            => (bool go_inner_on, float[b, n, 2] c_on)
        {
            go_inner_on = Identity (go_inner)
            c_on = alt.keras_attn.within (c, y, y)
        }> (i, yes, chosen)
        input = Identity (x)
    }> (count, yes, before)
}
""" + "".join(
    f"""
<domain: "alt.keras_attn", opset_import: ["" : 18]>
{op} (queries, keys, values) => (output) {{ output = Identity (queries) }}
"""
    for op in ("first", "chosen", "within")
)


@pytest.mark.parametrize(
    ("count", "chosen_sizes", "nested_sizes"),
    [(0, [], []), (1, [[8, 5]], []), (3, [[8, 5]], [[11, 5], [14, 5], [14, 5]])],
)
def test_sizes_are_collected_in_loops_and_branches(count, chosen_sizes, nested_sizes):
    """The branch `chosen` runs in step 0 only; step i of the outer loop runs i steps of the inner loop."""
    names = ("queries", "keys", "values")
    calls = [SimpleNamespace(op_type=op, shapes=dict.fromkeys(names)) for op in ("first", "chosen", "within")]
    model = _add_size_outputs(onnx.parser.parse_model(LOOP_MODEL), calls)
    onnx.checker.check_model(model, full_check=True)
    x, y = np.ones((2, 3, 2), "float32"), np.ones((2, 5, 2), "float32")
    outputs = run_model(model, x=x, y=y, count=np.array(count, "int64"))
    assert outputs["first/sizes"].tolist() == [[5, 3]]
    assert outputs["chosen/sizes"].tolist() == chosen_sizes
    assert outputs["within/sizes"].tolist() == nested_sizes
