"""Trial runs: models with other outputs in each call, and sizes that static shape inference accepts."""

import keras
import numpy as np
import pytest
from golden_case_helpers import build_integer_input, build_sequence_input, generate_cases
from keras import layers, ops

from keras_attn_export import UnsupportedModelError
from keras_attn_export._golden_cases.input_generators import choose_generators
from keras_attn_export._golden_cases.trial_runs import InputSampler, TrialRuns, refuse_nondeterministic
from keras_attn_export._signature.signature import build_signature


class StochasticDepth(layers.Layer):
    """Leaves out its input in one call of ten, as published: whether it trains or not, if `always`."""

    def __init__(self, always=True, **kwargs):
        super().__init__(**kwargs)
        self.always, self.seeds = always, keras.random.SeedGenerator(2)  # drops at the ninth call first

    def call(self, x, training=None):
        drawn = keras.random.uniform((), seed=self.seeds)
        return ops.where(drawn < 0.1, 0.0, x) if training or self.always else x


class Counting(layers.Layer):
    """Counts its calls in Python, and returns other outputs in each."""

    calls = 0

    def call(self, x):
        self.calls += 1
        return x * float(self.calls)


def model_with(layer):
    x = keras.Input((4,), name="x")
    return keras.Model(x, layers.Dense(3)(layer(layers.Dense(4)(x))))


def check_steady(layer):
    refuse_nondeterministic(build_signature(model_with(layer)), {"x": np.ones((3, 4), "float32")})


def failure(model, sizes):
    signature = build_signature(model)
    return TrialRuns(signature, InputSampler(signature.inputs, choose_generators(signature, {}))).find_failure(sizes)


def test_none_among_outputs_of_a_layer_is_skipped():
    """The encoder of KerasHub's XLNet declares two tensors too and returns the second one as None."""
    x = keras.Input((4,), name="x")
    first, second = layers.Lambda(lambda x: (x * 2, None), lambda shape: (shape, shape))(x)
    assert failure(keras.Model(x, first), {("x", 0): 3}) is None
    with pytest.raises(UnsupportedModelError, match=r"Output `none` .* is None when the model runs"):
        failure(keras.Model(x, {"none": second}), {("x", 0): 3})


def test_empty_outputs_are_a_problem_unless_always_empty():
    x = keras.Input((5, 4), name="x")
    with_scores = layers.Lambda(lambda x: (x, ops.zeros((0, 4))))  # they were not asked for
    assert failure(keras.Model(x, layers.Dense(3)(with_scores(x)[0])), {("x", 0): 3}) is None
    x = keras.Input((None, 4), name="x")
    found = failure(keras.Model(x, ops.sum(x[:, 5:], 1)), {("x", 0): 3, ("x", 1): 5})
    assert found.sentence.startswith("Static shape inference rejects inputs of shapes `x` (3, 5, 4): layer `get_item")
    assert found.sentence.endswith("has an empty output of shape (3, 0, 4)")


def test_model_without_static_inference_is_run():
    x = build_sequence_input()
    raises_at_known_lengths = layers.Lambda(lambda x: x * 2, lambda shape: (None, shape[1] and 1 // 0, 4))
    assert generate_cases(keras.Model(x, raises_at_known_lengths(x))).axes["x"] == ("batch", "x_length", 4)


def test_layer_that_drops_without_training_is_refused_by_name():
    with pytest.raises(
        UnsupportedModelError, match=r"^Layer `depth` draws random numbers .*training=False.*only `if tr"
    ):
        check_steady(StochasticDepth(name="depth"))
    check_steady(StochasticDepth(always=False))


def test_layer_with_other_outputs_in_each_call_is_refused_by_name():
    model = model_with(Counting(name="unsteady"))
    with pytest.raises(UnsupportedModelError, match="Layer `unsteady` gives other outputs when it is called again"):
        generate_cases(model)


def image():
    return keras.Input((None, None, 2), name="x")


def twice(layer, options):
    """Stack two layers that read four positions each and halve their number."""
    return keras.Sequential([layer(**options, strides=2, padding="valid", name=name) for name in ("first", "second")])


class Encoder(layers.Layer):
    """Convolutions behind a rough formula of the output shape, as in encoders of keras_hub."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.body = twice(layers.Conv2D, {"filters": 2, "kernel_size": 4})

    def call(self, x):
        return self.body(x)

    def compute_output_shape(self, shape):
        return (shape[0], *(size and -(-size // 4) for size in shape[1:3]), 2)


WINDOWS = {
    "conv 2d": (image, lambda: twice(layers.Conv2D, {"filters": 2, "kernel_size": 4})),
    "depthwise 2d": (image, lambda: twice(layers.DepthwiseConv2D, {"kernel_size": 4})),
    "pooling": (image, lambda: twice(layers.AveragePooling2D, {"pool_size": 4})),
    "encoder": (image, Encoder),
    "spectrogram": (
        lambda: build_sequence_input(size=1),
        lambda: layers.STFTSpectrogram(frame_length=16, frame_step=8, window=None),
    ),
}


@pytest.mark.parametrize("window", WINDOWS)
def test_windows_have_three_positions_at_sizes_without_samples(window):
    make_input, make_layer = WINDOWS[window]
    x = make_input()
    cases = generate_cases(keras.Model(x, make_layer()(x)))
    assert all(isinstance(size, str) for size in cases.axes["x"][:-1])
    base = next(case for case in cases.cases if case.name == "base")
    (output,) = base.outputs.values()
    assert min(output.shape[1:-1]) >= 3
    for case in cases.cases:  # kernels without a check return memory of the shape of the input
        (output,) = case.outputs.values()
        assert max(output.shape[1:-1]) < max(case.inputs["x"].shape[1:-1])
    assert {"x_length 1"} <= set(cases.refused)


def test_samples_set_the_scale_of_sizes():
    x = image()
    model = keras.Model(x, twice(layers.Conv2D, {"filters": 2, "kernel_size": 4})(x))
    cases = generate_cases(model, {"x": np.ones((2, 40, 44, 2), "f")})
    assert cases.axes["x"] == ("batch", "x_length", "x_axis_2", 2)
    base = next(sizes for case, sizes in zip(cases.cases, cases.sizes, strict=True) if case.name == "base")
    assert (base["x_length"], base["x_axis_2"]) == (40, 44)


@pytest.mark.parametrize("limit", [5, 2])
def test_table_of_few_positions_limits_lengths(limit):
    table = layers.Lambda(lambda x: x + ops.slice(ops.ones((limit, 4)), (0, 0), (ops.shape(x)[1], 4)))
    ids = build_integer_input("ids", None)
    cases = generate_cases(keras.Model(ids, table(layers.Embedding(9, 4)(ids))))
    assert cases.axes["ids"] == ("batch", "ids_length")
    assert {1, min(limit, 4)} <= {sizes["ids_length"] for sizes in cases.sizes}


def test_samples_that_static_inference_rejects_are_run():
    x = build_sequence_input()
    declares_less = layers.Lambda(lambda x: x * 2, lambda shape: (shape[0], shape[1] and shape[1] - 4, shape[2]))
    cases = generate_cases(keras.Model(x, declares_less(x)), {"x": np.ones((2, 4, 4), "f")})
    assert cases.axes["x"] == ("batch", "x_length", 4)
    assert cases.cases[0].inputs["x"].shape == (2, 4, 4)
