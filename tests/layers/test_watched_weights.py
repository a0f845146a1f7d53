"""Attention weights of layers within models: those of the layers called by hand, and the model as it was."""

from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
from backends import BACKEND, only_on
from contract_cases import as_numpy
from keras import layers, ops
from recurrent_cases import arrays, functional, model_inputs
from watched_models import LENGTHS, SEQUENCES, WORDS, Encoder, Noise, Subclassed, functional_model, self_attending

from keras_attn import DotProductAttention
from keras_attn.callbacks._watched import attention_layers, chosen_layers, collect_weights


def test_weights_are_those_of_the_layers_called_by_hand():
    model = functional_model()
    found = collect_weights(model, [WORDS, LENGTHS], attention_layers(model))
    assert list(found) == ["heads", "again", "again/1"]

    x = model.get_layer("embedding")(WORDS)
    pooled, heads = model.get_layer("heads")(x, x, x, LENGTHS, return_attention_scores=True)
    again, first = model.get_layer("again")(pooled, pooled, pooled, LENGTHS, return_attention_scores=True)
    _, second = model.get_layer("again")(again, pooled, pooled, return_attention_scores=True)
    for name, expected in {"heads": heads, "again": first, "again/1": second}.items():
        assert found[name].dtype == "float32"
        np.testing.assert_allclose(found[name], as_numpy(expected), rtol=1e-5, atol=1e-6)
    assert found["heads"].shape == (8, 2, 6, 6)
    assert (found["heads"][0, ..., 2:] == 0).all()


def test_weights_of_a_loop_are_shown_as_they_are_returned():
    model = functional("heads")
    found = collect_weights(model, model_inputs(), attention_layers(model))
    assert list(found) == ["decode"]
    np.testing.assert_allclose(found["decode"], arrays(model(model_inputs()))["weights"], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_layers_of_nested_models():
    inner = [keras.Sequential([keras.Input((5, 4)), Encoder(name="coder")], name=f"part{n}") for n in range(2)]
    model = keras.Sequential([keras.Input((5, 4)), *inner, layers.Dense(1)])
    found = collect_weights(model, SEQUENCES, attention_layers(model))
    assert list(found) == [f"part{n}/coder/block{k}" for n in range(2) for k in range(2)]
    assert [*chosen_layers(model, ["block1", "part0/coder/block0"])] == [
        "part0/coder/block1",
        "part1/coder/block1",
        "part0/coder/block0",
    ]
    assert [*chosen_layers(model, [inner[1].get_layer("coder").blocks[0]])] == ["part1/coder/block0"]


@pytest.mark.parametrize("kind", ["MultiHeadAttention", "GroupQueryAttention", "Attention", "AdditiveAttention"])
def test_layers_of_keras(kind):
    with_heads = {"MultiHeadAttention": {"num_heads": 2, "key_dim": 3}}
    with_heads["GroupQueryAttention"] = {"head_dim": 3, "num_query_heads": 2, "num_key_value_heads": 1}
    layer = getattr(layers, kind)(**with_heads.get(kind, {}), name="theirs")
    sequences, given = keras.Input((5, 4)), ops.convert_to_tensor(SEQUENCES)
    symbolic, real = ([each] * 2 if kind in with_heads else [[each] * 2] for each in (sequences, given))
    model = keras.Model(sequences, layer(*symbolic))
    found = collect_weights(model, SEQUENCES, attention_layers(model))["theirs"]
    _, expected = layer(*real, return_attention_scores=True)
    np.testing.assert_allclose(found, as_numpy(expected), rtol=1e-5, atol=1e-6)


class AttendingCell(layers.Layer):
    """Attends at each step to what it has learnt."""

    state_size = output_size = 4

    def __init__(self):
        super().__init__()
        self.attention = DotProductAttention(name="attention")

    def build(self, shape):
        self.memory = self.add_weight(shape=(7, 4), name="memory")
        self.attention.build((None, 1, 4), (None, 7, 4), (None, 7, 4))

    def call(self, inputs, states):
        memory = ops.broadcast_to(self.memory, (ops.shape(inputs)[0], 7, 4))
        return self.attention(inputs[:, None], memory, memory)[:, 0], states


def recurrent_model(unroll):
    sequences = keras.Input((5, 4))
    return keras.Model(sequences, layers.RNN(AttendingCell(), return_sequences=True, unroll=unroll)(sequences))


@pytest.mark.parametrize("unroll", [False, True])
def test_steps_of_a_recurrent_layer_are_rows_of_one_map(unroll):
    if BACKEND == "jax" and not unroll:
        pytest.skip("JAX compiles the loop: see the next test")
    model = recurrent_model(unroll)
    (found,) = collect_weights(model, SEQUENCES, attention_layers(model)).values()
    memory = ops.broadcast_to(model.layers[-1].cell.memory, (8, 7, 4))
    _, expected = DotProductAttention()(SEQUENCES, memory, memory, return_attention_scores=True)
    np.testing.assert_allclose(found, as_numpy(expected), rtol=1e-5, atol=1e-6)


@only_on("jax", reason="the other backends run the loop step by step")
def test_a_loop_that_is_compiled_is_refused():
    model = recurrent_model(unroll=False)
    with pytest.raises(ValueError, match=r"must run eagerly.*`unroll=True`"):
        collect_weights(model, SEQUENCES, attention_layers(model))


@only_on("tensorflow", reason="`tf.function` is TensorFlow's")
def test_a_function_that_is_compiled_is_refused():
    import tensorflow as tf

    model = keras.Sequential([keras.Input((5, 4)), Encoder(name="encoder")])
    encoder = model.get_layer("encoder")
    encoder.call = tf.function(encoder.call)
    with pytest.raises(ValueError, match=r"Layer 'encoder/block0' must run eagerly.*Leave it out with `layers`"):
        collect_weights(model, SEQUENCES, attention_layers(model))


@pytest.mark.slow
def test_names_are_safe_for_a_path_and_told_apart():
    safe = {"a b": "a_b", "A:b": "A_b", "a_b": "a_b", "x" * 300: "x" * 100}
    if BACKEND != "torch":  # which takes no dot in a name
        safe |= {"..": "_"}
    model = keras.Sequential([keras.Input((5, 4)), *(Encoder(name=name) for name in safe)])
    paths = list(attention_layers(model))
    assert [path.rpartition("/")[0] for path in paths][::2] == list(safe.values())
    assert len({path.casefold() for path in paths}) == 2 * len(safe)


def test_layers_are_left_as_they_were():
    model = functional_model(Noise(name="noise"))
    layer, noise = model.get_layer("heads"), model.get_layer("noise")
    before, drawn = dict(vars(layer)), as_numpy(noise.seed_generator.state)
    collect_weights(model, [WORDS, LENGTHS], attention_layers(model))
    assert vars(layer) == before
    assert float(noise.calls) == 0
    np.testing.assert_array_equal(as_numpy(noise.seed_generator.state), drawn)
    assert noise.losses == []
    with pytest.raises(ValueError, match="`inputs` must be what the model takes"):
        collect_weights(model, [WORDS[:, :0], LENGTHS[:1, None]], attention_layers(model))
    assert vars(layer) == before


def test_a_method_of_the_instance_stays():
    model = self_attending(DotProductAttention(name="attention"))
    layer = model.get_layer("attention")
    own = layer.call = layer.call
    assert collect_weights(model, SEQUENCES, attention_layers(model))
    assert vars(layer)["call"] is own


class Elsewhere(keras.Model):
    """Has a thread of its own call a layer."""

    def __init__(self):
        super().__init__()
        self.attention = DotProductAttention(name="attention")
        self.attention.build(*[(None, None, 4)] * 3)

    def call(self, tensor):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self.attention, *[ops.ones((1, 2, 4))] * 3).result()
        return self.attention(tensor, tensor, tensor)


def test_calls_of_other_threads_are_not_taken_for_the_models():
    model = Elsewhere()
    model(SEQUENCES)
    found = collect_weights(model, SEQUENCES, attention_layers(model))
    assert {name: weights.shape for name, weights in found.items()} == {"attention": (8, 5, 5)}


def test_a_layer_that_is_never_called():
    model = Subclassed()
    model(SEQUENCES)
    with pytest.raises(ValueError, match=r"must call an attention layer.*called none of 'unused'"):
        collect_weights(model, SEQUENCES, chosen_layers(model, ["unused"]))
