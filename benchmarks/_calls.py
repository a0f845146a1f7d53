"""Single attention calls as ONNX files, in the small form and in the large form of the `adaptive` lowering."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from _plans import ALL_VALID, spread_lengths
from _rules import BAND_KEYS, SMALL
from onnx import helper

from keras_attn._types import BandMask, Heads
from keras_attn_export._lowering_names import ADAPTIVE
from keras_attn_export._lowerings import lowering_choice
from keras_attn_export._lowerings.attention_function import build_call_function
from keras_attn_export._lowerings.forms import adaptive, ragged
from keras_attn_export._onnx.traced_model import FUNCTION_DOMAIN
from keras_attn_export._passes.finalize import add_functions
from keras_attn_export._tracing.attention_calls import TracedCall

DTYPES = {"valid_lens": "int32", "mask": "bool", "keys_mask": "bool"}
LENGTHS, KEYS, CAUSAL, WINDOW, QUERY_LENGTHS, PAIRS = "lengths", "keys", "causal", "window", "query lengths", "pairs"


@dataclass(frozen=True)
class SingleCall:
    """Attention call of one size.

    Attributes:
        name: `"dot_product"` or `"additive"`.
        mask: Kind of mask; "" for no mask.
        B: Batch size.
        H: Number of heads.
        Tq: Number of queries.
        Tk: Number of keys.
        D: Size of a head; for additive scores, the number of units.
        weights: True if the attention weights are returned.
        fill: Share of unmasked keys, `ALL_VALID` or `HALF_FILLED`, for masks that are built from lengths.
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

    def make_call(self) -> TracedCall:
        """Return the call as the tracer records it."""
        width = self.H * self.D
        shapes: dict[str, tuple[int | None, ...]] = {"queries": (None, None, width), "keys": (None, None, width)}
        if self.name == "additive":
            shapes["w_v"] = (self.D, 1)
        shapes["values"] = (None, None, width)
        shapes |= {name: (None,) * array.ndim for name, array in self._make_masks().items()}
        return TracedCall(
            op_type="call_0", layer="attention", layer_id=0, score=self.name, shapes=shapes,
            dtypes={name: DTYPES.get(name, "float32") for name in shapes},
            constants={}, options={"scale": self.D**-0.5} if self.name == "dot_product" else {},
            heads=None if self.H == 1 else Heads(self.H, self.H),
            band=BandMask(self.mask == CAUSAL, (BAND_KEYS, BAND_KEYS) if self.mask == WINDOW else None),
            normalizer="softmax", returns_weights=self.weights,
        )  # fmt: skip

    def make_inputs(self) -> dict[str, np.ndarray]:
        """Return random normal inputs, and the masks."""
        rng, width = np.random.default_rng(0), self.H * self.D
        lengths = {"queries": self.Tq, "keys": self.Tk, "values": self.Tk}
        arrays = {name: rng.standard_normal((self.B, T, width), dtype="float32") for name, T in lengths.items()}
        if self.name == "additive":
            arrays["w_v"] = rng.standard_normal((self.D, 1), dtype="float32") * np.float32(self.D**-0.5)
        return arrays | self._make_masks()

    def _make_masks(self) -> dict[str, np.ndarray]:
        if self.mask in (LENGTHS, KEYS):
            lengths = self._make_lengths((self.B,))
            return {"valid_lens": lengths} if self.mask == LENGTHS else {"keys_mask": self._make_mask(lengths)}
        if self.mask == QUERY_LENGTHS:
            return {"valid_lens": self._make_lengths((self.B, self.Tq))}
        if self.mask == PAIRS:
            pairs = self._make_mask(self._make_lengths((self.B, self.Tq)))
            return {"mask": pairs if self.H == 1 else pairs[:, None]}
        return {}

    def _make_mask(self, lengths: np.ndarray) -> np.ndarray:
        return np.asarray(np.arange(self.Tk) < lengths[..., None])

    def _make_lengths(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, self.Tk, "int32") if self.fill == ALL_VALID else spread_lengths(self.Tk, shape)


def write_file(single: SingleCall, form: str, folder: Path) -> Path:
    """Write the file of a call in a form, unless it exists; one file fits all batch sizes, lengths and fills."""
    file = folder / f"{single.name} {single.mask} {single.H} {single.D} {single.weights} {form}.onnx"
    if not file.exists():
        call = single.make_call()
        opset = lowering_choice.get_preferred_opset(call, ADAPTIVE)
        body = build_call_function(call, adaptive.small_body if form == SMALL else ragged.build_body, opset)
        onnx.save(_build_model(call, body, opset), str(file))
    return file


def _build_model(call: TracedCall, body: onnx.FunctionProto, opset: int) -> onnx.ModelProto:
    ranks = {"output": call.rank, "weights": call.rank + (call.heads is not None)}
    inputs = [_make_value_info(name, call.dtypes[name], shape) for name, shape in call.shapes.items()]
    outputs = [_make_value_info(name, "float32", (None,) * ranks[name]) for name in call.outputs]
    node = helper.make_node(call.op_type, list(call.shapes), list(call.outputs), domain=FUNCTION_DOMAIN)
    graph = helper.make_graph([node], "call", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = helper.find_min_ir_version_for(model.opset_import)
    return add_functions(model, [body])


def _make_value_info(name: str, dtype: str, shape: tuple[int | None, ...]) -> onnx.ValueInfoProto:
    sizes = [f"{name}_{axis}" if size is None else size for axis, size in enumerate(shape)]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), sizes)
