"""Dot products of queries that see a window of keys: many blocks of queries at once, each with the keys around it.

Every block has as many queries, and reads as many keys, so that what lies in the window is the same for all blocks: a
bias that is added. Places before the first key and behind the last, and what masks of keys keep out, get another bias.
Where something leaked all the same, or overflowed, keys that no query sees are hidden and scores replaced; see
`first_try.py`.
"""

from __future__ import annotations

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.composite import DOT_PRODUCT

from .._tracing.attention_calls import Call
from .first_try import first_or_again
from .masks import all_of, seen, zeros_without_keys
from .text import CONTRIB, renamed

QUERIES = 64  # in a block: with fewer the products are slow, with more they have keys that few of the queries see
SCORES = 2**19  # numbers in the scores that are computed at once: 2 MB
WIDEST = 512  # keys to both sides: with more, sequences must be longer than golden cases are for it to pay


def fits(call: Call) -> bool:
    """Tell whether there is a body for a call: a window to both sides, and masks of keys beside it or none."""
    left, right = call.band
    return (
        left is not None
        and right is not None
        and left + right <= WIDEST
        and (call.name, call.normalizer) == (DOT_PRODUCT, SOFTMAX)
        and not (call.returns_weights or call.has_pair_mask or call.has_query_lengths or call.has_bias)
    )


def keys_of_block(call: Call) -> int:
    """Return how many keys each block of queries reads."""
    return QUERIES + sum(_reach(call))


def _reach(call: Call) -> tuple[int, int]:
    """Return how many keys before and after its own position a query sees."""
    left, right = call.band
    assert left is not None
    assert right is not None
    return left, right


def body(call: Call, name: str = "windows") -> str:
    """Return the body of the ONNX function of a call that fits; `name` begins the names of its branches."""
    again = f"""
        {_seen_by_any(call)}
        hidden_keys = Where (seen_by_any_column, keys, nothing)
        hidden_values = Where (seen_by_any_column, values, nothing)
        {_attention(call, "hidden_keys", "hidden_values", "again", _SELECTED)}
        {zeros_without_keys(call, "output", "again_output")}
    """
    return f"""
        {seen(call) if _has_masks(call) else ""}
        {_rows(call)}
        {_blocks(call)}
        {_attention(call, "keys", "values", "first", _masked(call))}
        {all_of("all_see", "row_sees_in_any_head")}
        {first_or_again(call, again, name)}
    """


def _has_masks(call: Call) -> bool:
    return call.has_lengths or call.has_keys_mask


def _rows(call: Call) -> str:
    """Lines that give `row_sees_in_any_head`, (N, Tq, 1) or (Tq, 1), and `first_of_rows`."""
    left, right = _reach(call)
    lines = f"""
        to_first = Constant <value_int = {left}> ()
        first_of_rows = Sub (query_numbers, to_first)
    """
    if not _has_masks(call):
        return (
            lines + "begins_within = Less (first_of_rows, Tk)\nrow_sees_in_any_head = Unsqueeze (begins_within, one)\n"
        )
    # Pads as a tensor: given as `value_ints`, onnx 1.19 takes them for pads of another rank
    return (
        lines
        + f"""
        behind_last = Constant <value_int = {right + 1}> ()
        behind_rows = Add (query_numbers, behind_last)
        first_in_range = Clip (first_of_rows, zero_scalar, Tk_scalar)
        behind_in_range = Clip (behind_rows, zero_scalar, Tk_scalar)
        seen_numbers = Cast <to = 7> (seen)
        counted = CumSum (seen_numbers, one)
        pads_of_counts = Constant <value = int64[4] {{0, 1, 0, 0}}> ()
        counted_before = Pad (counted, pads_of_counts)
        before_first = Gather <axis = 1> (counted_before, first_in_range)
        before_behind = Gather <axis = 1> (counted_before, behind_in_range)
        sees_one = Less (before_first, before_behind)
        row_sees_in_any_head = Unsqueeze (sees_one, minus_one)
    """
    )


def _seen_by_any(call: Call) -> str:
    """Lines that give `seen_by_any_column`, (N, Tk, 1) or (Tk, 1): the keys that lie in a window and in the masks."""
    _, right = _reach(call)
    in_masks = "seen_in_a_window = And (seen, in_a_window)\n"
    return f"""
        reach_of_last = Constant <value_ints = [{right}]> ()
        behind_windows = Add (Tq, reach_of_last)
        in_a_window = Less (positions, behind_windows)
        {in_masks if _has_masks(call) else "seen_in_a_window = Identity (in_a_window)"}
        seen_by_any_column = Unsqueeze (seen_in_a_window, minus_one)
    """


def _blocks(call: Call) -> str:
    """Lines that give `query_blocks` (groups, blocks, queries, D), their `numbers`, and `in_window` (queries, keys).

    The others of their names that are read later: `blocks_of_head`, `all_rows`, `count` and `queries_of_block`,
    `size_of_key`, `columns`, and `seen_in_a_row` where there are masks.
    """
    left, right = _reach(call)
    most = max(1, SCORES // (QUERIES * keys_of_block(call)))
    before = ", ".join(["zero"] * (3 if call.heads is None else 4))
    axes_before = "zero" if call.heads is None else "zero, zero"
    return f"""
        {_heads("queries", "queries_of_heads", call.num_heads, call.key_size) if call.heads is not None else ""}
        queries_of_block = Constant <value_ints = [{QUERIES}]> ()
        queries_but_one = Constant <value_ints = [{QUERIES - 1}]> ()
        up_to_block_more = Add (Tq, queries_but_one)
        blocks_of_head = Div (up_to_block_more, queries_of_block)
        all_rows = Mul (blocks_of_head, queries_of_block)
        extra_rows = Sub (all_rows, Tq)
        pads_of_rows = Concat <axis = 0> ({before}, {axes_before}, extra_rows, zero)
        padded_queries = Pad ({"queries" if call.heads is None else "queries_of_heads"}, pads_of_rows)
        size_of_key = Shape <start = -1> (queries{"" if call.heads is None else "_of_heads"})
        shape_of_blocks = Concat <axis = 0> (minus_one, queries_of_block, size_of_key)
        blocks_in_a_row = Reshape (padded_queries, shape_of_blocks)
        count = Shape <end = 1> (blocks_in_a_row)
        most = Constant <value_ints = [{most}]> ()
        most_but_one = Constant <value_ints = [{most - 1}]> ()
        up_to_most_more = Add (count, most_but_one)
        groups_of_blocks = Div (up_to_most_more, most)
        groups = Max (groups_of_blocks, one)
        up_to_groups_more = Add (count, groups)
        less_than_groups_more = Sub (up_to_groups_more, one)
        blocks_of_group = Div (less_than_groups_more, groups)
        all_blocks = Mul (groups, blocks_of_group)
        extra_blocks = Sub (all_blocks, count)
        pads_of_blocks = Concat <axis = 0> (zero, zero, zero, extra_blocks, zero, zero)
        padded_blocks = Pad (blocks_in_a_row, pads_of_blocks)
        shape_of_groups = Concat <axis = 0> (groups, blocks_of_group, queries_of_block, size_of_key)
        query_blocks = Reshape <allowzero = 1> (padded_blocks, shape_of_groups)

        all_blocks_scalar = Squeeze (all_blocks)
        last_block = Sub (count, one)
        numbers_of_all = Range (zero_scalar, all_blocks_scalar, one_scalar)
        numbers_in_range = Min (numbers_of_all, last_block)
        groups_and_blocks = Concat <axis = 0> (groups, blocks_of_group)
        numbers = Reshape <allowzero = 1> (numbers_in_range, groups_and_blocks)

        queries_scalar = Constant <value_int = {QUERIES}> ()
        keys_of_block = Constant <value_int = {keys_of_block(call)}> ()
        columns = Range (zero_scalar, keys_of_block, one_scalar)
        rows_of_block = Range (zero_scalar, queries_scalar, one_scalar)
        first_columns = Unsqueeze (rows_of_block, one)
        reach = Constant <value_int = {left + right}> ()
        last_columns = Add (first_columns, reach)
        not_before = GreaterOrEqual (columns, first_columns)
        not_behind = LessOrEqual (columns, last_columns)
        in_window = And (not_before, not_behind)
        {"seen_in_a_row = Reshape (seen, minus_one)" if _has_masks(call) else ""}
    """


def _heads(source: str, name: str, number: int, size: int) -> str:
    """Lines that give `name` (N, heads, T, size) from (N, T, heads size)."""
    return f"""
        shape_of_{name} = Constant <value_ints = [0, 0, {number}, {size}]> ()
        {name}_in_rows = Reshape ({source}, shape_of_{name})
        {name} = Transpose <perm = [0, 2, 1, 3]> ({name}_in_rows)
    """


def _attention(call: Call, keys: str, values: str, form: str, masked: str) -> str:
    """Lines that give `{form}_output`; `masked` are those that give `masked_scores` from `scores`."""
    one_head = call.heads is None
    lines = f"""
        {"" if one_head else _heads(keys, "keys_of_heads", call.num_kv_heads, call.key_size)}
        {"" if one_head else _heads(values, "values_of_heads", call.num_kv_heads, call.value_size)}
        size_of_value = Shape <start = -1> ({values if one_head else "values_of_heads"})
        rows_of_keys = Concat <axis = 0> (minus_one, size_of_key)
        rows_of_values = Concat <axis = 0> (minus_one, size_of_value)
        every_key = Reshape ({keys if one_head else "keys_of_heads"}, rows_of_keys)
        every_value = Reshape ({values if one_head else "values_of_heads"}, rows_of_values)
        pooled = Scan <num_scan_inputs = 2, body = group
            (float[?, ?, ?] some_queries, int64[?] some_numbers) => (float[?, ?, ?] pooled_group) {{
            {_keys_of_group(call)}
            some_keys = Gather <axis = 0> (every_key, rows_of_group)
            some_values = Gather <axis = 0> (every_value, rows_of_group)
            scores = {CONTRIB}.FusedMatMul <transB = 1, alpha = {call.options["scale"]!r}> (some_queries, some_keys)
            {masked}
            some_weights = Softmax <axis = -1> (masked_scores)
            pooled_group = MatMul (some_weights, some_values)
        }}> (query_blocks, numbers)
        pooled_rows = Reshape (pooled, rows_of_values)
        number_of_rows = Mul (count, queries_of_block)
        without_extra_blocks = Slice (pooled_rows, zero, number_of_rows, zero)
        {_together(call)}
    """
    return renamed(lines, form)


def _together(call: Call) -> str:
    if call.heads is None:
        return """
            shape_of_examples = Concat <axis = 0> (N, all_rows, size_of_value)
            of_examples = Reshape (without_extra_blocks, shape_of_examples)
            output = Slice (of_examples, zero, Tq, one)
        """
    return f"""
        heads_of_output = Constant <value_ints = [{call.num_heads}]> ()
        shape_of_examples = Concat <axis = 0> (N, heads_of_output, all_rows, size_of_value)
        of_examples = Reshape (without_extra_blocks, shape_of_examples)
        without_extra_rows = Slice (of_examples, zero, Tq, two)
        rows_of_heads = Transpose <perm = [0, 2, 1, 3]> (without_extra_rows)
        heads_side_by_side = Constant <value_ints = [0, 0, {call.num_heads * call.value_size}]> ()
        output = Reshape (rows_of_heads, heads_side_by_side)
    """


def _keys_of_group(call: Call) -> str:
    """Lines that give `rows_of_group` and `seen_in_group` (blocks, keys): which keys blocks read, and may see."""
    heads, times = call.num_heads, call.num_heads // call.num_kv_heads
    lines = f"""
        heads_of_queries = Div (some_numbers, blocks_of_head)
        numbers_in_head = Mod (some_numbers, blocks_of_head)
        first_queries = Mul (numbers_in_head, queries_of_block)
        first_keys = Sub (first_queries, to_first)
        first_key_column = Unsqueeze (first_keys, one)
        places = Add (first_key_column, columns)
        last_place = Sub (Tk_scalar, one_scalar)
        places_in_range = Clip (places, zero_scalar, last_place)
        are_in_range = Equal (places, places_in_range)
        {_rows_of(times, "rows_of_group")}
    """
    if not _has_masks(call):
        return lines + "seen_in_group = Unsqueeze (are_in_range, one)\n"
    return f"""
        {lines}
        {_rows_of(heads, "places_in_masks")}
        masks_of_group = Gather <axis = 0> (seen_in_a_row, places_in_masks)
        are_seen = And (masks_of_group, are_in_range)
        seen_in_group = Unsqueeze (are_seen, one)
    """


def _rows_of(heads: int, name: str) -> str:
    """Lines that give `name`: rows among those of all sequences, of which so many heads of queries share each."""
    return f"""
        heads_for_{name} = Constant <value_ints = [{heads}]> ()
        sequences_of_{name} = Div (heads_of_queries, heads_for_{name})
        before_{name} = Mul (sequences_of_{name}, Tk)
        column_before_{name} = Unsqueeze (before_{name}, one)
        {name} = Add (places_in_range, column_before_{name})
    """


def _masked(call: Call) -> str:
    """Lines that give `masked_scores` of keys as they are: none of what is finite but the scores of others is left.

    A window is the same for all queries, and none lacks keys by it, so that its bias may be infinite. That of masks is
    finite, and as large as a score may be, unless the scale halves it.
    """
    return _BIASED if abs(call.options["scale"]) <= 0.5 or not _has_masks(call) else _SELECTED


_BIASED = """
    infinite = Add (lowest, lowest)
    bias_of_masks = Where (seen_in_group, nothing, lowest)
    bias_of_windows = Where (in_window, nothing, infinite)
    scores_in_masks = Add (scores, bias_of_masks)
    masked_scores = Add (scores_in_masks, bias_of_windows)
"""
_SELECTED = """
    taking_part = And (in_window, seen_in_group)
    masked_scores = Where (taking_part, scores, lowest)
"""
