"""Scores `-||q - k||^2 / (2 h^2)` of points of few coordinates, from each difference: exact far from the origin."""

from __future__ import annotations

from .._tracing.attention_calls import Call
from .blocks import Scores, cut, in_blocks, over_blocks, over_examples
from .products import ROWS, SCORES, keys_of_block


def body(call: Call) -> str:
    """Return the body of the ONNX function of a call, in blocks of queries."""
    of_block = Scores(
        {"queries_of_example": "float[?, ?] query"},
        "some_coordinates = Slice (coordinates_of_keys, first, behind, one)\n",
        f"""
            query_coordinates = Transpose <perm = [1, 0]> (query)
            {scores("query_coordinates", "some_coordinates")}
        """,
    )
    lines = "coordinates_of_keys = Transpose <perm = [1, 0]> (every_key)\n" + over_blocks(call, of_block)
    return f"""
        {keys_of_block(call)}
        size = Shape <start = -1> (queries)
        gaps_of_row = Mul (keys_of_block, size)
        {cut("gaps_of_row", SCORES, ROWS)}
        {in_blocks("queries", "query_blocks")}
        {over_examples(call, {"query_blocks": "float[?, ?, ?] queries_of_example"}, lines)}
    """


def scores(queries: str, keys: str) -> str:
    """Lines that give `scores` (..., rows, keys) of coordinates (..., D, rows) and (..., D, keys)."""
    return f"""
        coordinates_axis = Constant <value_ints = [-3]> ()
        minus_half = Constant <value_float = -0.5> ()
        coordinate_columns = Unsqueeze ({queries}, minus_one)
        coordinate_rows = Unsqueeze ({keys}, minus_two)
        gaps = Sub (coordinate_columns, coordinate_rows)
        gaps_in_bandwidths = Div (gaps, bandwidth)
        squares = Mul (gaps_in_bandwidths, gaps_in_bandwidths)
        squared_distances = ReduceSum <keepdims = 0> (squares, coordinates_axis)
        scores = Mul (squared_distances, minus_half)
    """
