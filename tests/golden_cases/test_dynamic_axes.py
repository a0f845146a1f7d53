"""Dynamic axes of inputs: names, shared sizes, multiples, and reasons for static axes."""

import keras
import numpy as np
import pytest
from golden_case_helpers import build_integer_input, build_sequence_input, generate_cases
from keras import layers, ops

from keras_attn import DotProductAttention
from keras_attn_export import InputError
from keras_attn_export._golden_cases.dynamic_axes import REQUESTED_REASON
from keras_attn_export._golden_cases.golden_cases import GoldenCases
from keras_attn_export._golden_cases.trial_runs import TrialRuns


@pytest.fixture
def trial_sizes(monkeypatch):
    """Sizes of every trial run."""
    history, find = [], TrialRuns.find_failure
    monkeypatch.setattr(TrialRuns, "find_failure", lambda runs, sizes: history.append(sizes) or find(runs, sizes))
    return history


def build_sequence_inputs(names):
    return [build_sequence_input(name, 3) for name in names]


def test_axes_that_must_agree_share_a_name(trial_sizes):
    inputs = build_sequence_inputs("abcdefghijkl")
    means = [layers.GlobalAveragePooling1D()(sequence) for sequence in inputs[10:]]
    odd, even = layers.Add()(inputs[:10:2]), layers.Multiply()(inputs[1:10:2])
    golden = generate_cases(keras.Model(inputs, {"odd": odd, "even": even, "free": layers.Add()(means)}))
    axis_names = {name: shape[1] for name, shape in golden.axes.items()}
    assert {axis_names[name] for name in "acegi"} == {"a_length"}
    assert {axis_names[name] for name in "bdfhj"} == {"b_length"}
    assert (axis_names["k"], axis_names["l"]) == ("k_length", "l_length")
    assert len(trial_sizes) < 20


def build_unet(halvings, name="image"):
    """Return the input and the output of a network that halves an image several times and doubles it again."""
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
def test_image_sides_are_swept_in_required_multiples(trial_sizes):
    (image, output), (other_image, other_output) = build_unet(3), build_unet(2, "other")
    outputs = {"image_out": output, "both": layers.Add()([output, other_output])}
    golden = generate_cases(keras.Model([image, other_image], outputs))
    assert set(golden.axes.values()) == {("batch", "image_length", "image_axis_2", 1)}
    assert golden.multiples == {"image_length": 8, "image_axis_2": 8}
    assert not golden.refusals
    sides = {inputs["image"].shape[1:3] for _, inputs, *_ in golden.cases}
    assert len(sides) >= 6
    assert any(height != width for height, width in sides)
    assert golden.name_output_axes("image_out", (None, None, None, 1)) == ("batch", "image_length", "image_axis_2", 1)
    assert len(trial_sizes) < 20


def test_output_axis_of_ambiguous_size_has_its_own_name():
    image, shape = keras.Input((None, None, 2), name="image"), (None, None, None, 3)
    golden = generate_cases(keras.Model(image, layers.Conv2D(3, 3, padding="same", name="out")(image)))
    assert golden.axes["image"] == ("batch", "image_length", "image_axis_2", 2)
    assert golden.name_output_axes("out", shape) == ("batch", "image_length", "image_axis_2", 3)
    first_case = GoldenCases(golden.axes, golden.cases[:1], golden.sizes[:1])
    assert first_case.name_output_axes("out", shape) == ("out_axis_0", "out_axis_1", "out_axis_2", 3)
    square_cases = [case for case, sizes in zip(golden.cases, golden.sizes, strict=True) if sizes["batch"] != 3]
    sizes = [sizes | {"image_axis_2": sizes["image_length"]} for sizes in golden.sizes if sizes["batch"] != 3]
    square = GoldenCases(golden.axes, square_cases, sizes)
    assert square.name_output_axes("out", shape)[1:3] == ("out_axis_1", "out_axis_2")


class PositionTable(keras.Model):
    """Model with a learned vector for each of six positions, and an image of fixed size."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.positions = layers.Embedding(6, 4)
        self.head = layers.Dense(4)

    def call(self, x, image):
        projected = self.head(ops.reshape(image, (ops.shape(image)[0], -1)))
        return x + self.positions(ops.arange(ops.shape(x)[1])) + ops.expand_dims(projected, 1)


def test_sample_sizes_bound_lengths_and_fix_static_axes():
    rng = np.random.default_rng(0)
    samples = {"x": rng.standard_normal((2, 6, 4), "f"), "image": rng.standard_normal((2, 5, 7, 1), "f")}
    golden = generate_cases(PositionTable(), samples)
    assert golden.axes == {"x": ("batch", "x_length", 4), "image": ("batch", 5, 7, 1)}
    assert {inputs["x"].shape[1] for _, inputs, *_ in golden.cases} >= {1, 5, 6}
    assert set(golden.static) == {"image_length", "image_axis_2"}
    assert "no other size" in golden.static["image_length"]


class FlaggedPositions(keras.Model):
    def call(self, x, flags):
        return ops.swapaxes(x, 1, 2) * ops.cast(flags, "float32")


def test_axis_of_size_1_that_cannot_change_is_static():
    golden = generate_cases(FlaggedPositions(), {"x": np.ones((2, 6, 4), "f"), "flags": np.ones((2, 1, 6), "i")})
    assert golden.axes == {"x": ("batch", "flags_axis_2", 4), "flags": ("batch", 1, "flags_axis_2")}


def test_axes_that_depend_on_each_other_with_unequal_sizes_are_static():
    add_shifted = layers.Lambda(lambda pair: pair[0] + pair[1][:, 1:] if hasattr(pair[0], "numpy") else pair[0])
    inputs = build_sequence_inputs("ab")
    samples = {"a": np.ones((2, 5, 3), "f"), "b": np.ones((2, 6, 3), "f")}
    golden = generate_cases(keras.Model(inputs, add_shifted(inputs)), samples)
    assert golden.axes == {"a": ("batch", 5, 3), "b": ("batch", 6, 3)}
    assert "not equal" in golden.static["a_length"]


class StackedStates(keras.Model):
    """Model whose state has the shape (layers, batch, size), as in recurrent decoders."""

    def call(self, x, state):
        return x + ops.expand_dims(state[0] + state[1], 1)


def test_batch_axis_is_not_always_the_first_axis():
    for batch in (2, 3):
        samples = {"x": np.ones((batch, 5, 4), "f"), "state": np.ones((2, batch, 4), "f")}
        golden = generate_cases(StackedStates(), samples)
        assert golden.axes["x"] == ("batch", "x_length", 4)
        assert golden.axes["state"][1:] == ("batch", 4)


def test_static_axes_have_the_requested_size():
    inputs = build_sequence_inputs("ab")
    model = keras.Model(inputs, layers.Add()(inputs))
    samples = {name: np.arange(2 * 5 * 3, dtype="f").reshape(2, 5, 3) for name in "ab"}
    golden = generate_cases(model, samples, static_axes={"a_length": 4})
    assert golden.axes == {"a": ("batch", 4, 3), "b": ("batch", 4, 3)}
    assert golden.static == {"a_length": REQUESTED_REASON}
    assert {inputs["b"].shape[1] for _, inputs, *_ in golden.cases} == {4}
    np.testing.assert_array_equal(golden.cases[0].inputs["a"], samples["a"][:, :4])
    assert len({inputs["a"].shape[0] for _, inputs, *_ in golden.cases}) > 2


def test_untraceable_axis_keeps_the_size_of_the_samples():
    model = keras.Model(x := keras.Input((None, 3), name="x"), layers.GlobalAveragePooling1D()(x))
    golden = generate_cases(model, {"x": np.ones((7, 5, 3), "f")}, untraceable_axes={"batch": "why"})
    assert golden.axes == {"x": (7, "x_length", 3)}
    assert golden.static == {"batch": "why"}


@pytest.mark.slow
def test_static_axes_are_refused_if_unknown_or_impossible():
    a, b = build_sequence_inputs("ab")
    with pytest.raises(InputError, match=r"names \['b_length'\].*are \['batch', 'a_length'\]"):
        generate_cases(keras.Model([a, b], layers.Add()([a, b])), static_axes={"b_length": 4})
    with pytest.raises(InputError, match=r"cannot run.*static axes \{'image_length': 9\}"):
        generate_cases(keras.Model(*build_unet(3)), static_axes={"image_length": 9})


@pytest.mark.slow
@pytest.mark.parametrize("order", ["qkv", "vqk", "kvq"])
def test_lengths_and_masks_have_axes_of_queries_and_keys(order, trial_sizes):
    """An error message that names three sizes does not decide which two axes are tied."""
    sequences = {name: build_sequence_input(name) for name in order}
    q, k, v = (sequences[name] for name in "qkv")
    lens, ids = build_integer_input("lens", None), build_integer_input("ids", None)
    mask = build_integer_input("mask", None, None, dtype="bool")
    outputs = [DotProductAttention()(q, k, v, lens, attention_mask=mask), layers.Embedding(9, 2)(ids)]
    shapes = generate_cases(keras.Model([*sequences.values(), lens, mask, ids], outputs)).axes
    keys_length = f"{min('kv', key=order.index)}_length"
    assert shapes["lens"] == ("batch", "q_length")
    assert shapes["mask"] == ("batch", "q_length", keys_length)
    assert shapes["k"][1] == shapes["v"][1] == keys_length
    assert (shapes["q"][1], shapes["ids"][1]) == ("q_length", "ids_length")
    assert len(trial_sizes) < 20


class MessagePassing(layers.Layer):
    def call(self, nodes, links, edges):
        messages = ops.take(nodes, links[0], axis=0) * edges
        return nodes + ops.segment_sum(messages, links[1], num_segments=ops.shape(nodes)[0])


def test_first_axes_with_unequal_samples_are_not_the_batch():
    inputs = (
        keras.Input((4,), name="nodes"),
        keras.Input(batch_shape=(2, None), dtype="int32", name="links"),
        keras.Input((4,), name="edges"),
    )
    samples = {"nodes": np.ones((5, 4)), "links": np.arange(14).reshape(2, 7) % 5, "edges": np.ones((7, 4))}
    golden = generate_cases(keras.Model(inputs, MessagePassing()(*inputs)), samples)
    assert golden.axes == {"nodes": ("nodes_axis_0", 4), "links": (2, "batch"), "edges": ("batch", 4)}
    counts = {(inputs["nodes"].shape[0], inputs["edges"].shape[0]) for _, inputs, *_ in golden.cases}
    assert {nodes > edges for nodes, edges in counts} == {True, False}
