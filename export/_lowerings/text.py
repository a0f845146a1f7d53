"""The text around the body of an ONNX function: what all lowerings begin and end with."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import onnx
from onnx import parser

from .._graphs.traced import DOMAIN
from .._graphs.walk import all_nodes
from .._tracing.attention_calls import Call
from .device import on_device

CONTRIB = "com.microsoft"  # operators of onnxruntime's own
WEIGHTS = ("w_v", "bandwidth")  # what calls read of the weights of a layer

_CONSTANTS = """
    zero = Constant <value_ints = [0]> ()
    one = Constant <value_ints = [1]> ()
    two = Constant <value_ints = [2]> ()
    minus_one = Constant <value_ints = [-1]> ()
    minus_two = Constant <value_ints = [-2]> ()
    zero_scalar = Constant <value_int = 0> ()
    one_scalar = Constant <value_int = 1> ()
    nothing = Constant <value_float = 0.0> ()
    lowest = Constant <value_float = -3.4028234e38> ()
"""
_SIZES = """
    batch = Shape <end = -2> (values_given)
    N = Shape <start = 0, end = 1> (values)
    Tq = Shape <start = 1, end = 2> (queries)
    Tk = Shape <start = 1, end = 2> (values)
    Tk_scalar = Squeeze (Tk)
    positions = Range (zero_scalar, Tk_scalar, one_scalar)
    Tq_scalar = Squeeze (Tq)
    query_numbers = Range (zero_scalar, Tq_scalar, one_scalar)
"""
_CLIPPED = """
    {name}_long = Cast <to = 7> ({source})
    {name} = Clip ({name}_long, zero_scalar, Tk_scalar)
"""
# For what may be 2**31 or more: onnxruntime (1.31) takes int64 up to 2**32 for negative there, and uint64 has no int64.
_CLIPPED_WIDE = """
    no_keys = Constant <value = double {{0.0}}> ()
    all_keys = Cast <to = 11> (Tk_scalar)
    {name}_wide = Cast <to = 11> ({source})
    {name}_in_range = Clip ({name}_wide, no_keys, all_keys)
    {name} = Cast <to = 7> ({name}_in_range)
"""
_ROWS_OF_KEYS = "every_key_of_all = Concat <axis = 0> (N, Tk)\n"


def function(call: Call, body: str, opset: int, *, for_device: bool = False) -> onnx.FunctionProto:
    """Return the ONNX function of a call.

    Args:
        call: Its arguments are the inputs, its outputs the outputs.
        body: ONNX text. It may read `queries`, `keys` and `values`, all with one batch axis N; the weights of the
            layer; the masks that the call has, as below; the sizes `N`, `Tq` and `Tk`, vectors of one number each;
            `positions`, 0 to Tk - 1, and `query_numbers`, 0 to Tq - 1; and the constants above.
            It defines `output`, and `weights` if the call returns them, with the batch axis N.
        opset: ONNX opset of the body; that of the model it goes into.
        for_device: Whether it is to run on a device such as a GPU; see `device.py`.

    The masks are int64 `lengths` (N,) from 0 to Tk; int64 `query_lengths` (N, Tq), likewise; booleans `keys_seen`
    (N, Tk), within the lengths if there are both; and booleans `mask` (N or 1, H or 1, Tq or 1, Tk). Floats `bias`, if
    the call has them, are of a shape like that.
    """
    sequences = ("queries", "keys", "values")
    inputs = [name if name in WEIGHTS else f"{name}_given" for name in call.shapes]
    one_batch_axis = call.rank == 3
    text = f"""
        <domain: "{DOMAIN}", opset_import: ["" : {opset}, "{CONTRIB}" : 1]>
        {call.op} ({", ".join(inputs)}) => ({", ".join(f"{name}_of_batch" for name in call.outputs)})
        {{
            {_CONSTANTS}
            {"".join(_flattened(f"{name}_given", name, 2, one_batch_axis) for name in sequences)}
            {_SIZES}
            {_masks(call)}
            {body}
            {"".join(_unflattened(call, name, one_batch_axis) for name in call.outputs)}
        }}"""
    found = parser.parse_function(text)
    if for_device:
        on_device(found)
    _drop_copies(found.node, found.output, {})
    _drop_unread(found.node, found.output)
    _sink(found.node, found.output)
    for number, node in enumerate(all_nodes(found)):  # profiles then tell where the call ran
        node.name = f"{DOMAIN}/{call.layer}/{call.op}/{node.op_type}_{number}"
    return found


def in_branch(call: Call, name: str, lines: str) -> str:
    """A branch of an `If` that gives the outputs of a call: `lines` define them as a body does."""
    for output in call.outputs:
        lines = re.sub(rf"\b{output}\b", f"{name}_{output}", lines)
    results = ", ".join(f"float[{', '.join(['?'] * axes)}] {name}_{output}" for output, axes in _axes(call).items())
    return f"{name} () => ({results}) {{ {lines} }}"


def renamed(lines: str, form: str) -> str:
    """Return lines whose own names begin with `form`, so that they can stand beside themselves."""
    for name in {name.strip() for made in re.findall(r"^([\w, ]+)=", lines, re.MULTILINE) for name in made.split(",")}:
        lines = re.sub(rf"\b{name}\b", f"{form}_{name}", lines)
    return lines


def chosen(call: Call, condition: str, then_branch: str, else_branch: str, name: str) -> str:
    """Lines that define the outputs of a call by one of two bodies.

    Args:
        call: The call.
        condition: Name of a boolean scalar.
        then_branch: Lines of the body to take where it is true.
        else_branch: Lines of the other.
        name: What the names of the branches begin with: they must differ from those around them.
    """
    return f"""
        {", ".join(call.outputs)} = If <
            then_branch = {in_branch(call, f"{name}_then", then_branch)},
            else_branch = {in_branch(call, f"{name}_else", else_branch)}
        > ({condition})
    """


def _axes(call: Call) -> dict[str, int]:
    return {"output": 3, "weights": 3 if call.heads is None else 4} if call.returns_weights else {"output": 3}


def _masks(call: Call) -> str:
    clipped = _CLIPPED_WIDE if call.dtypes.get("valid_lens") in ("int64", "uint32", "uint64") else _CLIPPED
    lines = ""
    if call.has_query_lengths:
        lines = "every_query = Concat <axis = 0> (N, Tq)\nflat_lengths = Reshape (valid_lens_given, every_query)\n"
        lines += clipped.format(name="query_lengths", source="flat_lengths")
    elif call.has_lengths:
        source = "valid_lens_given" if call.rank == 3 else "flat_lengths"
        lines = "flat_lengths = Reshape (valid_lens_given, minus_one)\n" + clipped.format(name="lengths", source=source)
    seen = []
    if call.has_keys_mask:
        lines += _ROWS_OF_KEYS
    if "keys_mask" in call.shapes:
        lines += "keys_in_mask = Reshape (keys_mask_given, every_key_of_all)\n"
        seen.append("keys_in_mask")
    if call.has_bias:
        lines += _pairwise(call, "bias")
    if call.has_pair_mask:
        lines += _pairwise(call, "mask")
    elif "mask" in call.shapes:
        lines += f"""
            ones_of_mask = Constant <value_ints = [{", ".join(["1"] * (len(call.shapes["mask"]) - call.rank + 1))}]> ()
            shape_of_mask = Concat <axis = 0> (batch, ones_of_mask, Tk)
            mask_of_batch = Expand (mask_given, shape_of_mask)
            keys_in_row = Reshape (mask_of_batch, every_key_of_all)
        """
        seen.append("keys_in_row")
    if seen and call.has_lengths:
        lines += """
            lengths_of_rows = Unsqueeze (lengths, one)
            keys_in_length = Less (positions, lengths_of_rows)
        """
        seen.append("keys_in_length")
    return lines + conjunction("keys_seen", seen)


def _pairwise(call: Call, name: str) -> str:
    """Lines that give `mask` or `bias`, its batch axes made one: of size 1 where it is the same for all examples."""
    shape = call.shapes[name]
    tail = 2 if call.heads is None else 3
    lines = f"""
        axes_of_{name} = Shape <start = -{tail}, end = -1> ({name}_given)
        heads_of_{name} = Shape <start = {-3 if call.heads else 0}, end = {-2 if call.heads else 1}> ({name}_given)
        queries_of_{name} = Shape <start = -2, end = -1> ({name}_given)
    """
    if all(size == 1 for size in shape[:-tail]):
        batch, ones = "one", ", ".join(["1"] * len(shape[:-tail]))
        lines += f"batch_of_{name} = Constant <value_ints = [{ones}]> ()\n"
    else:
        batch = "N"
        lines += f"batch_of_{name} = Identity (batch)\n"
    heads = f"heads_of_{name}" if call.heads else "one"
    return (
        lines
        + f"""
        shape_of_{name} = Concat <axis = 0> (batch_of_{name}, axes_of_{name}, Tk)
        {name}_of_batch = Expand ({name}_given, shape_of_{name})
        four_axes_of_{name} = Concat <axis = 0> ({batch}, {heads}, queries_of_{name}, Tk)
        {name} = Reshape ({name}_of_batch, four_axes_of_{name})
    """
    )


def conjunction(name: str, parts: list[str]) -> str:
    """Lines that give `name`, true where all parts are; none where there are no parts."""
    if not parts:
        return ""
    *others, last = parts
    lines = ""
    for number, part in enumerate(others):
        lines += f"{name}_{number} = And ({last}, {part})\n"
        last = f"{name}_{number}"
    return f"{lines}{name} = Identity ({last})\n"


def _flattened(source: str, target: str, kept: int, one_batch_axis: bool) -> str:
    """Lines that make one batch axis of all."""
    if one_batch_axis:
        return f"{target} = Identity ({source})\n"
    return f"""
        {target}_tail = Shape <start = -{kept}> ({source})
        {target}_shape = Concat <axis = 0> (minus_one, {target}_tail)
        {target} = Reshape ({source}, {target}_shape)
    """


def _unflattened(call: Call, name: str, one_batch_axis: bool) -> str:
    """Lines that give an output its batch axes back."""
    if one_batch_axis:
        return f"{name}_of_batch = Identity ({name})\n"
    return f"""
        {name}_tail = Shape <start = -{_axes(call)[name] - 1}> ({name})
        {name}_shape = Concat <axis = 0> (batch, {name}_tail)
        {name}_of_batch = Reshape ({name}, {name}_shape)
    """


def _drop_copies(nodes: Any, outputs: Collection[str], around: Mapping[str, str]) -> None:
    """Let what reads the result of an `Identity` read its source, in bodies of other nodes too.

    onnxruntime does the same and warns where it cannot. A body's outputs must be made within it: they stay.
    """
    sources, kept = dict(around), []
    for node in nodes:
        node.input[:] = [sources.get(name, name) for name in node.input]
        if node.op_type == "Identity" and node.output[0] not in outputs:
            sources[node.output[0]] = node.input[0]
            continue
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _drop_copies(attribute.g.node, [output.name for output in attribute.g.output], sources)
        kept.append(node)
    del nodes[:]
    nodes.extend(kept)
    _make_directly(nodes, outputs)


def _make_directly(nodes: Any, outputs: Collection[str]) -> None:
    """Let what makes the source of an `Identity` that gives an output make that output."""
    for copy in [node for node in nodes if node.op_type == "Identity" and node.output[0] in outputs]:
        source, target = copy.input[0], copy.output[0]
        makers = [node for node in nodes if source in node.output]
        if makers and source not in outputs:
            nodes.remove(copy)
            makers[0].output[:] = [target if name == source else name for name in makers[0].output]
            _rename(nodes, source, target)


def _rename(nodes: Any, source: str, target: str) -> None:
    for node in nodes:
        node.input[:] = [target if name == source else name for name in node.input]
        for graph in _bodies(node):
            _rename(graph.node, source, target)


def _sink(nodes: Any, outputs: Collection[str]) -> None:
    """Move what only branches of one `If` read into those branches, so that nothing else waits for it."""
    for node in reversed([*nodes]):
        made = set(node.output)
        if made & set(outputs) or any(made & set(other.input) for other in nodes):
            continue
        readers = [(other, graph) for other in nodes for graph in _bodies(other) if made & _reads(graph)]
        if len({id(other) for other, _ in readers}) == 1 and readers[0][0].op_type == "If":
            for _, graph in readers:
                graph.node.insert(0, node)
            nodes.remove(node)
    for node in nodes:
        for graph in _bodies(node):
            _sink(graph.node, [output.name for output in graph.output])


def _bodies(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def _reads(graph: onnx.GraphProto) -> set[str]:
    """Return what the nodes of a body read, its own names among them."""
    read: set[str] = set()
    for node in graph.node:
        read.update(node.input, *(_reads(inner) for inner in _bodies(node)))
    return read


def _drop_unread(nodes: Any, outputs: Iterable[str]) -> set[str]:
    """Drop the nodes whose results nothing reads, in bodies of other nodes too; return the names that are read."""
    read, kept = set(outputs), []
    for node in reversed(nodes):
        if read.isdisjoint(node.output):
            continue
        kept.append(node)
        read.update(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                read |= _drop_unread(attribute.g.node, [output.name for output in attribute.g.output])
    kept.reverse()
    del nodes[:]
    nodes.extend(kept)
    return read
