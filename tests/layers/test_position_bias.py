"""`LinearBias` and `RelativePositionBias`: offsets, dynamic sizes, dtypes, saved models and invalid arguments."""

import keras
import numpy as np
import pytest
from backends import attach_mask, compile_function, every_compilation_mode, read_mask, run_only_on, x64
from keras import ops
from layer_contract import save_and_load, to_numpy
from tolerances import assert_close, assert_identical
from traced_models import run_traced_model

from keras_attn import LinearBias, RelativePositionBias

H, Tq, Tk = 3, 4, 7


def build_relative_bias(**options):
    """Return a layer with different biases, as large as those of T5."""
    initializer = keras.initializers.RandomNormal(stddev=2.0, seed=5)
    return RelativePositionBias(H, num_buckets=8, max_distance=20, embeddings_initializer=initializer, **options)


every_bias = pytest.mark.parametrize(
    "build_bias", [build_relative_bias, lambda **_: LinearBias(H)], ids=["buckets", "linear"]
)


def zeros(*shape):
    return np.zeros(shape, "float32")


def compute_pair_by_pair(layer, num_queries, num_keys, offset=0):
    """Return biases (H, num_queries, num_keys), computed by one call for each pair of a query and a key."""
    x = zeros(1, 1, 2)
    rows = [
        [to_numpy(layer(x, x, offset=i + offset - j))[0, :, 0, 0] for j in range(num_keys)] for i in range(num_queries)
    ]
    return np.array(rows).transpose(2, 0, 1)


CALLS = {  # shapes of queries and keys without the last axis, an offset
    "more keys": ((2, Tq), (2, Tk), 0),
    "more queries": ((2, Tk), (2, Tq), 0),
    "without keys": ((2, Tq), None, 0),
    "no queries": ((2, 0), (2, Tk), 0),
    "no keys": ((2, Tq), (2, 0), 0),
    "int": ((2, Tq), (2, Tk), 3),
    "uint8": ((2, Tq), (2, Tk), np.array(3, "uint8")),
    "offset per example": ((3, Tq), (3, Tk), np.array([0, 11, -2], "int32")),
    "two batch axes": ((2, 3, Tq), None, np.arange(6, dtype="int32").reshape(2, 3)),
}


@every_bias
@pytest.mark.parametrize("call", CALLS)
def test_bias_of_a_pair_depends_on_its_distance_only(build_bias, call):
    layer, (queries, keys, offset) = build_bias(), CALLS[call]
    inputs = [zeros(*queries, 5), *([] if keys is None else [zeros(*keys, 6)])]
    biases, shape, num_keys = to_numpy(layer(*inputs, offset=offset)), np.shape(offset), (keys or queries)[-1]
    assert biases.shape == (*(shape or (1,)), H, queries[-1], num_keys)
    for index in np.ndindex(*shape) if biases.size else ():
        expected = compute_pair_by_pair(layer, queries[-1], num_keys, int(np.asarray(offset)[index]))
        assert_identical(biases[index or 0], expected)


@every_bias
@every_compilation_mode
@pytest.mark.parametrize("per_example", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_one_program_accepts_every_size(build_bias, mode, per_example):
    layer = build_bias()
    signature = [((None, None, 5), "float32"), ((None, None, 5), "float32"), ((None,) * per_example, "int32")]
    layer(zeros(1, 1, 5))
    program = compile_function(
        lambda q, k, offset: layer(q, k, offset=offset), mode, variables=layer.variables, signature=signature
    )
    for B, num_queries, num_keys, first_offset in ((2, Tq, Tk, 0), (3, 1, 9, 8)):
        offset = np.array([first_offset + b for b in range(B)] if per_example else first_offset, "int32")
        tensors = [ops.convert_to_tensor(x) for x in (zeros(B, num_queries, 5), zeros(B, num_keys, 5), offset)]
        biases = to_numpy(program(*tensors))
        expected = to_numpy(layer(zeros(1, num_queries, 5), zeros(1, num_keys, 5), offset=first_offset))
        assert biases.shape == (B if per_example else 1, H, num_queries, num_keys)
        assert_identical(biases[:1], expected)


@every_bias
@pytest.mark.parametrize("policy", [pytest.param("float64", marks=x64), "float16", "mixed_bfloat16"])
def test_biases_have_the_dtype_of_the_layer(build_bias, policy):
    keras.config.set_dtype_policy(policy)
    layer = build_bias()
    dtype = keras.DTypePolicy(policy).compute_dtype
    expected = to_numpy(build_bias()(zeros(1, Tq, 5), zeros(1, Tk, 5))).astype("float64")
    biases = layer(zeros(1, Tq, 5), zeros(1, Tk, 5))
    symbolic_biases = layer(keras.Input((Tq, 5)), keras.Input((Tk, 5)))
    assert keras.backend.standardize_dtype(biases.dtype) == symbolic_biases.dtype == dtype
    assert_close(to_numpy(biases), expected, dtype)
    assert all(weight.dtype == layer.variable_dtype for weight in layer.weights)


@every_bias
def test_symbolic_shapes_follow_queries_keys_and_offset(build_bias):
    queries, keys = keras.Input((None, 5)), keras.Input((Tk, 5))
    layer, offset = build_bias(), keras.Input((), dtype="int32")
    assert layer(queries).shape == (1, H, None, None)
    assert layer(queries, keys).shape == (1, H, None, Tk)
    assert layer(queries, keys, offset=4).shape == (1, H, None, Tk)
    assert layer(queries, keys, offset=offset).shape == (None, H, None, Tk)
    assert layer(keras.Input(batch_shape=(2, Tq, 5)), offset=offset).shape == (2, H, Tq, Tq)
    assert layer.compute_output_shape((2, Tq, 5)) == (1, H, Tq, Tq)
    assert layer.compute_output_shape((2, Tq, 5), (2, Tk, 5), (2,)) == (2, H, Tq, Tk)


@every_bias
def test_model_with_biases_is_saved_and_loaded(build_bias, tmp_path):
    queries, keys = keras.Input((None, 5), name="queries"), keras.Input((None, 6), name="keys")
    offset = keras.Input((), dtype="int32", name="offset")
    layer = build_bias(bidirectional=False)
    model = keras.Model([queries, keys, offset], {"biases": layer(queries, keys, offset=offset)})
    inputs = [zeros(2, Tq, 5), zeros(2, Tk, 6), np.array([0, 9], "int32")]
    expected = to_numpy(model(inputs)["biases"])
    assert_identical(expected[1], compute_pair_by_pair(layer, Tq, Tk, 9))
    assert_identical(to_numpy(save_and_load(model, tmp_path)(inputs)["biases"]), expected)
    clone = type(layer).from_config(layer.get_config())
    assert clone.get_config() == layer.get_config()
    assert_identical(to_numpy(clone(*inputs[:2])), to_numpy(layer(*inputs[:2])))  # the initializer has a fixed seed


@every_bias
def test_biases_carry_no_mask_of_the_queries(build_bias):
    """Keras would apply a mask (B, Tq) of the queries to the first axes of the biases, (B, H)."""
    queries = attach_mask(zeros(2, 3, 5), np.array([[True, True, False], [True, False, False]]))
    assert read_mask(queries) is not None
    assert read_mask(build_bias()(queries)) is None


OFFSET_RULE = "one for each example.*offset shape "
INVALID_CALLS = [
    (lambda layer, x: layer(zeros(2, Tq)), r"`queries` must have at least 3 axes.*queries shape \(2, 4\)"),
    (lambda layer, x: layer(x, zeros(2, Tq)), r"`keys` must have at least 3 axes.*keys shape \(2, 4\)"),
    (lambda layer, x: layer(x, offset=np.float32(1)), r"`offset` must be integers.*Received: offset dtype float32"),
    (lambda layer, x: layer(x, offset=None), r"`offset` must be integers. Received: offset=None"),
    (lambda layer, x: layer(x[:, None], offset=np.arange(2)), OFFSET_RULE + r"\(2,\).* axes \(2, 1\)"),
    (
        lambda layer, x: layer(keras.Input(x[0].shape), offset=keras.Input((2,), dtype="int32")),
        OFFSET_RULE + r"\(None, 2\)",
    ),
    (lambda layer, x: type(layer)(-2), "`num_heads` must be at least 1"),
]


@every_bias
@pytest.mark.parametrize(("call", "message"), INVALID_CALLS)
def test_invalid_arguments_are_rejected(build_bias, call, message):
    layer, x = build_bias(), zeros(2, Tq, 5)
    with pytest.raises((TypeError, ValueError), match=message):
        call(layer, x)


@pytest.mark.slow
@run_only_on("tensorflow", reason="only TensorFlow models are exported")
@every_bias
def test_onnx_file_accepts_every_size_and_offset(build_bias, tmp_path):
    queries, keys = keras.Input((None, 5), name="queries"), keras.Input((None, 5), name="keys")
    offset = keras.Input((), dtype="int32", name="offset")
    scalar = keras.Input(batch_shape=(), dtype="int32", name="scalar")
    layer = build_bias()
    outputs = {"by_vector": layer(queries, keys, offset=offset), "by_scalar": layer(queries, keys, offset=scalar)}
    model = keras.Model([queries, keys, offset, scalar], {**outputs, "zero": layer(queries)})
    inputs = {"queries": zeros(2, 5, 5), "keys": zeros(2, 9, 5)}
    inputs |= {"offset": np.array([0, 30], "int32"), "scalar": np.array(4, "int32")}
    actual = run_traced_model(model, inputs, tmp_path)
    for name, expected in model(inputs).items():
        assert_identical(actual[name], to_numpy(expected))
    assert_identical(actual["by_vector"][1], compute_pair_by_pair(layer, 5, 9, 30))
