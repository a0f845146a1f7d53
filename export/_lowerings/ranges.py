"""ONNX text for the keys that a block of queries reads: which range of them, and which pairs in it take part."""

from __future__ import annotations

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.composite import DOT_PRODUCT

from .._tracing.attention_calls import Call
from .masks import any_of, in_band, may_lack_keys
from .text import conjunction


def ranges_differ(call: Call) -> bool:
    """Tell whether the blocks of an example may read keys of different ranges."""
    return call.has_query_lengths or call.band != (None, None)


def range_of_block(call: Call) -> str:
    """Lines that give `first` and `behind`: the keys of a block, or of all blocks of an example, one at least."""
    left, right = call.band
    lines, behind, first = "", "limit", "least"
    if call.band != (None, None):
        lines += "row_vector = Unsqueeze (row, zero)\n"
    if right is not None:
        lines += f"""
            row_behind = Add (row_vector, rows)
            row_behind_last = Min (row_behind, Tq)
            keys_after = Constant <value_ints = [{right}]> ()
            behind_band = Add (row_behind_last, keys_after)
            behind_in_band = Min (behind_band, limit)
        """
        behind = "behind_in_band"
    if call.has_query_lengths:
        lines += f"""
            longest = ReduceMax <keepdims = 1> (row_lengths)
            behind_longest = Min ({behind}, longest)
        """
        behind = "behind_longest"
    if left is not None:
        lines += f"""
            keys_before = Constant <value_ints = [{left}]> ()
            first_of_band = Sub (row_vector, keys_before)
            first_in_band = Max (first_of_band, least)
        """
        first = "first_in_band"
    return (
        lines
        + f"""
        behind = Max ({behind}, one)
        last = Sub (behind, one)
        first = Min ({first}, last)
        {_edge(right) if has_edge(call) and right is not None else ""}
    """
    )


def _edge(right: int) -> str:
    return f"""
        keys_of_first_row = Constant <value_ints = [{right + 1}]> ()
        behind_first_row = Add (row_vector, keys_of_first_row)
        edge = Min (behind_first_row, behind)
    """


def has_edge(call: Call) -> bool:
    """Tell whether all queries of a block see its keys up to `edge`, so that masks select among the others alone.

    They do under a causal mask, with no mask beside it but lengths. To select among all scores takes half as long as
    the two products.
    """
    left, right = call.band
    other = call.has_keys_mask or call.has_query_lengths or call.has_pair_mask or call.has_bias
    return left is None and right is not None and not other and (call.name, call.normalizer) == (DOT_PRODUCT, SOFTMAX)


def selects(call: Call) -> bool:
    """Tell whether some pairs in the range of keys of a block may not take part."""
    return call.differs_by_query or call.has_keys_mask


def pairs_of_block(call: Call, hides: bool) -> str:
    """Lines that give `pooled_values`; and `pairs_of_block`, `masked_scores`, `row_of_block_sees` as far as needed."""
    if has_edge(call):
        return f"""
            edge_positions = Slice (positions, edge, behind, zero)
            {_NUMBERS_OF_ROWS}
            {in_band(call, "column_of_rows", "edge_positions", "edge_in_band")}
            masked_edge = Where (edge_in_band, edge_scores, lowest)
            masked_scores = Concat <axis = -1> (scores, masked_edge)
            {_NOTHING_HIDDEN}
        """
    lines, parts = _biased(call), []
    if selects(call):
        lines += "some_positions = Slice (positions, first, behind, zero)\n"
    if call.band != (None, None):
        lines += f"""
            {_NUMBERS_OF_ROWS}
            {in_band(call, "column_of_rows", "some_positions", "block_in_band")}
        """
        parts.append("block_in_band")
    if call.has_query_lengths:
        lines += """
            column_of_lengths = Unsqueeze (row_lengths, one)
            block_in_lengths = Less (some_positions, column_of_lengths)
        """
        parts.append("block_in_lengths")
    if call.has_keys_mask:
        lines += """
            some_seen_keys = Slice (seen_keys, first, behind, zero)
            row_of_seen_keys = Unsqueeze (some_seen_keys, zero)
        """
        parts.append("row_of_seen_keys")
    if call.has_pair_mask:
        lines += "some_mask = Slice (mask_of_block, first, behind, two)\n"
        if call.heads is None:
            lines += "some_mask_of_head = Squeeze (some_mask, zero)\n"
        parts.append("some_mask_of_head" if call.heads is None else "some_mask")
    if not parts:
        return lines + "masked_scores = Identity (biased_scores)\n" + _NOTHING_HIDDEN
    keys_axis = 3 if call.heads is not None and call.has_pair_mask else 2
    lines += conjunction("pairs_of_block", parts) + "masked_scores = Where (pairs_of_block, biased_scores, lowest)\n"
    if may_lack_keys(call):
        lines += any_of("row_has_pair", "pairs_of_block", "minus_one", keep=True)
        lines += """
            limit_is_positive = Greater (limit, zero)
            row_of_block_sees = And (row_has_pair, limit_is_positive)
        """  # a key that stands in where no key takes part may lie in the band
    only_order = len(parts) == 1 and not (call.has_keys_mask or call.has_pair_mask)
    if not hides or only_order:
        return lines + "pooled_values = Identity (some_values)\n"
    return (
        lines
        + f"""
        axes_but_keys = Constant <value_ints = [{", ".join(map(str, range(keys_axis - 1)))}]> ()
        {any_of("seen_in_block", "pairs_of_block", "axes_but_keys")}
        seen_in_block_column = Unsqueeze (seen_in_block, one)
        pooled_values = Where (seen_in_block_column, some_values, nothing)
    """
    )


def _biased(call: Call) -> str:
    """Lines that give `biased_scores`: those of a block, with what a caller adds to them."""
    if not call.has_bias:
        return "biased_scores = Identity (scores)\n"
    return f"""
        some_bias = Slice (bias_of_block, first, behind, two)
        some_bias_of_scores = {"Squeeze (some_bias, zero)" if call.heads is None else "Identity (some_bias)"}
        biased_scores = Add (scores, some_bias_of_scores)
    """


_NUMBERS_OF_ROWS = """
    numbers_of_rows = Add (rows_of_block, row)
    column_of_rows = Unsqueeze (numbers_of_rows, one)
"""
_NOTHING_HIDDEN = """
    pooled_values = Identity (some_values)
    any_is_seen = Greater (limit, zero)
    row_of_block_sees = Unsqueeze (any_is_seen, one)
"""
