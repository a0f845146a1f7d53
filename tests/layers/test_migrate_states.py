"""`from_state`: names, sizes and dtypes of a state, and error messages for states that do not fit."""

import keras
import numpy as np
import pytest
import textbook_numpy
from keras import ops
from tolerances import assert_identical

from keras_attn import AdditiveAttention, BilinearAttention, CosineAttention, DotProductAttention, MultiHeadAttention
from keras_attn.migrate import from_state

B, Tq, Tk, Dq, Dk, Dv, U = 2, 3, 5, 4, 7, 6, 8
H, HIDDEN = 3, 12


def create_rng():
    return np.random.default_rng(1)


def draw_inputs(*sizes):
    """Return queries, keys and values of these sizes."""
    return [create_rng().normal(size=(B, t, size)) for t, size in zip((Tq, Tk, Tk), sizes, strict=True)]


def draw_state(dtype="float32", Dq=Dq, Dk=Dk, U=U):
    state, _ = textbook_numpy.build_additive(create_rng(), Dq, Dk, U)
    return {name: array.astype(dtype) for name, array in state.items()}


def assert_kernels_equal(layer, state):
    for name in ("W_q", "W_k", "w_v"):
        assert_identical(ops.convert_to_numpy(getattr(layer, name).kernel), state[f"{name}.weight"].T)


def test_from_state_builds_the_layer_for_values_of_any_size():
    layer = AdditiveAttention(U)
    assert from_state(layer, draw_state(), "torch") is layer
    assert layer.built
    assert_kernels_equal(layer, draw_state())
    for size in (Dv, 1):
        assert layer(*draw_inputs(Dq, Dk, size)).shape == (B, Tq, size)


KERNELS = {name.split(".")[0]: array.T for name, array in draw_state().items()}
CHECKPOINT = {f"{name}/kernel/.ATTRIBUTES/VARIABLE_VALUE": kernel for name, kernel in KERNELS.items()}
KERAS_3_CHECKPOINT = {name.replace("kernel", "_kernel"): kernel for name, kernel in CHECKPOINT.items()}
SLOTS = {"W_q/kernel/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE": KERNELS["W_q"]}
MODEL = {f"decoder.attention.{name}": array for name, array in draw_state().items()}
MODEL |= {"decoder.attention2.W_q.weight": np.ones(1), "encoder.kernel": np.ones(2)}
FLAX = {"params": {"decoder": {name: {"kernel": kernel} for name, kernel in KERNELS.items()}}}
FITTING_STATES = {  # state with the kernels of `draw_state`, source, prefix
    "model": (MODEL, "torch", "decoder.attention"),
    "slashes": ({name.replace(".", "/"): a for name, a in MODEL.items()}, "torch", "decoder/attention"),
    "prefix with a dot": (MODEL, "torch", "decoder.attention."),
    "nested": (FLAX, "flax", "decoder"),
    "nested with params": (FLAX, "flax", "params/decoder"),
    "tuples": ({("params", "decoder", name, "kernel"): kernel for name, kernel in KERNELS.items()}, "flax", "decoder"),
    "flat": ({f"decoder/{name}/kernel": kernel for name, kernel in KERNELS.items()}, "flax", "params/decoder"),
    "checkpoint with optimizer": (CHECKPOINT | SLOTS, "tensorflow", ""),
    "checkpoint of Keras 3": (KERAS_3_CHECKPOINT, "tensorflow", ""),
    "variables": ({f"{name}/kernel:0": kernel for name, kernel in KERNELS.items()}, "tensorflow", ""),
    "early edition": ({name.replace("w_v", "v"): array for name, array in draw_state().items()}, "mxnet", ""),
}


@pytest.mark.parametrize(("state", "source", "prefix"), FITTING_STATES.values(), ids=FITTING_STATES)
def test_names_of_a_state_are_recognised(state, source, prefix):
    assert_kernels_equal(from_state(AdditiveAttention(U), state, source, prefix=prefix), draw_state())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_arrays_of_any_float_dtype_are_accepted(dtype):
    state = draw_state(dtype)
    layer = from_state(AdditiveAttention(U), state, "torch")
    assert_kernels_equal(layer, {name: array.astype("float32") for name, array in state.items()})


def test_seed_state_of_keras_is_ignored():
    state = {"a/scale": np.ones(Dq), "a/seed_generator/seed_generator_state": np.zeros(2, "uint32")}
    layer = from_state(AdditiveAttention(Dq), state, "keras", prefix="a")
    assert_identical(ops.convert_to_numpy(layer.w_v.kernel), np.ones((Dq, 1), "float32"))


def test_unknown_entries_are_ignored_unless_strict():
    class Subclass(AdditiveAttention):
        """Class that accepts the states of its base class."""

    state = {**draw_state(), "W_q.bias": np.ones(U)}
    assert_kernels_equal(from_state(Subclass(U), state, "torch", strict=False), state)


def remove_weight(state, name):
    return {key: array for key, array in state.items() if key != name}


INVALID_ENTRIES = [  # entries added to a state that fits, from torch; a pattern of the error
    ({"W_q.bias": np.ones(U)}, "no weight for .*: `W_q.bias`. .* it needs `W_q.weight`"),
    ({"W_k.weight": np.ones((Dk, U))}, rf"`W_k.weight` must have shape \(U, Dk\) = \({U}, {Dk}\) .*Its transpose fits"),
    ({"w_v.weight": np.ones(U)}, rf"\(1, U\) = \(1, {U}\) .*shape \({U},\).$"),
    ({"w_v.weight": np.ones((1, 0))}, r"Received: shape \(1, 0\).$"),
    ({"W_q.weight": np.ones((U, Dq), "complex64")}, "`W_q.weight` .*dtype complex64"),
    ({"W_q.weight": object()}, r"`W_q.weight` .*Received: object. .*detach\(\)"),
    ({"W_q.weight": [[1.0], [1.0, 2.0]]}, "`W_q.weight` .*Received: list"),
    ({"W_q/weight": np.ones(1)}, "weight once. Received: `W_q.weight` and `W_q/w"),
    (
        {"W_k.weight": np.full((U, Dk), -1e39)},
        r"`W_k.kernel` of the layer has dtype float32, and the state has 1e\+39: too",
    ),
]
INVALID_STATES = [
    (remove_weight(draw_state(), "w_v.weight"), "torch", r"missing from the state: `w_v.weight`.*`W_q.weight`, `W_k"),
    (draw_state(), "flax", r"missing from the state: `W_q.kernel`, `W_k.kernel`, `w_v.kernel`. Received: `W_q"),
    ({}, "torch", "missing from the state: .* Received: none"),
    ({"mha/dense_3/kernel": np.ones((7, U))}, "tensorflow", "count layers of Keras .*, as `W_q/kernel`"),
    ({f"{i}": i for i in range(12)}, "torch", r"Received: `0`, .*`9` and 2 more, from 'torch'"),
    (draw_state(), "paddle", rf"`W_q.weight` .* \(Dq, U\) = \({Dq}, {U}\) from 'paddle'.*transpose"),
    (list(draw_state()), "torch", "`state` must be a mapping of names to arrays. Received: type list"),
    ({"scale": np.ones(U)}, "keras", rf"AdditiveAttention has Dq = Dk = U, .* Received: Dq={Dq}, Dk={Dk}, U={U}"),
    (draw_state(), "pytorch", r"`source` must be one of `torch`, .*`keras`. Received: source='pytorch'"),
    *((draw_state() | entries, "torch", message) for entries, message in INVALID_ENTRIES),
]


@pytest.mark.parametrize(
    ("state", "source", "message"), INVALID_STATES, ids=lambda value: value if isinstance(value, str) else ""
)
def test_rejected_state_does_not_change_weights(state, source, message):
    layer = AdditiveAttention(U)
    layer(*draw_inputs(Dq, Dk, Dv))
    original_weights = layer.get_weights()
    with pytest.raises(ValueError, match=message):
        from_state(layer, state, source)
    for weight, original_weight in zip(layer.get_weights(), original_weights, strict=True):
        assert_identical(weight, original_weight)


@pytest.mark.parametrize(("dtype", "max_number"), [("float16", 65504), ("bfloat16", 3e38)])
def test_number_too_large_for_the_dtype_of_the_layer_is_rejected(dtype, max_number):
    state = {**draw_state(), "W_q.weight": np.full((U, Dq), float(max_number))}
    kernel = from_state(AdditiveAttention(U, dtype=dtype), state, "torch").W_q.kernel
    assert kernel.dtype == dtype
    assert np.isfinite(keras.ops.convert_to_numpy(keras.ops.cast(kernel, "float32"))).all()
    state["W_q.weight"][0, 0] = np.inf  # an infinite weight of the trained layer is accepted
    from_state(AdditiveAttention(U, dtype=dtype), state, "torch")
    layer = AdditiveAttention(U, dtype="float16")
    with pytest.raises(ValueError, match=r"`W_q.kernel` of the layer has dtype float16, and the state has 1e.06"):
        from_state(layer, {**state, "W_q.weight": np.full((U, Dq), 1e6)}, "torch")
    assert not layer.built


@pytest.mark.slow
def test_quantized_or_lora_kernel_is_rejected():
    layer = from_state(AdditiveAttention(U), draw_state(), "torch")
    layer.W_q.enable_lora(2)
    with pytest.raises(ValueError, match="`W_q` must not be quantized or have LoRA yet"):
        from_state(layer, draw_state(), "torch")
    layer = from_state(AdditiveAttention(U), draw_state(), "torch")
    layer.W_k.quantize("int8")
    with pytest.raises(ValueError, match="`W_k` must not be quantized or have LoRA yet"):
        from_state(layer, draw_state(), "torch")


@pytest.mark.needs("torch")
def test_torch_tensor_that_numpy_cannot_read_is_rejected():
    import torch

    for tensor in (torch.ones(U, Dq, requires_grad=True), torch.ones(U, Dq, dtype=torch.bfloat16)):
        with pytest.raises(ValueError, match=r"`W_q.weight` must be an array of real numbers.*`.detach\(\)"):
            from_state(AdditiveAttention(U), {**draw_state(), "W_q.weight": tensor}, "torch")


def build_heads(attention=None, **options):
    return MultiHeadAttention(attention or DotProductAttention(), H, **options)


SHAPES = {"in_proj_weight": (36, 12), "in_proj_bias": (36,), "out_proj.weight": (12, 12), "out_proj.bias": (12,)}
PACKED = {name: create_rng().normal(size=shape).astype("float32") for name, shape in SHAPES.items()}
HEADS_STATE, _ = textbook_numpy.build_multi_head(create_rng(), Dq, Dk, Dv, HIDDEN, H)
BAHDANAU, _ = textbook_numpy.build_bahdanau(create_rng(), Dq, Dk, U, False)
NORMALIZED, _ = textbook_numpy.build_bahdanau(create_rng(), Dq, Dk, U, True)
BILINEAR = {"weight": np.ones((1, Dq, Dk)), "bias": np.ones(1)}
RULE = "`attention` must be a `DotProductAttention` without a `scale`"
INVALID_LAYERS = [  # a layer, a state of another layer, its source, a pattern of the error
    (CosineAttention(), {}, "torch", "A layer of type CosineAttention has no counterpart in 'torch'"),
    (DotProductAttention(), {}, "tfa", "A layer of type DotProductAttention has no counterpart in 'tfa'"),
    (AdditiveAttention(U, normalize=True), BAHDANAU, "tfa", "missing from the state: `attention_g`, `attention_b`"),
    (AdditiveAttention(U), NORMALIZED, "tfa", "no weight for .*: `attention_g:0`, `attention_b:0`"),
    (build_heads(key_dim=4, output_dim=12, use_bias=False), HEADS_STATE, "mxnet", r"no weight for .*: `W_q\.bias`"),
    (
        build_heads(num_kv_heads=1),
        PACKED,
        "torch",
        r"MultiheadAttention has Dq = Dk = Dv = H\*K = G\*K = G\*V, .*G\*K=4",
    ),
    (  # a layer of the textbook with 15 hidden units and inputs of size 3
        build_heads(use_bias=False),
        {f"W_{name}.weight": np.ones((15, 15 if name == "o" else 3)) for name in "qkvo"},
        "torch",
        r"By default `key_dim` is Dq/H, .* and `output_dim` is Dq",
    ),
    (build_heads(AdditiveAttention(U)), {}, "torch", RULE),
    (build_heads(DotProductAttention(scale=1.0)), {}, "torch", RULE),
    (BilinearAttention(normalizer="sigmoid"), BILINEAR, "torch", "no weight for .*: `bias`"),  # no effect on softmax
    (
        AdditiveAttention(U),
        draw_state() | {"W_q.weight": np.ones((U + 1, Dq))},
        "torch",
        rf"\(U, Dq\) = \({U}, Dq\) .* Received: shape \({U + 1}, {Dq}\).$",
    ),
]


@pytest.mark.parametrize(("layer", "state", "source", "message"), INVALID_LAYERS)
def test_rejected_state_does_not_build_the_layer(layer, state, source, message):
    with pytest.raises(ValueError, match=message):
        from_state(layer, state, source)
    assert not layer.built


@pytest.mark.parametrize(
    ("prefix", "error", "message"),
    [
        (None, TypeError, r"`prefix` must be a string\. Received: prefix of type NoneType"),
        ("decoder", ValueError, r"`prefix` must be .*prefix='decoder', names `W_q.weight`, "),
    ],
)
def test_unknown_prefix_is_rejected(prefix, error, message):
    with pytest.raises(error, match=message):
        from_state(AdditiveAttention(U), draw_state(), "torch", prefix=prefix)
