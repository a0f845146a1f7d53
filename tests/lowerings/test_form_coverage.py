"""Form coverage: a form that no golden case ran is reported, and refused if every form must be proven."""

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

UNSEEN = "No case is long enough for the large form of layer `attend`."


def shortened(by, attend):
    """A model that attends over fewer positions than its input has."""
    x = keras.Input((None, 4), name="x")
    y = layers.Conv1D(4, by, strides=by, padding="same")(x) if by > 1 else x
    return keras.Model(x, attend(y))


def ours(y):
    return DotProductAttention(name="attend")(y, y, y)


def keras_own(y):
    return layers.MultiHeadAttention(2, 2, name="attend")(y, y)


def unseen(model, folder):
    """Return the layers whose form for large sizes the golden cases do not reach, and what Keras refused."""
    traced = UncheckedExport(model)
    file, golden = traced.write(folder), generate_golden_cases(traced.signature, Options())
    return find_layers_without_large_case(file.traced, file.adaptive_calls, golden, folder / "scratch"), golden.refused


@pytest.mark.slow
@pytest.mark.parametrize("attend", [ours, keras_own])
@pytest.mark.parametrize(("by", "observed"), [(1, []), (4, ["attend"])])
def test_form_that_no_golden_case_reaches_is_found(by, observed, attend, tmp_path):
    assert unseen(shortened(by, attend), tmp_path)[0] == observed


@pytest.mark.slow
def test_unreached_form_is_warned_of_and_refused_if_strict(tmp_path):
    assert export_model(shortened(4, ours), tmp_path / "other", lowering="portable").report.warnings == ()
    with pytest.raises(ParityError, match="No case is long enough") as caught:
        export_model(shortened(4, ours), tmp_path / "strict", strict=True)
    assert caught.value.report.warnings == (UNSEEN,)


def test_form_that_is_never_taken_need_not_be_reached(tmp_path, monkeypatch):
    monkeypatch.setitem(LARGE_THRESHOLDS, "flash", SizeThreshold(0, 2**62))
    assert unseen(shortened(4, ours), tmp_path) == ([], {})


@pytest.mark.parametrize(("step", "observed"), [(16, ["attend"]), (1, [])])
def test_queries_and_keys_are_counted_separately(step, observed, tmp_path, monkeypatch):
    monkeypatch.setitem(LARGE_THRESHOLDS, "examples", SizeThreshold(0, 400))
    q, k, v, lens = build_attention_inputs(queries=6, keys=6)
    model = keras.Model([q, k, v, lens], DotProductAttention(name="attend")(q[:, ::step], k, v, lens))
    assert unseen(model, tmp_path)[0] == observed


@pytest.mark.slow
def test_static_query_sizes_leave_no_form_unreached(tmp_path):
    q, k = keras.Input((1, 4), name="q"), keras.Input((None, 4), name="k")
    model = keras.Model([q, k], layers.MultiHeadAttention(2, 2)(q, k))
    assert unseen(model, tmp_path)[0] == []
    assert UncheckedExport(model).write(tmp_path).layers[0]["form"].endswith("since the model fixes the sizes")


class Placed(layers.Layer):
    """Adds what stands in a table of nine places."""

    def build(self, shape):
        self.table = self.add_weight(shape=(9, shape[-1]), initializer="normal")

    def call(self, x):
        return x + keras.ops.take(self.table, keras.ops.arange(keras.ops.shape(x)[1]), axis=0)


def test_model_of_few_positions_leaves_no_form_unreached(tmp_path):
    """No request can be longer than what Keras takes, so that nothing is left open."""
    x = keras.Input((None, 4), name="x")
    observed, refused = unseen(keras.Model(x, ours(Placed()(x))), tmp_path)
    assert LONG in refused
    assert observed == []


def test_attention_layer_without_a_call_writes_no_function(tmp_path):
    class Holding(layers.Layer):
        def __init__(self):
            super().__init__()
            self.unused = layers.AdditiveAttention()

        def build(self, shape):
            pass

        def call(self, x):
            return x * 2

    x = keras.Input((None, 4), name="x")
    assert UncheckedExport(keras.Model(x, Holding()(x))).write(tmp_path).functions == []


IN_LOOPS = """
<ir_version: 8, opset_import: ["" : 18, "alt.keras_attn" : 1]>
looped (float[b, q, 2] x, float[b, k, 2] y, int64 count) => (float[b, n, 2] out, float[s, b, m, 2] each)
{
    yes = Constant <value = bool {1}> ()
    no_step = Constant <value = int64 {0}> ()
    before = alt.keras_attn.first (y, x, x)
    out, each = Loop <body = outer (int64 i, bool go, float[b, n, 2] a)
        => (bool go_on, float[b, n, 2] a_on, float[b, q, 2] seen)
    {
        go_on = Identity (go)
        longer = Concat <axis = 1> (a, x)
        is_first = Equal (i, no_step)
        chosen = If <
            then_branch = then () => (float[b, n, 2] taken) { taken = alt.keras_attn.chosen (longer, y, y) },
            else_branch = other () => (float[b, n, 2] left) { left = Identity (longer) }
        > (is_first)
        a_on = Loop <body = inner (int64 j, bool go_inner, float[b, n, 2] c)
            => (bool go_inner_on, float[b, n, 2] c_on)
        {
            go_inner_on = Identity (go_inner)
            c_on = alt.keras_attn.within (c, y, y)
        }> (i, yes, chosen)
        seen = Identity (x)
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
    ("count", "chosen", "nested"), [(0, [], []), (1, [[8, 5]], []), (3, [[8, 5]], [[11, 5], [14, 5], [14, 5]])]
)
def test_sizes_are_collected_in_loops_and_branches(count, chosen, nested):
    """A loop of three steps, a branch that its first takes alone, and a loop in it of none, one and two steps."""
    names = ("queries", "keys", "values")
    calls = [SimpleNamespace(op_type=op, shapes=dict.fromkeys(names)) for op in ("first", "chosen", "within")]
    model = _add_size_outputs(onnx.parser.parse_model(IN_LOOPS), calls)
    onnx.checker.check_model(model, full_check=True)
    x, y = np.ones((2, 3, 2), "float32"), np.ones((2, 5, 2), "float32")
    observed = run_model(model, x=x, y=y, count=np.array(count, "int64"))
    assert observed["first/sizes"].tolist() == [[5, 3]]
    assert observed["chosen/sizes"].tolist() == chosen
    assert observed["within/sizes"].tolist() == nested
