"""Single attention calls as ONNX files, in each of the forms that the `adaptive` lowering decides between."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from _plans import ALL_VALID, spread
from _rules import BAND, SMALL
from onnx import helper

from keras_attn._types import Heads, Pairs
from keras_attn_export._lowering_names import ADAPTIVE
from keras_attn_export._lowerings import lowering_choice
from keras_attn_export._lowerings.attention_function import function
from keras_attn_export._lowerings.forms import adaptive, ragged
from keras_attn_export._onnx.traced_model import DOMAIN
from keras_attn_export._passes.finalize import with_functions
from keras_attn_export._tracing.attention_calls import Call

DTYPES = {"valid_lens": "int32", "mask": "bool", "keys_mask": "bool"}
LENGTHS, KEYS, CAUSAL, WINDOW, QUERY_LENGTHS, PAIRS = "lengths", "keys", "causal", "window", "query lengths", "pairs"


@dataclass(frozen=True)
class Single:
    """One call at one size.

    Attributes:
        name: `"dot_product"` or `"additive"`.
        mask: What keeps keys out; empty if nothing does.
        B: Batch.
        H: Heads.
        Tq: Queries.
        Tk: Keys.
        D: Size of a head; the number of units of additive scores.
        weights: Whether the weights are returned.
        fill: How many of the keys take part, where a mask tells it.
    """

    name: str
    mask: str
    B: int
    H: int
    Tq: int
    Tk: int
    D: int = 64
    weights: bool = False
    fill: str = ALL_VALID

    def call(self) -> Call:
        """Return the call, as a trace would give it."""
        wide = self.H * self.D
        shapes: dict[str, tuple[int | None, ...]] = {"queries": (None, None, wide), "keys": (None, None, wide)}
        if self.name == "additive":
            shapes["w_v"] = (self.D, 1)
        shapes["values"] = (None, None, wide)
        shapes |= {name: (None,) * array.ndim for name, array in self._masks().items()}
        return Call(
            op="call_0", layer="attention", owner=0, name=self.name, shapes=shapes,
            dtypes={name: DTYPES.get(name, "float32") for name in shapes},
            constants={}, options={"scale": self.D**-0.5} if self.name == "dot_product" else {},
            heads=None if self.H == 1 else Heads(self.H, self.H),
            pairs=Pairs(self.mask == CAUSAL, (BAND, BAND) if self.mask == WINDOW else None),
            normalizer="softmax", returns_weights=self.weights,
        )  # fmt: skip

    def inputs(self) -> dict[str, np.ndarray]:
        """Return normal numbers and the masks."""
        rng, wide = np.random.default_rng(0), self.H * self.D
        lengths = {"queries": self.Tq, "keys": self.Tk, "values": self.Tk}
        arrays = {name: rng.standard_normal((self.B, T, wide), dtype="float32") for name, T in lengths.items()}
        if self.name == "additive":
            arrays["w_v"] = rng.standard_normal((self.D, 1), dtype="float32") * np.float32(self.D**-0.5)
        return arrays | self._masks()

    def _masks(self) -> dict[str, np.ndarray]:
        if self.mask in (LENGTHS, KEYS):
            lengths = self._lengths((self.B,))
            return {"valid_lens": lengths} if self.mask == LENGTHS else {"keys_mask": self._seen(lengths)}
        if self.mask == QUERY_LENGTHS:
            return {"valid_lens": self._lengths((self.B, self.Tq))}
        if self.mask == PAIRS:
            pairs = self._seen(self._lengths((self.B, self.Tq)))
            return {"mask": pairs if self.H == 1 else pairs[:, None]}
        return {}

    def _seen(self, lengths: np.ndarray) -> np.ndarray:
        return np.asarray(np.arange(self.Tk) < lengths[..., None])

    def _lengths(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, self.Tk, "int32") if self.fill == ALL_VALID else spread(self.Tk, shape)


def write(single: Single, form: str, folder: Path) -> Path:
    """Write the file of a call in a form, unless it is there: it does for all batches, lengths and fills."""
    file = folder / f"{single.name} {single.mask} {single.H} {single.D} {single.weights} {form}.onnx"
    if not file.exists():
        call = single.call()
        opset = lowering_choice.opset_of(call, ADAPTIVE)
        body = function(call, adaptive.small if form == SMALL else ragged.body, opset)
        onnx.save(_model(call, body, opset), str(file))
    return file


def _model(call: Call, body: onnx.FunctionProto, opset: int) -> onnx.ModelProto:
    ranks = {"output": call.rank, "weights": call.rank + (call.heads is not None)}
    inputs = [_tensor(name, call.dtypes[name], shape) for name, shape in call.shapes.items()]
    outputs = [_tensor(name, "float32", (None,) * ranks[name]) for name in call.outputs]
    node = helper.make_node(call.op, list(call.shapes), list(call.outputs), domain=DOMAIN)
    graph = helper.make_graph([node], "call", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = helper.find_min_ir_version_for(model.opset_import)
    return with_functions(model, [body])


def _tensor(name: str, dtype: str, shape: tuple[int | None, ...]) -> onnx.ValueInfoProto:
    sizes = [f"{name}_{axis}" if size is None else size for axis, size in enumerate(shape)]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), sizes)
