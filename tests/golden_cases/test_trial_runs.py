"""Trial runs: refusal of nondeterministic models, and sizes that static shape inference accepts."""

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
    """Layer that drops its input in one call of ten: in training, and also in inference if `always`."""

    def __init__(self, always=True, **kwargs):
        super().__init__(**kwargs)
        self.always, self.seeds = always, keras.random.SeedGenerator(2)  # its ninth draw is the first below 0.1

    def call(self, x, training=None):
        share = keras.random.uniform((), seed=self.seeds)
        return ops.where(share < 0.1, 0.0, x) if training or self.always else x


class CallCounter(layers.Layer):
    """Layer that multiplies its input by the number of its calls, counted in Python."""

    calls = 0

    def call(self, x):
        self.calls += 1
        return x * float(self.calls)


def build_model(layer):
    x = keras.Input((4,), name="x")
    return keras.Model(x, layers.Dense(3)(layer(layers.Dense(4)(x))))


def check_determinism(layer):
    refuse_nondeterministic(build_signature(build_model(layer)), {"x": np.ones((3, 4), "float32")})


def find_failure(model, sizes):
    signature = build_signature(model)
    return TrialRuns(signature, InputSampler(signature.inputs, choose_generators(signature, {}))).find_failure(sizes)


def test_output_that_is_none_is_refused_only_as_a_model_output():
    """The encoder of KerasHub's XLNet declares two tensors too, and returns None as the second one."""
    x = keras.Input((4,), name="x")
    first, second = layers.Lambda(lambda x: (x * 2, None), lambda shape: (shape, shape))(x)
    assert find_failure(keras.Model(x, first), {("x", 0): 3}) is None
    with pytest.raises(UnsupportedModelError, match=r"Output `none` .* is None when the model runs"):
        find_failure(keras.Model(x, {"none": second}), {("x", 0): 3})


def test_empty_layer_outputs_are_failures_unless_always_empty():
    x = keras.Input((5, 4), name="x")
    layer = layers.Lambda(lambda x: (x, ops.zeros((0, 4))))  # scores that the call does not request
    assert find_failure(keras.Model(x, layers.Dense(3)(layer(x)[0])), {("x", 0): 3}) is None
    x = keras.Input((None, 4), name="x")
    failure = find_failure(keras.Model(x, ops.sum(x[:, 5:], 1)), {("x", 0): 3, ("x", 1): 5})
    assert failure.sentence.startswith("Static shape inference rejects inputs of shapes `x` (3, 5, 4): layer `get_item")
    assert failure.sentence.endswith("has an empty output of shape (3, 0, 4)")


def test_model_without_static_inference_is_run():
    x = build_sequence_input()
    layer = layers.Lambda(lambda x: x * 2, lambda shape: (None, shape[1] and 1 // 0, 4))  # raises for an integer size
    assert generate_cases(keras.Model(x, layer(x))).axes["x"] == ("batch", "x_length", 4)


def test_layer_that_drops_without_training_is_refused_by_name():
    message = r"^Layer `depth` draws random numbers .*training=False.*only `if tr"
    with pytest.raises(UnsupportedModelError, match=message):
        check_determinism(StochasticDepth(name="depth"))
    check_determinism(StochasticDepth(always=False))


def test_layer_with_different_outputs_in_each_call_is_refused_by_name():
    model = build_model(CallCounter(name="counter"))
    with pytest.raises(UnsupportedModelError, match="Layer `counter` gives other outputs when it is called again"):
        generate_cases(model)


def build_image_input():
    return keras.Input((None, None, 2), name="x")


def stack_two(layer_type, options):
    """Stack two layers that read four positions each and halve their number."""
    names = ("first", "second")
    return keras.Sequential([layer_type(**options, strides=2, padding="valid", name=name) for name in names])


class Encoder(layers.Layer):
    """Two convolutions with an approximate formula of the output shape, as in encoders of keras_hub."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.body = stack_two(layers.Conv2D, {"filters": 2, "kernel_size": 4})

    def call(self, x):
        return self.body(x)

    def compute_output_shape(self, shape):
        return (shape[0], *(size and -(-size // 4) for size in shape[1:3]), 2)


WINDOWS = {
    "conv 2d": (build_image_input, lambda: stack_two(layers.Conv2D, {"filters": 2, "kernel_size": 4})),
    "depthwise 2d": (build_image_input, lambda: stack_two(layers.DepthwiseConv2D, {"kernel_size": 4})),
    "pooling": (build_image_input, lambda: stack_two(layers.AveragePooling2D, {"pool_size": 4})),
    "encoder": (build_image_input, Encoder),
    "spectrogram": (
        lambda: build_sequence_input(num_features=1),
        lambda: layers.STFTSpectrogram(frame_length=16, frame_step=8, window=None),
    ),
}


@pytest.mark.parametrize("window", WINDOWS)
def test_windows_have_three_positions_at_sizes_without_samples(window):
    build_input, build_layer = WINDOWS[window]
    x = build_input()
    golden = generate_cases(keras.Model(x, build_layer()(x)))
    assert all(isinstance(size, str) for size in golden.axes["x"][:-1])
    base_case = next(case for case in golden.cases if case.name == "base")
    (output,) = base_case.outputs.values()
    assert min(output.shape[1:-1]) >= 3
    for case in golden.cases:  # kernels without a check return memory of the shape of the input
        (output,) = case.outputs.values()
        assert max(output.shape[1:-1]) < max(case.inputs["x"].shape[1:-1])
    assert {"x_length 1"} <= set(golden.refusals)


def test_samples_set_the_scale_of_sizes():
    x = build_image_input()
    model = keras.Model(x, stack_two(layers.Conv2D, {"filters": 2, "kernel_size": 4})(x))
    golden = generate_cases(model, {"x": np.ones((2, 40, 44, 2), "f")})
    assert golden.axes["x"] == ("batch", "x_length", "x_axis_2", 2)
    sizes = golden.sizes[[case.name for case in golden.cases].index("base")]
    assert (sizes["x_length"], sizes["x_axis_2"]) == (40, 44)


@pytest.mark.parametrize("limit", [5, 2])
def test_table_of_few_positions_limits_lengths(limit):
    table = layers.Lambda(lambda x: x + ops.slice(ops.ones((limit, 4)), (0, 0), (ops.shape(x)[1], 4)))
    ids = build_integer_input("ids", None)
    golden = generate_cases(keras.Model(ids, table(layers.Embedding(9, 4)(ids))))
    assert golden.axes["ids"] == ("batch", "ids_length")
    assert {1, min(limit, 4)} <= {sizes["ids_length"] for sizes in golden.sizes}


def test_samples_that_static_inference_rejects_are_run():
    x = build_sequence_input()
    layer = layers.Lambda(lambda x: x * 2, lambda shape: (shape[0], shape[1] and shape[1] - 4, shape[2]))
    golden = generate_cases(keras.Model(x, layer(x)), {"x": np.ones((2, 4, 4), "f")})
    assert golden.axes["x"] == ("batch", "x_length", 4)
    assert golden.cases[0].inputs["x"].shape == (2, 4, 4)
