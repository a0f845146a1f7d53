"""Float16 files without overflow: tensors beyond 65504 stay float32, by ranges measured in the golden cases."""

import math

import keras
import numpy as np
import pytest
from keras import layers
from lowered_calls import Plan, build_model
from onnx.reference import ReferenceEvaluator
from onnx_text import build_small_graph

from keras_attn_export import ParityError, export_model
from keras_attn_export._format.names import MODEL, Case
from keras_attn_export._golden_cases.golden_cases import LARGE_VALUES, POISONED
from keras_attn_export._lowering_names import ADAPTIVE_GPU
from keras_attn_export._lowerings import lowering_choice
from keras_attn_export._onnx.traced_model import TracedModel
from keras_attn_export._precision.float16 import convert_to_float16
from keras_attn_export._precision.float16_overflow import convert_without_overflow

EYE = np.eye(4, dtype="float32")
X = np.full((3, 4), 300, "float32")
GRAM = "a = MatMul (x, w) t = Transpose <perm = [1, 0]> (a) g = MatMul (t, a) s = Mul (g, c) y = MatMul (x, s)"
LOOP = """y = Loop <body = step (int64 i, bool on, float[k, 4] state) => (bool still, float[k, 4] new)
    { new = MatMul (state, w) still = Identity (on) }> (count, yes, x)"""
BRANCHES = """l = ReduceMax <keepdims = 0> (x) b = Greater (l, c)
    y = If (b) <then_branch = t () => (float[n, 4] p) { q = MatMul (x, w) p = MatMul (q, w) },
        else_branch = e () => (float[n, 4] r) { r = MatMul (x, w) }>"""
GELU = """a = MatMul (x, w) h = Mul (half, a) p = Pow (a, three) m = Mul (c, p) s = Add (a, m) k = Mul (r, s)
    t = Tanh (k) o = Add (one, t) g = Mul (h, o) y = MatMul (g, w)"""
GELU_CONSTANTS = {"half": 0.5, "three": 3, "c": 0.044715, "r": 0.7978846, "one": 1}


def convert(folder, model, **inputs):
    """Return the float16 model and its ranges, for cases with these inputs x."""
    cases = [Case(name, {"x": x}, {}) for name, x in inputs.items()]
    return convert_without_overflow(TracedModel(model), cases, "cpu", folder, ["x"])


@pytest.mark.parametrize(
    ("model", "wide"),
    [
        (build_small_graph(GRAM, w=EYE, c=np.float32(1e-5)), {"g": 3 * 300**2}),
        (build_small_graph(LOOP, w=EYE * 10, count=np.int64(3), yes=np.bool_(True)), {"new": 300 * 10**3}),
        (build_small_graph(BRANCHES, w=EYE * 100, c=np.float32(0)), {"p": 300 * 100**2, "r": math.inf}),
        (build_small_graph(BRANCHES, w=EYE * 100, c=np.float32(1e3)), {"p": math.inf, "q": math.inf}),
        (  # onnxruntime's fusion of GELU removes `h`, although another node reads it
            build_small_graph(GELU, w=EYE * 300, **{name: np.float32(value) for name, value in GELU_CONSTANTS.items()}),
            {"a": 9e4, "g": 9e4, "y": 2.7e7},
        ),
    ],
    ids=["graph", "loop", "branch", "other branch", "gelu"],
)
def test_tensors_beyond_float16_stay_float32(model, wide, tmp_path):
    float16_model, ranges = convert(tmp_path, model, usual=X)
    assert ranges["float32_layers"] == wide
    (expected,), (actual,) = (ReferenceEvaluator(graph).run(None, {"x": X}) for graph in (model, float16_model.model))
    np.testing.assert_allclose(actual, expected, rtol=1e-3)


@pytest.mark.parametrize(
    ("cases", "near_limit"),
    [
        ({"usual": X, LARGE_VALUES: X * 100}, {}),
        ({"usual": X, POISONED: np.full_like(X, 1e30)}, {}),
        ({"usual": X * 100, "infinite": X * np.inf}, {"a": 3e4, "x": 3e4}),
    ],
    ids=["large values", "masked garbage", "infinities"],
)
def test_only_usual_finite_values_are_reported_near_the_limit(cases, near_limit, tmp_path):
    _, ranges = convert(tmp_path, build_small_graph("a = MatMul (x, w) y = Tanh (a)", w=EYE), **cases)
    assert ranges == {"float32_layers": {}, "near_limit": near_limit, "drawn_inputs": {"x": "x"}}


def test_attention_of_wide_queries_stays_float32_on_a_gpu():
    call = Plan(size=8, value_size=8).call()
    traced = TracedModel(build_model(call, lowering_choice.build_lowered_function(call, ADAPTIVE_GPU, 18, "cuda"), 18))
    assert convert_to_float16(traced, "cuda").tensors == {"queries", "keys", "values"}
    assert not convert_to_float16(traced, "cuda", {"queries"}).tensors


def build_unscaled_model(variance):
    """Return a model of columns that a batch normalization scales only after a dense layer."""
    keras.utils.set_random_seed(0)
    columns = keras.Input((3,), name="columns")
    hidden = layers.BatchNormalization(name="scale")(layers.Dense(8, name="raw")(columns))
    model = keras.Model(columns, {"y": layers.Dense(4, name="head")(hidden)})
    model.get_layer("scale").moving_variance.assign(np.full(8, variance))
    return model


@pytest.mark.slow
def test_input_without_samples_is_reported_in_a_warning(tmp_path):
    with pytest.raises(ParityError, match=r"Input `columns` has no samples, .* layer `raw`.*`sample_inputs=") as error:
        export_model(build_unscaled_model(1.0), tmp_path / "bundle", precision="float16", strict=True)
    assert error.value.report.precision["ranges"]["drawn_inputs"] == {"columns": "raw"}


@pytest.mark.slow
def test_input_of_large_samples_gives_a_finite_file(tmp_path):
    seconds = (1.6e9 + 1e8 * np.random.default_rng(0).random((4, 3))).astype("float32")
    model = build_unscaled_model(1e18)
    bundle = export_model(model, tmp_path / "bundle", precision="float16", sample_inputs={"columns": seconds})
    (actual,) = ReferenceEvaluator(str(bundle.path / MODEL)).run(None, {"columns": seconds})
    np.testing.assert_allclose(actual, model(seconds)["y"], rtol=2e-3, atol=1e-3)
    assert {*bundle.report.precision["ranges"]["float32_layers"]} == {"raw"}
    assert not bundle.report.warnings
