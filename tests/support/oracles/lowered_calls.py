"""Traced calls of attention layers as small ONNX models, their inputs, and a float64 reference of their outputs."""

import itertools
from dataclasses import dataclass, fields

import numpy as np
import onnx
import provider_option
from onnx import TensorProto, helper, inliner
from reference import NORMALIZERS
from tolerances import assert_close, assert_identical

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._types import BandMask, Heads
from keras_attn_export._lowering_names import ADAPTIVE_GPU
from keras_attn_export._lowerings import lowering_choice
from keras_attn_export._lowerings.attention_function import build_call_function
from keras_attn_export._lowerings.forms import ragged
from keras_attn_export._onnx.traced_model import FUNCTION_DOMAIN, TracedModel
from keras_attn_export._options import Options
from keras_attn_export._passes.finalize import add_functions
from keras_attn_export._precision.float16 import convert_to_float16
from keras_attn_export._tracing.attention_calls import TracedCall

SCALE = 0.5
DTYPES = {"valid_lens": "int32", "mask": "bool", "keys_mask": "bool"}
ELEMENT_TYPES = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "bool": TensorProto.BOOL}


@dataclass(frozen=True)
class Plan:
    """One kind of attention call; `name` is the scoring function."""

    name: str = "dot_product"
    leading: tuple[int, ...] = (3,)
    lengths: str | None = None  # valid lengths of "examples" or of "queries"
    keys_mask: bool = False
    mask: str | None = None  # of "keys", of "pairs", "shared" by all examples, or of pairs for each of the "heads"
    bias: str | None = None  # score bias, with the shapes of `mask`
    band: tuple[int | None, int | None] | None = None  # window: keys before and after the position of a query
    causal: bool = False
    weights: bool = False  # whether the call returns weights
    size: int = 4  # D or U, of a head
    heads: tuple[int, int] | None = None  # of queries and of keys
    normalizer: str = SOFTMAX
    scale: float = SCALE
    value_size: int = 6  # Dv, of a head

    def __str__(self):
        values = [(field, getattr(self, field.name)) for field in fields(self) if field.name not in ("name", "leading")]
        labels = [f"{field.name}_{value}" for field, value in values if value != field.default]
        return "-".join([self.name, *labels, f"{len(self.leading)}d"])

    @property
    def head_counts(self):
        return self.heads or (1, 1)

    def shapes(self, batch, Tq, Tk):
        H, G = self.head_counts
        shapes = {
            "queries": (*batch, Tq, H * self.size),
            "keys": (*batch, Tk, G * self.size),
            "w_v": (self.size, 1) if self.name == "additive" else None,
            "bandwidth": () if self.name == "distance" else None,
            "values": (*batch, Tk, self.value_size * G),
            "valid_lens": {None: None, "examples": batch, "queries": (*batch, Tq)}[self.lengths],
            "keys_mask": (*batch, Tk) if self.keys_mask else None,
            "mask": self._mask_shape(self.mask, batch, Tq, Tk),
            "bias": self._mask_shape(self.bias, batch, Tq, Tk),
        }
        return {name: shape for name, shape in shapes.items() if shape is not None}

    def call(self):
        shapes = self.shapes((None,) * len(self.leading), None, None)
        return TracedCall(
            op_type="call_0",
            layer="layer",
            layer_id=0,
            score=self.name,
            shapes=shapes,
            dtypes={name: DTYPES.get(name, "float32") for name in shapes},
            constants={},
            options={"scale": self.scale} if self.name == "dot_product" else {},
            heads=None if self.heads is None else Heads(*self.heads),
            band=BandMask(self.causal, self.band),
            normalizer=self.normalizer,
            returns_weights=self.weights,
        )

    def _mask_shape(self, kind, batch, Tq, Tk):
        if kind is None:
            return None
        heads = () if self.heads is None else (self.heads[0] if kind == "heads" else 1,)
        leading = (1,) * len(self.leading) if kind == "shared" else batch
        return (*leading, *heads, 1 if kind == "keys" else Tq, Tk)

    def inputs(self, Tq, Tk, *, seed=0):
        """Draw standard normal inputs; masks leave one example and one query without keys."""
        rng, shapes = np.random.default_rng(seed), self.shapes(self.leading, Tq, Tk)
        numbers = [name for name in ("queries", "keys", "values", "w_v") if name in shapes]
        arrays = {name: rng.standard_normal(shapes[name]).astype("float32") for name in numbers}
        if self.name == "distance":
            arrays["bandwidth"] = np.array(1.5, "float32")
        if self.lengths:
            arrays["valid_lens"] = rng.integers(-1, Tk + 2, shapes["valid_lens"]).astype("int32")
            arrays["valid_lens"].flat[0] = 0
        if self.keys_mask:
            arrays["keys_mask"] = rng.random(shapes["keys_mask"]) < 0.6
            arrays["keys_mask"].reshape(-1, Tk)[-1] = False
        if self.mask:
            arrays["mask"] = rng.random(shapes["mask"]) < 0.4
            arrays["mask"].reshape(-1, Tk)[-1] = False
        if self.bias:
            arrays["bias"] = rng.standard_normal(shapes["bias"]).astype("float32")
        return arrays


MASKS = [
    {},
    {"lengths": "examples"},
    {"lengths": "queries"},
    {"keys_mask": True},
    {"keys_mask": True, "lengths": "examples"},
    {"mask": "keys"},
    {"mask": "keys", "lengths": "examples"},
    {"mask": "pairs"},
    {"mask": "pairs", "lengths": "examples", "keys_mask": True},
    {"mask": "pairs", "lengths": "queries"},
    {"mask": "shared"},
    {"causal": True},
    {"causal": True, "lengths": "examples"},
    {"causal": True, "lengths": "queries"},
    {"causal": True, "keys_mask": True},
    {"band": (1, 2)},
    {"band": (2, None), "lengths": "examples"},
    {"band": (0, None), "causal": True},
    {"band": (None, 1), "mask": "pairs"},
    {"band": (3, 0), "mask": "shared", "lengths": "queries", "keys_mask": True},
]
HEADS = [None, (2, 2), (4, 2), (3, 1)]
BIASES = [
    ("dot_product", None, "pairs"),
    ("dot_product", (4, 2), "heads"),
    ("dot_product", (2, 2), "shared"),
    ("dot_product", (3, 1), "keys"),
    ("additive", None, "shared"),
    ("additive", (4, 2), "heads"),
    ("distance", None, "pairs"),
]
PLANS = [
    *(
        Plan(name, leading, weights=weights, size=7 if name == "additive" else 4, **masks)
        for name, leading, masks, weights in itertools.product(
            ("additive", "dot_product"), ((3,), (2, 3)), MASKS, (False, True)
        )
    ),
    *(
        Plan(leading=(2,) if number % 2 else (2, 2), weights=weights, heads=HEADS[1 + number % 3], **masks)
        for number, masks in enumerate([*MASKS, {"mask": "heads"}, {"mask": "heads", "lengths": "examples"}])
        for weights in (False, True)
    ),
    *(
        Plan(
            "additive", ((2,), (2, 2))[number % 2], size=7, weights=number % 4 < 2, heads=HEADS[1 + number % 3], **masks
        )
        for number, masks in enumerate([*MASKS, {"mask": "heads"}, {"mask": "heads", "lengths": "examples"}])
    ),
    *(
        Plan("distance", (2,) if number % 2 else (2, 2), size=number % 3 + 1, weights=number % 4 < 2, **masks)
        for number, masks in enumerate(MASKS)
    ),
    *(
        Plan(name, weights=number % 3 < 2, heads=heads, normalizer=normalizer, size=3, **masks)
        for normalizer, names in (("sparsemax", ("distance", "dot_product")), ("sigmoid", ("dot_product", "additive")))
        for number, masks in enumerate([*MASKS, {"mask": "heads"}])
        for name, heads in [(names[number % 2], None if names[number % 2] == "distance" else HEADS[number % 4])]
        if heads or masks != {"mask": "heads"}
    ),
    *(
        Plan(name, (2,) if number % 2 else (2, 2), bias=bias, weights=number % 3 == 1, heads=heads, **masks)
        for number, (masks, (name, heads, bias)) in enumerate(itertools.product(MASKS[::2] + MASKS[1:2], BIASES))
    ),
]


def find_allowed_pairs(plan, inputs):
    """Return the unmasked pairs of query and key, boolean `B + (H, Tq, Tk)`."""
    Tq, Tk = inputs["queries"].shape[-2], inputs["keys"].shape[-2]
    H, _ = plan.head_counts
    pairs = np.ones((*plan.leading, H, Tq, Tk), bool)
    if plan.lengths == "examples":
        pairs &= np.arange(Tk) < inputs["valid_lens"][..., None, None, None]
    if plan.lengths == "queries":
        pairs &= np.arange(Tk) < inputs["valid_lens"][..., None, :, None]
    if plan.keys_mask:
        pairs &= inputs["keys_mask"][..., None, None, :]
    if plan.mask:
        pairs &= inputs["mask"] if plan.heads else inputs["mask"][..., None, :, :]
    gaps = np.arange(Tk) - np.arange(Tq)[:, None]
    left, right = plan.band or (None, None)
    pairs &= (gaps >= -left) if left is not None else True
    pairs &= (gaps <= right) if right is not None else True
    return pairs & (gaps <= 0) if plan.causal else pairs


def fill_unused_entries(plan, inputs, value=np.nan):
    """Return the inputs with `value` in all entries that masks remove."""
    pairs = find_allowed_pairs(plan, inputs).any(-3)
    keys_used = pairs.any(-2)[..., None]
    used = {"values": keys_used, "keys": keys_used, "queries": pairs.any(-1)[..., None]}
    if plan.bias:
        bias_pairs = find_allowed_pairs(plan, inputs) if plan.heads else pairs
        shared_axes = tuple(axis for axis, size in enumerate(inputs["bias"].shape) if size == 1)
        used["bias"] = bias_pairs.any(shared_axes, keepdims=True)  # any pair that reads the entry
    return {**inputs, **{name: np.where(mask, inputs[name], np.float32(value)) for name, mask in used.items()}}


def compute_expected(plan, inputs):
    """Return the output and, if the plan has weights, the weights in float64."""
    pairs = find_allowed_pairs(plan, inputs)
    float64_inputs = {name: array.astype("float64") for name, array in inputs.items() if array.dtype.kind == "f"}
    H, G = plan.head_counts
    queries, keys, values = (
        np.swapaxes(float64_inputs[name].reshape(*float64_inputs[name].shape[:-1], heads, -1), -2, -3)
        for name, heads in (("queries", H), ("keys", G), ("values", G))
    )
    keys, values = (np.repeat(array, H // G, axis=-3) for array in (keys, values))
    if plan.name == "additive":
        features = np.tanh(queries[..., :, None, :] + keys[..., None, :, :])
        scores = (features @ float64_inputs["w_v"])[..., 0]
    elif plan.name == "distance":
        gaps = (queries[..., :, None, :] - keys[..., None, :, :]) / float64_inputs["bandwidth"]
        scores = -0.5 * (gaps**2).sum(-1)
    else:
        scores = plan.scale * queries @ np.swapaxes(keys, -1, -2)
    if plan.bias:
        scores = scores + (float64_inputs["bias"] if plan.heads else float64_inputs["bias"][..., None, :, :])
    weights = normalize_scores(plan, scores, pairs)
    output = np.swapaxes(weights @ values, -2, -3)
    output = output.reshape(*output.shape[:-2], -1)
    return [output, weights if plan.heads else weights[..., 0, :, :]][: 1 + plan.weights]


def normalize_scores(plan, scores, pairs):
    if plan.normalizer == SOFTMAX:
        largest = np.max(scores, -1, keepdims=True, where=pairs, initial=-1e300)
        powers = np.where(pairs, np.exp(np.where(pairs, scores - largest, 0)), 0)
        return powers / np.maximum(powers.sum(-1, keepdims=True), 1e-300)
    weights = np.zeros(scores.shape)
    for row in np.ndindex(*scores.shape[:-1]):
        weights[row][pairs[row]] = NORMALIZERS[plan.normalizer](scores[row][pairs[row]].tolist())
    return weights


def mask_all_keys(plan, inputs):
    """Return the inputs with all keys masked in the first example with unmasked keys, by each mask not shared."""
    example = np.argmax(find_allowed_pairs(plan, inputs).any((-1, -2, -3)))
    masks = {name: inputs[name].copy() for name in ("valid_lens", "keys_mask", "mask") if name in inputs}
    for name, array in masks.items():
        if name != "mask" or plan.mask != "shared":
            array.reshape(-1, *array.shape[len(plan.leading) :])[example] = 0
    return {**inputs, **masks}


def fill_one_masked_key(plan, inputs, garbage):
    """Return inputs with `garbage` in a key that is masked for some queries of an example; a mask of the queries."""
    pairs = find_allowed_pairs(plan, inputs).any(-3)
    column = np.argmax(pairs.any(-2) & ~pairs.all(-2), axis=-1)
    is_filled = (np.arange(pairs.shape[-1]) == column[..., None]) & (pairs.any(-2) & ~pairs.all(-2))
    filled = {name: np.where(is_filled[..., None], np.float32(garbage), inputs[name]) for name in ("keys", "values")}
    return {**inputs, **filled}, ~(pairs & is_filled[..., None, :]).any(-1)


def move_heads_after_queries(plan, array):
    """Return an output (..., Tq, D) unchanged, or weights (..., H, Tq, Tk) as (..., Tq, H, Tk)."""
    return np.moveaxis(array, -3, -2) if array.ndim > len(plan.leading) + 2 else array


def assert_contract(run, plan, inputs, *, tolerance=None):
    """Assert that masked keys do not change outputs, and that fully masked queries give zeros.

    The tolerance is that of outputs next to a large masked number, which may change the order of summation.
    """
    clean, pairs = run(None, inputs), find_allowed_pairs(plan, inputs)
    for value in (np.nan, np.inf, 1e30):
        for actual, expected in zip(run(None, fill_unused_entries(plan, inputs, value)), clean, strict=True):
            assert_identical(actual, expected)
    for garbage in (1e4, -1e4):
        altered, is_masked = fill_one_masked_key(plan, inputs, garbage)
        for actual, expected in zip(run(None, altered), clean, strict=True):
            rows, expected_rows = move_heads_after_queries(plan, actual), move_heads_after_queries(plan, expected)
            assert_close(rows[is_masked], expected_rows[is_masked], "float32", tolerance=tolerance)
    masked_inputs = mask_all_keys(plan, inputs)
    masked_pairs = find_allowed_pairs(plan, masked_inputs)
    has_keys = masked_pairs.any((-1, -3))
    is_unchanged = np.broadcast_to((masked_pairs == pairs).all((-1, -2, -3))[..., None], has_keys.shape)
    for actual, expected in zip(run(None, masked_inputs), clean, strict=True):
        rows = move_heads_after_queries(plan, actual)
        assert_identical(rows[is_unchanged], move_heads_after_queries(plan, expected)[is_unchanged])
        assert not rows[~has_keys].any()


def assert_parity(plan, inputs, form="large", opset=18, *, run=None, **options):
    """Assert that a form, or its session, gives the reference outputs despite NaN in masked entries; return outputs."""
    outputs = (run or open_session(plan, form, opset).run)(None, fill_unused_entries(plan, inputs))
    pairs = find_allowed_pairs(plan, inputs)
    for actual, expected in zip(outputs, compute_expected(plan, inputs), strict=True):
        assert_close(actual, expected, "float32", **options)
    assert not outputs[0][~pairs.any((-1, -3))].any()
    if plan.weights:
        assert not outputs[1][~(pairs if plan.heads else pairs[..., 0, :, :])].any()
    return outputs


def open_session(plan, form, opset=18, provider=None, precision="float32"):
    """Open an onnxruntime session of one call on the provider of this run; `provider` selects the lowering instead.

    A form is the name of a lowering, "large" (the adaptive form of large sizes alone) or `ADAPTIVE_GPU`.
    """
    call, provider = plan.call(), provider or Options(provider=provider_option.get_chosen_provider()).attention_target
    if provider != "cpu":
        form = lowering_choice.choose_lowering(call, "adaptive" if form in ("large", ADAPTIVE_GPU) else form, provider)
    if form == "large":
        function = build_call_function(call, ragged.build_body, opset)
    else:
        target = "cuda" if form == ADAPTIVE_GPU else provider
        function = lowering_choice.build_lowered_function(call, form, opset, target, force_large_form=True)
    return provider_option.open_on_provider(build_model(call, function, opset, precision))


def build_model(call, function, opset=18, precision="float32"):
    """Build a model of one call from its lowered function; a third output is a matrix of integers."""
    inputs = [
        helper.make_tensor_value_info(name, ELEMENT_TYPES[call.dtypes[name]], _name_axes(name, shape))
        for name, shape in call.shapes.items()
    ]
    kinds = [(TensorProto.FLOAT, call.rank), (TensorProto.FLOAT, call.rank + (call.heads is not None))]
    kinds = [*kinds[: len(call.outputs)], (TensorProto.INT64, 2)]
    outputs = [
        helper.make_tensor_value_info(f"out_{name}", kind, _name_axes(name, [None] * rank))
        for name, (kind, rank) in zip(function.output, kinds, strict=False)
    ]
    names = [output.name for output in outputs]
    node = helper.make_node(call.op_type, list(call.shapes), names, domain=FUNCTION_DOMAIN)
    graph = helper.make_graph([node], "call", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model = add_functions(model, [function])
    model.ir_version = helper.find_min_ir_version_for([helper.make_opsetid("", opset)])
    if precision == "float16":
        model = convert_to_float16(TracedModel(inliner.inline_local_functions(model))).traced.model
    onnx.checker.check_model(model, full_check=True)
    return model


def _name_axes(name, shape):
    return [f"{name}_{axis}" if size is None else size for axis, size in enumerate(shape)]
