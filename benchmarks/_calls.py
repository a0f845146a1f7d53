"""Single attention calls as ONNX files, in each of the forms that the `adaptive` lowering decides between."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from _sizes import ALL_VALID
from onnx import TensorProto, helper

from keras_attn._composite import Heads
from keras_attn._types import Pairs
from keras_attn_export._lowerings import adaptive, bodies, ragged
from keras_attn_export._lowerings.function import function
from keras_attn_export._options import ADAPTIVE
from keras_attn_export._tracing.attention_calls import DOMAIN, Call
from keras_attn_export._tracing.onnx_file import with_functions

SMALL, LARGE = "small", "large"
DTYPES = {"valid_lens": "int32", "mask": "bool", "keys_mask": "bool"}
ELEMENTS = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "bool": TensorProto.BOOL}
LENGTHS, KEYS, CAUSAL, WINDOW, QUERY_LENGTHS, PAIRS = "lengths", "keys", "causal", "window", "query lengths", "pairs"
BAND = 64  # keys to either side that a window shows


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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def file(self) -> str:
        """What files are called that do for all batches, lengths and fills of such calls."""
        return f"{self.name}_{self.mask.replace(' ', '_')}_{self.H}_{self.D}_{self.weights}"

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
            normalizer="softmax", returns_weights=self.weights, compute=lambda _: (),
        )  # fmt: skip

    def inputs(self) -> dict[str, np.ndarray]:
        """Return normal numbers and the masks."""
        rng = np.random.default_rng(0)
        wide = self.H * self.D
        shapes = {
            "queries": (self.B, self.Tq, wide),
            "keys": (self.B, self.Tk, wide),
            "values": (self.B, self.Tk, wide),
        }
        arrays = {name: rng.standard_normal(shape, dtype="float32") for name, shape in shapes.items()}
        if self.name == "additive":
            arrays["w_v"] = rng.standard_normal((self.D, 1), dtype="float32") * np.float32(self.D**-0.5)
        return arrays | self._masks()

    def _masks(self) -> dict[str, np.ndarray]:
        if self.mask in (LENGTHS, KEYS):
            lengths = self._lengths((self.B,))
            return (
                {"valid_lens": lengths}
                if self.mask == LENGTHS
                else {"keys_mask": np.arange(self.Tk) < lengths[:, None]}
            )
        if self.mask in (QUERY_LENGTHS, PAIRS):
            lengths = self._lengths((self.B, self.Tq))
            if self.mask == QUERY_LENGTHS:
                return {"valid_lens": lengths}
            pairs = np.arange(self.Tk) < lengths[..., None]
            return {"mask": pairs if self.H == 1 else pairs[:, None]}
        return {}

    def _lengths(self, shape: tuple[int, ...]) -> np.ndarray:
        if self.fill == ALL_VALID:
            return np.full(shape, self.Tk, "int32")
        count = int(np.prod(shape))
        return np.maximum(1, np.linspace(0, self.Tk, count + 2)[1:-1]).astype("int32").reshape(shape)


def write(single: Single, form: str, folder: Path) -> Path:
    """Write the file of a call in a form, or in a lowering of that name, unless it is there."""
    file = folder / f"{single.file}_{form}.onnx"
    if not file.exists():
        call = single.call()
        opset = bodies.opset_of(call, ADAPTIVE)
        if form == SMALL:
            body = function(call, adaptive.small, opset)
        elif form == LARGE:
            body = function(call, ragged.body, opset)
        else:
            body = bodies.function_of(call, form, opset)
        onnx.save(_model(call, body, opset), str(file))
    return file


def _model(call: Call, body: onnx.FunctionProto, opset: int) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, ELEMENTS[call.dtypes[name]], _named(name, shape))
        for name, shape in call.shapes.items()
    ]
    ranks = {"output": call.rank, "weights": call.rank + (call.heads is not None)}
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, _named(name, (None,) * ranks[name]))
        for name in call.outputs
    ]
    node = helper.make_node(call.op, list(call.shapes), list(call.outputs), domain=DOMAIN)
    graph = helper.make_graph([node], "call", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = helper.find_min_ir_version_for(model.opset_import)
    return with_functions(model, [body])


def _named(name: str, shape: tuple[int | None, ...]) -> list[str | int]:
    return [f"{name}_{axis}" if size is None else size for axis, size in enumerate(shape)]
