"""The table of layers under contract, their inputs, and helpers that compute outputs and gradients.

A new public layer is one row of `CASES`; test_contract.py fails until it has one.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import reference
from backends import attach_mask, compile_function, compute_gradients
from keras import ops

import keras_attn
from keras_attn._layers.location_sensitive import LocationSensitiveAttention

# Every axis has a size of its own. Where a score needs Dq == Dk both are 4.
B, Tq, Tk, Dv, U = 2, 3, 5, 6, 8


@keras.saving.register_keras_serializable(package="keras_attn_tests")
class OwnAttention(keras_attn.AttentionPooling):
    """A user's subclass of the base layer, with the score `q^T W k` and a weight W (Dq, Dk)."""

    def build(self, queries_shape, keys_shape, values_shape):
        super().build(queries_shape, keys_shape, values_shape)
        self.W = self.add_weight(shape=(queries_shape[-1], keys_shape[-1]), name="W")

    def score(self, queries, keys):
        return ops.matmul(ops.matmul(queries, self.W), ops.swapaxes(keys, -1, -2))


ONE_HEAD_SCALE = 0.1  # keeps products of weights and inputs ten times as large within float16


@keras.saving.register_keras_serializable(package="keras_attn_tests")
class OneHead(keras_attn.MultiHeadAttention):
    """One head without projections of values and outputs; the weights have no axis of heads, as in scoring layers."""

    def __init__(self, dropout=0.0, *, seed=None, **options):
        attention = options.pop("attention", None) or keras_attn.DotProductAttention(
            dropout, seed=seed, scale=ONE_HEAD_SCALE, dtype=options.get("dtype")
        )
        super().__init__(attention, **{"num_heads": 1, "use_bias": False, **options})

    def _build_projection(self, name, units, shape):
        if name in ("W_q", "W_k"):
            return super()._build_projection(name, units, shape)
        return keras.layers.Identity(dtype=self.dtype_policy)

    def _attend(self, call):
        output, weights = super()._attend(call)
        return output, None if weights is None else ops.squeeze(weights, -3)

    def _output_shapes(self, queries_shape, keys_shape, values_shape):
        _, (*batch, _, num_queries, num_keys) = super()._output_shapes(queries_shape, keys_shape, values_shape)
        return (*batch, num_queries, values_shape[-1]), (*batch, num_queries, num_keys)

    def get_config(self):
        return {**super().get_config(), "dropout": self.attention.dropout, "seed": self.attention.seed}


@keras.saving.register_keras_serializable(package="keras_attn_tests")
class AfterAStep(LocationSensitiveAttention):
    """Location-sensitive attention whose previous weights are 1 for every key."""

    def _attend(self, call):
        ones = ops.ones_like(call.keys.tensor[..., 0])
        return super()._attend(call._replace(previous_weights=ops.expand_dims(ones, -2)))


@dataclass(frozen=True)
class LayerCase:
    """A layer under contract: its constructor, and a function from a built layer to its score for the oracle.

    `options` has all options of the layer, at values other than their defaults. An `own_class` is defined here, so a
    process that imports keras_attn alone cannot load it.
    """

    name: str
    make: "partial[Any]"
    score: Callable[[Any], reference.PairScore]
    Dq: int
    Dk: int
    options: Mapping[str, Any] = field(default_factory=dict)
    own_class: bool = False

    @property
    def layer_class(self):
        return self.make.func

    @property
    def covers(self):
        """The public class that this row covers."""
        return next(cls for cls in self.layer_class.__mro__ if cls.__name__ in keras_attn.__all__)

    def layer(self, inputs=None, **options):
        """Build a layer with standard normal weights for `inputs`, by default for inputs of the default sizes."""
        layer = self.make(**options)
        layer.build(*(array.shape for array in (inputs or self.inputs()).values()))
        draw_weights(layer)
        return layer

    def inputs(self, seed=0, **sizes):
        """Draw standard normal queries, keys and values; `sizes` may replace `leading`, `Tq`, `Tk` and `Dv`."""
        rng = np.random.default_rng(seed)
        leading = sizes.get("leading", (B,))
        shapes = {
            "queries": (sizes.get("Tq", Tq), self.Dq),
            "keys": (sizes.get("Tk", Tk), self.Dk),
            "values": (sizes.get("Tk", Tk), sizes.get("Dv", Dv)),
        }
        return {name: rng.normal(size=(*leading, *shape)).astype("float32") for name, shape in shapes.items()}


def build_additive_score(layer):
    kernels = (to_float64(dense.kernel) for dense in (layer.W_q, layer.W_k, layer.w_v))
    if not layer.normalize:
        return reference.additive_score(*kernels)
    return reference.additive_score(*kernels, g=to_float64(layer.g), b=to_float64(layer.b))


def build_after_a_step_score(layer):
    """Build additive scores with a bias: equal previous weights give equal location features at all positions."""
    *kernels, w_v = (to_float64(dense.kernel) for dense in (layer.W_q, layer.W_k, layer.w_v))
    bias = to_float64(layer.W_q.bias) + (to_float64(layer.F.kernel) @ to_float64(layer.W_f.kernel))[0]
    return reference.additive_score(*kernels, w_v, g=np.linalg.norm(w_v), b=bias)


def build_one_head_score(layer):
    kernels = (to_float64(dense.kernel) for dense in (layer.W_q, layer.W_k))
    return reference.projected_score(*kernels, score=reference.scaled_dot_score(ONE_HEAD_SCALE))


def build_bilinear_score(layer):
    return reference.bilinear_score(to_float64(layer.W.kernel).T)


def build_gaussian_score(layer):
    return reference.gaussian_score(float(np.exp(to_float64(layer.log_bandwidth))))


def build_cosine_score(layer):
    return reference.cosine_score(float(np.exp(to_float64(layer.log_temperature))))


additive = partial(keras_attn.AdditiveAttention, num_hiddens=U)
blocked = partial(additive, query_block_size=2)  # Tq is 3: the last block holds one query and one row of padding
dot_product = partial(keras_attn.DotProductAttention)
after_a_step = partial(AfterAStep, num_hiddens=U, filters=3, kernel_size=1)
bilinear = partial(keras_attn.BilinearAttention)
gaussian = partial(keras_attn.GaussianAttention)
cosine = partial(keras_attn.CosineAttention)
KERNEL = {"kernel_initializer": "he_normal", "kernel_regularizer": "l2", "kernel_constraint": "max_norm"}
POOLING = {"dropout": 0.25, "seed": 11}
LOCATION = {"filters": 2, "kernel_size": 3, "cumulative": True}

CASES = [
    LayerCase("additive", additive, build_additive_score, 4, 7, POOLING | KERNEL | {"normalize": True}),
    LayerCase("additive_blocked", blocked, build_additive_score, 4, 7, POOLING | KERNEL),
    LayerCase(
        "after_a_step", after_a_step, build_after_a_step_score, 4, 7, POOLING | KERNEL | LOCATION, own_class=True
    ),
    LayerCase("dot_product", dot_product, lambda layer: reference.scaled_dot_score(), 4, 4, POOLING | {"scale": 0.3}),
    LayerCase("bilinear", bilinear, build_bilinear_score, 4, 7, POOLING | KERNEL),
    LayerCase("gaussian", gaussian, build_gaussian_score, 4, 4, POOLING | {"bandwidth": 0.7, "trainable": False}),
    LayerCase("cosine", cosine, build_cosine_score, 4, 4, POOLING | {"temperature": 0.3, "trainable": False}),
    LayerCase("one_head", partial(OneHead), build_one_head_score, 4, 7, POOLING, own_class=True),
    LayerCase(
        "own",
        partial(OwnAttention),
        lambda layer: reference.bilinear_score(to_float64(layer.W)),
        Dq=4,
        Dk=7,
        options=POOLING | {"normalizer": "sparsemax"},
        own_class=True,
    ),
]
POSITION_LAYERS = [keras_attn.LinearBias, keras_attn.RelativePositionBias, keras_attn.RotaryEmbedding]
"""Position layers: tested within heads in test_contract_parts.py, alone in test_position_bias.py and test_rotary.py."""
RECURRENT_LAYERS = [keras_attn.AttentionCell, keras_attn.AttentionRNN]
"""Recurrent layers: tested in test_contract_parts.py, test_attention_cell.py and test_attention_rnn.py."""
COVERED = {case.covers for case in CASES} | {*POSITION_LAYERS, *RECURRENT_LAYERS, keras_attn.MaskedSoftmax}
"""Layers under contract; `MaskedSoftmax`, whose input is scores, has its own in test_contract_softmax.py."""
VARIANTS = [  # options that change only the score or the normalizer: compared with the oracle alone
    LayerCase("scaled", partial(dot_product, scale=0.7), lambda layer: reference.scaled_dot_score(0.7), 4, 4),
    LayerCase("unscaled", partial(dot_product, scale=1.0), lambda layer: reference.scaled_dot_score(1.0), 4, 4),
    LayerCase("sparsemax", partial(dot_product, normalizer="sparsemax"), lambda _: reference.scaled_dot_score(), 4, 4),
    LayerCase("sigmoid", partial(dot_product, normalizer="sigmoid"), lambda _: reference.scaled_dot_score(), 4, 4),
    LayerCase("normalized", partial(additive, normalize=True), build_additive_score, 4, 7),
    LayerCase("normalized_blocked", partial(blocked, normalize=True), build_additive_score, 4, 7),
    LayerCase("gaussian_of_many_axes", gaussian, build_gaussian_score, 9, 9),
]


every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
every_variant = pytest.mark.parametrize("case", CASES + VARIANTS, ids=lambda case: case.name)


SLOW_VALUES = {"xla", "xla-bias", "saved_model", "onnx"}  # they compile or export for seconds


def parametrize_in_turn(name, values, cases=CASES, *, num_slow_values=2):
    """Parametrize `case` and `name`: the first layer with each value, all further layers with one value in turn.

    Masks, dtypes and paths are handled by code that all layers share, so not every pair needs a test. `more` further
    values of each layer are `slow` tests. A value may be a `pytest.param` with marks.
    """
    parameters = []
    for turn, case in enumerate(cases):
        for number, (label, value) in enumerate(values.items()):
            distance = (number - turn) % len(values) if turn else 0
            value, marks = (value.values[0], [*value.marks]) if hasattr(value, "marks") else (value, [])
            if distance <= num_slow_values:
                marks += [pytest.mark.slow] if distance or label in SLOW_VALUES else []
                parameters.append(pytest.param(case, value, id=f"{case.name}-{label}", marks=marks))
    return pytest.mark.parametrize(("case", name), parameters)


def build_error_pattern(name):
    """Return the pattern of an error: the argument between backticks, the rule, and the received value."""
    return rf"`({name})`[^\n]* must [^\n]*Received: [^\n]*({name})"


def draw_weights(layer, seed=1):
    """Set standard normal weights; smaller ones give nearly constant scores."""
    rng = np.random.default_rng(seed)
    for variable in layer.trainable_variables:
        variable.assign(rng.normal(size=variable.shape))


def build_lengths_model(case: LayerCase, **options: Any) -> tuple[Any, Any]:
    """Build a model of queries, keys, values and lengths with a Dense layer, so that it has weights; return both."""
    layer = case.make(**options)
    arguments = [keras.Input((None, array.shape[-1])) for array in case.inputs().values()]
    arguments.append(keras.Input((), dtype="int32"))
    model = keras.Model(arguments, keras.layers.Dense(1)(layer(*arguments)))
    draw_weights(layer)
    return model, layer


def save_and_load(model: Any, folder: Path) -> Any:
    """Save a model into an empty folder, and load it."""
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


def draw_normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


class Evaluator:
    """Evaluates composites by their own functions, and records them as an exporter would."""

    needs_zeroed_padding, reasons = False, {}

    def __init__(self):
        self.composites = []

    def __call__(self, composite, returns_weights):
        self.composites.append(composite)
        return composite.function(**composite.tensors)


def read_weights(model: Any) -> list[np.ndarray]:
    """Return the present values of the trainable variables."""
    return [to_numpy(variable) for variable in model.trainable_variables]


def to_numpy(tensor):
    if len(tensor.shape) == 0:  # a bfloat16 scalar cannot be converted
        return ops.convert_to_numpy(ops.reshape(tensor, (1,))).reshape(())
    return ops.convert_to_numpy(tensor)


def to_float64(tensor):
    return to_numpy(tensor).astype("float64")


def call_layer(layer, inputs, masks=None, **options):
    """Call the layer with the mask names of `reference.attention`; masks of queries, keys and values become implicit.

    A `score_bias` is one of the masks, or one of the inputs if its gradient is needed.
    """
    masks = dict(masks or {})
    tensors = {
        name: array if masks.get(f"{name}_mask") is None else attach_mask(array, masks[f"{name}_mask"])
        for name, array in inputs.items()
    }
    return layer(
        *(tensors[name] for name in ("queries", "keys", "values")),
        masks.get("valid_lens"),
        score_bias=tensors.get("score_bias", masks.get("score_bias")),
        attention_mask=masks.get("attention_mask"),
        segment_ids=masks.get("segment_ids"),
        use_causal_mask=masks.get("causal", False),
        window=masks.get("window"),
        **options,
    )


def compute_outputs(layer, inputs, masks=None, **options):
    pair = call_layer(layer, inputs, masks, return_attention_scores=True, **options)
    return tuple(to_numpy(tensor) for tensor in pair)


def compute_layer_gradients(layer, inputs, masks=None, *, upstream=None, mode="eager"):
    """Return gradients of `sum(upstream * output)` by name, for the inputs and every weight of the layer.

    `upstream` is the gradient by the output, 1, 2, 3, ... by default.
    """
    if upstream is None:
        shape = (*inputs["queries"].shape[:-1], inputs["values"].shape[-1])
        upstream = np.arange(1.0, np.prod(shape) + 1).reshape(shape)
    masks = dict(masks or {})
    static = {name: masks.pop(name) for name in [*masks] if not isinstance(masks[name], np.ndarray)}
    program = _build_gradient_program(layer, tuple(inputs), tuple(masks), tuple(static.items()), mode)
    results = program(*map(ops.convert_to_tensor, (*inputs.values(), *masks.values(), upstream)))
    labels = [*inputs, *(variable.path for variable in layer.trainable_variables)]
    return {label: to_numpy(gradient) for label, gradient in zip(labels, results, strict=True)}


@lru_cache(maxsize=4)  # calls with other arrays run the same compiled program
def _build_gradient_program(layer, inputs, masks, static, mode):
    def loss(*tensors):
        *tensors, upstream = tensors
        tensors_by_name = dict(zip((*inputs, *masks), tensors, strict=True))
        output = call_layer(layer, {name: tensors_by_name.pop(name) for name in inputs}, tensors_by_name | dict(static))
        return ops.sum(ops.cast(upstream, output.dtype) * output)

    variables = layer.trainable_variables
    return compile_function(compute_gradients(loss, len(inputs), variables), mode, variables=variables)


def compute_expected(case, layer, inputs, masks=None):
    normalizer = getattr(layer, "normalizer", "softmax")
    return reference.attention(**inputs, score=case.score(layer), normalizer=normalizer, **(masks or {}))
