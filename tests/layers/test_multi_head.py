"""`MultiHeadAttention`: equality of each head with its scoring layer, masks, groups, options and sublayers."""

import json

import keras
import numpy as np
import pytest
import reference
from backends import MODES, compile_function, run_only_on
from keras import ops
from layer_contract import build_error_pattern, draw_weights, save_and_load, to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import AdditiveAttention, CosineAttention, DotProductAttention, MultiHeadAttention

B, Tq, Tk, Dq, Dk, Dv, H, K, V = 2, 3, 5, 8, 7, 6, 4, 5, 9
LENGTHS = np.array([2, 4])
INVALID_BIAS = np.zeros((1, 3, Tq, Tk), "float32")


def draw_inputs(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype("float32") for shape in ((B, Tq, Dq), (B, Tk, Dk), (B, Tk, Dv))]


def build_layer(attention=None, num_heads=H, key_dim=K, value_dim=V, **options):
    layer = MultiHeadAttention(attention or DotProductAttention(), num_heads, key_dim, value_dim, **options)
    layer.build(*(array.shape for array in draw_inputs()))
    draw_weights(layer)
    return layer


SCORES = {  # factory of the scoring layer; factory of its reference score
    "additive": (lambda: AdditiveAttention(5), lambda a: reference.additive_score(*map(to_numpy, a.get_weights()))),
    "cosine": (lambda: CosineAttention(), lambda a: reference.cosine_score(float(np.exp(to_numpy(a.log_temperature))))),
}


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("groups", [H, 2])
def test_each_head_equals_the_scoring_layer_on_its_projections(score, groups):
    build_attention, build_score = SCORES[score]
    layer, (queries, keys, values) = build_layer(build_attention(), num_kv_heads=groups), draw_inputs()
    output, weights = layer(queries, keys, values, LENGTHS, window=(1, 3), return_attention_scores=True)
    projections = [
        (array.astype("float64") @ to_numpy(dense.kernel) + to_numpy(dense.bias)).reshape(*array.shape[:2], heads, -1)
        for array, dense, heads in zip(
            (queries, keys, values), (layer.W_q, layer.W_k, layer.W_v), (H, groups, groups), strict=True
        )
    ]
    head_outputs, score = [], build_score(layer.attention)
    for head in range(H):
        group = head * groups // H
        q, k, v = (x[:, :, index] for x, index in zip(projections, (head, group, group), strict=True))
        head_output, head_weights = reference.attention(q, k, v, score, valid_lens=LENGTHS, window=(1, 3))
        assert_close(to_numpy(weights)[:, head], head_weights, "float32")
        head_outputs.append(head_output)
    expected = np.concatenate(head_outputs, -1) @ to_numpy(layer.W_o.kernel) + to_numpy(layer.W_o.bias)
    has_keys = to_numpy(weights).any((1, 3))[..., None]
    expected = np.where(has_keys, expected, 0).astype("float32")
    assert_close(to_numpy(output), expected, tolerance=1e-5)  # sums of 36 products


def test_attention_mask_of_each_head_is_applied():
    layer, (queries, keys, values) = build_layer(), draw_inputs()
    mask = np.random.default_rng(1).random((B, H, Tq, Tk)) < 0.5
    _, weights = layer(queries, keys, values, LENGTHS, attention_mask=mask, return_attention_scores=True)
    assert_identical(to_numpy(weights) > 0, mask & (np.arange(Tk) < LENGTHS[:, None, None, None]))
    for shape in ((Tq, Tk), (B, 1, Tk), (1, H, 1, Tk), (B, Tq, Tk)):
        mask = np.random.default_rng(2).random(shape) < 0.7
        _, weights = layer(queries, keys, values, attention_mask=mask, return_attention_scores=True)
        broadcast = mask[:, None] if len(shape) == 3 else mask
        assert_identical(to_numpy(weights) > 0, np.broadcast_to(broadcast, (B, H, Tq, Tk)))
    with pytest.raises(ValueError, match="`attention_mask` must broadcast"):
        layer(queries, keys, values, attention_mask=np.ones((B, H + 1, Tq, Tk), bool))


OPTIONS = {
    "num_heads": 2,
    "key_dim": 3,
    "value_dim": 5,
    "output_dim": 11,
    "num_kv_heads": 1,
    "use_bias": False,
    "kernel_initializer": "he_normal",
    "bias_initializer": "ones",
    "kernel_regularizer": "l2",
    "kernel_constraint": "max_norm",
}


def test_every_option_is_saved_and_loaded(tmp_path):
    attention = AdditiveAttention(5, 0.25, seed=3, normalize=True, normalizer="sparsemax")
    layer = MultiHeadAttention(attention, **OPTIONS, name="heads", dtype="mixed_float16")
    config = layer.get_config()
    assert set(OPTIONS) < set(config)
    default_config = MultiHeadAttention(DotProductAttention(), 4).get_config()
    assert all(config[option] != default_config[option] for option in OPTIONS)
    assert MultiHeadAttention.from_config(json.loads(json.dumps(config))).get_config() == config

    symbolic_inputs = [keras.Input((None, size)) for size in (Dq, Dk, Dv)]
    model = keras.Model(symbolic_inputs, layer(*symbolic_inputs))
    loaded = save_and_load(model, tmp_path)
    assert_identical(to_numpy(loaded(draw_inputs())), to_numpy(model(draw_inputs())))
    assert model.output_shape == (None, None, 11)
    assert len(model.losses) == 4


def test_one_initializer_object_draws_different_kernels():
    layer = MultiHeadAttention(DotProductAttention(), 2, 4, kernel_initializer=keras.initializers.GlorotUniform())
    layer.build(*((B, length, 8) for length in (Tq, Tk, Tk)))
    kernels = [to_numpy(dense.kernel) for dense in (layer.W_q, layer.W_k, layer.W_v, layer.W_o)]
    assert all(np.any(kernel != other_kernel) for i, kernel in enumerate(kernels) for other_kernel in kernels[:i])


@pytest.mark.slow
def test_projections_accept_int8_and_lora():
    layer, arrays = build_layer(), draw_inputs()
    expected = to_numpy(layer(*arrays))
    layer.W_q.enable_lora(2)
    assert_identical(to_numpy(layer(*arrays)), expected)
    for dense in (layer.W_q, layer.W_k, layer.W_v, layer.W_o):
        dense.quantize("int8")
    quantized_output = to_numpy(layer(*arrays))
    assert 0 < np.abs(quantized_output - expected).max() < 0.1 * np.abs(expected).max()


def test_activity_regularizer_of_a_sublayer_adds_a_loss():
    """On torch, `call` replaces the call of a sublayer unless, for example, the sublayer has a regularizer."""
    x = np.ones((1, 2, 4), "float32")
    for sublayer_name in ("attention", "W_q"):
        layer = MultiHeadAttention(DotProductAttention(), 2)
        layer.build(x.shape, x.shape, x.shape)
        getattr(layer, sublayer_name).activity_regularizer = keras.regularizers.L2(1.0)
        layer(x, x, x)
        (loss,) = layer.losses
        assert to_numpy(loss) > 0


@run_only_on("torch", reason="other backends have no forward hooks")
def test_hooks_of_sublayers_are_called():
    """`call` replaces the call of a sublayer only if the sublayer has no hooks."""
    from torch.nn.modules.module import register_module_forward_hook

    def record_module(module, *_):
        called_modules.append(module)

    layer, called_modules, x = MultiHeadAttention(DotProductAttention(), 2), [], draw_inputs()[0]
    layer(x, x, x)
    sublayers = [layer.W_q, layer.attention, layer.W_o]
    hooks = [sublayer.register_forward_hook(record_module) for sublayer in sublayers]
    layer(x, x, x)
    assert called_modules == sublayers
    for hook in hooks:
        hook.remove()
    hook = register_module_forward_hook(record_module)
    layer(x, x, x)
    hook.remove()
    assert called_modules[-1] is layer
    assert {layer.attention, layer.W_q, layer.W_k, layer.W_v, layer.W_o} <= {*called_modules[len(sublayers) :]}


@pytest.mark.parametrize("attention_dtype", ["float32", "mixed_float16"])
def test_outputs_have_the_dtype_of_the_layer(attention_dtype):
    """A scoring layer or `process_heads` with another dtype does not change the dtype of the outputs."""
    attention = DotProductAttention(dtype=attention_dtype)
    layer = MultiHeadAttention(
        attention, 2, process_heads=lambda heads, role, offset: ops.cast(heads, "float32"), dtype="bfloat16"
    )
    symbolic_results = layer(*(keras.Input((None, size)) for size in (Dq, Dk, Dv)), return_attention_scores=True)
    results = layer(*draw_inputs(), return_attention_scores=True)
    dtypes = [keras.backend.standardize_dtype(tensor.dtype) for tensor in results]
    assert dtypes == [tensor.dtype for tensor in symbolic_results] == ["bfloat16"] * 2
    assert np.isfinite(to_numpy(results[0]).astype("float32")).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MultiHeadAttention("dot", 2), "`attention` must be a layer that scores"),
        (lambda: MultiHeadAttention(DotProductAttention(), 0), "`num_heads` must be at least 1"),
        (lambda: MultiHeadAttention(DotProductAttention(), 4, num_kv_heads=3), "`num_kv_heads` must divide"),
        (lambda: MultiHeadAttention(DotProductAttention(), 3)(*draw_inputs()), "`num_heads` must divide Dq"),
        (lambda: build_layer()(draw_inputs()[1], *draw_inputs()[1:]), "last axis of `queries` must be 8"),
        (lambda: build_layer()(*draw_inputs(), score_bias=INVALID_BIAS), build_error_pattern("score_bias")),
    ],
)
def test_invalid_arguments_are_rejected(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


MASKS = [{}, {"attention_mask": np.ones((B, Tq, 1), bool)}, {"valid_lens": LENGTHS}]


@pytest.mark.parametrize(("masks", "mode"), [(masks, MODES[n % len(MODES)]) for n, masks in enumerate(MASKS)])
def test_output_without_keys_is_zero(masks, mode):
    queries, keys, values = draw_inputs()
    layer = build_layer()
    signature = None if mode == "xla" else [((B, None, size), "float32") for size in (Dq, Dk, Dv)]
    program = compile_function(lambda *arrays: layer(*arrays, **masks), mode, signature=signature)
    output = to_numpy(program(queries, keys[:, :0], values[:, :0]))
    assert_identical(output, np.zeros((B, Tq, Dq), "float32"))
    assert np.all(to_numpy(program(queries, keys, values)) != 0)
