"""ONNX text for blocks of queries of all examples at once: a `Scan` over them, in memory that stays bounded.

Each block is a call with fewer queries. How many follows from sizes alone, so that nothing is read back from a device
to decide it. Places behind the last query are filled with that query.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from .._tracing.attention_calls import Call
from .blocks import cut, pairwise
from .text import renamed

LEAST_ROWS = 8  # queries in a block, where there are as many
MOST_ROWS = 2**20


def by_blocks(call: Call, lines: str, numbers_of_row: str, largest: int, more: Mapping[str, str] | None = None) -> str:
    """Lines that define the outputs of a call by a `Scan` over blocks of its queries.

    Args:
        call: The call.
        lines: A body that defines them for all queries.
        numbers_of_row: How many numbers a query has in its block at most: the name of a vector of one number.
        largest: How many numbers a block may have.
        more: Names of tensors that have a row for each query too, on their second axis, with the type of a part.
    """
    parts = _parts(call) | dict(more or {})
    outputs = {"output": "float[?, ?, ?]", "weights": f"float[{', '.join('?' * (3 + (call.heads is not None)))}]"}
    lines = renamed(lines, "block")
    for name in parts:
        lines = re.sub(rf"\b{name}\b", f"block_{name}", lines)
    lines = re.sub(r"\bTq\b", "rows", lines)
    inputs = ", ".join(f"{kind} block_{name}" for name, kind in parts.items())
    return f"""
        {cut(numbers_of_row, largest, MOST_ROWS, LEAST_ROWS)}
        all_rows_scalar = Squeeze (all_rows)
        last_query = Sub (Tq, one)
        every_row = Range (zero_scalar, all_rows_scalar, one_scalar)
        every_number = Min (every_row, last_query)
        blocks_and_rows = Concat <axis = 0> (blocks, rows)
        query_numbers_in_blocks = Reshape <allowzero = 1> (every_number, blocks_and_rows)
        {"".join(_in_blocks(name, kind) for name, kind in parts.items() if name != "query_numbers")}
        {", ".join(f"{name}_of_blocks" for name in call.outputs)} = Scan <
            num_scan_inputs = {len(parts)},
            body = block ({inputs}) => ({", ".join(f"{outputs[name]} block_{name}" for name in call.outputs)}) {{
                {lines}
            }}
        > ({", ".join(f"{name}_in_blocks" for name in parts)})
        {"".join(_together(call, name) for name in call.outputs)}
    """


def _parts(call: Call) -> dict[str, str]:
    """Return what a body reads of queries and has a row for each of them: the type of a part by name."""
    parts = {"queries": "float[?, ?, ?]", "query_numbers": "int64[?]"}
    if call.has_query_lengths:
        parts["query_lengths"] = "int64[?, ?]"
    differing = {name: kind for name, kind in pairwise(call).items() if call.shapes[name][-2] != 1}
    return parts | {name: f"{kind}[?, ?, ?, ?]" for name, kind in differing.items()}


def _in_blocks(name: str, kind: str) -> str:
    """Lines that give a tensor by blocks of its rows; masks and biases (N, H, Tq, Tk) have them on their third axis."""
    axis = 2 if name in ("mask", "bias") else 1
    others = [other for other in range(kind.count("?") + 1) if other != axis]
    return f"""
        {name}_by_rows = Gather <axis = {axis}> ({name}, query_numbers_in_blocks)
        {name}_in_blocks = Transpose <perm = [{", ".join(map(str, [axis, *others]))}]> ({name}_by_rows)
    """


def _together(call: Call, name: str) -> str:
    """Lines that give an output of its blocks, without the rows that filled up the last."""
    by_heads = name == "weights" and call.heads is not None
    before = "1, 2" if by_heads else "1"
    after = "3, 4" if by_heads else "2, 3"
    return f"""
        {name}_rows_of_blocks = Transpose <perm = [{before}, 0, {after}]> ({name}_of_blocks)
        {name}_before = Shape <end = {2 if by_heads else 1}> ({name}_rows_of_blocks)
        {name}_columns = Shape <start = -1> ({name}_of_blocks)
        {name}_full_shape = Concat <axis = 0> ({name}_before, all_rows, {name}_columns)
        full_{name} = Reshape <allowzero = 1> ({name}_rows_of_blocks, {name}_full_shape)
        {name} = Slice (full_{name}, zero, Tq, {"two" if by_heads else "one"})
    """
