"""Calls of attention layers as the exporter sees them, each as an ONNX model of its own, and what they must give."""

import itertools
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from keras_attn_export._lowerings import bodies
from keras_attn_export._tracing.attention_calls import Call
from keras_attn_export._tracing.onnx_file import with_functions

SCALE = 0.5
DTYPES = {"valid_lens": "int32", "mask": "bool"}
ELEMENTS = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "bool": TensorProto.BOOL}


@dataclass(frozen=True)
class Plan:
    """One kind of call.

    Attributes:
        name: The scoring function.
        leading: Batch sizes.
        lengths: Whether each example has a length.
        mask: `"keys"` for one of keys, `"pairs"` for one of pairs, `"shared"` for one of pairs for all examples.
        weights: Whether the weights are returned.
        size: D or U.
    """

    name: str
    leading: tuple[int, ...] = (3,)
    lengths: bool = False
    mask: str | None = None
    weights: bool = False
    size: int = 4

    def __str__(self):
        masks = [*(["lengths"] if self.lengths else []), *([self.mask] if self.mask else [])]
        return "-".join([self.name, *masks, *(["weights"] if self.weights else []), f"{len(self.leading)}d"])

    def call(self):
        some = (None,) * (len(self.leading) + 1)
        shapes = {"queries": (*some, self.size), "keys": (*some, self.size)}
        if self.name == "additive":
            shapes["w_v"] = (self.size, 1)
        shapes["values"] = (*some, 6)
        if self.lengths:
            shapes["valid_lens"] = some[:-1]
        if self.mask:
            batch = [1] * len(self.leading) if self.mask == "shared" else some[:-1]
            shapes["mask"] = (*batch, 1 if self.mask == "keys" else None, None)
        options = {"scale": SCALE} if self.name == "dot_product" else {}
        dtypes = {name: DTYPES.get(name, "float32") for name in shapes}
        return Call("call_0", "layer", 0, self.name, shapes, dtypes, {}, options, self.weights, compute=lambda _: ())

    def inputs(self, Tq, Tk, *, magnitude=1.0, seed=0):
        """Standard normal numbers; one example without keys, and a query that sees none, where there are masks."""
        rng = np.random.default_rng(seed)
        shapes = {"queries": (Tq, self.size), "keys": (Tk, self.size), "values": (Tk, 6)}
        normal = {name: rng.standard_normal((*self.leading, *shape)) for name, shape in shapes.items()}
        normal["queries"] *= magnitude
        normal["keys"] *= magnitude
        if self.name == "additive":
            normal["w_v"] = rng.standard_normal((self.size, 1))
        arrays = {name: normal[name].astype("float32") for name in self.call().shapes if name in normal}
        if self.lengths:
            arrays["valid_lens"] = rng.integers(-1, Tk + 2, self.leading).astype("int32")
            arrays["valid_lens"].flat[0] = 0
        if self.mask:
            batch = [1] * len(self.leading) if self.mask == "shared" else self.leading
            arrays["mask"] = rng.random((*batch, 1 if self.mask == "keys" else Tq, Tk)) < 0.4
            arrays["mask"].reshape(-1, Tk)[-1] = False
        return arrays


PLANS = [
    Plan(name, leading, lengths, mask, weights, size=7 if name == "additive" else 4)
    for name, leading, lengths, mask, weights in itertools.product(
        ("additive", "dot_product"), ((3,), (2, 3)), (False, True), (None, "keys", "pairs", "shared"), (False, True)
    )
]


def taking_part(plan, inputs):
    """The pairs of query and key that take part, `B + (Tq, Tk)`."""
    Tq, Tk = inputs["queries"].shape[-2], inputs["keys"].shape[-2]
    pairs = np.ones((*plan.leading, Tq, Tk), bool)
    if plan.lengths:
        pairs &= np.arange(Tk) < inputs["valid_lens"][..., None, None]
    return pairs & inputs["mask"] if plan.mask else pairs


def poisoned(plan, inputs, value=np.nan):
    """The inputs, with `value` in all that the call must not read."""
    pairs = taking_part(plan, inputs)
    seen = pairs.any(-2)[..., None]
    changed = {"values": seen, "keys": seen, "queries": pairs.any(-1)[..., None]}
    return {**inputs, **{name: np.where(seen, inputs[name], np.float32(value)) for name, seen in changed.items()}}


def expected(plan, inputs):
    """Output and weights in float64."""
    pairs = taking_part(plan, inputs)
    exact = {name: array.astype("float64") for name, array in inputs.items() if array.dtype.kind == "f"}
    queries, keys = exact["queries"], exact["keys"]
    if plan.name == "additive":
        features = np.tanh(queries[..., :, None, :] + keys[..., None, :, :])
        scores = (features @ exact["w_v"])[..., 0]
    else:
        scores = SCALE * queries @ np.swapaxes(keys, -1, -2)
    largest = np.max(scores, -1, keepdims=True, where=pairs, initial=-1e300)
    powers = np.where(pairs, np.exp(np.where(pairs, scores - largest, 0)), 0)
    weights = powers / np.maximum(powers.sum(-1, keepdims=True), 1e-300)
    return [weights @ exact["values"], weights][: 1 + plan.weights]


def session(plan, lowering, opset):
    """An onnxruntime session of one call."""
    call = plan.call()
    inputs = [
        helper.make_tensor_value_info(name, ELEMENTS[call.dtypes[name]], _named(name, shape))
        for name, shape in call.shapes.items()
    ]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, _named(name, [None] * call.rank))
        for name in call.outputs
    ]
    node = helper.make_node(call.op, list(call.shapes), list(call.outputs), domain="keras_attn")
    graph = helper.make_graph([node], "call", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model = with_functions(model, [bodies.function_of(call, lowering, opset)])
    model.ir_version = helper.find_min_ir_version_for([helper.make_opsetid("", opset)])
    onnx.checker.check_model(model, full_check=True)
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def _named(name, shape):
    return [f"{name}_{axis}" if size is None else size for axis, size in enumerate(shape)]
