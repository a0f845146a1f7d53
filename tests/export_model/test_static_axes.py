"""Axes whose sizes Python code reads become static and are named in a warning; other axes stay dynamic."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attn import AdditiveAttention
from keras_attn_export import InputError, ParityError, export_model
from keras_attn_export._export.export_model import StaticAxisWarning

B, STEPS, SOURCE, WORDS, HIDDEN, LAYERS = 3, 2, 5, 11, 8, 2
POSITIONS = np.random.default_rng(1).standard_normal((1, 1000, HIDDEN), "float32")


@keras.saving.register_keras_serializable("tests")
class Decoder(keras.Model):
    """Decoder with Bahdanau attention: at each step the state of the last layer attends to the encoder outputs."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention, self.embedding = AdditiveAttention(HIDDEN), layers.Embedding(WORDS, 6)
        self.cells = [layers.GRUCell(HIDDEN) for _ in range(LAYERS)]

    def call(self, X, state):
        memory, hidden, valid_lens = state
        X, hidden, outputs = self.embedding(X), list(ops.unstack(hidden)), []
        for step in range(X.shape[1]):
            context = self.attention(ops.expand_dims(hidden[-1], 1), memory, memory, valid_lens)
            x = ops.concatenate([ops.squeeze(context, 1), X[:, step]], -1)
            for number, (cell, state) in enumerate(zip(self.cells, hidden, strict=True)):
                x, (hidden[number],) = cell(x, [state])
            outputs.append(x)
        return ops.stack(outputs, 1), ops.stack(hidden)


@keras.saving.register_keras_serializable("tests")
class Encoder(keras.Model):
    """Sum of word and position embeddings. For an unknown length the slice is the whole table: an error at run time."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embedding = layers.Embedding(WORDS, HIDDEN)

    def call(self, X):
        return self.embedding(X) + POSITIONS[:, : X.shape[1]]


class SwapParts(layers.Layer):
    """Layer whose output shape TensorFlow infers only if the batch size is static."""

    def call(self, x):
        pairs = ops.reshape(x, [ops.shape(x)[0], -1, 2])
        first, second = ops.split(pairs, [3], axis=1)
        return ops.concatenate([second, first], axis=1)

    def compute_output_shape(self, shape):
        return (shape[0], shape[1] * shape[2] // 2, 2)


def export_with_warning(model, folder, length, steps=None, **samples):
    samples["X"] = np.random.default_rng(0).integers(0, WORDS, (B, length))
    progress = None if steps is None else steps.append
    with pytest.warns(StaticAxisWarning, match=r"^Axis `X_length` is static in the bundle\. TensorFlow cannot trace"):
        return export_model(model, folder / "bundle", sample_inputs=samples, progress=progress)


def get_leading_shapes(bundle, part="inputs"):
    return {spec["name"]: spec["shape"][:2] for spec in bundle.manifest[part]}


@pytest.mark.slow
def test_loop_over_steps_makes_their_axis_static(tmp_path):
    rng = np.random.default_rng(0)
    state = [rng.standard_normal(shape, "float32") for shape in ((B, SOURCE, HIDDEN), (LAYERS, B, HIDDEN))]
    bundle = export_with_warning(Decoder(), tmp_path, STEPS, state=[*state, np.array([SOURCE, 2, 3])])
    assert bundle.report.passed
    assert get_leading_shapes(bundle) == {
        "X": ["batch", STEPS],
        "state_0": ["batch", "state_0_length"],
        "state_1": [LAYERS, "batch"],
        "state_2": ["batch"],
    }
    assert get_leading_shapes(bundle, "outputs") == {"output_0": ["batch", STEPS], "output_1": [LAYERS, "batch"]}
    static = bundle.manifest["static"]
    assert static["X_length"].endswith("'NoneType' object cannot be interpreted as an integer")
    assert "no other size" in static["state_1_axis_0"]
    assert len(bundle.report.rows) > 10


@pytest.mark.slow
def test_slice_of_a_table_makes_its_axis_static(tmp_path):
    bundle = export_with_warning(Encoder(), tmp_path, SOURCE, steps := [])
    assert get_leading_shapes(bundle) == {"X": ["batch", SOURCE]}
    repetition = next(number for number, step in enumerate(steps) if step.startswith("Repeating with static axes"))
    assert not any(
        step.startswith("Measuring") for step in steps[:repetition]
    )  # the axis is detected before all cases run
    assert "[1,1000,8]" in bundle.manifest["static"]["X_length"]


@pytest.mark.slow
def test_static_batch_is_static_in_the_saved_model(tmp_path):
    x = keras.Input((4, 6), name="x")
    bundle = export_model(keras.Model(x, SwapParts()(x)), tmp_path / "bundle", static_axes={"batch": 2})
    assert get_leading_shapes(bundle) == {"x": [2, 4]}


class PythonSize(layers.Layer):
    """Layer that reads the size of an axis as a Python integer, as RWKV7 of keras_hub does."""

    def __init__(self, axis, **kwargs):
        super().__init__(**kwargs)
        self.axis = axis

    def call(self, x):
        return x * sum(2.0**-step for step in range(ops.shape(x)[self.axis]))

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, x.dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("axis", "name", "size"), [(1, "x_length", 6), (0, "batch", 3)])
def test_size_that_python_reads_is_set_by_the_user(axis, name, size, tmp_path):
    x = keras.Input((None, 4), name="x")
    model = keras.Model(x, layers.Dense(2)(PythonSize(axis)(x)))
    choices = rf"`sample_inputs=` .*`static_axes={{'{name}': {size}}}`"
    with pytest.raises(InputError, match=rf"^Axis `{name}` is dynamic in the model.*{choices}"):
        export_model(model, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    bundle = export_model(model, tmp_path / "chosen", static_axes={name: 4})
    assert get_leading_shapes(bundle)["x"][axis] == 4
    with pytest.warns(StaticAxisWarning, match=rf"^Axis `{name}` is static in the bundle\. TensorFlow cannot trace"):
        bundle = export_model(model, tmp_path / "sampled", sample_inputs=np.ones((5, 5, 4), "f"))
    assert get_leading_shapes(bundle)["x"][axis] == 5


def test_layer_with_sizes_in_python_needs_static_axes(tmp_path):
    x = keras.Input((None, None, 1), name="x")
    model = keras.Model(x, layers.CenterCrop(2, 2, name="crop")(x))
    with pytest.raises(ParityError, match=r"`crop` has shape .* fix the sizes: `static_axes=`"):
        export_model(model, tmp_path / "bundle")
    bundle = export_model(model, tmp_path / "bundle", static_axes={"x_length": 4, "x_axis_2": 5})
    assert bundle.manifest["outputs"][0]["shape"][1:] == [2, 2, 1]
