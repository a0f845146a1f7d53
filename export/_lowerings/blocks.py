"""ONNX text for going over the examples of a batch, and over blocks of queries within each.

`Scan` hands each step a view of its inputs and writes the results where they belong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .._tracing.attention_calls import Call


def is_masked(call: Call) -> bool:
    """Tell whether anything may keep keys out."""
    return "valid_lens" in call.shapes or "mask" in call.shapes


def taking_part(call: Call) -> str:
    """Lines that say which keys take part where that is the same for all queries of an example.

    They give `seen` (N, Tk) where a mask has a say in it, and `has_key` (N, 1, 1) where an example may have none.
    """
    if not _may_be_empty(call):
        return ""
    lines = "has_any = Greater (lengths, zero)\n"
    if "mask" in call.shapes and not call.mask_is_per_query:
        lines = (_SEEN_IN_BOTH if "valid_lens" in call.shapes else _SEEN_IN_MASK) + _HAS_ANY
    return lines + _HAS_KEY


_SEEN_IN_MASK = "seen = Squeeze (mask, one)\n"
_SEEN_IN_BOTH = """
    in_mask = Squeeze (mask, one)
    lengths_column = Unsqueeze (lengths, one)
    in_length = Less (positions, lengths_column)
    seen = And (in_mask, in_length)
"""
_HAS_ANY = """
    seen_numbers = Cast <to = 2> (seen)
    any_number = ReduceMax <keepdims = 0> (seen_numbers, one)
    has_any = Cast <to = 9> (any_number)
"""
_HAS_KEY = """
    two_axes = Constant <value_ints = [1, 2]> ()
    has_key = Unsqueeze (has_any, two_axes)
"""


def selected(call: Call, name: str, source: str) -> str:
    """Lines that give `name`: `source` (N, ...), and zeros in examples without a key."""
    return f"{name} = {f'Where (has_key, {source}, nothing)' if _may_be_empty(call) else f'Identity ({source})'}\n"


def over_examples(call: Call, inputs: Mapping[str, str], lines: str, outputs: Sequence[str]) -> str:
    """A `Scan` over the examples, over the keys of each that some query may see.

    Args:
        call: The call.
        inputs: What to go over beside keys, values and masks: tensors, and the typed names they have within.
        lines: What to do with one example. They may read `key` and `value`: at least one, which stands in where no
            key takes part.
        outputs: The typed names of the results of an example.
    """
    inputs = dict(inputs)
    if call.mask_is_per_query:
        inputs["mask_blocks"] = "bool[?, ?, ?] mask_blocks_of_example"
    elif "mask" in call.shapes:
        inputs["seen"] = "bool[?] seen_keys"
    if "valid_lens" in call.shapes:
        inputs["lengths"] = "int64 length"
    inputs["full_keys" if call.name == "additive" else "keys"] = "float[?, ?] every_key"
    inputs["values"] = "float[?, ?] every_value"
    return f"""Scan <
        num_scan_inputs = {len(inputs)}, body = example ({", ".join(inputs.values())}) => ({", ".join(outputs)}) {{
            {_keys(call)}
            {lines}
        }}
    > ({", ".join(inputs)})"""


def _keys(call: Call) -> str:
    """Lines that give `key` and `value` of an example: those that may be seen, as far as the masks tell by key."""
    lengths = "valid_lens" in call.shapes
    if call.mask_is_per_query:
        return (_FIRST_KEYS + _FIRST_COLUMNS if lengths else _ALL_KEYS + _ALL_COLUMNS) + _HIDDEN
    if "mask" in call.shapes:
        return _SEEN_KEYS
    return (_FIRST_KEYS if lengths else _ALL_KEYS) + "key = Identity (some_key) value = Identity (some_value)\n"


_ALL_KEYS = """
    some_key = Identity (every_key)
    some_value = Identity (every_value)
"""
_ALL_COLUMNS = "some_columns = Identity (mask_blocks_of_example)\n"
_FIRST_KEYS = """
    count = Unsqueeze (length, zero)
    at_least_one = Max (count, one)
    some_numbers = Slice (positions, zero, at_least_one)
    some_key = Gather <axis = 0> (every_key, some_numbers)
    some_value = Gather <axis = 0> (every_value, some_numbers)
"""
_FIRST_COLUMNS = """
    last_axis = Constant <value_ints = [2]> ()
    some_columns = Slice (mask_blocks_of_example, zero, at_least_one, last_axis)
"""
_HIDDEN = """
    mask_numbers = Cast <to = 2> (some_columns)
    queries_axes = Constant <value_ints = [0, 1]> ()
    any_query = ReduceMax <keepdims = 0> (mask_numbers, queries_axes)
    seen_keys = Cast <to = 9> (any_query)
    seen_column = Unsqueeze (seen_keys, minus_one)
    key = Identity (some_key)
    value = Where (seen_column, some_value, nothing)
"""
_SEEN_KEYS = """
    column_of_numbers = NonZero (seen_keys)
    numbers = Squeeze (column_of_numbers, zero)
    count = Shape (numbers)
    at_least_one = Max (count, one)
    numbers_and_first = Concat <axis = 0> (numbers, zero)
    some_numbers = Slice (numbers_and_first, zero, at_least_one)
    key = Gather <axis = 0> (every_key, some_numbers)
    value = Gather <axis = 0> (every_value, some_numbers)
"""


def over_blocks(call: Call, inputs: Mapping[str, str], scores: str, form: str = "example") -> str:
    """A `Scan` over the blocks of an example: scores, softmax, weighted sum.

    Args:
        call: The call.
        inputs: What to go over beside a mask of pairs: tensors, and the typed names they have within.
        scores: Lines that give `scores` (rows, keys).
        form: What the names of the results begin with.
    """
    inputs = dict(inputs)
    if call.mask_is_per_query:
        inputs["some_columns"] = "bool[?, ?] mask_block"
    results = ", ".join(f"float[?, ?] block_{name}" for name in call.outputs)
    softmax = _MASKED_SOFTMAX if call.mask_is_per_query else "some_weights = Softmax <axis = -1> (scores)"
    return f"""
        {", ".join(f"{form}_{name}" for name in call.outputs)} = Scan <
            num_scan_inputs = {len(inputs)}, body = block ({", ".join(inputs.values())}) => ({results}) {{
                {scores}
                {softmax}
                block_output = MatMul (some_weights, value)
                {_all_weights(call) if call.returns_weights else ""}
            }}
        > ({", ".join(inputs)})
    """


_MASKED_SOFTMAX = """
    masked_scores = Where (mask_block, scores, lowest)
    masked_weights = Softmax <axis = -1> (masked_scores)
    some_weights = Where (mask_block, masked_weights, nothing)
"""


def _may_be_empty(call: Call) -> bool:
    """Tell whether a key that does not take part may stand in for none."""
    return "valid_lens" in call.shapes or ("mask" in call.shapes and not call.mask_is_per_query)


def _all_weights(call: Call) -> str:
    """Lines that put the weights of the keys that take part where these are among all keys."""
    if "mask" in call.shapes and not call.mask_is_per_query:
        return _WEIGHTS_OF_SEEN
    return _WEIGHTS_OF_FIRST if "valid_lens" in call.shapes else "block_weights = Identity (some_weights)"


_WEIGHTS_OF_SEEN = """
    seen_integers = Cast <to = 7> (seen_keys)
    seen_so_far = CumSum (seen_integers, zero_scalar)
    numbers_from_one = Max (seen_so_far, one)
    numbers_of_all = Sub (numbers_from_one, one)
    weights_of_numbers = Gather <axis = 1> (some_weights, numbers_of_all)
    block_weights = Where (seen_keys, weights_of_numbers, nothing)
"""
_WEIGHTS_OF_FIRST = """
    missing = Sub (Tk, at_least_one)
    weight_pads = Concat <axis = 0> (zero, zero, zero, missing)
    block_weights = Pad (some_weights, weight_pads)
"""


def block_sizes(largest: int, size_of_row: str) -> str:
    """Lines that give `blocks` and `rows`: so many blocks of so many queries, each of at most `largest` numbers."""
    return f"""
        largest = Constant <value_ints = [{largest}]> ()
        fitting = Div (largest, {size_of_row})
        most_rows = Max (fitting, one)
        up_to_most_more = Add (Tq, most_rows)
        less_than_most_more = Sub (up_to_most_more, one)
        blocks = Div (less_than_most_more, most_rows)
        up_to_blocks_more = Add (Tq, blocks)
        less_than_blocks_more = Sub (up_to_blocks_more, one)
        rows = Div (less_than_blocks_more, blocks)
        all_rows = Mul (blocks, rows)
    """


def in_blocks(call: Call, queries: str, more_columns: str = "zero") -> str:
    """Lines that cut queries, and a mask of pairs, into blocks (N, blocks, rows, ...); the last is filled up.

    Args:
        call: The call.
        queries: Their name.
        more_columns: Name of how many columns of zeros they get.
    """
    mask = """
        row_pads = Concat <axis = 0> (zero, zero, zero, zero, extra_rows, zero)
        padded_mask = Pad (mask, row_pads)
        mask_blocks = Reshape (padded_mask, shape_of_blocks)
    """
    return f"""
        extra_rows = Sub (all_rows, Tq)
        query_pads = Concat <axis = 0> (zero, zero, zero, zero, extra_rows, {more_columns})
        shape_of_blocks = Concat <axis = 0> (N, blocks, rows, minus_one)
        padded_queries = Pad ({queries}, query_pads)
        query_blocks = Reshape (padded_queries, shape_of_blocks)
        {mask if call.mask_is_per_query else ""}
    """


def from_blocks(call: Call) -> str:
    """Lines that put the blocks of each output together, and drop the rows that filled up the last."""
    return "shape_of_rows = Concat <axis = 0> (N, all_rows, minus_one)" + "".join(
        f"""
        {name}_rows = Reshape ({name}_blocks, shape_of_rows)
        {name}_with_stand_ins = Slice ({name}_rows, zero, Tq, one)
        {selected(call, name, f"{name}_with_stand_ins")}
        """
        for name in call.outputs
    )


def block_outputs(call: Call) -> str:
    """The names of what `over_examples` gives of `over_blocks`."""
    return ", ".join(f"{name}_blocks" for name in call.outputs)


def example_outputs(call: Call, form: str = "example") -> tuple[str, ...]:
    """The typed names of what `over_blocks` gives of one example."""
    return tuple(f"float[?, ?, ?] {form}_{name}" for name in call.outputs)
