"""ONNX text for going over the examples of a batch, and over blocks of queries within each, in memory that stays small.

`Scan` hands each step a view of its inputs and writes the results where they belong. A block reads the keys from the
first to the last that its queries may see, as far as lengths, a mask of keys and the order of positions tell. Among
their scores masks select, and a value that no query of the block sees is replaced by zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .._tracing.attention_calls import Call
from .masks import may_lack_keys
from .normalizers import normalized
from .ranges import pairs_of_block, range_of_block, ranges_differ, selects


@dataclass(frozen=True)
class Scores:
    """How the scores of a block of queries are computed, in lines of ONNX text.

    Attributes:
        inputs: The typed names that a block has for its part of each tensor (blocks, rows, ...) of an example, by name.
        keys: Lines that read `first` and `behind`, the range of keys of a block, vectors of one number. They are those
            of an example where its blocks have the same.
        lines: Lines that give `scores` (H, rows, keys), or (rows, keys) where there are no heads. Where `has_edge` they
            are those up to `edge`, and `edge_scores` those of the others.
    """

    inputs: Mapping[str, str]
    keys: str
    lines: str


def cut(size_of_row: str, largest: int, most: int, least: int = 1) -> str:
    """Lines that give `blocks` and `rows`: so many blocks of so many queries.

    Args:
        size_of_row: Name of how many numbers a query has in its block, a vector of one number.
        largest: How many numbers a block may have.
        most: How many queries a block may have.
        least: How many it has all the same, where there are as many.
    """
    return f"""
        largest = Constant <value_ints = [{largest}]> ()
        most = Constant <value_ints = [{most}]> ()
        size_of_row_or_one = Max ({size_of_row}, one)
        fitting = Div (largest, size_of_row_or_one)
        least_rows = Constant <value_ints = [{least}]> ()
        fitting_or_least = Max (fitting, least_rows)
        most_rows = Min (fitting_or_least, most)
        up_to_most_more = Add (Tq, most_rows)
        less_than_most_more = Sub (up_to_most_more, one)
        full_blocks = Div (less_than_most_more, most_rows)
        blocks = Max (full_blocks, one)
        up_to_blocks_more = Add (Tq, blocks)
        less_than_blocks_more = Sub (up_to_blocks_more, one)
        rows = Div (less_than_blocks_more, blocks)
        all_rows = Mul (blocks, rows)
        extra_rows = Sub (all_rows, Tq)
    """


def in_blocks(source: str, name: str, *, columns: bool = True) -> str:
    """Lines that cut a tensor (N, Tq, D), or (N, Tq), into blocks (N, blocks, rows, ...); zeros fill up the last."""
    pads = "zero, zero, zero, zero, extra_rows, zero" if columns else "zero, zero, zero, extra_rows"
    return f"""
        {name}_pads = Concat <axis = 0> ({pads})
        {name}_padded = Pad ({source}, {name}_pads)
        {name}_tail = Shape <start = 2> ({source})
        {name}_shape = Concat <axis = 0> (N, blocks, rows, {name}_tail)
        {name} = Reshape ({name}_padded, {name}_shape)
    """


def over_examples(
    call: Call, queries: Mapping[str, str], lines: str, keys: str = "keys", values: str = "values"
) -> str:
    """Lines that define the outputs of a call by a `Scan` over its examples.

    Args:
        call: The call.
        queries: Tensors (N, blocks, rows, ...) that an example has its part of, by name, with the typed names of it.
        lines: Lines that give `example_output` (blocks, rows, H Dv), and `example_weights` if the call returns them.
            They read `every_key` and `every_value`, (Tk, ...), and `least` and `limit`: no key before the one or from
            the other on takes part.
        keys: The name of the keys.
        values: The name of the values.
    """
    inputs = {**queries, keys: "float[?, ?] every_key", values: "float[?, ?] every_value"}
    limits = _LIMIT_OF_ALL
    if call.has_keys_mask:
        inputs["keys_seen"] = "bool[?] seen_keys"
        limits = _LIMITS_OF_SEEN
    elif call.has_lengths:
        inputs["lengths"] = "int64 length"
        limits = _LIMIT_OF_LENGTH
    before, right = "", call.band[1]
    if right is not None:
        before += (
            f"keys_after_queries = Constant <value_ints = [{right}]> ()\nbehind_all = Add (Tq, keys_after_queries)\n"
        )
        limits += "limit = Min (limit_of_masks, behind_all)\n"
    else:
        limits += "limit = Identity (limit_of_masks)\n"
    if call.has_query_lengths:
        before += in_blocks("query_lengths", "length_blocks", columns=False)
        inputs["length_blocks"] = "int64[?, ?] lengths_of_example"
    for name, kind in pairwise(call).items():
        before += _pairwise_blocks(call, name)
        if not _is_shared(call, name):
            inputs[f"{name}_blocks"] = f"{kind}[?, ?, ?, ?] {name}_of_example"
    outputs = {"output": "float[?, ?, ?]", "weights": f"float[{', '.join('?' * (3 + (call.heads is not None)))}]"}
    typed = ", ".join(f"{outputs[name]} example_{name}" for name in call.outputs)
    return f"""
        {before}
        blocks_scalar = Squeeze (blocks)
        block_numbers = Range (zero_scalar, blocks_scalar, one_scalar)
        first_rows = Mul (block_numbers, rows)
        rows_scalar = Squeeze (rows)
        rows_of_block = Range (zero_scalar, rows_scalar, one_scalar)
        {", ".join(f"{name}_blocks" for name in call.outputs)} = Scan <
            num_scan_inputs = {len(inputs)}, body = example ({", ".join(inputs.values())}) => ({typed}) {{
                {limits}
                {lines}
            }}
        > ({", ".join(inputs)})
        {_from_blocks(call)}
    """


_LIMIT_OF_ALL = """
    least = Identity (zero)
    limit_of_masks = Identity (Tk)
"""
_LIMIT_OF_LENGTH = """
    least = Identity (zero)
    limit_of_masks = Unsqueeze (length, zero)
"""
_LIMITS_OF_SEEN = """
    seen_or_behind = Where (seen_keys, positions, Tk)
    least = ReduceMin <keepdims = 1> (seen_or_behind)
    behind_positions = Add (positions, one)
    behind_seen_or_zero = Where (seen_keys, behind_positions, zero)
    limit_of_masks = ReduceMax <keepdims = 1> (behind_seen_or_zero)
"""


def pairwise(call: Call) -> dict[str, str]:
    """Return the type of the numbers of what a call has for each pair, by its name."""
    return ({"mask": "bool"} if call.has_pair_mask else {}) | ({"bias": "float"} if call.has_bias else {})


def _is_shared(call: Call, name: str) -> bool:
    """Tell whether a mask of pairs, or a bias, is the same for all examples."""
    return all(size == 1 for size in call.shapes[name][: -2 if call.heads is None else -3])


def _pairwise_blocks(call: Call, name: str) -> str:
    """Lines that cut `mask` or `bias` (N or 1, H or 1, Tq or 1, Tk) into blocks (N or 1, blocks, H or 1, rows, Tk)."""
    return f"""
        batch_and_heads_of_{name} = Shape <end = 2> ({name})
        every_row_of_{name} = Concat <axis = 0> (batch_and_heads_of_{name}, Tq, Tk)
        {name}_of_rows = Expand ({name}, every_row_of_{name})
        {name}_pads = Concat <axis = 0> (zero, zero, zero, zero, zero, zero, extra_rows, zero)
        padded_{name} = Pad ({name}_of_rows, {name}_pads)
        shape_of_{name}_blocks = Concat <axis = 0> (batch_and_heads_of_{name}, blocks, rows, Tk)
        {name}_in_blocks = Reshape (padded_{name}, shape_of_{name}_blocks)
        {name}_blocks = Transpose <perm = [0, 2, 1, 3, 4]> ({name}_in_blocks)
        {f"{name}_of_example = Squeeze ({name}_blocks, zero)" if _is_shared(call, name) else ""}
    """


def over_blocks(call: Call, scores: Scores, *, hides: bool = True) -> str:
    """Lines that give `example_output` and `example_weights` by a `Scan` over the blocks of an example.

    Args:
        call: The call.
        scores: How scores are computed.
        hides: Whether a value that no query sees may be anything but finite.
    """
    inputs = {**scores.inputs, "first_rows": "int64 row"}
    if call.has_query_lengths:
        inputs["lengths_of_example"] = "int64[?] row_lengths"
    for name, kind in pairwise(call).items():
        inputs[f"{name}_of_example"] = f"{kind}[?, ?, ?] {name}_of_block"
    weights = "float[?, ?]" if call.heads is None else "float[?, ?, ?]"
    values = "every_value, first, behind, zero" if call.heads is None else "value_heads, first, behind, one"
    typed = {"output": "float[?, ?] block_output", "weights": f"{weights} block_weights"}
    keys = f"""
        {range_of_block(call)}
        {scores.keys}
        some_values = Slice ({values})
    """
    return f"""
        {"" if call.heads is None else _heads_of_values(call)}
        {"" if ranges_differ(call) else keys}
        {", ".join(f"example_{name}" for name in call.outputs)} = Scan <
            num_scan_inputs = {len(inputs)}, body = block ({", ".join(inputs.values())}) =>
            ({", ".join(typed[name] for name in call.outputs)}) {{
                {keys if ranges_differ(call) else ""}
                {scores.lines}
                {pairs_of_block(call, hides)}
                {_weighted(call)}
            }}
        > ({", ".join(inputs)})
    """


def _heads_of_values(call: Call) -> str:
    return f"""
        shape_of_values = Constant <value_ints = [0, {call.num_kv_heads}, {call.value_size}]> ()
        values_in_rows = Reshape (every_value, shape_of_values)
        value_heads = Transpose <perm = [1, 0, 2]> (values_in_rows)
    """


def _weighted(call: Call) -> str:
    """Lines that give what a block contributes to the outputs."""
    lines = normalized(call, "masked_scores", "some_weights", "pairs_of_block" if selects(call) else None)
    weights, source = "some_weights", "pooled_block"
    if may_lack_keys(call) and call.returns_weights:
        lines += "seen_weights = Where (row_of_block_sees, some_weights, nothing)\n"
        weights = "seen_weights"
    lines += _POOLED if call.num_heads == call.num_kv_heads else _pooled_groups(call)
    if may_lack_keys(call):
        lines += "seen_block = Where (row_of_block_sees, pooled_block, nothing)\n"
        source = "seen_block"
    if call.heads is None:
        lines += f"block_output = Identity ({source})\n"
    else:
        lines += f"""
            rows_of_heads = Transpose <perm = [1, 0, 2]> ({source})
            heads_side_by_side = Constant <value_ints = [0, {call.num_heads * call.value_size}]> ()
            block_output = Reshape (rows_of_heads, heads_side_by_side)
        """
    if call.returns_weights:
        axes = "" if call.heads is None else "zero, "
        lines += f"""
            keys_behind = Sub (Tk, behind)
            weight_pads = Concat <axis = 0> ({axes}zero, first, {axes}zero, keys_behind)
            block_weights = Pad ({weights}, weight_pads)
        """
    return lines


_POOLED = "pooled_block = MatMul (some_weights, pooled_values)\n"


def _pooled_groups(call: Call) -> str:
    return f"""
        of_groups = Constant <value_ints = [{call.num_kv_heads}]> ()
        keys_of_weights = Shape <start = -1> (some_weights)
        shape_of_groups = Concat <axis = 0> (of_groups, minus_one, keys_of_weights)
        weights_of_groups = Reshape (some_weights, shape_of_groups)
        pooled_groups = MatMul (weights_of_groups, pooled_values)
        shape_of_pooled = Constant <value_ints = [{call.num_heads}, -1, {call.value_size}]> ()
        pooled_block = Reshape (pooled_groups, shape_of_pooled)
    """


def _from_blocks(call: Call) -> str:
    """Lines that put the blocks of each output together, and drop the rows that filled up the last."""
    lines = """
        size_of_output = Shape <start = -1> (output_blocks)
        shape_of_all_rows = Concat <axis = 0> (N, all_rows, size_of_output)
        output_of_rows = Reshape (output_blocks, shape_of_all_rows)
        output = Slice (output_of_rows, zero, Tq, one)
    """
    if not call.returns_weights:
        return lines
    if call.heads is None:
        return (
            lines
            + """
            shape_of_all_weights = Concat <axis = 0> (N, all_rows, Tk)
            weights_of_rows = Reshape (weights_blocks, shape_of_all_weights)
            weights = Slice (weights_of_rows, zero, Tq, one)
        """
        )
    return (
        lines
        + f"""
        weights_by_heads = Transpose <perm = [0, 2, 1, 3, 4]> (weights_blocks)
        heads_of_weights = Constant <value_ints = [{call.num_heads}]> ()
        shape_of_all_weights = Concat <axis = 0> (N, heads_of_weights, all_rows, Tk)
        weights_of_rows = Reshape (weights_by_heads, shape_of_all_weights)
        weights = Slice (weights_of_rows, zero, Tq, two)
    """
    )
