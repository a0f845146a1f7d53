"""`RotaryEmbedding`: angles, pairs, offsets, dtypes, gradients, and exported files."""

import math

import keras
import numpy as np
import pytest
from backends import (
    MODES,
    attach_mask,
    compile_function,
    compute_gradients,
    get_precision,
    read_mask,
    run_only_on,
    x64,
)
from keras import ops
from layer_contract import build_error_pattern, draw_normal, save_and_load, to_numpy
from tolerances import assert_close, assert_identical
from traced_models import run_traced_model

from keras_attn import DotProductAttention, RotaryEmbedding

B, H, T, D = 2, 3, 5, 8
OPTIONS = {
    "half": {},
    "interleaved": {"interleaved": True},
    "partial": {"size": 4, "base": 100.0},
    "partial interleaved": {"size": 6, "interleaved": True, "base": 500.0},
    "scaled": {"scale": 0.25},
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


def rotate_vector(vector, position, base=10000.0, interleaved=False, size=None, scale=1.0):
    """Rotate one vector at one position, pair by pair in float64."""
    size = len(vector) if size is None else size
    result = np.array(vector, "float64")
    for pair in range(size // 2):
        angle = position * scale * base ** (-2 * pair / size)
        first_index, second_index = (2 * pair, 2 * pair + 1) if interleaved else (pair, pair + size // 2)
        a, b = float(vector[first_index]), float(vector[second_index])
        result[first_index] = a * math.cos(angle) - b * math.sin(angle)
        result[second_index] = b * math.cos(angle) + a * math.sin(angle)
    return result


def compute_expected(heads, offset=0, **options):
    """Return rotated heads `B + (T, D)`; `offset` is a scalar or has the first axes of the heads."""
    result = np.zeros(heads.shape)
    for index in np.ndindex(*heads.shape[:-1]):
        first_position = np.asarray(offset)[index[: np.ndim(offset)]]
        result[index] = rotate_vector(heads[index], int(first_position) + index[-1], **options)
    return result


def test_angles_equal_an_example_by_hand():
    """At position 1 the first pair is rotated by 1 radian; for D = 4 the second pair by `10000^(-2/4) = 0.01`."""
    cos, sin = 0.5403023, 0.8414710
    assert_close(to_numpy(RotaryEmbedding()(np.array([[1, 0], [1, 0]], "float32"))), [[1, 0], [cos, sin]], "float32")
    vector = np.array([[1, 2, 0, 0]], "float32")
    expected = [[cos, 2 * 0.99995, sin, 2 * 0.00999983]]
    assert_close(to_numpy(RotaryEmbedding()(vector, offset=1)), expected, "float32")
    expected = [[cos - 2 * sin, 2 * cos + sin, 0, 0]]
    assert_close(to_numpy(RotaryEmbedding(interleaved=True)(vector, offset=1)), expected, "float32")
    expected = [[cos - 2 * sin, 2 * cos + sin, 7, 8]]
    assert_close(to_numpy(RotaryEmbedding(size=2)(np.array([[1, 2, 7, 8]], "float32"), offset=1)), expected, "float32")


OFFSETS = {"int": 3, "tensor": np.array(3, "uint8"), "per example": np.array([0, 40])}
CALLS = [  # all options eagerly with all offsets, and compiled with one offset
    pytest.param(options, mode, offset, id=f"{kind}-{mode}-{name}")
    for n, (kind, options) in enumerate(OPTIONS.items())
    for m, (name, offset) in enumerate(OFFSETS.items())
    for mode in (["eager", *MODES[1:]] if (n + m) % 3 == 0 else ["eager"])
]


@pytest.mark.parametrize(("options", "mode", "offset"), CALLS)
def test_heads_are_rotated_by_their_positions(options, mode, offset):
    layer, heads = RotaryEmbedding(**options), draw_normal(B, H, T, D)
    if isinstance(offset, int):
        program = compile_function(lambda x: layer(x, offset=offset), mode, signature=[((None, H, None, D), "float32")])
        rotated = program(ops.convert_to_tensor(heads))
    else:
        signature = [((None, H, None, D), "float32"), ((None,) * offset.ndim, offset.dtype.name)]
        program = compile_function(lambda x, offset: layer(x, offset=offset), mode, signature=signature)
        rotated = program(ops.convert_to_tensor(heads), ops.convert_to_tensor(offset))
    # Angles are at most 45.
    assert_close(to_numpy(rotated), compute_expected(heads, offset, **options), "float32", tolerance=1e-5)


def test_values_are_not_rotated():
    values = draw_normal(B, H, T, D)
    assert_identical(to_numpy(RotaryEmbedding()(values, role="values", offset=3)), values)
    assert RotaryEmbedding()(draw_normal(1, 2, 3), role="values").shape == (1, 2, 3)  # D may be odd


@pytest.mark.parametrize(("options", "mode"), [(o, MODES[n % len(MODES)]) for n, o in enumerate(OPTIONS.values())])
def test_gradient_is_rotated_by_negative_angles(options, mode):
    heads, upstream, layer = draw_normal(B, T, D), draw_normal(B, T, D, seed=1), RotaryEmbedding(**options)
    program = compile_function(compute_gradients(lambda x, up: ops.sum(layer(x, offset=2) * up), 1), mode)
    (gradient,) = program(ops.convert_to_tensor(heads), ops.convert_to_tensor(upstream))
    expected = [[rotate_vector(upstream[b, t], -(t + 2), **options) for t in range(T)] for b in range(B)]
    assert_close(to_numpy(gradient), np.array(expected), "float32")


@pytest.mark.parametrize(
    ("dtype", "policy"),
    [
        pytest.param("float64", "float32", marks=x64),
        ("float16", "float32"),
        ("bfloat16", "mixed_bfloat16"),
        ("float32", "float16"),
    ],
)
def test_heads_keep_their_dtype_and_angles_are_exact(dtype, policy):
    """At position 5000 the rounding error of an angle is 2 radians in float16 and 16 in bfloat16."""
    heads, layer = ops.cast(ops.convert_to_tensor(draw_normal(B, T, D)), dtype), RotaryEmbedding(dtype=policy)
    expected = compute_expected(to_numpy(ops.cast(heads, "float64" if dtype == "float64" else "float32")), 5000)
    tolerance = 1e-3 if get_precision(dtype) == "float32" else None  # float32 rounds an angle of 5000 by up to 3e-4
    assert_close(to_numpy(layer(heads, offset=5000)), expected, dtype, tolerance=tolerance)
    assert layer(keras.KerasTensor((B, T, D), dtype)).dtype == dtype


@every_option
def test_symbolic_shapes_equal_those_of_the_heads(options):
    layer, offset = RotaryEmbedding(**options), keras.Input((), dtype="int32")
    for shape in ((None, D), (H, None, D), (H, T, D)):
        assert layer(keras.Input(shape), offset=offset).shape == (None, *shape)
        assert layer(keras.Input(shape), role="values").shape == (None, *shape)
        assert layer.compute_output_shape((None, *shape)) == (None, *shape)
    if layer.size:
        assert layer(keras.Input((T, None))).shape == (None, T, None)


@every_option
def test_model_with_rotary_embedding_is_saved_and_loaded(options, tmp_path):
    layer = RotaryEmbedding(**options, name="rotary")
    assert RotaryEmbedding.from_config(layer.get_config()).get_config() == layer.get_config()
    heads, offset = keras.Input((H, None, D), name="heads"), keras.Input((), dtype="int32", name="offset")
    model = keras.Model([heads, offset], layer(heads, role="keys", offset=offset))
    inputs = [draw_normal(B, H, T, D), np.array([0, 9], "int32")]
    outputs = to_numpy(model(inputs))
    assert_close(outputs, compute_expected(*inputs, **options), "float32")
    assert_identical(to_numpy(save_and_load(model, tmp_path)(inputs)), outputs)


def test_mask_of_the_heads_reaches_the_output():
    mask = [[True, True, False], [True, False, False]]
    assert to_numpy(read_mask(RotaryEmbedding()(attach_mask(draw_normal(2, 3, D), np.array(mask))))).tolist() == mask


@pytest.mark.parametrize("options", [{"base": 0}, {"scale": -1.0}, {"size": 3}, {"interleaved": "yes"}], ids=str)
def test_invalid_options_are_rejected(options):
    (name,) = options
    with pytest.raises((TypeError, ValueError), match=build_error_pattern(name)):
        RotaryEmbedding(**options)


@pytest.mark.parametrize(
    ("heads", "options", "message"),
    [
        (np.zeros((2, 4), "int32"), {}, build_error_pattern("heads")),
        (draw_normal(2, 5), {}, r"The last axis of `heads` must be even.*heads shape \(2, 5\)"),
        (draw_normal(2, 4), {"role": "query"}, "`role` must be one of queries, keys, values.*role='query'"),
        (draw_normal(2, 4), {"offset": 0.5}, "`offset` must be integers: it is a position"),
        (draw_normal(2, 3, 4), {"offset": np.arange(3)}, r"offset shape \(3,\), heads with.*axes \(2,\)"),
        (keras.KerasTensor((2, 3, None)), {}, "The last axis of `heads` must be known unless `size` is passed"),
    ],
)
def test_invalid_calls_are_rejected(heads, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        RotaryEmbedding()(heads, **options)
    with pytest.raises(ValueError, match=r"`size` must be at most D.*size=6, heads shape \(2, 4\)"):
        RotaryEmbedding(size=6)(draw_normal(2, 4))


@pytest.mark.slow
@run_only_on("tensorflow", reason="only TensorFlow models are exported")
def test_onnx_file_accepts_every_size_and_offset(tmp_path):
    heads, offset = keras.Input((H, None, D), name="heads"), keras.Input((), dtype="int32", name="offset")
    scalar = keras.Input(batch_shape=(), dtype="int32", name="scalar")
    outputs = {name: RotaryEmbedding(**options)(heads, offset=offset) for name, options in OPTIONS.items()}
    model = keras.Model([heads, offset, scalar], {**outputs, "scalar offset": RotaryEmbedding()(heads, offset=scalar)})
    inputs = {"heads": draw_normal(B, H, T, D), "offset": np.array([0, 30], "int32"), "scalar": np.array(4, "int32")}
    outputs = run_traced_model(model, inputs, tmp_path)
    for name, options in OPTIONS.items():
        rotated = compute_expected(inputs["heads"], inputs["offset"], **options)
        assert_close(outputs[name], rotated, "float32", tolerance=1e-5)
    assert_close(outputs["scalar offset"], compute_expected(inputs["heads"], 4), "float32")


@pytest.mark.slow
@run_only_on("tensorflow", reason="only TensorFlow models are exported")
@pytest.mark.parametrize("precision", ["float32", pytest.param("float16", marks=pytest.mark.slow)])
def test_decoder_with_an_offset_exports_in_float32_and_float16(precision, tmp_path):
    """Angles are float32 in a float16 file too: at position 3000 their rounding error in float16 is a radian."""
    from keras_attn_export import export_model

    queries, keys = keras.Input((None, D), name="queries"), keras.Input((None, D), name="keys")
    offset, rotate = keras.Input((), dtype="int32", name="offset"), RotaryEmbedding()
    output = DotProductAttention(name="attention")(
        rotate(queries, offset=offset), rotate(keys, role="keys", offset=offset), keys
    )
    model = keras.Model([queries, keys, offset], {"output": output})
    samples = {"offset": np.array([0, 7, 3000], "int32")}
    bundle = export_model(model, tmp_path / "bundle", sample_inputs=samples, precision=precision)
    assert bundle.report.passed
    inputs = {
        "queries": draw_normal(2, 4, D),
        "keys": draw_normal(2, 9, D, seed=1),
        "offset": np.array([0, 3000], "int32"),
    }
    tolerance = 1e-3 if precision == "float32" else 1e-2
    assert_close(bundle.run(inputs)["output"], to_numpy(model(inputs)["output"]), "float32", tolerance=tolerance)


@pytest.mark.slow
@pytest.mark.needs("keras_hub")
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_rotary_embedding_equals_keras_hub(scale):
    import keras_hub

    heads = draw_normal(B, H, 40, D)
    expected = keras_hub.layers.RotaryEmbedding(500.0, 1 / scale)(heads.swapaxes(1, 2), start_index=7)
    rotated = RotaryEmbedding(500.0, scale=scale)(heads, offset=7)
    assert_close(to_numpy(rotated), to_numpy(expected).swapaxes(1, 2))
