"""Multi-head attention beyond one head: against Keras's own layers, head by head, masks, groups, and every option."""

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


def inputs(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype("float32") for shape in ((B, Tq, Dq), (B, Tk, Dk), (B, Tk, Dv))]


def built(attention=None, num_heads=H, key_dim=K, value_dim=V, **options):
    layer = MultiHeadAttention(attention or DotProductAttention(), num_heads, key_dim, value_dim, **options)
    layer.build(*(array.shape for array in inputs()))
    draw_weights(layer)
    return layer


SCORES = {
    "additive": (lambda: AdditiveAttention(5), lambda a: reference.additive_score(*map(to_numpy, a.get_weights()))),
    "cosine": (lambda: CosineAttention(), lambda a: reference.cosine_score(float(np.exp(to_numpy(a.log_temperature))))),
}


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("groups", [H, 2])
def test_each_head_equals_the_scoring_layer_on_its_projections(score, groups):
    make, oracle = SCORES[score]
    layer, (queries, keys, values) = built(make(), num_kv_heads=groups), inputs()
    output, weights = layer(queries, keys, values, LENGTHS, window=(1, 3), return_attention_scores=True)
    projected = [
        (array.astype("float64") @ to_numpy(dense.kernel) + to_numpy(dense.bias)).reshape(*array.shape[:2], heads, -1)
        for array, dense, heads in zip(
            (queries, keys, values), (layer.W_q, layer.W_k, layer.W_v), (H, groups, groups), strict=True
        )
    ]
    heads = []
    for head in range(H):
        group = head * groups // H
        q, k, v = (x[:, :, index] for x, index in zip(projected, (head, group, group), strict=True))
        one, of_head = reference.attention(q, k, v, oracle(layer.attention), valid_lens=LENGTHS, window=(1, 3))
        assert_close(to_numpy(weights)[:, head], of_head, "float32")
        heads.append(one)
    exact = np.concatenate(heads, -1) @ to_numpy(layer.W_o.kernel) + to_numpy(layer.W_o.bias)
    seen = to_numpy(weights).any((1, 3))[..., None]
    assert_close(to_numpy(output), np.where(seen, exact, 0).astype("float32"), tolerance=1e-5)  # sums of 36 products


def test_attention_mask_of_each_head_is_applied():
    layer, (queries, keys, values) = built(), inputs()
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
    default = MultiHeadAttention(DotProductAttention(), 4).get_config()
    assert all(config[option] != default[option] for option in OPTIONS)
    again = MultiHeadAttention.from_config(json.loads(json.dumps(config)))
    assert again.get_config() == config

    entries = [keras.Input((None, size)) for size in (Dq, Dk, Dv)]
    model = keras.Model(entries, layer(*entries))
    again = save_and_load(model, tmp_path)
    assert_identical(to_numpy(again(inputs())), to_numpy(model(inputs())))
    assert model.output_shape == (None, None, 11)
    assert len(model.losses) == 4


def test_one_initializer_object_gives_different_kernels():
    layer = MultiHeadAttention(DotProductAttention(), 2, 4, kernel_initializer=keras.initializers.GlorotUniform())
    layer.build(*((B, length, 8) for length in (Tq, Tk, Tk)))
    kernels = [to_numpy(dense.kernel) for dense in (layer.W_q, layer.W_k, layer.W_v, layer.W_o)]
    assert all(np.any(first != second) for i, first in enumerate(kernels) for second in kernels[:i])


@pytest.mark.slow
def test_projections_accept_int8_and_lora():
    layer, arrays = built(), inputs()
    exact = to_numpy(layer(*arrays))
    layer.W_q.enable_lora(2)
    assert_identical(to_numpy(layer(*arrays)), exact)
    for dense in (layer.W_q, layer.W_k, layer.W_v, layer.W_o):
        dense.quantize("int8")
    coarse = to_numpy(layer(*arrays))
    assert 0 < np.abs(coarse - exact).max() < 0.1 * np.abs(exact).max()


def test_activity_regularizer_of_a_sublayer_is_counted():
    """Where nothing hangs on the call of a layer within, it is left out."""
    x = np.ones((1, 2, 4), "float32")
    for regularized in ("attention", "W_q"):
        layer = MultiHeadAttention(DotProductAttention(), 2)
        layer.build(x.shape, x.shape, x.shape)
        getattr(layer, regularized).activity_regularizer = keras.regularizers.L2(1.0)
        layer(x, x, x)
        (loss,) = layer.losses
        assert to_numpy(loss) > 0


@run_only_on("torch", reason="the others have no such hooks")
def test_hooks_of_sublayers_are_called():
    """Without a hook the sublayers are not called: their functions are."""
    from torch.nn.modules.module import register_module_forward_hook

    def note(module, *_):
        called.append(module)

    layer, called, x = MultiHeadAttention(DotProductAttention(), 2), [], inputs()[0]
    layer(x, x, x)
    within = [layer.W_q, layer.attention, layer.W_o]
    hooks = [each.register_forward_hook(note) for each in within]
    layer(x, x, x)
    assert called == within
    for hook in hooks:
        hook.remove()
    hook = register_module_forward_hook(note)
    layer(x, x, x)
    hook.remove()
    assert called[-1] is layer
    assert {layer.attention, layer.W_q, layer.W_k, layer.W_v, layer.W_o} <= {*called[len(within) :]}


@pytest.mark.parametrize("inner", ["float32", "mixed_float16"])
def test_outputs_have_the_dtype_of_the_layer(inner):
    """Neither a scoring layer nor `process_heads` of another dtype changes it."""
    attention = DotProductAttention(dtype=inner)
    layer = MultiHeadAttention(
        attention, 2, process_heads=lambda heads, role, offset: ops.cast(heads, "float32"), dtype="bfloat16"
    )
    symbolic = layer(*(keras.Input((None, size)) for size in (Dq, Dk, Dv)), return_attention_scores=True)
    real = layer(*inputs(), return_attention_scores=True)
    dtypes = [keras.backend.standardize_dtype(tensor.dtype) for tensor in real]
    assert dtypes == [tensor.dtype for tensor in symbolic] == ["bfloat16"] * 2
    assert np.isfinite(to_numpy(real[0]).astype("float32")).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MultiHeadAttention("dot", 2), "`attention` must be a layer that scores"),
        (lambda: MultiHeadAttention(DotProductAttention(), 0), "`num_heads` must be at least 1"),
        (lambda: MultiHeadAttention(DotProductAttention(), 4, num_kv_heads=3), "`num_kv_heads` must divide"),
        (lambda: MultiHeadAttention(DotProductAttention(), 3)(*inputs()), "`num_heads` must divide Dq"),
        (lambda: built()(inputs()[1], *inputs()[1:]), "last axis of `queries` must be 8"),
        (lambda: built()(*inputs(), score_bias=np.zeros((1, 3, Tq, Tk), "float32")), build_error_pattern("score_bias")),
    ],
)
def test_bad_arguments_are_refused(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


NO_KEYS = [{}, {"attention_mask": np.ones((B, Tq, 1), bool)}, {"valid_lens": LENGTHS}]


@pytest.mark.parametrize(("masks", "mode"), [(masks, MODES[n % len(MODES)]) for n, masks in enumerate(NO_KEYS)])
def test_output_without_any_key_is_zero(masks, mode):
    queries, keys, values = inputs()
    layer = built()
    signature = None if mode == "xla" else [((B, None, size), "float32") for size in (Dq, Dk, Dv)]
    program = compile_function(lambda *inputs: layer(*inputs, **masks), mode, signature=signature)
    output = to_numpy(program(queries, keys[:, :0], values[:, :0]))
    assert_identical(output, np.zeros((B, Tq, Dq), "float32"))
    assert np.all(to_numpy(program(queries, keys, values)) != 0)
