"""Scaled dot products in blocks of queries: for masks of pairs, causal ones, and where the weights are returned."""

from __future__ import annotations

from .._tracing.attention_calls import Call
from .blocks import Scores, cut, in_blocks, over_blocks, over_examples
from .ranges import has_edge

SCORES = 2**19  # numbers in the scores of a block, over all heads: 2 MB
ROWS = 128  # queries in a block: with more, more scores are computed that a causal mask or a window keeps out


def body(call: Call) -> str:
    """Return the body of the ONNX function of a call."""
    sizes = f"""
        {keys_of_block(call)}
        number_of_heads = Constant <value_ints = [{call.num_heads}]> ()
        scores_of_row = Mul (keys_of_block, number_of_heads)
        {cut("scores_of_row", SCORES, ROWS)}
        scale = Constant <value_float = {call.options["scale"]!r}> ()
        scaled = Mul (queries, scale)
        {in_blocks("scaled", "query_blocks")}
    """
    scores = _scores_of_one(call) if call.heads is None else _scores_of_heads(call)
    before = _KEYS_OF_ONE if call.heads is None else _keys_of_heads(call)
    queries = {"query_blocks": "float[?, ?, ?] queries_of_example"}
    return sizes + over_examples(call, queries, before + over_blocks(call, scores))


def keys_of_block(call: Call) -> str:
    """Lines that give `keys_of_block`, how many keys a block of queries may read."""
    left, right = call.band
    if left is None or right is None:
        return "keys_of_block = Identity (Tk)"
    return f"""
        most_keys_of_block = Constant <value_ints = [{left + right + ROWS}]> ()
        keys_of_block = Min (Tk, most_keys_of_block)
    """


_KEYS_OF_ONE = "features_of_keys = Transpose <perm = [1, 0]> (every_key)\n"


def _scores_of_one(call: Call) -> Scores:
    lines = "scores = MatMul (query, some_keys)\n"
    if has_edge(call):
        lines += "edge_scores = MatMul (query, edge_keys)\n"
    return Scores({"queries_of_example": "float[?, ?] query"}, _some_keys(call, "features_of_keys", "one"), lines)


def _some_keys(call: Call, source: str, axis: str) -> str:
    if not has_edge(call):
        return f"some_keys = Slice ({source}, first, behind, {axis})\n"
    return f"some_keys = Slice ({source}, first, edge, {axis})\nedge_keys = Slice ({source}, edge, behind, {axis})\n"


def _keys_of_heads(call: Call) -> str:
    return f"""
        shape_of_keys = Constant <value_ints = [0, {call.num_kv_heads}, {call.key_size}]> ()
        keys_in_rows = Reshape (every_key, shape_of_keys)
        key_heads = Transpose <perm = [1, 2, 0]> (keys_in_rows)
    """


def _scores_of_heads(call: Call) -> Scores:
    groups, times = call.num_kv_heads, call.num_heads // call.num_kv_heads
    if times == 1:
        lines = f"""
            shape_of_queries = Constant <value_ints = [0, {groups}, {call.key_size}]> ()
            queries_in_rows = Reshape (query, shape_of_queries)
            query_heads = Transpose <perm = [1, 0, 2]> (queries_in_rows)
        """
    else:
        lines = f"""
            shape_of_queries = Constant <value_ints = [0, {groups}, {times}, {call.key_size}]> ()
            queries_in_rows = Reshape (query, shape_of_queries)
            query_groups = Transpose <perm = [1, 2, 0, 3]> (queries_in_rows)
            shape_of_query_groups = Constant <value_ints = [{groups}, -1, {call.key_size}]> ()
            query_heads = Reshape (query_groups, shape_of_query_groups)
            heads_of_scores = Constant <value_ints = [{call.num_heads}]> ()
        """
    products = {"some_keys": "scores"} | ({"edge_keys": "edge_scores"} if has_edge(call) else {})
    for keys, scores in products.items():
        lines += f"{scores} = MatMul (query_heads, {keys})\n" if times == 1 else _scores_of_groups(keys, scores)
    return Scores({"queries_of_example": "float[?, ?] query"}, _some_keys(call, "key_heads", "two"), lines)


def _scores_of_groups(keys: str, name: str) -> str:
    return f"""
        {name}_of_groups = MatMul (query_heads, {keys})
        {name}_keys = Shape <start = -1> ({name}_of_groups)
        {name}_shape = Concat <axis = 0> (heads_of_scores, rows, {name}_keys)
        {name} = Reshape ({name}_of_groups, {name}_shape)
    """
