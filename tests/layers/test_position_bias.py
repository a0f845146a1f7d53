"""What biases from positions have in common: offsets, sizes that are unknown, dtypes, saving, what they refuse."""

import keras
import numpy as np
import pytest
from backends import carrying, compiled, every_mode, in_64_bits, mask_of, only_on
from contract_cases import as_numpy
from keras import ops
from tolerances import assert_close, assert_identical
from traced_models import onnx_outputs

from keras_attn import LinearBias, RelativePositionBias

H, Tq, Tk = 3, 4, 7


def buckets():
    """Biases as large as a bias of T5 may be, all different."""
    initializer = keras.initializers.RandomNormal(stddev=2.0, seed=5)
    return RelativePositionBias(H, num_buckets=8, max_distance=20, embeddings_initializer=initializer)


every_bias = pytest.mark.parametrize("make", [buckets, lambda **options: LinearBias(H)], ids=["buckets", "linear"])


def zeros(*shape):
    return np.zeros(shape, "float32")


def of_one_pair(layer, gap):
    """The biases of the heads for one query and one key that is so many positions behind it."""
    return as_numpy(layer(zeros(1, 1, 2), zeros(1, 1, 2), offset=-gap))[0, :, 0, 0]


def pair_by_pair(layer, num_queries, num_keys, offset=0):
    rows = [[of_one_pair(layer, j - (i + offset)) for j in range(num_keys)] for i in range(num_queries)]  # (Tq, Tk, H)
    return np.array(rows).transpose(2, 0, 1)


@every_bias
def test_a_bias_hangs_on_the_gap_alone(make):
    layer = make()
    assert_identical(as_numpy(layer(zeros(2, Tq, 5), zeros(2, Tk, 6)))[0], pair_by_pair(layer, Tq, Tk))
    assert_identical(as_numpy(layer(zeros(2, Tk, 5), zeros(2, Tq, 6)))[0], pair_by_pair(layer, Tk, Tq))


@every_bias
def test_without_keys_they_are_those_of_the_queries(make):
    layer = make()
    biases = as_numpy(layer(zeros(2, Tq, 5)))
    assert biases.shape == (1, H, Tq, Tq)
    assert_identical(biases, as_numpy(layer(zeros(2, Tq, 5), zeros(2, Tq, 5))))


@every_bias
@pytest.mark.parametrize("offset", [3, np.int64(3), np.array(3, "uint8")], ids=["int", "int64", "uint8"])
def test_an_offset_moves_all_queries(make, offset):
    layer = make()
    moved = as_numpy(layer(zeros(2, Tq, 5), zeros(2, Tk, 5), offset=offset))
    assert_identical(moved, as_numpy(layer(zeros(2, Tq + 3, 5), zeros(2, Tk, 5)))[:, :, 3:])


@every_bias
def test_an_offset_for_each_example(make):
    layer, offsets = make(), np.array([0, 11, -2], "int32")
    biases = as_numpy(layer(zeros(3, Tq, 5), zeros(3, Tk, 5), offset=offsets))
    assert biases.shape == (3, H, Tq, Tk)
    for rows, offset in zip(biases, offsets, strict=True):
        assert_identical(rows, pair_by_pair(layer, Tq, Tk, int(offset)))


@every_bias
def test_offsets_of_two_batch_axes(make):
    layer, offsets = make(), np.arange(6, dtype="int32").reshape(2, 3)
    biases = as_numpy(layer(zeros(2, 3, Tq, 5), offset=offsets))
    assert biases.shape == (2, 3, H, Tq, Tq)
    assert_identical(biases[1, 2], as_numpy(layer(zeros(1, Tq, 5), offset=5))[0])


@every_bias
@every_mode
@pytest.mark.parametrize("per_example", [False, True])
def test_one_program_takes_every_size(make, mode, per_example):
    layer = make()
    signature = [((None, None, 5), "float32"), ((None, None, 5), "float32"), ((None,) * per_example, "int32")]
    layer(zeros(1, 1, 5))
    program = compiled(
        lambda q, k, offset: layer(q, k, offset=offset), mode, variables=layer.variables, signature=signature
    )
    for B, num_queries, num_keys, first in ((2, Tq, Tk, 0), (3, 1, 9, 8)):
        offset = np.array([first + b for b in range(B)] if per_example else first, "int32")
        tensors = [ops.convert_to_tensor(x) for x in (zeros(B, num_queries, 5), zeros(B, num_keys, 5), offset)]
        biases = as_numpy(program(*tensors))
        exact = as_numpy(layer(zeros(1, num_queries, 5), zeros(1, num_keys, 5), offset=first))
        assert biases.shape == (B if per_example else 1, H, num_queries, num_keys)
        assert_identical(biases[:1], exact)


@every_bias
def test_axes_of_size_zero(make):
    for num_queries, num_keys in ((0, Tk), (Tq, 0), (0, 0)):
        biases = make()(zeros(2, num_queries, 5), zeros(2, num_keys, 5))
        assert biases.shape == (1, H, num_queries, num_keys)


@every_bias
@pytest.mark.parametrize(
    "policy",
    [pytest.param("float64", marks=in_64_bits), "float32", "float16", "bfloat16", "mixed_float16", "mixed_bfloat16"],
)
def test_biases_come_in_the_dtype_of_the_layer(make, policy):
    keras.config.set_dtype_policy(policy)
    layer = make()
    dtype = keras.DTypePolicy(policy).compute_dtype
    exact = as_numpy(make()(zeros(1, Tq, 5), zeros(1, Tk, 5))).astype("float64")
    biases = layer(zeros(1, Tq, 5), zeros(1, Tk, 5))
    symbolic = layer(keras.Input((Tq, 5)), keras.Input((Tk, 5)))
    assert keras.backend.standardize_dtype(biases.dtype) == symbolic.dtype == dtype
    assert_close(as_numpy(biases), exact, dtype)


@every_bias
def test_symbolic_shapes(make):
    queries, keys = keras.Input((None, 5)), keras.Input((Tk, 5))
    layer, offset = make(), keras.Input((), dtype="int32")
    assert layer(queries).shape == (1, H, None, None)
    assert layer(queries, keys).shape == (1, H, None, Tk)
    assert layer(queries, keys, offset=4).shape == (1, H, None, Tk)
    assert layer(queries, keys, offset=offset).shape == (None, H, None, Tk)
    assert layer(keras.Input(batch_shape=(2, Tq, 5)), offset=offset).shape == (2, H, Tq, Tq)
    assert layer.compute_output_shape((2, Tq, 5)) == (1, H, Tq, Tq)
    assert layer.compute_output_shape((2, Tq, 5), (2, Tk, 5), (2,)) == (2, H, Tq, Tk)


@only_on("tensorflow", reason="no other backend traces with sizes that are unknown")
@every_bias
def test_known_sizes_stay_known_in_a_program(make):
    import tensorflow as tf

    layer, shapes = make(), []
    layer(zeros(1, 1, 5))

    @tf.function(input_signature=[tf.TensorSpec((None, Tq, 5)), tf.TensorSpec((None, None, 5))])
    def program(queries, keys):
        shapes.extend(tuple(layer(*given).shape) for given in ((queries,), (queries, keys)))

    program.get_concrete_function()
    assert shapes == [(1, H, Tq, Tq), (1, H, Tq, None)]


@every_bias
def test_round_trips(make, tmp_path):
    queries, keys = keras.Input((None, 5), name="queries"), keras.Input((None, 6), name="keys")
    offset = keras.Input((), dtype="int32", name="offset")
    layer = make()
    model = keras.Model([queries, keys, offset], {"biases": layer(queries, keys, offset=offset)})
    inputs = [zeros(2, Tq, 5), zeros(2, Tk, 6), np.array([0, 9], "int32")]
    expected = as_numpy(model(inputs)["biases"])
    assert_identical(expected[1], pair_by_pair(layer, Tq, Tk, 9))
    model.save(tmp_path / "model.keras")
    assert_identical(as_numpy(keras.saving.load_model(tmp_path / "model.keras")(inputs)["biases"]), expected)
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    again.build(queries.shape)
    again.set_weights(layer.get_weights())
    assert_identical(as_numpy(again(zeros(1, Tq, 5))), as_numpy(layer(zeros(1, Tq, 5))))


@keras.saving.register_keras_serializable("test_position_bias")
class Subclassed(keras.Model):
    def __init__(self, bias, **options):
        super().__init__(**options)
        self.bias = bias

    def call(self, inputs):
        return self.bias(inputs["x"], offset=inputs["offset"])

    def get_config(self):
        return {**super().get_config(), "bias": keras.saving.serialize_keras_object(self.bias)}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "bias": keras.saving.deserialize_keras_object(config["bias"])})


@every_bias
def test_a_subclassed_model_comes_back(make, tmp_path):
    """Keras builds it on float placeholders, for offsets too."""
    model, inputs = Subclassed(make()), {"x": zeros(2, Tq, 5), "offset": np.array([0, 9], "int32")}
    expected = as_numpy(model(inputs))
    model.save(tmp_path / "model.keras")
    assert_identical(as_numpy(keras.saving.load_model(tmp_path / "model.keras")(inputs)), expected)


@every_bias
def test_a_mask_of_the_queries_ends_here(make):
    """It says which queries count, and would be taken for one of the biases' first axes."""
    queries = carrying(zeros(2, 3, 5), np.array([[True, True, False], [True, False, False]]))
    assert mask_of(queries) is not None
    assert mask_of(make()(queries)) is None


@every_bias
def test_what_is_refused(make):
    layer, x = make(), zeros(2, Tq, 5)
    with pytest.raises(ValueError, match=r"`queries` must have at least 3 axes.*queries shape \(2, 4\)"):
        layer(np.zeros((2, Tq), "int32"))
    with pytest.raises(ValueError, match=r"`keys` must have at least 3 axes.*keys shape \(2, 4\)"):
        layer(x, zeros(2, Tq))
    with pytest.raises(
        TypeError, match=r"`offset` must be integers: it is a position\. Received: offset dtype float32"
    ):
        layer(x, offset=np.float32(1))
    with pytest.raises(TypeError, match=r"`offset` must be integers.*dtype bool"):
        layer(x, offset=True)
    with pytest.raises(TypeError, match=r"`offset` must be integers. Received: offset=None"):
        layer(x, offset=None)
    with pytest.raises(ValueError, match=r"one for each example.*offset shape \(3,\), queries.* axes \(2,\)"):
        layer(x, offset=np.arange(3))
    with pytest.raises(ValueError, match=r"one for each example.*offset shape \(2,\), queries.* axes \(2, 1\)"):
        layer(x[:, None], offset=np.arange(2))
    with pytest.raises(ValueError, match=r"one for each example.*offset shape \(None, 2\)"):
        layer(keras.Input((Tq, 5)), offset=keras.Input((2,), dtype="int32"))
    for wrong in (0, -2):
        with pytest.raises(ValueError, match="`num_heads` must be at least 1"):
            type(layer)(wrong)
    with pytest.raises(TypeError, match="`num_heads` must be an integer"):
        type(layer)(2.0)


@only_on("tensorflow", reason="exports are traced there")
@every_bias
def test_onnx_takes_every_size_and_offset(make, tmp_path):
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
        assert_identical(found[name], as_numpy(expected))
    assert_identical(found["each"][1], pair_by_pair(layer, 5, 9, 30))
