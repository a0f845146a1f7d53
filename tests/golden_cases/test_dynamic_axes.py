"""Names of dynamic axes: found in about as many trials as there are axes; multiples; what is static, and why."""

import keras
import numpy as np
import pytest
from golden_case_helpers import build_integer_input, build_sequence_input, generate_cases
from keras import layers, ops

from keras_attn import DotProductAttention
from keras_attn_export import InputError
from keras_attn_export._golden_cases.dynamic_axes import REQUESTED_REASON
from keras_attn_export._golden_cases.trial_runs import TrialRuns


@pytest.fixture
def trials(monkeypatch):
    """Sizes of every trial."""
    tried, failure = [], TrialRuns.find_failure
    monkeypatch.setattr(TrialRuns, "find_failure", lambda runs, sizes: tried.append(sizes) or failure(runs, sizes))
    return tried


def sequences(names):
    return [build_sequence_input(name, 3) for name in names]


def test_axes_that_must_agree_share_a_name(trials):
    inputs = sequences("abcdefghijkl")
    pooled = [layers.GlobalAveragePooling1D()(each) for each in inputs[10:]]
    odd, even = layers.Add()(inputs[:10:2]), layers.Multiply()(inputs[1:10:2])
    found = generate_cases(keras.Model(inputs, {"odd": odd, "even": even, "free": layers.Add()(pooled)}))
    names = {name: shape[1] for name, shape in found.axes.items()}
    assert {names[name] for name in "acegi"} == {"a_length"}
    assert {names[name] for name in "bdfhj"} == {"b_length"}
    assert (names["k"], names["l"]) == ("k_length", "l_length")
    assert len(trials) < 20


def unet(halvings, name="image"):
    image = keras.Input((None, None, 1), name=name)
    y = layers.Conv2D(2, 3, padding="same")(image)
    skips = []
    for _ in range(halvings):
        skips.append(y)
        y = layers.MaxPooling2D()(y)
    for skip in reversed(skips):
        y = layers.Concatenate()([layers.UpSampling2D()(y), skip])
    return image, layers.Conv2D(1, 1, name=f"{name}_out")(y)


@pytest.mark.slow
def test_sides_that_must_be_multiples_are_swept_in_multiples(trials):
    (image, a), (other, b) = unet(3), unet(2, "other")
    outputs = {"image_out": a, "both": layers.Add()([a, b])}
    found = generate_cases(keras.Model([image, other], outputs))
    assert set(found.axes.values()) == {("batch", "image_length", "image_axis_2", 1)}
    assert found.multiples == {"image_length": 8, "image_axis_2": 8}
    assert not found.refused
    sides = {inputs["image"].shape[1:3] for _, inputs, *_ in found.cases}
    assert len(sides) >= 6
    assert any(height != width for height, width in sides)
    assert found.name_output_axes("image_out", (None, None, None, 1)) == ("batch", "image_length", "image_axis_2", 1)
    assert len(trials) < 20


def test_output_axis_seen_with_one_size_has_its_own_name():
    image, shape = keras.Input((None, None, 2), name="image"), (None, None, None, 3)
    found = generate_cases(keras.Model(image, layers.Conv2D(3, 3, padding="same", name="out")(image)))
    assert found.axes["image"] == ("batch", "image_length", "image_axis_2", 2)
    assert found.name_output_axes("out", shape) == ("batch", "image_length", "image_axis_2", 3)
    one = type(found)(found.axes, found.cases[:1], found.sizes[:1])
    assert one.name_output_axes("out", shape) == ("out_axis_0", "out_axis_1", "out_axis_2", 3)
    alike = [case for case, sizes in zip(found.cases, found.sizes, strict=True) if sizes["batch"] != 3]
    sizes = [sizes | {"image_axis_2": sizes["image_length"]} for sizes in found.sizes if sizes["batch"] != 3]
    assert type(found)(found.axes, alike, sizes).name_output_axes("out", shape)[1:3] == ("out_axis_1", "out_axis_2")


class Table(keras.Model):
    """Adds a learned vector for each of six positions; reads the pixels of an image of fixed size."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.positions = layers.Embedding(6, 4)
        self.head = layers.Dense(4)

    def call(self, x, image):
        seen = self.head(ops.reshape(image, (ops.shape(image)[0], -1)))
        return x + self.positions(ops.arange(ops.shape(x)[1])) + ops.expand_dims(seen, 1)


def test_sample_sizes_bound_lengths_and_fix_static_axes():
    rng = np.random.default_rng(0)
    samples = {"x": rng.standard_normal((2, 6, 4), "f"), "image": rng.standard_normal((2, 5, 7, 1), "f")}
    found = generate_cases(Table(), samples)
    assert found.axes == {"x": ("batch", "x_length", 4), "image": ("batch", 5, 7, 1)}
    assert {inputs["x"].shape[1] for _, inputs, *_ in found.cases} >= {1, 5, 6}
    assert set(found.static) == {"image_length", "image_axis_2"}
    assert "no other size" in found.static["image_length"]


class UnderAMask(keras.Model):
    def call(self, x, seen):
        return ops.swapaxes(x, 1, 2) * ops.cast(seen, "float32")


def test_axis_of_size_1_that_cannot_change_is_static():
    found = generate_cases(UnderAMask(), {"x": np.ones((2, 6, 4), "f"), "seen": np.ones((2, 1, 6), "i")})
    assert found.axes == {"x": ("batch", "seen_axis_2", 4), "seen": ("batch", 1, "seen_axis_2")}


def test_axes_that_depend_on_each_other_with_unequal_sizes_are_static():
    shifted = layers.Lambda(lambda pair: pair[0] + pair[1][:, 1:] if hasattr(pair[0], "numpy") else pair[0])
    inputs = sequences("ab")
    samples = {"a": np.ones((2, 5, 3), "f"), "b": np.ones((2, 6, 3), "f")}
    found = generate_cases(keras.Model(inputs, shifted(inputs)), samples)
    assert found.axes == {"a": ("batch", 5, 3), "b": ("batch", 6, 3)}
    assert "not equal" in found.static["a_length"]


class FirstAxisIsNoBatch(keras.Model):
    """As recurrent decoders are written: the state is (layers, batch, size)."""

    def call(self, x, state):
        return x + ops.expand_dims(state[0] + state[1], 1)


def test_batch_may_be_another_axis_than_the_first():
    for batch in (2, 3):
        samples = {"x": np.ones((batch, 5, 4), "f"), "state": np.ones((2, batch, 4), "f")}
        found = generate_cases(FirstAxisIsNoBatch(), samples)
        assert found.axes["x"] == ("batch", "x_length", 4)
        assert found.axes["state"][1:] == ("batch", 4)


def test_static_axes_have_the_requested_size():
    inputs = sequences("ab")
    model = keras.Model(inputs, layers.Add()(inputs))
    samples = {name: np.arange(2 * 5 * 3, dtype="f").reshape(2, 5, 3) for name in "ab"}
    found = generate_cases(model, samples, static_axes={"a_length": 4})
    assert found.axes == {"a": ("batch", 4, 3), "b": ("batch", 4, 3)}
    assert found.static == {"a_length": REQUESTED_REASON}
    assert {inputs["b"].shape[1] for _, inputs, *_ in found.cases} == {4}
    np.testing.assert_array_equal(found.cases[0].inputs["a"], samples["a"][:, :4])
    assert len({inputs["a"].shape[0] for _, inputs, *_ in found.cases}) > 2


def test_untraceable_axis_keeps_the_size_of_the_samples():
    model = keras.Model(x := keras.Input((None, 3), name="x"), layers.GlobalAveragePooling1D()(x))
    found = generate_cases(model, {"x": np.ones((7, 5, 3), "f")}, untraceable_axes={"batch": "why"})
    assert found.axes == {"x": (7, "x_length", 3)}
    assert found.static == {"batch": "why"}


@pytest.mark.slow
def test_static_axes_are_refused_if_unknown_or_impossible():
    a, b = sequences("ab")
    with pytest.raises(InputError, match=r"names \['b_length'\].*are \['batch', 'a_length'\]"):
        generate_cases(keras.Model([a, b], layers.Add()([a, b])), static_axes={"b_length": 4})
    with pytest.raises(InputError, match=r"cannot run.*static axes \{'image_length': 9\}"):
        generate_cases(keras.Model(*unet(3)), static_axes={"image_length": 9})


@pytest.mark.slow
@pytest.mark.parametrize("order", ["qkv", "vqk", "kvq"])
def test_lengths_and_masks_have_axes_of_queries_and_keys(order, trials):
    """Of three sizes at one place, any two could be meant; those two are that make another check fail."""
    named = {name: build_sequence_input(name) for name in order}
    q, k, v = (named[name] for name in "qkv")
    lens, mask, ids = (
        build_integer_input("lens", None),
        build_integer_input("mask", None, None, dtype="bool"),
        build_integer_input("ids", None),
    )
    outputs = [DotProductAttention()(q, k, v, lens, attention_mask=mask), layers.Embedding(9, 2)(ids)]
    shapes = generate_cases(keras.Model([*named.values(), lens, mask, ids], outputs)).axes
    keys_length = f"{min('kv', key=order.index)}_length"
    assert shapes["lens"] == ("batch", "q_length")
    assert shapes["mask"] == ("batch", "q_length", keys_length)
    assert shapes["k"][1] == shapes["v"][1] == keys_length
    assert (shapes["q"][1], shapes["ids"][1]) == ("q_length", "ids_length")
    assert len(trials) < 20


class SentAlongLinks(layers.Layer):
    def call(self, nodes, links, edges):
        sent = ops.take(nodes, links[0], axis=0) * edges
        return nodes + ops.segment_sum(sent, links[1], num_segments=ops.shape(nodes)[0])


def test_first_axes_with_unequal_samples_are_not_the_batch():
    inputs = (
        keras.Input((4,), name="nodes"),
        keras.Input(batch_shape=(2, None), dtype="int32", name="links"),
        keras.Input((4,), name="edges"),
    )
    samples = {"nodes": np.ones((5, 4)), "links": np.arange(14).reshape(2, 7) % 5, "edges": np.ones((7, 4))}
    found = generate_cases(keras.Model(inputs, SentAlongLinks()(*inputs)), samples)
    assert found.axes == {"nodes": ("nodes_axis_0", 4), "links": (2, "batch"), "edges": ("batch", 4)}
    counts = {(inputs["nodes"].shape[0], inputs["edges"].shape[0]) for _, inputs, *_ in found.cases}
    assert {nodes > edges for nodes, edges in counts} == {True, False}
