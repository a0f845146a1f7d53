"""ONNX text for which pairs of query and key take part, and for what no pair reads."""

from __future__ import annotations

from .._tracing.attention_calls import Call
from .text import conjunction


def is_masked(call: Call) -> bool:
    """Tell whether anything may keep keys out."""
    return call.has_lengths or call.has_keys_mask or call.differs_by_query


def may_lack_keys(call: Call) -> bool:
    """Tell whether a query may be without a key. By its order alone it is not, while it may look back to the first."""
    masks = call.has_lengths or call.has_keys_mask or call.has_query_lengths or call.has_pair_mask
    return masks or call.band[0] is not None


def differs_by_head(call: Call) -> bool:
    """Tell whether heads of one query may see other keys."""
    return call.heads is not None and call.has_pair_mask and call.shapes["mask"][-3] != 1


def seen(call: Call) -> str:
    """Lines that give booleans `seen` (N, Tk): the keys that the masks of keys leave."""
    if call.has_keys_mask:
        return "seen = Identity (keys_seen)\n"
    return """
        lengths_column = Unsqueeze (lengths, one)
        seen = Less (positions, lengths_column)
    """


def pairs(call: Call) -> str:
    """Lines that give booleans `pairs`, (N or 1, H or 1, Tq or 1, Tk), of a call that is masked."""
    lines, parts = "", []
    if call.band != (None, None):
        lines += f"""
            number_column = Unsqueeze (query_numbers, one)
            {in_band(call, "number_column", "positions", "pairs_in_band")}
            pairs_in_order = Unsqueeze (pairs_in_band, two_first_axes)
        """
        parts.append("pairs_in_order")
    if call.has_query_lengths:
        lines += """
            query_lengths_column = Unsqueeze (query_lengths, minus_one)
            pairs_in_length = Less (positions, query_lengths_column)
            pairs_in_query_length = Unsqueeze (pairs_in_length, one)
        """
        parts.append("pairs_in_query_length")
    if call.has_pair_mask:
        parts.append("mask")
    if call.has_keys_mask or call.has_lengths:
        lines += seen(call) + "seen_row = Unsqueeze (seen, two_middle_axes)\n"
        parts.append("seen_row")
    return f"""
        two_first_axes = Constant <value_ints = [0, 1]> ()
        two_middle_axes = Constant <value_ints = [1, 2]> ()
        {lines}
        {conjunction("pairs", parts)}
    """


def by_lengths_alone(call: Call) -> bool:
    """Tell whether a call has lengths of examples and no other mask."""
    return call.has_lengths and not call.has_keys_mask and not call.differs_by_query


def rows(call: Call) -> str:
    """Lines that give what `zeros_without_keys` reads; they read `pairs`, unless there are lengths alone."""
    if not may_lack_keys(call):
        return ""
    if by_lengths_alone(call):
        return """
            has_length = Greater (lengths, zero)
            axes_but_the_batch = Constant <value_ints = [1, 2, 3]> ()
            row_sees = Unsqueeze (has_length, axes_but_the_batch)
            axes_of_an_output = Constant <value_ints = [1, 2]> ()
            row_sees_in_any_head = Unsqueeze (has_length, axes_of_an_output)
        """
    lines = any_of("row_sees", "pairs", "minus_one", keep=True)
    if differs_by_head(call):
        return (
            lines
            + f"""
            by_heads = Constant <value_ints = [0, 0, {call.num_heads}, {call.value_size}]> ()
            heads_together = Constant <value_ints = [0, 0, {call.num_heads * call.value_size}]> ()
            row_sees_by_heads = Transpose <perm = [0, 2, 1, 3]> (row_sees)
            {any_of("row_sees_in_any_head", "row_sees", "one")}
        """
        )
    return lines + "row_sees_in_any_head = Squeeze (row_sees, one)\n"


def in_band(call: Call, queries: str, keys: str, name: str) -> str:
    """Lines that give booleans `name` (rows, keys) from numbers of queries (rows, 1) and of keys (keys,)."""
    left, right = call.band
    lines, parts = "", []
    for side, bound, op in (("first", left, "GreaterOrEqual"), ("last", right, "LessOrEqual")):
        if bound is None:
            continue
        lines += f"""
            {name}_reach_to_{side} = Constant <value_int = {-bound if side == "first" else bound}> ()
            {name}_{side} = Add ({queries}, {name}_reach_to_{side})
            {name}_from_{side} = {op} ({keys}, {name}_{side})
        """
        parts.append(f"{name}_from_{side}")
    return lines + conjunction(name, parts)


def any_of(name: str, booleans: str, axes: str, *, keep: bool = False) -> str:
    """Lines that give `name`: whether any of some booleans along axes is true."""
    return f"""
        {name}_numbers = Cast <to = 2> ({booleans})
        {name}_largest = ReduceMax <keepdims = {int(keep)}> ({name}_numbers, {axes})
        {name} = Cast <to = 9> ({name}_largest)
    """


def all_of(name: str, booleans: str) -> str:
    """Lines that give `name`: whether all of some booleans are true, as a scalar."""
    return f"""
        {name}_numbers = Cast <to = 2> ({booleans})
        {name}_smallest = ReduceMin <keepdims = 0> ({name}_numbers)
        {name} = Cast <to = 9> ({name}_smallest)
    """


def hidden(call: Call, *names: str) -> str:
    """Lines that give `hidden_{name}`, zeros in keys or values that no query sees; they read `pairs`."""
    columns = "".join(f"hidden_{name} = Where (seen_by_any_column, {name}, nothing)\n" for name in names)
    seen_by_any = "seen_by_any = Identity (seen)\n"
    if call.differs_by_query:
        seen_by_any = any_of("seen_by_any", "pairs", "heads_and_queries")
    return f"""
        heads_and_queries = Constant <value_ints = [1, 2]> ()
        {seen_by_any}
        seen_by_any_column = Unsqueeze (seen_by_any, minus_one)
        {columns}
    """


def zeros_without_keys(call: Call, name: str, source: str) -> str:
    """Lines that give `name`: `source`, the output or the weights, zeros where a query sees no key."""
    if not may_lack_keys(call):
        return f"{name} = Identity ({source})\n"
    if name.endswith("weights") and call.heads is not None:
        return f"{name} = Where (row_sees, {source}, nothing)\n"
    if not differs_by_head(call):
        return f"{name} = Where (row_sees_in_any_head, {source}, nothing)\n"
    return f"""
        {source}_by_heads = Reshape ({source}, by_heads)
        {source}_selected = Where (row_sees_by_heads, {source}_by_heads, nothing)
        {name} = Reshape ({source}_selected, heads_together)
    """
