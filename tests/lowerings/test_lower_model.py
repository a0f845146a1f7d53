"""Lowering of attention layers in a model: preserved layer names and the requested function bodies."""

import keras
import numpy as np
import onnxruntime
import pytest
from export_models import (
    EXPORTED,
    build_additive,
    build_attention_inputs,
    build_dict_inputs_and_outputs,
    build_shared_layer,
)
from unchecked_export import UncheckedExport

from keras_attn import AdditiveAttention, AttentionPooling, DotProductAttention, MultiHeadAttention
from keras_attn._pooling.composite import current_evaluator
from keras_attn_export import ExportError, ParityError, UnsupportedModelError, export_model
from keras_attn_export._cli.bundle_text import describe_bundle
from keras_attn_export._lowering_names import ADAPTIVE, PORTABLE
from keras_attn_export._lowerings.forms import additive_batched, multi_head_attention_op, ragged
from keras_attn_export._onnx.traced_model import CONTRIB, FUNCTION_DOMAIN
from keras_attn_export._onnx.traversal import iter_nodes
from keras_attn_export._passes import finalize
from keras_attn_export._thresholds import LARGE_THRESHOLDS, SizeThreshold
from keras_attn_export._tracing import freeze

SLOW = pytest.mark.slow


def build_model(layer, keys=6, **options):
    """Return a model of one attention layer with valid lengths."""
    q, k, v, lens = build_attention_inputs(keys=keys)
    return keras.Model([q, k, v, lens], layer(q, k, v, lens, **options))


def draw_inputs(model, rows=3, length=5, dtype="int32"):
    """Return normal random inputs of one length; row i has valid length i."""
    rng = np.random.default_rng(0)
    inputs = {
        tensor.name: rng.standard_normal((rows, *(size or length for size in tensor.shape[1:])), "float32")
        for tensor in model.inputs
    }
    return inputs | ({"valid_lens": np.arange(rows, dtype=dtype)} if "valid_lens" in inputs else {})


def assert_equals_keras(traced, file, inputs):
    outputs, expected = file.run(inputs), traced.compute_expected(inputs)
    assert outputs.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(outputs[name], array, rtol=1e-5, atol=1e-6, err_msg=name)


class DoubledScore(DotProductAttention):
    def score(self, queries, keys):
        return 2 * super().score(queries, keys)


class DoubledQueries(DotProductAttention):
    """Layer whose call doubles the queries."""

    def call(self, queries, *args, **kwargs):
        return super().call(queries * 2.0, *args, **kwargs)


class ReluScore(AdditiveAttention):
    """Layer whose `w_v` has an activation."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.w_v = keras.layers.Dense(1, use_bias=False, activation="relu", name="w_v")


@keras.saving.register_keras_serializable("tests")
class MappedAttention(keras.layers.Layer):
    """Attention inside of `keras.ops.map`, which is a loop."""

    def __init__(self, attention=None, **kwargs):
        super().__init__(**kwargs)
        self.attention = attention or DotProductAttention(name="attention")

    def call(self, x):
        return keras.ops.map(lambda rows: self.attention(rows[None], rows[None], rows[None])[0], x)


def build_mapped_model():
    x = keras.Input((4, 3), name="x")
    return keras.Model(x, MappedAttention()(x))


def build_two_layer_model():
    q, k, v, lens = build_attention_inputs(keys=6)
    first = AdditiveAttention(4, name="first")(q, k, v, lens)
    return keras.Model([q, k, v, lens], {"first": first, "second": DotProductAttention(name="second")(q, k, v, lens)})


def build_quantized_model():
    model = build_additive()
    model.get_layer("attention").w_v.quantize("int8")
    return model


def build_lora_model():
    model = build_additive()
    attention = model.get_layer("attention")
    for dense in (attention.W_q, attention.W_k, attention.w_v):
        dense.enable_lora(2)
        dense.lora_kernel_b.assign(np.random.default_rng(0).standard_normal(dense.lora_kernel_b.shape))
    return model


def build_single_output_model(index):
    """Return a model of the output (index 0) or of the weights (index 1)."""
    x = keras.Input((3, 4), batch_size=3, name="x")
    layer = DotProductAttention(name="attention")
    return keras.Model(x, layer(x, x, x, use_causal_mask=True, return_attention_scores=True)[index])


def build_constant_mask_model():
    x = keras.Input((3, 4), batch_size=3, name="x")
    lens, mask = np.array([2, 0, 3], "int32"), np.eye(3, dtype=bool)
    return keras.Model(x, AdditiveAttention(5, name="attention")(x, x, x, lens, attention_mask=mask))


def build_negative_scale_model():
    return build_model(DotProductAttention(scale=-1.0, name="attention"))


def build_blocked_model():
    return build_model(AdditiveAttention(7, query_block_size=2, name="attention"))


def build_multi_head_model():
    x = keras.Input((None, 6), name="x")
    return keras.Model(x, MultiHeadAttention(DoubledQueries(name="attention"), 2)(x, x, x))


PLAIN_LAYER, ADAPTIVE_LAYER = {"attention": PORTABLE}, {"attention": ADAPTIVE}
DOT_PRODUCT, ADDITIVE = ["dot_product_0"], ["additive_0"]
CASES = {
    "two calls": (build_shared_layer, ADAPTIVE, 18, ADAPTIVE_LAYER, ["additive_0", "additive_1"]),
    "two calls, portable": (build_shared_layer, PORTABLE, 18, PLAIN_LAYER, []),
    "at the lowest opset": (build_dict_inputs_and_outputs, ADAPTIVE, 18, ADAPTIVE_LAYER, DOT_PRODUCT),
    "by an operator": (build_dict_inputs_and_outputs, "fused", 24, {"attention": "fused"}, DOT_PRODUCT),
    "without a form": (build_additive, "fused", 18, PLAIN_LAYER, []),
    "each its own": (build_two_layer_model, "fused", 24, {"first": PORTABLE, "second": "fused"}, DOT_PRODUCT),
    "a score of one's own": (lambda: build_model(DoubledScore(name="attention")), ADAPTIVE, 18, PLAIN_LAYER, []),
    "a w_v of one's own": (lambda: build_model(ReluScore(7, name="attention")), ADAPTIVE, 18, PLAIN_LAYER, []),
    "a negative scale": (build_negative_scale_model, ADAPTIVE, 18, ADAPTIVE_LAYER, DOT_PRODUCT),
    "a negative scale, fused": (build_negative_scale_model, "fused", 18, PLAIN_LAYER, []),
    "in a loop": (build_mapped_model, ADAPTIVE, 18, ADAPTIVE_LAYER, ["dot_product_1"]),
    "quantized scores": (build_quantized_model, ADAPTIVE, 18, PLAIN_LAYER, []),
    "weights of LoRA": (build_lora_model, ADAPTIVE, 18, ADAPTIVE_LAYER, ADDITIVE),
    "the output alone": (lambda: build_single_output_model(0), ADAPTIVE, 18, ADAPTIVE_LAYER, DOT_PRODUCT),
    "the weights alone": (lambda: build_single_output_model(1), ADAPTIVE, 18, ADAPTIVE_LAYER, DOT_PRODUCT),
    "arguments that are constants": (build_constant_mask_model, ADAPTIVE, 18, ADAPTIVE_LAYER, ADDITIVE),
    "heads of a layer with a call of its own": (build_multi_head_model, ADAPTIVE, 18, ADAPTIVE_LAYER, DOT_PRODUCT),
    "blocks of queries": (build_blocked_model, ADAPTIVE, 18, ADAPTIVE_LAYER, ADDITIVE),
    "blocks of queries, portable": (build_blocked_model, PORTABLE, 18, PLAIN_LAYER, []),
}


@pytest.mark.parametrize(("build", "lowering", "opset", "lowerings", "functions"), CASES.values(), ids=CASES)
def test_layer_is_written_in_its_lowering_with_equal_outputs(build, lowering, opset, lowerings, functions, tmp_path):
    """Each call is one node with a function, or standard ONNX operators; outputs equal Keras."""
    traced = UncheckedExport(build())
    file = traced.write(tmp_path, lowering, 18 if lowering == ADAPTIVE else None, large=True)
    nodes = list(iter_nodes(file.traced.model.graph))
    assert (file.opset, file.lowerings, file.functions) == (opset, lowerings, functions)
    assert sorted(node.op_type for node in nodes if node.domain == FUNCTION_DOMAIN) == functions
    if not functions:
        assert {node.domain for node in nodes} == {""}
        control_flow = {"If", "Loop"} if lowering == PORTABLE else set()
        assert {"If", "Loop", "Scan"} & {node.op_type for node in nodes} == control_flow
    assert_equals_keras(traced, file, draw_inputs(traced.model))


@pytest.mark.slow
def test_portable_files_have_no_nested_loop(tmp_path):
    """OpenVINO cannot load nested loops."""
    x = keras.Input((49, 3), name="x")
    file = UncheckedExport(keras.Model(x, MappedAttention(AdditiveAttention(3))(x))).write(tmp_path, PORTABLE)
    assert [node.op_type for node in iter_nodes(file.traced.model.graph)].count("Loop") == 1


@pytest.mark.parametrize("weights", [False, True])
def test_default_lowering_depends_on_the_size(weights, tmp_path):
    model = build_model(DotProductAttention(name="attention"), return_attention_scores=weights)
    file, other_folder = UncheckedExport(model).write(tmp_path), tmp_path / "second"
    other_folder.mkdir()
    assert file.lowerings == {"attention": "adaptive"}
    assert file.opset == 24
    threshold = LARGE_THRESHOLDS["weights" if weights else "examples"]
    queries = f"(queries - {threshold.ignored_queries})" if threshold.ignored_queries else "queries"
    condition = f"{queries} * keys < {threshold.min_pairs:,}"
    assert file.layers[0]["form"] == f"the operator `Attention` while {condition}, else ragged"
    (body,) = file.traced.model.functions
    assert "Scan" in str(body)
    assert file.path.read_bytes() == UncheckedExport(model).write(other_folder).path.read_bytes()


@keras.saving.register_keras_serializable("tests")
class Rotated(keras.layers.Layer):
    """Rotary position embedding of two heads, with concatenated halves."""

    def call(self, x):
        length = keras.ops.shape(x)[1]
        heads = keras.ops.reshape(x, (-1, length, 2, 4))
        angles = keras.ops.arange(length, dtype="float32")[None, :, None] * keras.ops.array([1.0, 0.1])
        angles = keras.ops.concatenate([angles, angles], -1)[:, :, None]
        first, second = keras.ops.split(heads, 2, axis=-1)
        swapped = keras.ops.concatenate([-second, first], -1)
        rotated = heads * keras.ops.cos(angles) + swapped * keras.ops.sin(angles)
        return keras.ops.reshape(rotated, (-1, length, 8))


@pytest.mark.parametrize("lowering", ["adaptive", "fused", PORTABLE])
def test_rotary_operator_is_in_adaptive_files_only(lowering, tmp_path):
    x = keras.Input((None, 8), name="x")
    traced = UncheckedExport(keras.Model(x, DotProductAttention(name="attention")(Rotated()(x), x, x)))
    file = traced.write(tmp_path, lowering)
    assert_equals_keras(traced, file, draw_inputs(traced.model))
    domains = {node.domain for node in file.traced.model.graph.node if node.op_type == "RotaryEmbedding"}
    assert domains == ({CONTRIB} if lowering == ADAPTIVE else set())


@pytest.mark.slow
def test_saved_model_has_no_tags_and_inspect_shows_the_form(tmp_path):
    bundle = export_model(build_dict_inputs_and_outputs(), tmp_path / "bundle")
    assert b"keras_attn.dot_product" not in (bundle.path / "saved_model" / "saved_model.pb").read_bytes()
    assert current_evaluator() is None
    (layer,) = bundle.manifest["layers"]
    assert layer["lowering"] == "adaptive"
    assert " ".join(layer["form"].split()) in " ".join(" ".join(describe_bundle(bundle)).split())


def test_model_that_cannot_be_converted_stays_at_the_lowest_opset(tmp_path, monkeypatch, caplog):
    def raise_error(*_):
        raise RuntimeError("no adapter")

    monkeypatch.setattr(finalize.version_converter, "convert_version", raise_error)
    traced = UncheckedExport(build_dict_inputs_and_outputs())
    with caplog.at_level("DEBUG", "keras_attn_export"):
        file = traced.write(tmp_path)
    assert "opset 24 is not possible" in caplog.text
    assert (file.opset, file.lowerings) == (18, {"attention": "adaptive"})
    assert file.layers[0]["form"].startswith("plain operators")
    with pytest.raises(UnsupportedModelError, match="no adapter"):
        traced.write(tmp_path, opset=24)


@keras.saving.register_keras_serializable("tests")
class SameLayerPaths(keras.Model):
    """Model of two layers with the same path."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.second = AdditiveAttention(4, name="attention"), DotProductAttention(name="attention")
        self.first.build((None, None, 6), (None, None, 6), (None, None, 6))
        self.second.build((None, None, 6), (None, None, 6), (None, None, 6))

    def call(self, x):
        return self.second(self.first(x, x, x), x, x)


def test_layers_of_one_path_have_their_own_lowering(tmp_path):
    inputs = {"x": np.random.default_rng(0).standard_normal((2, 3, 6)).astype("float32")}
    traced = UncheckedExport(SameLayerPaths(), inputs)
    file = traced.write(tmp_path, "fused")
    assert [layer["lowering"] for layer in file.layers] == [PORTABLE, "fused"]
    assert_equals_keras(traced, file, inputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "large"),
    [("dict inputs and outputs", True), ("gelu, norm, dropout, conv", False), ("implicit mask and encoders", True)],
)
def test_every_opset_equals_keras(name, large, tmp_path):
    traced = UncheckedExport(EXPORTED[name].build())
    ids = {"ids": np.arange(12, dtype="int32").reshape(2, 6) % 11}
    inputs = ids if name == "implicit mask and encoders" else draw_inputs(traced.model)
    for opset in range(18, 25):
        file = traced.write(tmp_path, opset=opset, large=large)
        assert (
            {opset_id.domain: opset_id.version for opset_id in file.traced.model.opset_import}[""]
            == file.opset
            == opset
        )
        assert file.lowerings.popitem()[1] == ADAPTIVE
        assert_equals_keras(traced, file, inputs)


@pytest.mark.parametrize("dtype", ["int64", "uint32", "uint64"])
def test_lengths_beyond_int32_count_all_keys(dtype, tmp_path):
    q, k, v, _ = build_attention_inputs(keys=6)
    lens = keras.Input((), dtype=dtype, name="valid_lens")
    traced = UncheckedExport(keras.Model([q, k, v, lens], DotProductAttention()(q, k, v, lens)))
    file, inputs = traced.write(tmp_path), draw_inputs(traced.model, rows=4)
    expected, output = (
        file.run(inputs | {"valid_lens": np.array(lens, dtype)}).popitem()[1]
        for lens in ([5] * 4, [2**31, 2**32 - 1, 2**31 - 1, 6])
    )
    np.testing.assert_array_equal(output, expected)


@pytest.mark.fresh_process  # the thresholds of the package make one query a small size
@pytest.mark.parametrize("masked", ["lengths", pytest.param("mask", marks=SLOW)])
def test_padding_changes_no_bit_of_additive_attention(masked, tmp_path):
    """Attempt and retry compute the same product with `w_v`, although onnxruntime could pack this constant in one."""
    q, k, v, lens = build_attention_inputs(queries=64, keys=64)
    mask = keras.Input((None,), dtype="bool", name="mask")
    mask_inputs = {"valid_lens": lens} if masked == "lengths" else {"keys_mask": mask}
    model = keras.Model([q, k, v, *mask_inputs.values()], AdditiveAttention(64)(q, k, v, **mask_inputs))
    file, inputs = UncheckedExport(model).write(tmp_path), draw_inputs(model, rows=2, length=100)
    inputs["queries"] = inputs["queries"][:, :1]
    lengths = np.array([100, 60], "int32")
    inputs |= {"valid_lens": lengths} if masked == "lengths" else {"mask": np.arange(100) < lengths[:, None]}
    expected = file.run(inputs)
    for name in ("keys", "values"):
        inputs[name] = inputs[name].copy()
        inputs[name][1, 60:] = np.nan
    for name, array in file.run(inputs).items():
        np.testing.assert_array_equal(array, expected[name])


@pytest.mark.slow
def test_old_onnxruntime_refuses_fused(tmp_path, monkeypatch):
    monkeypatch.setattr(onnxruntime, "__version__", "1.24.4")
    message = r"`lowering='fused'` needs onnxruntime 1\.25 or newer\. Received: .* 1\.24\.4"
    with pytest.raises(ExportError, match=message):
        export_model(build_dict_inputs_and_outputs(), tmp_path / "bundle", lowering="fused")
    assert not list(tmp_path.iterdir())


def test_node_without_one_of_its_inputs_is_an_error(monkeypatch):
    check = freeze.check_calls_intact

    def drop_input(graph, calls, needed):
        next(node for node in graph.node if node.domain == FUNCTION_DOMAIN).input.pop()
        check(graph, calls, needed)

    monkeypatch.setattr("keras_attn_export._tracing.to_onnx.check_calls_intact", drop_input)
    model = build_additive()
    with pytest.raises(ExportError, match=r"changed the attention call of layer `.+`, so the exporter cannot insert"):
        UncheckedExport(model)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "module", "part"),
    [
        (AdditiveAttention(7), ragged, "build_body"),
        (DotProductAttention(), multi_head_attention_op, "_attend_examples"),
        (DotProductAttention(), multi_head_attention_op, "attend_all_keys"),
    ],
    ids=["additive", "padded", "every key"],
)
def test_fault_in_the_form_for_large_sizes_fails_parity(layer, module, part, tmp_path, monkeypatch):
    monkeypatch.setitem(LARGE_THRESHOLDS, "additive", SizeThreshold(2, 7 * 256))  # only case `long` has 256 pairs
    original = getattr(module, part)

    monkeypatch.setattr(module, part, lambda call: tuple(output * 1.01 for output in original(call)))
    model = build_model(type(layer).from_config(layer.get_config()))
    with pytest.raises(ParityError, match="in case `long"):
        export_model(model, tmp_path / "bundle")


@pytest.mark.slow
def test_fault_in_the_blocks_of_a_portable_file_fails_parity(tmp_path, monkeypatch):
    """No golden case is large enough for blocks, which a check of the large forms runs."""
    original = additive_batched.build_body
    monkeypatch.setattr(additive_batched, "build_body", lambda call: tuple(output * 1.01 for output in original(call)))
    with pytest.raises(ParityError, match=r"^In the forms of attention for large sizes: Outputs differ"):
        export_model(build_model(AdditiveAttention(7)), tmp_path / "bundle", lowering=PORTABLE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "lowering", "precision"),
    [
        ("dict inputs and outputs", "fused", "int8"),
        ("dict inputs and outputs", "adaptive", "float16"),
        ("additive", "adaptive", "int8"),
        ("dict inputs and outputs", "fused", "float16"),
        ("additive", "adaptive", "float16"),
        ("implicit mask and encoders", "adaptive", "int8"),
    ],
)
def test_lowerings_pass_in_lower_precisions(name, lowering, precision, tmp_path):
    model = EXPORTED[name].build()
    bundle = export_model(model, tmp_path / "bundle", lowering=lowering, precision=precision)
    assert bundle.report.passed
    assert bundle.manifest["precision"] == precision


@keras.saving.register_keras_serializable("tests")
class CentredScore(AttentionPooling):
    """Attention whose scores depend on the mean of all keys, padding included; padding is set to zeros."""

    def score(self, queries, keys):
        centred = keys - keras.ops.mean(keys, axis=-2, keepdims=True)
        return keras.ops.matmul(queries, keras.ops.swapaxes(centred, -1, -2))


@pytest.mark.slow
def test_padding_does_not_change_custom_scores(tmp_path):
    bundle = export_model(build_model(CentredScore()), tmp_path / "bundle")
    assert "poisoned padding" in {row.case for row in bundle.report.rows}
    assert bundle.manifest["layers"][0]["lowering"] == "fused"  # matched by its operators
