"""Handler for `Einsum`: one `MatMul` if the equation is a matrix product.

tf2onnx takes any equation apart, into products of matrices whose shapes the file puts together when it runs: some 15
operators for a dense layer of several heads, whose product is one. What is no such product, it still does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from string import ascii_lowercase
from typing import Any, NamedTuple

from onnx import TensorProto

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import Replacement

OF_MATMUL = {
    *(TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE),
    *(TensorProto.INT32, TensorProto.INT64, TensorProto.UINT32, TensorProto.UINT64),
}


class _Product(NamedTuple):
    """One order of the two tensors of an equation, whose axes are letters.

    Attributes:
        first: Which input comes first.
        terms: The axes of the first, and of the second.
        output: Those of the output.
        rows: The axes of the first alone, in the order of the product.
        sizes: What is known of sizes.
    """

    first: int
    terms: tuple[str, str]
    output: str
    rows: str
    sizes: dict[str, int]

    @property
    def batch(self) -> str:
        """The axes of both and of the output."""
        return "".join(each for each in self.output if each in self.terms[0] and each in self.terms[1])

    @property
    def summed(self) -> str:
        """The axes of both that are not in the output."""
        return "".join(each for each in self.terms[0] if each in self.terms[1] and each not in self.output)

    @property
    def columns(self) -> str:
        """The axes of the second alone."""
        return "".join(each for each in self.output if each not in self.terms[0])

    def size_of(self, letters: str) -> int:
        """The product of known sizes."""
        return math.prod(self.sizes[each] for each in letters)

    def all_known(self, letters: str) -> bool:
        """Tell whether sizes are known."""
        return all(each in self.sizes for each in letters)

    @property
    def is_dense(self) -> bool:
        """Tell whether the second is a matrix of known sizes, however many axes it has."""
        return not self.batch and self.all_known(self.summed + self.columns)

    @property
    def is_batched(self) -> bool:
        """Tell whether there is a product of matrices for each place of the batch and of one more axis at most."""
        return len(self.summed) == 1 and (len(self.rows), len(self.columns)) in ((1, 1), (2, 1), (1, 2))

    @property
    def found(self) -> str:
        """The axes of what comes out."""
        if self.is_dense or len(self.columns) < 2:
            return self.batch + self.rows + self.columns
        return self.batch + self.columns[0] + self.rows + self.columns[1]

    @property
    def transposes(self) -> int:
        """How often the first and the output are put in another order."""
        return (self.terms[0] != self.batch + self.rows + self.summed) + (self.found != self.output)


def summed(graph: Any, node: Any) -> None:
    """`Einsum`: a product of matrices, or as tf2onnx has it, which takes `A` and `a` for one axis."""
    equation = node.get_attr_value("equation").decode()
    shapes = [graph.get_shape(each) for each in node.input]
    ways = [*_products(equation, shapes)] if graph.get_dtype(node.input[0]) in OF_MATMUL else []
    if ways:
        _multiplied(graph, node, min(ways, key=lambda way: (not way.is_dense, way.transposes)))
        return
    letters = dict.fromkeys(each for each in equation if each.isalpha())
    if len(letters) <= len(ascii_lowercase):
        renamed = dict(zip(letters, ascii_lowercase, strict=False))
        node.set_attr("equation", "".join(renamed.get(each, each) for each in equation).encode())
        convert_with_tf2onnx(graph, node)


def _products(equation: str, shapes: Sequence[list[int] | None]) -> Iterator[_Product]:
    """Yield the orders of the two tensors of an equation in which it is a product of matrices."""
    given, arrow, output = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    if len(terms) != 2 or not arrow or not (given + output).replace(",", "").isalpha():
        return
    if any(len({*each}) < len(each) for each in (*terms, output)):
        return
    if any(shape is None or len(shape) != len(term) for shape, term in zip(shapes, terms, strict=True)):
        return
    axes = [pair for shape, term in zip(shapes, terms, strict=True) for pair in zip(term, shape or [], strict=True)]
    sizes = {letter: size for letter, size in axes if size > 0}
    for first in (0, 1):
        one, other = terms[first], terms[1 - first]
        for order in (output, one):
            way = _Product(first, (one, other), output, "".join(each for each in order if each not in other), sizes)
            if way.summed and {*one} ^ {*other} <= {*output} <= {*given} and (way.is_dense or way.is_batched):
                yield way


def _multiplied(graph: Any, node: Any, way: _Product) -> None:
    write = Replacement(graph, node)
    first, second = write.inputs[way.first], write.inputs[1 - way.first]
    batch, rows, columns, summed = way.batch, way.rows, way.columns, way.summed

    def in_order(tensor: str, axes: str, wanted: str) -> str:
        perm = [axes.index(each) for each in wanted]
        return tensor if axes == wanted else write("Transpose", tensor, perm=perm)

    first = in_order(first, way.terms[0], batch + rows + summed)
    if way.is_dense:
        second = in_order(second, way.terms[1], summed + columns)
        if len(summed + columns) != 2 or len(summed) != 1:
            second = write("Reshape", second, [way.size_of(summed), way.size_of(columns)])
        if len(summed) > 1:
            first = write("Reshape", first, [*[0] * len(rows), way.size_of(summed)])
        found = write("MatMul", first, second)
        if len(columns) != 1:
            found = write("Reshape", found, [*[0] * len(rows), *(way.sizes[each] for each in columns)])
    elif len(columns) == 2:
        second = in_order(second, way.terms[1], batch + columns[0] + summed + columns[1])
        found = write("MatMul", write("Unsqueeze", first, [len(batch)]), second)
    else:
        second = in_order(second, way.terms[1], batch + summed + columns)
        found = write("MatMul", first, second if len(rows) == 1 else write("Unsqueeze", second, [len(batch)]))
    write.last("Identity", in_order(found, way.found, way.output))
