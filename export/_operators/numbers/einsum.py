"""Handler for `Einsum`: one `MatMul` if the equation is a matrix product.

tf2onnx, which converts other equations, computes the shapes of matrices at run time: some 15 operators for a dense
layer of several heads, which is one product. Axes are batch axes (in both tensors and the output), contracted axes (in
both tensors only), rows (in the first only) or columns (in the second only). Without batch axes, and with static sizes
of the second tensor, the product is dense: any number of axes can be merged. Else it needs one contracted axis, and
one row and one column axis or two of one of them, which `MatMul` broadcasts. Of both orders of the tensors, dense
products are preferred, then fewer transpositions.
"""

import math
from collections.abc import Iterator, Sequence
from string import ascii_lowercase
from typing import Any, NamedTuple

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import NodeReplacement, RejectionReason
from ..kernel_dtypes import KERNEL_DTYPES


class _Product(NamedTuple):
    """A plan to write an equation as a matrix product. Axes are letters.

    Attributes:
        first_input: The index of the first factor among the inputs.
        terms: The axes of both factors.
        output: The axes of the output.
        rows: The axes of the first factor only, in the order of the product.
        sizes: The static sizes by axis.
    """

    first_input: int
    terms: tuple[str, str]
    output: str
    rows: str
    sizes: dict[str, int]

    @property
    def batch(self) -> str:
        """The axes of both factors and of the output."""
        return "".join(letter for letter in self.output if letter in self.terms[0] and letter in self.terms[1])

    @property
    def contracted(self) -> str:
        """The axes of both factors that are not in the output."""
        return "".join(letter for letter in self.terms[0] if letter in self.terms[1] and letter not in self.output)

    @property
    def columns(self) -> str:
        """The axes of the second factor only."""
        return "".join(letter for letter in self.output if letter not in self.terms[0])

    def total_size(self, letters: str) -> int:
        """Return the product of static sizes."""
        return math.prod(self.sizes[letter] for letter in letters)

    def has_static_sizes(self, letters: str) -> bool:
        """Return True if all sizes are static."""
        return all(letter in self.sizes for letter in letters)

    @property
    def is_dense(self) -> bool:
        """True if the second factor is a matrix of static sizes, after merging its axes."""
        return not self.batch and self.has_static_sizes(self.contracted + self.columns)

    @property
    def is_batched(self) -> bool:
        """True if one axis is contracted, and rows and columns are one axis each, or two axes and one."""
        return len(self.contracted) == 1 and (len(self.rows), len(self.columns)) in ((1, 1), (2, 1), (1, 2))

    @property
    def product_axes(self) -> str:
        """The axes of the product."""
        if self.is_dense or len(self.columns) < 2:
            return self.batch + self.rows + self.columns
        return self.batch + self.columns[0] + self.rows + self.columns[1]

    @property
    def transpose_count(self) -> int:
        """The number of transpositions, of the first factor and of the output."""
        return (self.terms[0] != self.batch + self.rows + self.contracted) + (self.product_axes != self.output)


def einsum(graph: Any, node: Any) -> RejectionReason:
    """Convert `Einsum` to a matrix product, or else with tf2onnx."""
    equation = node.get_attr_value("equation").decode()
    shapes = [graph.get_shape(name) for name in node.input]
    products = [*_find_products(equation, shapes)] if graph.get_dtype(node.input[0]) in KERNEL_DTYPES["MatMul"] else []
    if products:
        _write_product(graph, node, min(products, key=lambda product: (not product.is_dense, product.transpose_count)))
        return None
    # For tf2onnx, `A` and `a` are the same axis (since onnx/tensorflow-onnx#1099): letters are renamed
    letters = dict.fromkeys(letter for letter in equation if letter.isalpha())
    if len(letters) > len(ascii_lowercase):
        return f"its equation has {len(letters)} letters, and at most {len(ascii_lowercase)} are supported"
    new_letters = dict(zip(letters, ascii_lowercase, strict=False))
    node.set_attr("equation", "".join(new_letters.get(letter, letter) for letter in equation).encode())
    convert_with_tf2onnx(graph, node)
    return None


def _find_products(equation: str, shapes: Sequence[list[int] | None]) -> Iterator[_Product]:
    """Yield the plans, for both orders of the two inputs, in which an equation is a matrix product."""
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
        first_term, second_term = terms[first], terms[1 - first]
        for order in (output, first_term):
            rows = "".join(letter for letter in order if letter not in second_term)
            product = _Product(first, (first_term, second_term), output, rows, sizes)
            is_product = product.contracted and {*first_term} ^ {*second_term} <= {*output} <= {*inputs}
            if is_product and (product.is_dense or product.is_batched):
                yield product


def _write_product(graph: Any, node: Any, product: _Product) -> None:
    """Replace a node by a matrix product: (batch, rows, contracted) times (batch, contracted, columns)."""
    op = NodeReplacement(graph, node)
    batch, rows, contracted, columns = product.batch, product.rows, product.contracted, product.columns
    first_axes, second_axes = product.terms
    first = _transpose(op, op.inputs[product.first_input], first_axes, batch + rows + contracted)
    second = op.inputs[1 - product.first_input]
    if product.is_dense:
        second = _transpose(op, second, second_axes, contracted + columns)
        if len(contracted + columns) != 2 or len(contracted) != 1:
            second = op.Reshape(second, [product.total_size(contracted), product.total_size(columns)])
        if len(contracted) > 1:
            first = op.Reshape(first, [*[0] * len(rows), product.total_size(contracted)])
        result = op.MatMul(first, second)
        if len(columns) != 1:
            result = op.Reshape(result, [*[0] * len(rows), *(product.sizes[letter] for letter in columns)])
    elif len(columns) == 2:
        second = _transpose(op, second, second_axes, batch + columns[0] + contracted + columns[1])
        result = op.MatMul(op.Unsqueeze(first, [len(batch)]), second)
    else:
        second = _transpose(op, second, second_axes, batch + contracted + columns)
        result = op.MatMul(first, second if len(rows) == 1 else op.Unsqueeze(second, [len(batch)]))
    op.finish("Identity", _transpose(op, result, product.product_axes, product.output))


def _transpose(op: NodeReplacement, tensor: str, axes: str, order: str) -> str:
    """Transpose a tensor from the axes `axes` to the axes `order`."""
    return tensor if axes == order else op.Transpose(tensor, perm=[axes.index(letter) for letter in order])
