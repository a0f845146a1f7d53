"""Inputs of an attention body: tensors with one batch axis, normalized masks, sizes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import TensorProto

from .._onnx.lazy_values import Value, op, reshape, up_to, vector
from .._tracing.attention_calls import Call

ABSENT = Value()  # what a call does not have; to read it is an error
_WIDE = ("int64", "uint32", "uint64")  # integers that may be 2**31 or more


@dataclass(frozen=True, eq=False)
class Given:
    """What a body may read; what it does not is not written.

    Attributes:
        call: The call.
        opset: That of the body.
        flags: The element type by which booleans are reduced: CUDA has no reductions of uint8 at opset 18, which are
            the fastest on a CPU.
        leading: The batch axes of the arguments, a shape; those here have one axis of `N`.
        queries: (N, Tq, H D), or those of a block, as all that has an axis of queries.
        keys: (N, Tk, G D).
        values: (N, Tk, G Dv).
        w_v: Weights of additive scores (U, 1).
        bandwidth: Of distances.
        lengths: Integers (N,) from 0 to Tk.
        query_lengths: Integers (N, Tq), likewise.
        keys_mask: Booleans (N, Tk), within the lengths if there are both.
        mask: Booleans (N or 1, H or 1, Tq or 1, Tk).
        bias: Floats of a shape like that.
        N: A vector of one number, as all sizes.
        Tq: The number of queries.
        Tk: The number of keys.
        Tk_scalar: The same as a scalar.
        positions: 0 to Tk - 1.
        query_numbers: 0 to Tq - 1.
    """

    call: Call
    opset: int
    flags: int
    leading: Value
    queries: Value
    keys: Value
    values: Value
    N: Value
    Tq: Value
    Tk: Value
    Tk_scalar: Value
    positions: Value
    query_numbers: Value
    w_v: Value = ABSENT
    bandwidth: Value = ABSENT
    lengths: Value = ABSENT
    query_lengths: Value = ABSENT
    keys_mask: Value = ABSENT
    mask: Value = ABSENT
    bias: Value = ABSENT

    @property
    def for_device(self) -> bool:
        """Whether the body is to run on a device such as a GPU."""
        return bool(self.flags == TensorProto.INT32)

    @property
    def axes(self) -> list[int]:
        """How many axes each output has, with one batch axis."""
        return [3, 3 if self.call.heads is None else 4][: len(self.call.outputs)]

    def any_of(self, booleans: Value, axes: list[int], *, keepdims: bool = False) -> Value:
        """Return whether any of some booleans along axes is true."""
        largest = op.ReduceMax(op.Cast(booleans, to=self.flags), axes, keepdims=int(keepdims))
        return op.Cast(largest, to=TensorProto.BOOL)

    def all_of(self, booleans: Value) -> Value:
        """Return whether all of some booleans are true, as a scalar."""
        return op.Cast(op.ReduceMin(op.Cast(booleans, to=self.flags), keepdims=0), to=TensorProto.BOOL)


def given_of(call: Call, arguments: Mapping[str, Value], opset: int, *, for_device: bool) -> Given:
    """Return what the body of a call may read of its arguments.

    Args:
        call: The call.
        arguments: By name; `queries`, `keys` and `values` may have any number of batch axes.
        opset: That of the body.
        for_device: Whether it is to run on a device such as a GPU.
    """
    queries, keys, values = (_with_one_axis(call, arguments[name]) for name in ("queries", "keys", "values"))
    Tq, Tk = op.Shape(queries, start=1, end=2), op.Shape(values, start=1, end=2)
    Tk_scalar = op.Squeeze(Tk)
    given = Given(
        call=call,
        opset=opset,
        flags=TensorProto.INT32 if for_device else TensorProto.UINT8,
        leading=op.Shape(arguments["values"], end=-2),
        queries=queries,
        keys=keys,
        values=values,
        N=op.Shape(values, start=0, end=1),
        Tq=Tq,
        Tk=Tk,
        Tk_scalar=Tk_scalar,
        positions=op.Range(0, Tk_scalar, 1),
        query_numbers=up_to(Tq),
        w_v=arguments.get("w_v", ABSENT),
        bandwidth=arguments.get("bandwidth", ABSENT),
    )
    return replace(given, **_masks(given, arguments))


def with_batch_axes(given: Given, output: Value) -> Value:
    """Return an output with the batch axes of the arguments."""
    if given.call.rank == 3:
        return output
    return reshape(output, given.leading, op.Shape(output, start=1))


def _with_one_axis(call: Call, argument: Value) -> Value:
    return argument if call.rank == 3 else reshape(argument, -1, op.Shape(argument, start=-2))


def _masks(given: Given, arguments: Mapping[str, Value]) -> dict[str, Any]:
    """Return the masks of a call, and its bias, by their names in `Given`."""
    call = given.call
    found: dict[str, Any] = {}
    of_keys: list[Value] = []
    if call.has_query_lengths:
        found["query_lengths"] = _clipped(given, reshape(arguments["valid_lens"], given.N, given.Tq))
    elif call.has_lengths:
        lengths = arguments["valid_lens"]
        found["lengths"] = _clipped(given, lengths if call.rank == 3 else reshape(lengths, -1))
    if "keys_mask" in call.shapes:
        of_keys.append(reshape(arguments["keys_mask"], given.N, given.Tk))
    if call.has_pair_mask:
        found["mask"] = _pairwise(given, arguments["mask"], "mask")
    elif "mask" in call.shapes:
        ones = [1] * (len(call.shapes["mask"]) - call.rank + 1)
        rows = op.Expand(arguments["mask"], vector(given.leading, *ones, given.Tk))
        of_keys.append(reshape(rows, given.N, given.Tk))
    if call.has_bias:
        found["bias"] = _pairwise(replace(given, **found), arguments["bias"], "bias")
    if of_keys and call.has_lengths:
        of_keys.append(given.positions < op.Unsqueeze(found["lengths"], [1]))
    return found | ({"keys_mask": conjunction(of_keys)} if of_keys else {})


def _clipped(given: Given, lengths: Value) -> Value:
    """Return lengths as int64 from 0 to Tk."""
    if given.call.dtypes["valid_lens"] not in _WIDE:
        return op.Clip(op.Cast(lengths, to=TensorProto.INT64), 0, given.Tk_scalar)
    # onnxruntime (1.31) takes int64 from 2**31 up to 2**32 for negative there, and uint64 has no int64
    wide, most = (op.Cast(each, to=TensorProto.DOUBLE) for each in (lengths, given.Tk_scalar))
    return op.Cast(op.Clip(wide, np.array(0.0), most), to=TensorProto.INT64)


def _pairwise(given: Given, argument: Value, name: str) -> Value:
    """Return `mask` or `bias` on four axes: its batch axis is 1 where it is the same for all examples."""
    call = given.call
    if name in call.whole and call.rank == len(call.shapes[name]) - (call.heads is not None) == 3:
        return argument if call.heads else op.Unsqueeze(argument, [1])
    tail = 2 if call.heads is None else 3
    leading = call.shapes[name][:-tail]
    is_shared = all(size == 1 for size in leading)
    before = op.Shape(argument, start=-tail, end=-1)
    Tk = op.Shape(given.mask, start=-1) if "mask" in call.whole else given.Tk  # asked of what layers may share
    whole = op.Expand(argument, vector(*([1] * len(leading) if is_shared else [given.leading]), before, Tk))
    heads = op.Shape(argument, start=-3, end=-2) if call.heads else 1
    queries = op.Shape(argument, start=-2, end=-1)
    return reshape(whole, 1 if is_shared else given.N, heads, queries, Tk)


def conjunction(booleans: list[Value]) -> Value:
    """Return where all of some booleans, one at least, are true."""
    *others, both = booleans
    for each in others:
        both = both & each
    return both
