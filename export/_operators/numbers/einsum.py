"""Handler for `Einsum`: one `MatMul` if the equation is a matrix product.

tf2onnx converts any equation to products of matrices whose shapes are computed at run time: some 15 operators for a
dense layer of several heads, which is one product. Other equations are left to tf2onnx.
"""

import math
from collections.abc import Iterator, Sequence
from string import ascii_lowercase
from typing import Any, NamedTuple

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import NodeReplacement, Refusal
from ..kernel_dtypes import KERNEL_DTYPES


class _Product(NamedTuple):
    """One order of the two tensors of an equation, whose axes are letters.

    Attributes:
        first: Which input comes first.
        terms: The axes of the first, and of the second.
        output: Those of the output.
        rows: The axes of the first alone, in the order of the product.
        sizes: What is known of sizes.
    """

    first_input: int
    terms: tuple[str, str]
    output: str
    rows: str
    sizes: dict[str, int]

    @property
    def batch(self) -> str:
        """The axes of both and of the output."""
        return "".join(letter for letter in self.output if letter in self.terms[0] and letter in self.terms[1])

    @property
    def contracted(self) -> str:
        """The axes of both that are not in the output."""
        return "".join(letter for letter in self.terms[0] if letter in self.terms[1] and letter not in self.output)

    @property
    def columns(self) -> str:
        """The axes of the second alone."""
        return "".join(letter for letter in self.output if letter not in self.terms[0])

    def total_size(self, letters: str) -> int:
        """The product of known sizes."""
        return math.prod(self.sizes[letter] for letter in letters)

    def has_static_sizes(self, letters: str) -> bool:
        """Return whether sizes are known."""
        return all(letter in self.sizes for letter in letters)

    @property
    def is_dense(self) -> bool:
        """Return whether the second is a matrix of known sizes, however many axes it has."""
        return not self.batch and self.has_static_sizes(self.contracted + self.columns)

    @property
    def is_batched(self) -> bool:
        """Return True if there is a product of matrices for each index of the batch and of one more axis at most."""
        return len(self.contracted) == 1 and (len(self.rows), len(self.columns)) in ((1, 1), (2, 1), (1, 2))

    @property
    def product_axes(self) -> str:
        """The axes of the product."""
        if self.is_dense or len(self.columns) < 2:
            return self.batch + self.rows + self.columns
        return self.batch + self.columns[0] + self.rows + self.columns[1]

    @property
    def transpose_count(self) -> int:
        """Count the transpositions of the first and of the output."""
        return (self.terms[0] != self.batch + self.rows + self.contracted) + (self.product_axes != self.output)


def einsum(graph: Any, node: Any) -> Refusal:
    """Convert `Einsum` to a matrix product, or with tf2onnx, for which `A` and `a` are the same letter."""
    equation = node.get_attr_value("equation").decode()
    shapes = [graph.get_shape(name) for name in node.input]
    products = [*_find_products(equation, shapes)] if graph.get_dtype(node.input[0]) in KERNEL_DTYPES["MatMul"] else []
    if products:
        _write_product(graph, node, min(products, key=lambda product: (not product.is_dense, product.transpose_count)))
        return None
    letters = dict.fromkeys(letter for letter in equation if letter.isalpha())
    if len(letters) > len(ascii_lowercase):
        return f"its equation has more than {len(ascii_lowercase)} letters"
    renamed = dict(zip(letters, ascii_lowercase, strict=False))
    node.set_attr("equation", "".join(renamed.get(letter, letter) for letter in equation).encode())
    convert_with_tf2onnx(graph, node)
    return None


def _find_products(equation: str, shapes: Sequence[list[int] | None]) -> Iterator[_Product]:
    """Yield the orders of the two tensors of an equation in which it is a product of matrices."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != 2 or not arrow or not (inputs + output).replace(",", "").isalpha():
        return
    if any(len({*term}) < len(term) for term in (*terms, output)):
        return
    if any(shape is None or len(shape) != len(term) for shape, term in zip(shapes, terms, strict=True)):
        return
    axes = [pair for shape, term in zip(shapes, terms, strict=True) for pair in zip(term, shape or [], strict=True)]
    sizes = {letter: size for letter, size in axes if size > 0}
    for first in (0, 1):
        one, other = terms[first], terms[1 - first]
        for order in (output, one):
            rows = "".join(letter for letter in order if letter not in other)
            product = _Product(first, (one, other), output, rows, sizes)
            is_product = product.contracted and {*one} ^ {*other} <= {*output} <= {*inputs}
            if is_product and (product.is_dense or product.is_batched):
                yield product


def _write_product(graph: Any, node: Any, product: _Product) -> None:
    """Replace a node by a matrix product: (batch, rows, summed) times (batch, summed, columns)."""
    op = NodeReplacement(graph, node)
    batch, rows, summed, columns = product.batch, product.rows, product.contracted, product.columns
    first_axes, second_axes = product.terms
    first = _transpose(op, op.inputs[product.first_input], first_axes, batch + rows + summed)
    second = op.inputs[1 - product.first_input]
    if product.is_dense:
        second = _transpose(op, second, second_axes, summed + columns)
        if len(summed + columns) != 2 or len(summed) != 1:
            second = op.Reshape(second, [product.total_size(summed), product.total_size(columns)])
        if len(summed) > 1:
            first = op.Reshape(first, [*[0] * len(rows), product.total_size(summed)])
        result = op.MatMul(first, second)
        if len(columns) != 1:
            result = op.Reshape(result, [*[0] * len(rows), *(product.sizes[letter] for letter in columns)])
    elif len(columns) == 2:
        second = _transpose(op, second, second_axes, batch + columns[0] + summed + columns[1])
        result = op.MatMul(op.Unsqueeze(first, [len(batch)]), second)
    else:
        second = _transpose(op, second, second_axes, batch + summed + columns)
        result = op.MatMul(first, second if len(rows) == 1 else op.Unsqueeze(second, [len(batch)]))
    op.finish("Identity", _transpose(op, result, product.product_axes, product.output))


def _transpose(op: NodeReplacement, tensor: str, axes: str, order: str) -> str:
    """Return a tensor with its axes in another order; both are strings of letters."""
    return tensor if axes == order else op.Transpose(tensor, perm=[axes.index(letter) for letter in order])
