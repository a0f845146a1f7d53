"""Attention layers keep their name through TensorFlow, get the body that was asked for, and nobody else sees it."""

import keras
import numpy as np
import onnx
import pytest
from export_models import EXPORTED, additive, dict_inputs_and_outputs, qkvl, shared_layer

from keras_attn import (
    AdditiveAttention,
    AttentionPooling,
    DotProductAttention,
    GaussianAttention,
    MultiHeadAttention,
)
from keras_attn._composite import current_evaluator
from keras_attn_export import ExportError, ParityError, UnsupportedModelError, export_model
from keras_attn_export._cli.describe import describe
from keras_attn_export._internals import tf2onnx_internals
from keras_attn_export._lowerings import flash, ragged
from keras_attn_export._options import PORTABLE
from keras_attn_export._thresholds import LARGE, From
from keras_attn_export._tracing import freeze, onnx_file

LATER = pytest.mark.out_of_turn


def lowered(bundle):
    return {layer["name"]: layer["lowering"] for layer in bundle.manifest["layers"]}


def functions(bundle):
    return {function.name for function in onnx.load(bundle.path / "model.onnx").functions}


def test_each_call_is_one_node_with_a_body(tmp_path):
    bundle = export_model(shared_layer(), tmp_path / "bundle", lowering="ragged")
    model = onnx.load(bundle.path / "model.onnx")
    calls = [node.op_type for node in model.graph.node if node.domain == "keras_attn"]
    assert sorted(calls) == sorted(functions(bundle)) == ["additive_0", "additive_1"]
    assert lowered(bundle) == {"attention": "ragged"}


def test_portable_has_no_functions_and_no_operators_of_one_runtime(tmp_path):
    bundle = export_model(shared_layer(), tmp_path / "bundle", lowering=PORTABLE)
    assert not functions(bundle)
    assert lowered(bundle) == {"attention": PORTABLE}
    model = onnx.load(bundle.path / "model.onnx")
    assert {node.domain for node in model.graph.node} == {""}
    assert not {"If", "Loop", "Scan"} & {node.op_type for node in model.graph.node}


@pytest.mark.parametrize("weights", [False, True])
def test_the_default_decides_by_size(weights, tmp_path):
    q, k, v, lens = qkvl(queries=6, keys=6)
    attended = DotProductAttention(name="attention")(q, k, v, lens, return_attention_scores=weights)
    model = keras.Model([q, k, v, lens], attended)
    first, second = (export_model(model, tmp_path / name) for name in "ab")
    assert lowered(first) == {"attention": "adaptive"}
    assert first.manifest["opset"] == 24
    least = LARGE["weights" if weights else "examples"]
    queries = f"(queries - {least.queries})" if least.queries else "queries"
    assert first.manifest["layers"][0]["form"] == (
        f"the operator `Attention` while {queries} * keys < {least.pairs:,}, else ragged"
    )
    assert " ".join(first.manifest["layers"][0]["form"].split()) in " ".join(describe(first).split())
    (body,) = onnx.load(first.path / "model.onnx").functions
    assert "Scan" in str(body)
    assert first.manifest["sha256"]["model.onnx"] == second.manifest["sha256"]["model.onnx"]


@pytest.mark.parametrize(
    ("layer", "module", "part"),
    [
        (AdditiveAttention, ragged, "body"),
        (DotProductAttention, flash, "_over_examples"),
        (DotProductAttention, flash, "over_all"),
    ],
    ids=["additive", "padded", "every key"],
)
def test_a_fault_in_the_form_for_large_sizes_is_found(layer, module, part, tmp_path, monkeypatch):
    monkeypatch.setitem(LARGE, "additive", From(2, 7 * 256))  # of 7 units: the other cases are too small
    q, k, v, lens = qkvl(queries=6, keys=6)
    attend = layer(7) if layer is AdditiveAttention else layer()
    right = getattr(module, part)

    def wrong(call, *name):
        text = right(call, *name)
        return text.replace("scale = 0", "scale = 10").replace("Softmax <axis = -1>", "Softmax <axis = -2>")

    monkeypatch.setattr(module, part, wrong)
    with pytest.raises(ParityError, match="in case `long"):
        export_model(keras.Model([q, k, v, lens], attend(q, k, v, lens)), tmp_path / "bundle")


def test_a_model_that_does_not_convert_keeps_the_form_by_size_at_the_lowest_opset(tmp_path, monkeypatch):
    def fails(*_):
        raise RuntimeError("no adapter")

    monkeypatch.setattr(onnx_file.version_converter, "convert_version", fails)
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle")
    assert lowered(bundle) == {"attention": "adaptive"}
    assert bundle.manifest["opset"] == 18
    assert bundle.manifest["layers"][0]["form"].startswith("plain operators")
    with pytest.raises(UnsupportedModelError, match="no adapter"):
        export_model(dict_inputs_and_outputs(), tmp_path / "asked", opset=24)


@pytest.mark.parametrize("lowering", ["portable", pytest.param("ragged", marks=LATER)])
def test_blocks_of_queries_are_no_loop_in_onnx(lowering, tmp_path):
    q, k, v, lens = qkvl()
    layer = AdditiveAttention(7, query_block_size=2, name="attention")
    bundle = export_model(keras.Model([q, k, v, lens], layer(q, k, v, lens)), tmp_path / "bundle", lowering=lowering)
    assert lowered(bundle) == {"attention": lowering}
    assert "Loop" not in {node.op_type for node in onnx.load(bundle.path / "model.onnx").graph.node}


@pytest.mark.parametrize("lowering", ["ragged", *(pytest.param(each, marks=LATER) for each in ("portable", "fused"))])
def test_distances_far_from_the_origin(lowering, tmp_path):
    q, k, v, lens = qkvl(queries=12, keys=12)
    model = keras.Model([q, k, v, lens], GaussianAttention(name="attention")(q, k, v, lens))
    rng = np.random.default_rng(0)
    shapes = {"queries": (3, 4, 12), "keys": (3, 6, 12), "values": (3, 6, v.shape[-1])}
    samples = {name: (rng.normal(size=shape) + 300).astype("float32") for name, shape in shapes.items()}
    samples["valid_lens"] = np.array([2, 6, 0])
    bundle = export_model(model, tmp_path / "bundle", lowering=lowering, sample_inputs=samples)
    assert lowered(bundle) == {"attention": lowering}
    assert {"samples"} < {row.case for row in bundle.report.rows}


@pytest.mark.parametrize(("lowering", "opset"), [("ragged", 18), ("fused", 24)])
def test_the_lowest_opset_that_will_do(lowering, opset, tmp_path):
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering=lowering)
    assert bundle.manifest["opset"] == opset
    assert lowered(bundle) == {"attention": lowering}


def test_a_layer_without_a_body_is_portable(tmp_path):
    bundle = export_model(additive(), tmp_path / "bundle", lowering="fused")
    assert lowered(bundle) == {"attention": PORTABLE}
    assert bundle.manifest["opset"] == 18
    assert not functions(bundle)


def test_each_layer_has_its_own(tmp_path):
    q, k, v, lens = qkvl(keys=6)
    first = AdditiveAttention(4, name="first")(q, k, v, lens)
    second = DotProductAttention(name="second")(q, k, v, lens)
    model = keras.Model([q, k, v, lens], {"first": first, "second": second})
    bundle = export_model(model, tmp_path / "bundle", lowering="fused")
    assert lowered(bundle) == {"first": PORTABLE, "second": "fused"}
    assert len(functions(bundle)) == 1


def test_no_tag_reaches_the_saved_model(tmp_path):
    bundle = export_model(dict_inputs_and_outputs(), tmp_path / "bundle", lowering="ragged")
    assert b"keras_attn.dot_product" not in (bundle.path / "saved_model" / "saved_model.pb").read_bytes()
    assert current_evaluator() is None


class Doubled(DotProductAttention):
    def score(self, queries, keys):
        return 2 * super().score(queries, keys)


def test_a_score_of_ones_own_is_not_replaced(tmp_path):
    q, k, v, lens = qkvl(keys=6)
    bundle = export_model(
        keras.Model([q, k, v, lens], Doubled()(q, k, v, lens)), tmp_path / "bundle", lowering="ragged"
    )
    assert not functions(bundle)
    assert set(lowered(bundle).values()) == {PORTABLE}


class ReluWeighed(AdditiveAttention):
    """Its `w_v` is more than a product."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.w_v = keras.layers.Dense(1, use_bias=False, activation="relu", name="w_v")


def test_a_w_v_of_ones_own_is_not_replaced(tmp_path):
    q, k, v, lens = qkvl()
    layer = ReluWeighed(7, query_block_size=1)
    bundle = export_model(keras.Model([q, k, v, lens], layer(q, k, v, lens)), tmp_path / "bundle", lowering="ragged")
    assert set(lowered(bundle).values()) == {PORTABLE}
    inputs = [np.random.default_rng(0).standard_normal((2, 3, size)).astype("float32") for size in (6, 8, 5)]
    blocked = layer(*inputs)
    layer.query_block_size = None
    np.testing.assert_allclose(blocked, layer(*inputs), rtol=1e-6)


@pytest.mark.parametrize("lowering", ["fused", "ragged"])
def test_a_negative_scale(lowering, tmp_path):
    q, k, v, lens = qkvl(keys=6)
    model = keras.Model([q, k, v, lens], DotProductAttention(scale=-1.0, name="attention")(q, k, v, lens))
    bundle = export_model(model, tmp_path / "bundle", lowering=lowering)
    assert lowered(bundle) == {"attention": PORTABLE if lowering == "fused" else "ragged"}


@keras.saving.register_keras_serializable("tests")
class Namesakes(keras.Model):
    """Two layers of one path."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.second = AdditiveAttention(4, name="attention"), DotProductAttention(name="attention")
        self.first.build((None, None, 6), (None, None, 6), (None, None, 6))
        self.second.build((None, None, 6), (None, None, 6), (None, None, 6))

    def call(self, x):
        return self.second(self.first(x, x, x), x, x)


def test_namesakes_are_told_apart(tmp_path):
    samples = {"x": np.random.default_rng(0).standard_normal((2, 3, 6)).astype("float32")}
    bundle = export_model(Namesakes(), tmp_path / "bundle", lowering="fused", sample_inputs=samples)
    told = {layer["class"]: layer["lowering"] for layer in bundle.manifest["layers"]}
    assert told == {"AdditiveAttention": PORTABLE, "DotProductAttention": "fused"}


@keras.saving.register_keras_serializable("tests")
class InALoop(keras.layers.Layer):
    """Attention inside of `keras.ops.map`."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = DotProductAttention()

    def call(self, x):
        return keras.ops.map(lambda rows: self.attention(rows[None], rows[None], rows[None])[0], x)


def test_a_call_in_a_loop_is_lowered(tmp_path):
    x = keras.Input((4, 3), name="x")
    bundle = export_model(keras.Model(x, InALoop()(x)), tmp_path / "bundle", lowering="ragged")
    assert len(functions(bundle)) == 1
    assert set(lowered(bundle).values()) == {"ragged"}


def test_quantized_scores_are_left_as_they_are(tmp_path):
    model = additive()
    model.get_layer("attention").w_v.quantize("int8")
    bundle = export_model(model, tmp_path / "bundle", lowering="ragged", tolerance=1e-2)
    assert lowered(bundle) == {"attention": PORTABLE}


def test_weights_of_lora_are_taken_along(tmp_path):
    model = additive()
    attention = model.get_layer("attention")
    for dense in (attention.W_q, attention.W_k, attention.w_v):
        dense.enable_lora(2)
        dense.lora_kernel_b.assign(np.random.default_rng(0).standard_normal(dense.lora_kernel_b.shape))
    bundle = export_model(model, tmp_path / "bundle", lowering="ragged")
    assert lowered(bundle) == {"attention": "ragged"}
    assert bundle.report.passed


def test_a_call_that_an_optimizer_took_apart_is_an_error(tmp_path, monkeypatch):
    optimize = tf2onnx_internals.optimized

    def take_apart(graph, inputs, outputs):
        for function in graph.library.function:
            del function.attr["_implements"], function.attr["_noinline"]
        return optimize(graph, inputs, outputs)

    monkeypatch.setattr(tf2onnx_internals, "optimized", take_apart)
    with pytest.raises(ExportError, match=r"Layer `.*attention` did not come through .* as one node"):
        export_model(additive(), tmp_path / "bundle", lowering="ragged")
    assert not list(tmp_path.iterdir())


def test_a_node_that_lost_an_input_is_an_error(tmp_path, monkeypatch):
    check = freeze.check_calls

    def drop_one(graph, calls, needed):
        next(node for node in graph.node if node.domain == "keras_attn").input.pop()
        check(graph, calls, needed)

    monkeypatch.setattr("keras_attn_export._tracing.to_onnx.check_calls", drop_one)
    with pytest.raises(ExportError, match="as one node, so its attention cannot be replaced"):
        export_model(additive(), tmp_path / "bundle", lowering="ragged")


@pytest.mark.parametrize("kept", ["output", "weights"])
def test_outputs_that_nobody_reads(kept, tmp_path):
    x = keras.Input((3, 4), batch_size=2, name="x")
    output, weights = DotProductAttention()(x, x, x, use_causal_mask=True, return_attention_scores=True)
    model = keras.Model(x, output if kept == "output" else weights)
    bundle = export_model(model, tmp_path / "bundle", lowering="ragged")
    assert len(functions(bundle)) == 1
    assert bundle.report.passed


def test_arguments_that_are_constants(tmp_path):
    x = keras.Input((3, 4), batch_size=2, name="x")
    lens, mask = np.array([2, 0], "int32"), np.eye(3, dtype=bool)
    model = keras.Model(x, AdditiveAttention(5)(x, x, x, lens, attention_mask=mask))
    for lowering in ("ragged", "auto"):
        bundle = export_model(model, tmp_path / lowering, lowering=lowering)
        assert bundle.report.passed
    assert len(functions(export_model(model, tmp_path / "again", lowering="ragged"))) == 1


@pytest.mark.fresh_process  # with the thresholds of the package: one query is a small size
@pytest.mark.parametrize("masked", ["lengths", pytest.param("mask", marks=LATER)])
def test_what_padding_holds_changes_no_bit(masked, tmp_path):
    """The first try and the second are the same product, though `w_v` is a constant that onnxruntime could pack."""
    q, k, v, lens = qkvl(queries=64, keys=64)
    mask = keras.Input((None,), dtype="bool", name="mask")
    given = {"valid_lens": lens} if masked == "lengths" else {"keys_mask": mask}
    attended = AdditiveAttention(64)(q, k, v, **given)
    bundle = export_model(keras.Model([q, k, v, lens if masked == "lengths" else mask], attended), tmp_path / "bundle")
    rng = np.random.default_rng(0)
    inputs = {
        name: rng.standard_normal((2, 1 if name == "queries" else 100, 64), "float32") for name in ("queries", "keys")
    }
    inputs["values"] = rng.standard_normal((2, 100, 5), "float32")
    lengths = np.array([100, 60], "int32")
    inputs |= {"valid_lens": lengths} if masked == "lengths" else {"mask": np.arange(100) < lengths[:, None]}
    clean = bundle.run(inputs)
    for name in ("keys", "values"):
        inputs[name] = inputs[name].copy()
        inputs[name][1, 60:] = np.nan
    for name, array in bundle.run(inputs).items():
        np.testing.assert_array_equal(array, clean[name])


@pytest.mark.parametrize(
    ("name", "lowering", "precision"),
    [
        ("dict inputs and outputs", "fused", "int8"),
        ("dict inputs and outputs", "auto", "float16"),
        ("additive", "adaptive", "int8"),
        pytest.param("additive", "adaptive", "float16", marks=LATER),
        *(
            pytest.param("dict inputs and outputs", *each, marks=LATER)
            for each in (("fused", "float16"), ("ragged", "float16"), ("ragged", "int8"), ("auto", "int8"))
        ),
        pytest.param("implicit mask and encoders", "ragged", "float16", marks=LATER),
        pytest.param("implicit mask and encoders", "fused", "int8", marks=LATER),
    ],
)
def test_precisions(name, lowering, precision, tmp_path):
    model = EXPORTED[name].build()
    bundle = export_model(model, tmp_path / "bundle", lowering=lowering, precision=precision)
    assert bundle.report.passed
    assert bundle.manifest["precision"] == precision


@pytest.mark.parametrize("opset", [18, *(pytest.param(each, marks=LATER) for each in range(19, 24)), 24])
@pytest.mark.parametrize("name", ["dict inputs and outputs", pytest.param("list outputs of one layer", marks=LATER)])
def test_ragged_at_every_opset(name, opset, tmp_path):
    bundle = export_model(EXPORTED[name].build(), tmp_path / "bundle", lowering="ragged", opset=opset)
    assert bundle.manifest["opset"] == opset
    assert len(functions(bundle)) == 1


def test_weights_outside_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_attn_export._tracing.weights.LIMIT", 100)
    monkeypatch.setattr("keras_attn_export._tracing.weights.LARGE", 200)
    for lowering in ("ragged", "auto"):
        bundle = export_model(additive(), tmp_path / lowering, lowering=lowering)
        assert "model.onnx.data" in bundle.manifest["sha256"]
        assert bundle.report.passed


@keras.saving.register_keras_serializable("tests")
class Centred(AttentionPooling):
    """A score of a pair that all keys have a part in, padding too: it is zeros there."""

    def score(self, queries, keys):
        centred = keys - keras.ops.mean(keys, axis=-2, keepdims=True)
        return keras.ops.matmul(queries, keras.ops.swapaxes(centred, -1, -2))


def test_padding_is_hidden_from_scores_without_a_form_of_their_own(tmp_path):
    sequences = [keras.Input((None, 4), name=name) for name in ("queries", "keys", "values")]
    valid_lens = keras.Input((), dtype="int32", name="valid_lens")
    model = keras.Model([*sequences, valid_lens], Centred()(*sequences, valid_lens))
    bundle = export_model(model, tmp_path / "bundle", lowering="ragged")
    assert "poisoned padding" in {row.case for row in bundle.report.rows}
    assert bundle.manifest["layers"][0]["lowering"] == "portable"


@pytest.mark.parametrize("dtype", ["int64", "uint32", "uint64"])
def test_lengths_of_any_integers(dtype, tmp_path):
    q, k, v, _ = qkvl(queries=6, keys=6)
    lens = keras.Input((), dtype=dtype, name="valid_lens")
    model = keras.Model([q, k, v, lens], DotProductAttention()(q, k, v, lens))
    bundle = export_model(model, tmp_path / "bundle")
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((4, 5, size), "float32") for name, size in (("queries", 6), ("keys", 6))}
    arrays["values"] = rng.standard_normal((4, 5, v.shape[-1]), "float32")
    (name,) = bundle.run({**arrays, "valid_lens": np.full(4, 5, dtype)})
    full = bundle.run({**arrays, "valid_lens": np.full(4, 5, dtype)})[name]
    more = bundle.run({**arrays, "valid_lens": np.array([2**31, 2**32 - 1, 2**31 - 1, 6], dtype)})[name]
    np.testing.assert_array_equal(more, full)


@keras.saving.register_keras_serializable("tests")
class Twice(DotProductAttention):
    """Does more than score in its call."""

    def call(self, queries, *args, **kwargs):
        return super().call(queries * 2.0, *args, **kwargs)


def test_heads_of_a_layer_with_a_call_of_its_own(tmp_path):
    x = keras.Input((None, 6), name="x")
    model = keras.Model(x, MultiHeadAttention(Twice(), 2)(x, x, x))
    assert export_model(model, tmp_path / "bundle").report.passed
