"""What biases from positions have in common: offsets, sizes that are unknown, dtypes, saving, what they refuse."""

import keras
import numpy as np
import pytest
from backends import attach_mask, compile_function, every_mode, read_mask, run_only_on, x64
from keras import ops
from layer_contract import save_and_load, to_numpy
from tolerances import assert_close, assert_identical
from traced_models import onnx_outputs

from keras_attn import LinearBias, RelativePositionBias

H, Tq, Tk = 3, 4, 7


def buckets(**options):
    """Biases as large as a bias of T5 may be, all different."""
    initializer = keras.initializers.RandomNormal(stddev=2.0, seed=5)
    return RelativePositionBias(H, num_buckets=8, max_distance=20, embeddings_initializer=initializer, **options)


every_bias = pytest.mark.parametrize("make", [buckets, lambda **_: LinearBias(H)], ids=["buckets", "linear"])


def zeros(*shape):
    return np.zeros(shape, "float32")


def pair_by_pair(layer, num_queries, num_keys, offset=0):
    """Return the biases of the heads, each pair by a call for one query and one key at its distance."""
    x = zeros(1, 1, 2)
    rows = [
        [to_numpy(layer(x, x, offset=i + offset - j))[0, :, 0, 0] for j in range(num_keys)] for i in range(num_queries)
    ]
    return np.array(rows).transpose(2, 0, 1)


CALLS = {  # axes of queries and keys but the last, an offset
    "more keys": ((2, Tq), (2, Tk), 0),
    "more queries": ((2, Tk), (2, Tq), 0),
    "without keys": ((2, Tq), None, 0),
    "no queries": ((2, 0), (2, Tk), 0),
    "no keys": ((2, Tq), (2, 0), 0),
    "int": ((2, Tq), (2, Tk), 3),
    "uint8": ((2, Tq), (2, Tk), np.array(3, "uint8")),
    "of each example": ((3, Tq), (3, Tk), np.array([0, 11, -2], "int32")),
    "of two batch axes": ((2, 3, Tq), None, np.arange(6, dtype="int32").reshape(2, 3)),
}


@every_bias
@pytest.mark.parametrize("call", CALLS)
def test_bias_of_a_pair_depends_on_its_distance_alone(make, call):
    layer, (queries, keys, offset) = make(), CALLS[call]
    given = [zeros(*queries, 5), *([] if keys is None else [zeros(*keys, 6)])]
    biases, shape, num_keys = to_numpy(layer(*given, offset=offset)), np.shape(offset), (keys or queries)[-1]
    assert biases.shape == (*(shape or (1,)), H, queries[-1], num_keys)
    for index in np.ndindex(*shape) if biases.size else ():
        exact = pair_by_pair(layer, queries[-1], num_keys, int(np.asarray(offset)[index]))
        assert_identical(biases[index or 0], exact)


@every_bias
@every_mode
@pytest.mark.parametrize("per_example", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_one_program_takes_every_size(make, mode, per_example):
    layer = make()
    signature = [((None, None, 5), "float32"), ((None, None, 5), "float32"), ((None,) * per_example, "int32")]
    layer(zeros(1, 1, 5))
    program = compile_function(
        lambda q, k, offset: layer(q, k, offset=offset), mode, variables=layer.variables, signature=signature
    )
    for B, num_queries, num_keys, first in ((2, Tq, Tk, 0), (3, 1, 9, 8)):
        offset = np.array([first + b for b in range(B)] if per_example else first, "int32")
        tensors = [ops.convert_to_tensor(x) for x in (zeros(B, num_queries, 5), zeros(B, num_keys, 5), offset)]
        biases = to_numpy(program(*tensors))
        exact = to_numpy(layer(zeros(1, num_queries, 5), zeros(1, num_keys, 5), offset=first))
        assert biases.shape == (B if per_example else 1, H, num_queries, num_keys)
        assert_identical(biases[:1], exact)


@every_bias
@pytest.mark.parametrize(
    "policy",
    [pytest.param("float64", marks=x64), "float16", "mixed_bfloat16"],
)
def test_biases_have_the_dtype_of_the_layer(make, policy):
    keras.config.set_dtype_policy(policy)
    layer = make()
    dtype = keras.DTypePolicy(policy).compute_dtype
    exact = to_numpy(make()(zeros(1, Tq, 5), zeros(1, Tk, 5))).astype("float64")
    biases = layer(zeros(1, Tq, 5), zeros(1, Tk, 5))
    symbolic = layer(keras.Input((Tq, 5)), keras.Input((Tk, 5)))
    assert keras.backend.standardize_dtype(biases.dtype) == symbolic.dtype == dtype
    assert_close(to_numpy(biases), exact, dtype)
    assert all(weight.dtype == layer.variable_dtype for weight in layer.weights)


@every_bias
def test_symbolic_shapes_follow_queries_keys_and_offset(make):
    queries, keys = keras.Input((None, 5)), keras.Input((Tk, 5))
    layer, offset = make(), keras.Input((), dtype="int32")
    assert layer(queries).shape == (1, H, None, None)
    assert layer(queries, keys).shape == (1, H, None, Tk)
    assert layer(queries, keys, offset=4).shape == (1, H, None, Tk)
    assert layer(queries, keys, offset=offset).shape == (None, H, None, Tk)
    assert layer(keras.Input(batch_shape=(2, Tq, 5)), offset=offset).shape == (2, H, Tq, Tq)
    assert layer.compute_output_shape((2, Tq, 5)) == (1, H, Tq, Tq)
    assert layer.compute_output_shape((2, Tq, 5), (2, Tk, 5), (2,)) == (2, H, Tq, Tk)


@every_bias
def test_model_with_biases_is_saved_and_loaded(make, tmp_path):
    queries, keys = keras.Input((None, 5), name="queries"), keras.Input((None, 6), name="keys")
    offset = keras.Input((), dtype="int32", name="offset")
    layer = make(bidirectional=False)
    model = keras.Model([queries, keys, offset], {"biases": layer(queries, keys, offset=offset)})
    inputs = [zeros(2, Tq, 5), zeros(2, Tk, 6), np.array([0, 9], "int32")]
    expected = to_numpy(model(inputs)["biases"])
    assert_identical(expected[1], pair_by_pair(layer, Tq, Tk, 9))
    assert_identical(to_numpy(save_and_load(model, tmp_path)(inputs)["biases"]), expected)
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert_identical(to_numpy(again(*inputs[:2])), to_numpy(layer(*inputs[:2])))  # its initializer draws by a seed


@every_bias
def test_biases_carry_no_mask_of_the_queries(make):
    """It says which queries count, and would be taken for one of the biases' first axes."""
    queries = attach_mask(zeros(2, 3, 5), np.array([[True, True, False], [True, False, False]]))
    assert read_mask(queries) is not None
    assert read_mask(make()(queries)) is None


ONE_EACH = "one for each example.*offset shape "
REFUSED = [
    (lambda layer, x: layer(zeros(2, Tq)), r"`queries` must have at least 3 axes.*queries shape \(2, 4\)"),
    (lambda layer, x: layer(x, zeros(2, Tq)), r"`keys` must have at least 3 axes.*keys shape \(2, 4\)"),
    (lambda layer, x: layer(x, offset=np.float32(1)), r"`offset` must be integers.*Received: offset dtype float32"),
    (lambda layer, x: layer(x, offset=None), r"`offset` must be integers. Received: offset=None"),
    (lambda layer, x: layer(x[:, None], offset=np.arange(2)), ONE_EACH + r"\(2,\).* axes \(2, 1\)"),
    (lambda layer, x: layer(keras.Input((Tq, 5)), offset=keras.Input((2,), dtype="int32")), ONE_EACH + r"\(None, 2\)"),
    (lambda layer, x: type(layer)(-2), "`num_heads` must be at least 1"),
]


@every_bias
@pytest.mark.parametrize(("call", "said"), REFUSED)
def test_bad_arguments_are_refused(make, call, said):
    layer, x = make(), zeros(2, Tq, 5)
    with pytest.raises((TypeError, ValueError), match=said):
        call(layer, x)


@pytest.mark.slow
@run_only_on("tensorflow", reason="exports are traced there")
@every_bias
def test_onnx_file_takes_every_size_and_offset(make, tmp_path):
    queries, keys = keras.Input((None, 5), name="queries"), keras.Input((None, 5), name="keys")
    offset, one = keras.Input((), dtype="int32", name="offset"), keras.Input(batch_shape=(), dtype="int32", name="one")
    layer = make()
    outputs = {
        "each": layer(queries, keys, offset=offset),
        "all": layer(queries, keys, offset=one),
        "none": layer(queries),
    }
    model = keras.Model([queries, keys, offset, one], outputs)
    given = {"queries": zeros(2, 5, 5), "keys": zeros(2, 9, 5)}
    inputs = {**given, "offset": np.array([0, 30], "int32"), "one": np.array(4, "int32")}
    found = onnx_outputs(model, inputs, tmp_path)
    for name, expected in model(inputs).items():
        assert_identical(found[name], to_numpy(expected))
    assert_identical(found["each"][1], pair_by_pair(layer, 5, 9, 30))
