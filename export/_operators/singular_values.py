"""Singular values by Jacobi's rotations from one side, of half of all pairs of columns at a time.

Vectors go with them where their signs cannot be seen: where all that reads the left ones and all that reads the right
ones meets in one product, as in `keras.ops.pinv` and `lstsq`. The signs that TensorFlow gives follow from how it
computes, so what gives them away is refused.
"""

from __future__ import annotations

from typing import Any

from .matrices import Taken, like, transposed
from .writing import Writer

SWEEPS = 12  # after which float32 no longer moves, at sizes up to 256
PRODUCTS = {"MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"}
LINEAR = PRODUCTS | {"Cast", "Div", "Identity", "Mul", "RealDiv", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}


def decompose(graph: Any, node: Any) -> None:
    """`Svd`: the values, and the vectors that go with them."""
    if node.get_attr_value("compute_uv", True):
        readers = [_readers(graph, name) for name in node.output[1:]]
        if any(readers) and (node.get_attr_value("full_matrices", False) or not _meet(graph, *readers)):
            return
    write = Taken(graph, node)
    (matrix,) = write.inputs
    rows = write.rows(matrix)
    columns = write.rows(matrix, -1)
    least = write("Unsqueeze", write("Min", rows.number, columns.number), [0])
    turned, turn = _rotated(write, matrix, columns.number)
    lengths = write("Sqrt", write("ReduceSum", write("Mul", turned, turned), [-2], keepdims=0))
    values, order = write.all_of("TopK", 2, lengths, least, axis=-1)
    order = write("Unsqueeze", order, [-2])

    def sorted_columns(of: str, count: str) -> str:
        front = write("Shape", values, end=-1)
        place = write("Expand", order, write("Concat", front, write("Unsqueeze", count, [0]), [1], axis=0))
        return write("GatherElements", of, place, axis=-1)

    left = write("Div", sorted_columns(turned, rows.number), write("Unsqueeze", values, [-2]))
    left = write("Where", write("Greater", write("Unsqueeze", values, [-2]), rows.zero), left, rows.zero)
    right = write("Slice", turn, [0], write("Unsqueeze", columns.number, [0]), [-2])
    write.give(values, left, sorted_columns(right, columns.number))


def eigenvalues(graph: Any, node: Any) -> None:
    """`SelfAdjointEigV2` of what is on and below the diagonal, where only the values are read.

    They are the singular values of a matrix that is so much larger on its diagonal that none is negative.
    """
    if _readers(graph, node.output[1]):
        return
    write = Taken(graph, node)
    (matrix,) = write.inputs
    rows = write.rows(matrix)
    below = like(write, write("Trilu", matrix, -1, upper=0), matrix)
    whole = write("Add", write("Trilu", matrix, upper=0), transposed(write, below))
    size = write("Sqrt", write("ReduceSum", write("Mul", whole, whole), [-2, -1], keepdims=1))
    shift = write("Add", size, size)
    diagonal = write("Where", write("Equal", rows.across, rows.down), shift, rows.zero)
    turned, turn = _rotated(write, like(write, write("Add", whole, diagonal), matrix), rows.number)
    lengths = write("Sqrt", write("ReduceSum", write("Mul", turned, turned), [-2], keepdims=0))
    values, _ = write.all_of("TopK", 2, lengths, write("Unsqueeze", rows.number, [0]), axis=-1)
    rising = write("Slice", values, [-1], [-(2**62)], [-1], [-1])
    write.give(write("Sub", rising, write("Squeeze", shift, [-1])), turn)


def _rotated(write: Taken, matrix: str, count: str) -> tuple[str, str]:
    """Return a matrix with columns at right angles, an even number of them, and what it was multiplied with."""
    even = write("Max", write("Add", count, write("Mod", count, 2)), 4)
    half = write("Div", even, 2)
    middle = write("Unsqueeze", half, [0])
    added = write("Unsqueeze", write("Sub", even, count), [0])
    rank = len(write.graph.get_shape(matrix))
    matrix = like(write, write("Pad", matrix, write("Concat", [0] * (2 * rank - 1), added, axis=0)), matrix)
    columns = write.rows(matrix, -1)
    # the first column stays where it is, the others move on by one place around it, so that each meets each
    every, last = columns.across, write("Sub", even, 1)
    after = write("Where", write("Less", every, half), write("Sub", every, 1), write("Add", every, 1))
    for place, source in ((0, 0), (1, half), (last, write("Sub", half, 1))):
        after = write("Where", write("Equal", every, place), source, after)

    def step(write: Writer, k: str, matrix: str, turn: str) -> list[str]:
        left, right = _halves(write, matrix, middle)
        a, b, both = (
            write("ReduceSum", write("Mul", *pair), [-2], keepdims=1)
            for pair in ((left, left), (right, right), (left, right))
        )
        ratio = write("Div", write("Sub", b, a), write("Add", both, both))
        size = write("Abs", ratio)
        root = write("Sqrt", write("Add", write("Mul", ratio, ratio), columns.one))
        tangent = write("Div", columns.one, write("Add", size, root))
        tangent = write("Where", write("Less", ratio, columns.zero), write("Neg", tangent), tangent)
        tangent = write("Where", write("Equal", both, columns.zero), columns.zero, tangent)
        cosine = write("Div", columns.one, write("Sqrt", write("Add", write("Mul", tangent, tangent), columns.one)))
        sine = write("Mul", cosine, tangent)
        found = []
        for each in (matrix, turn):
            left, right = _halves(write, each, middle)
            first = write("Sub", write("Mul", cosine, left), write("Mul", sine, right))
            second = write("Add", write("Mul", sine, left), write("Mul", cosine, right))
            found.append(write("Gather", write("Concat", first, second, axis=-1), after, axis=-1))
        return found

    identity = write("Where", write("Equal", columns.across, columns.down), columns.one, columns.zero)
    size = write("Reshape", even, [1])
    square = write("Concat", write("Shape", matrix, end=-2), size, size, axis=0)
    turn = like(write, write("Expand", identity, square), matrix)
    matrix, turn = write.repeated(write("Mul", last, SWEEPS), [matrix, turn], step)
    return matrix, turn


def _halves(write: Writer, matrix: str, middle: str) -> tuple[str, str]:
    return write("Slice", matrix, [0], middle, [-1]), write("Slice", matrix, middle, [2**62], [-1])


def _readers(graph: Any, name: str) -> set[str]:
    return {node.name for node in graph.find_output_consumers(name)}


def _meet(graph: Any, left: set[str], right: set[str]) -> bool:
    """Tell whether all that is read of both sides comes to one product, a side each, by steps that keep signs apart."""
    for product in (node for node in graph.get_nodes() if node.type in PRODUCTS):
        this, other = ({each.name} | _before(each) for each in product.inputs)
        ways = left - {product.name}, right - {product.name}
        for a, b in ((this, other), (other, this)):
            if ways[0] <= a and ways[1] <= b and not ways[0] & b and not ways[1] & a:
                return _comes_to(graph, left | right, product.name)
    return False


def _before(node: Any) -> set[str]:
    """Return the names of all nodes that one depends on."""
    found: set[str] = set()
    waiting = [node]
    while waiting:
        for each in waiting.pop().inputs:
            if each is not None and each.name not in found:
                found.add(each.name)
                waiting.append(each)
    return found


def _comes_to(graph: Any, names: set[str], end: str) -> bool:
    waiting, seen = [*names], {end}
    while waiting:
        node = graph.get_node_by_name(waiting.pop())
        if node.name in seen:
            continue
        seen.add(node.name)
        if node.type not in LINEAR or {*node.output} & {*graph.outputs}:
            return False
        waiting += [reader.name for output in node.output for reader in graph.find_output_consumers(output)]
    return True
