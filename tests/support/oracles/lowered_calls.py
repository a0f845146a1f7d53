"""Calls of attention layers as the exporter sees them, each as an ONNX model of its own, and what they must give."""

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
ELEMENTS = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "bool": TensorProto.BOOL}


@dataclass(frozen=True)
class Plan:
    """One kind of call, with `name` as its scoring function."""

    name: str = "dot_product"
    leading: tuple[int, ...] = (3,)
    lengths: str | None = None  # of "examples" or of "queries"
    keys_mask: bool = False
    mask: str | None = None  # of "keys", of "pairs", "shared" by all examples, or of pairs that differ by "heads"
    bias: str | None = None  # likewise, what is added to the scores
    band: tuple[int | None, int | None] | None = None  # how many keys before and after its own place a query sees
    causal: bool = False
    weights: bool = False  # are returned
    size: int = 4  # D or U, of a head
    heads: tuple[int, int] | None = None  # of queries and of keys
    normalizer: str = SOFTMAX
    scale: float = SCALE
    value_size: int = 6  # Dv, of a head

    def __str__(self):
        others = [(each, getattr(self, each.name)) for each in fields(self) if each.name not in ("name", "leading")]
        told = [f"{each.name}_{value}" for each, value in others if value != each.default]
        return "-".join([self.name, *told, f"{len(self.leading)}d"])

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
            "mask": self._shape_of(self.mask, batch, Tq, Tk),
            "bias": self._shape_of(self.bias, batch, Tq, Tk),
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

    def _shape_of(self, kind, batch, Tq, Tk):
        if kind is None:
            return None
        heads = () if self.heads is None else (self.heads[0] if kind == "heads" else 1,)
        leading = (1,) * len(self.leading) if kind == "shared" else batch
        return (*leading, *heads, 1 if kind == "keys" else Tq, Tk)

    def inputs(self, Tq, Tk, *, seed=0):
        """Standard normal numbers; one example without keys, and a query that sees none, where there are masks."""
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
    """The pairs of query and key that take part, `B + (H, Tq, Tk)`."""
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
    """The inputs, with `value` in all that the call must not read."""
    pairs = find_allowed_pairs(plan, inputs).any(-3)
    seen = pairs.any(-2)[..., None]
    changed = {"values": seen, "keys": seen, "queries": pairs.any(-1)[..., None]}
    if plan.bias:
        of_bias = find_allowed_pairs(plan, inputs) if plan.heads else pairs
        shared = tuple(axis for axis, size in enumerate(inputs["bias"].shape) if size == 1)
        changed["bias"] = of_bias.any(shared, keepdims=True)  # of the pairs that read an entry
    return {**inputs, **{name: np.where(seen, inputs[name], np.float32(value)) for name, seen in changed.items()}}


def compute_expected(plan, inputs):
    """Output and weights in float64."""
    pairs = find_allowed_pairs(plan, inputs)
    exact = {name: array.astype("float64") for name, array in inputs.items() if array.dtype.kind == "f"}
    H, G = plan.head_counts
    queries, keys, values = (
        np.swapaxes(exact[name].reshape(*exact[name].shape[:-1], heads, -1), -2, -3)
        for name, heads in (("queries", H), ("keys", G), ("values", G))
    )
    keys, values = (np.repeat(each, H // G, axis=-3) for each in (keys, values))
    if plan.name == "additive":
        features = np.tanh(queries[..., :, None, :] + keys[..., None, :, :])
        scores = (features @ exact["w_v"])[..., 0]
    elif plan.name == "distance":
        gaps = (queries[..., :, None, :] - keys[..., None, :, :]) / exact["bandwidth"]
        scores = -0.5 * (gaps**2).sum(-1)
    else:
        scores = plan.scale * queries @ np.swapaxes(keys, -1, -2)
    if plan.bias:
        scores = scores + (exact["bias"] if plan.heads else exact["bias"][..., None, :, :])
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
    """The inputs, but that every mask which examples have of their own hides all keys from the first that sees any."""
    example = np.argmax(find_allowed_pairs(plan, inputs).any((-1, -2, -3)))
    changed = {name: inputs[name].copy() for name in ("valid_lens", "keys_mask", "mask") if name in inputs}
    for name, array in changed.items():
        if name != "mask" or plan.mask != "shared":
            array.reshape(-1, *array.shape[len(plan.leading) :])[example] = 0
    return {**inputs, **changed}


def fill_one_masked_key(plan, inputs, garbage):
    """The inputs with a large number in one key of each example that some queries see, and which do not see it."""
    pairs = find_allowed_pairs(plan, inputs).any(-3)
    column = np.argmax(pairs.any(-2) & ~pairs.all(-2), axis=-1)
    chosen = (np.arange(pairs.shape[-1]) == column[..., None]) & (pairs.any(-2) & ~pairs.all(-2))
    filled = {name: np.where(chosen[..., None], np.float32(garbage), inputs[name]) for name in ("keys", "values")}
    return {**inputs, **filled}, ~(pairs & chosen[..., None, :]).any(-1)


def move_heads_after_queries(plan, array):
    """An output or weights, (..., Tq, D) or (..., H, Tq, Tk), with heads behind queries."""
    return np.moveaxis(array, -3, -2) if array.ndim > len(plan.leading) + 2 else array


def assert_contract(run, plan, inputs, *, tolerance=None):
    """What is masked changes no bit of what does not see it; no key gives zeros.

    The tolerance is that of outputs beside a large number, which may decide how all is computed.
    """
    clean, pairs = run(None, inputs), find_allowed_pairs(plan, inputs)
    for value in (np.nan, np.inf, 1e30):
        for actual, expected_ in zip(run(None, fill_unused_entries(plan, inputs, value)), clean, strict=True):
            assert_identical(actual, expected_)
    for garbage in (1e4, -1e4):
        altered, blind = fill_one_masked_key(plan, inputs, garbage)
        for actual, expected_ in zip(run(None, altered), clean, strict=True):
            rows, wanted = move_heads_after_queries(plan, actual), move_heads_after_queries(plan, expected_)
            assert_close(rows[blind], wanted[blind], "float32", tolerance=tolerance)
    lost = mask_all_keys(plan, inputs)
    seen = find_allowed_pairs(plan, lost).any((-1, -3))
    same = np.broadcast_to((find_allowed_pairs(plan, lost) == pairs).all((-1, -2, -3))[..., None], seen.shape)
    for actual, expected_ in zip(run(None, lost), clean, strict=True):
        rows = move_heads_after_queries(plan, actual)
        assert_identical(rows[same], move_heads_after_queries(plan, expected_)[same])
        assert not rows[~seen].any()


def assert_parity(plan, inputs, form="large", opset=18, *, run=None, **options):
    """Check what a form gives, or a session of one, with NaN in all that it must not read, and return it."""
    outputs = (run or open_session(plan, form, opset).run)(None, fill_unused_entries(plan, inputs))
    pairs = find_allowed_pairs(plan, inputs)
    for actual, exact in zip(outputs, compute_expected(plan, inputs), strict=True):
        assert_close(actual, exact, "float32", **options)
    assert not outputs[0][~pairs.any((-1, -3))].any()
    if plan.weights:
        assert not outputs[1][~(pairs if plan.heads else pairs[..., 0, :, :])].any()
    return outputs


def open_session(plan, form, opset=18, provider=None, precision="float32"):
    """An onnxruntime session of one call on the provider of this run, as it is written for that one or another.

    A form is a lowering, or that of `adaptive` for large sizes alone, or for GPUs.
    """
    call, provider = plan.call(), provider or Options(provider=provider_option.get_chosen_provider()).attention_target
    if provider != "cpu":
        form = lowering_choice.choose_lowering(call, "adaptive" if form in ("large", ADAPTIVE_GPU) else form, provider)
    if form == "large":
        written = build_call_function(call, ragged.body, opset)
    else:
        written = lowering_choice.build_lowered_function(
            call, form, opset, "cuda" if form == ADAPTIVE_GPU else provider, force_large_form=True
        )
    return provider_option.open_on_provider(build_model(call, written, opset, precision))


def build_model(call, written, opset=18, precision="float32"):
    """A model of one call by its function, whose further outputs are integers on two axes."""
    inputs = [
        helper.make_tensor_value_info(name, ELEMENTS[call.dtypes[name]], _named(name, shape))
        for name, shape in call.shapes.items()
    ]
    kinds = [(TensorProto.FLOAT, call.rank), (TensorProto.FLOAT, call.rank + (call.heads is not None))]
    kinds = [*kinds[: len(call.outputs)], (TensorProto.INT64, 2)]
    outputs = [
        helper.make_tensor_value_info(f"out_{name}", kind, _named(name, [None] * rank))
        for name, (kind, rank) in zip(written.output, kinds, strict=False)
    ]
    node = helper.make_node(call.op_type, list(call.shapes), [each.name for each in outputs], domain=FUNCTION_DOMAIN)
    graph = helper.make_graph([node], "call", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model = add_functions(model, [written])
    model.ir_version = helper.find_min_ir_version_for([helper.make_opsetid("", opset)])
    if precision == "float16":
        model = convert_to_float16(TracedModel(inliner.inline_local_functions(model))).traced.model
    onnx.checker.check_model(model, full_check=True)
    return model


def _named(name, shape):
    return [f"{name}_{axis}" if size is None else size for axis, size in enumerate(shape)]
