"""Rewrite rotary position embeddings as onnxruntime's `RotaryEmbedding`."""

import numpy as np
import onnx
from onnx import TensorProto, helper

from .._onnx.graph_index import GraphIndex, get_int_attribute
from .._onnx.traced_model import CONTRIB
from .patterns import ANY, Match, Op, Pattern, Rule


def _make_concatenation_patterns(first: Pattern, second: Pattern, skip: str = "") -> tuple[Op, Op]:
    """Return the two patterns of a concatenation on the last axis: `Concat`, and stack with `Reshape`."""
    stacked = Op("Concat", Op("Unsqueeze", first, ANY), Op("Unsqueeze", second, ANY))
    return Op("Concat", first, second, skip=skip), Op("Reshape", stacked, ANY, skip=skip)


# x * cos(angles) + concat(-second, first) * sin(angles), with angles = concat(half, half).
# x is (B, T, H, D), `first` and `second` are its halves on the last axis, `half` is (1, T, D / 2). For 8 x 128
# positions of 4 heads of 64 these ten operators took 0.67 ms, and `RotaryEmbedding` takes 0.05 ms.
ANGLES = _make_concatenation_patterns("half", "half", skip="Unsqueeze")
COS = Op("Cos", ANGLES)
SIN = Op("Sin", ANGLES)
ROTATED = _make_concatenation_patterns(Op("Neg", "second"), "first")
PATTERN = Op("Add", Op("Mul", "x", COS), Op("Mul", ROTATED, SIN))


def _check(match: Match, nodes: GraphIndex) -> str:
    x, half_angles = nodes.get_shape(match["x"]) or (), nodes.get_shape(match["half"]) or ()
    angles = nodes.get_first_input(match[COS], "Cos") or ""
    all_angles = nodes.get_shape(angles) or ()
    if angles != nodes.get_first_input(match[SIN], "Sin"):
        return "cosine and sine have different angles"
    if len(x) != 4 or not (x[2] and x[3]) or nodes.get_elem_type(match["x"]) != TensorProto.FLOAT:
        return "x is not float32 of rank 4 with static numbers of heads and features"
    if not _are_halves(match, len(x), nodes):
        return "the rotated tensors are not the halves of x"
    if len(all_angles) != 4 or (all_angles[0], all_angles[2]) != (1, 1):
        return "the shape of the angles is not (1, T, 1, D)"
    if len(half_angles) != 3 or all_angles[3] != 2 * (half_angles[2] or 0):
        return "the angles are not two copies of one half"
    concatenated = [match[op] for op in (*ANGLES, *ROTATED) if op in match]
    if not all(_is_concatenated_on_last_axis(name, nodes) for name in concatenated):
        return "two halves are not concatenated on the last axis"
    return ""


def _are_halves(match: Match, rank: int, nodes: GraphIndex) -> bool:
    split = nodes.get_producer(match["first"], "Split")
    if split is None or [*split.output] != [match["first"], match["second"]] or split.input[0] != match["x"]:
        return False
    sizes = nodes.get_constant(split.input[1]) if len(split.input) > 1 else None
    return get_int_attribute(split, "axis", 0) in (-1, rank - 1) and (sizes is None or len({*sizes.tolist()}) == 1)


def _is_concatenated_on_last_axis(name: str, nodes: GraphIndex) -> bool:
    """Return True if two tensors (..., D / 2) are concatenated to (..., D), or stacked to (..., 2, D / 2) first."""
    reshape = nodes.get_producer(name, "Reshape")
    concat = nodes.get_producer(name if reshape is None else reshape.input[0], "Concat")
    sizes = nodes.get_shape(name)
    if concat is None or sizes is None:
        return False
    if reshape is None:
        return get_int_attribute(concat, "axis", 0) in (-1, len(sizes) - 1)
    parts = [nodes.get_shape(nodes.get_first_input(part, "Unsqueeze") or "") or () for part in concat.input]
    stacked = nodes.get_shape(concat.output[0]) or ()
    if get_int_attribute(concat, "axis", 0) not in (-2, len(sizes) - 1) or any(
        len(part) != len(sizes) for part in parts
    ):
        return False
    return stacked[1:-1] == (*sizes[1:-1], 2) and sizes[-1] == 2 * (stacked[-1] or 0)


def _rewrite(node: onnx.NodeProto, match: Match, nodes: GraphIndex) -> list[onnx.NodeProto]:
    _, _, heads, size = nodes.get_shape(match["x"]) or ()
    result, make = node.output[0], helper.make_node
    packed, rotated, angles, cosines, sines = (f"{result}__{number}" for number in range(5))
    half_shape, packed_shape, unpacked_shape, first_position = (f"{result}__{number}" for number in range(5, 9))
    nodes.new_initializers |= {
        half_shape: np.array([-1, (size or 0) // 2]),
        packed_shape: np.array([0, 0, (heads or 0) * (size or 0)]),
        unpacked_shape: np.array([0, 0, heads, size]),
        first_position: np.array([0]),
    }
    rotation = [packed, first_position, cosines, sines]
    names = [f"{node.name}__{number}" for number in range(5)]
    return [
        make("Reshape", [match["half"], half_shape], [angles], names[0]),
        make("Cos", [angles], [cosines], names[1]),
        make("Sin", [angles], [sines], names[2]),
        make("Reshape", [match["x"], packed_shape], [packed], names[3]),
        make("RotaryEmbedding", rotation, [rotated], names[4], domain=CONTRIB, num_heads=heads),
        make("Reshape", [rotated, unpacked_shape], [result], node.name),
    ]


RULE = Rule("rotary position embedding", PATTERN, _check, _rewrite)
