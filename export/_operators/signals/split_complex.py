"""tf2onnx rewriter that replaces each complex tensor by its real and imaginary part.

Linear operators are written once for each part; products, quotients and angles have rules (`complex_rules.py`). Only
transforms (`fft.py`) have both parts in one tensor. An operator without a rule is renamed, for example `Sqrt` to
`ComplexSqrt`, which has no mapping, so that the error names this operator, and not the producer of its input.
"""

from typing import Any

import numpy as np
from onnx import TensorProto

from ..graph_builder import GraphBuilder
from .complex_rules import RULES, Pair

REAL_DTYPES = {TensorProto.COMPLEX64: TensorProto.FLOAT, TensorProto.COMPLEX128: TensorProto.DOUBLE}

TRANSFORMS = {f"{kind}FFT{axes}" for kind in ("", "I", "R", "IR") for axes in ("", "2D", "3D")}
# Operators that read or write both parts in one tensor; that are written once per part; that only read the shape
STACKED_OPS = {*TRANSFORMS, "Complex", "ComplexAbs"}
PER_PART_OPS = {
    *("Identity", "StopGradient", "EnsureShape", "Snapshot", "Fill", "ZerosLike", "Select", "SelectV2"),
    *("Reshape", "ExpandDims", "Squeeze", "Transpose", "BroadcastTo", "Tile", "Roll", "ReverseV2", "ReverseSequence"),
    *("Slice", "StridedSlice", "GatherV2", "GatherNd", "Split", "SplitV", "Unpack", "Pack", "ConcatV2"),
    *("Pad", "PadV2", "MirrorPad", "SpaceToBatchND", "BatchToSpaceND", "MatrixDiagV3", "MatrixDiagPartV3"),
    *("Add", "AddV2", "AddN", "Sub", "Neg", "Sum", "Mean", "Cumsum", "UnsortedSegmentSum"),
}
SHAPE_OPS = {"Shape", "Size", "Rank"}


def split_complex_tensors(graph: Any, nodes: list[Any]) -> list[Any]:
    """Replace complex tensors in a graph: a rewriter, which tf2onnx also calls for subgraphs of loops."""
    if any(graph.get_dtype(name) in REAL_DTYPES for node in nodes for name in node.output):
        graph.topological_sort(nodes)
        op = _PartsBuilder(graph)
        for node in list(graph.get_nodes()):
            if any(graph.get_dtype(name) in REAL_DTYPES for name in (*node.input, *node.output)):
                op.rewrite(node)
    result: list[Any] = graph.get_nodes()
    return result


class _PartsBuilder(GraphBuilder):
    """Builder of TensorFlow operators on parts; tf2onnx removes the complex nodes, which have no consumers left."""

    def __init__(self, graph: Any) -> None:
        super().__init__(graph)
        self.parts: dict[str, Pair] = {}  # of complex tensors, by their names

    def rewrite(self, node: Any) -> None:
        """Rewrite a node that reads or computes complex numbers."""
        self._node = node
        if node.is_graph_input():
            return
        output = node.output[0]
        if node.is_const():
            value = node.get_tensor_value(as_list=False)
            real, imaginary = (self.constant(np.ascontiguousarray(part)) for part in (value.real, value.imag))
            self.parts[output] = (real, imaginary)
        elif not all(self._has_parts(name) for name in node.input):
            node.type = f"Complex{node.type}"
        elif node.type in STACKED_OPS:
            self.redirect(*(self._stack(name) if self._is_complex(name) else name for name in node.input))
            if node.type == "Complex":
                self.parts[output] = self._broadcast_parts(*node.input)
        elif node.type in SHAPE_OPS:
            self.redirect(self.get_parts(node.input[0])[0])
        elif node.type in PER_PART_OPS:
            inputs = [self.get_parts(name) if self._is_complex(name) else (name, name) for name in node.input]
            results = [self._write_per_part(names) for names in zip(*inputs, strict=True)]
            self.parts.update(zip(node.output, zip(*results, strict=True), strict=True))
        elif node.type in RULES:
            parts = RULES[node.type](self, *map(self.get_parts, node.input))
            if parts is not None:
                self.parts[output] = parts
        else:
            node.type = f"Complex{node.type}"

    def __call__(self, op_type: str, *inputs: Any, like: str = "", **attributes: Any) -> str:
        """Write a TensorFlow operator on parts, with the shape of the tensor `like`, by default the output's."""
        return self._write_real(op_type, inputs, attributes, [self.graph.get_shape(like or self._node.output[0])])[0]

    def same_op(self, *inputs: str) -> str:
        """Write the node's own operator on parts."""
        return self._write_per_part(inputs)[0]

    def adjoint(self, z: Pair, side: str) -> Pair:
        """Return the conjugate of an operand, `side` "x" or "y", of a matrix product if the node transposes it."""
        return (z[0], self.Neg(z[1], like=z[1])) if self._node.get_attr_value(f"adj_{side}", 0) else z

    def magnitude(self, z: Pair) -> str:
        """Return the magnitude of numbers in the shape of the node's output."""
        shapes = [self.graph.get_shape(self._node.output[0])]
        return self.ComplexAbs(self._write_real("Complex", z, {}, shapes, TensorProto.COMPLEX64)[0])

    def has_complex_output(self) -> bool:
        """Return True if the node computes complex numbers."""
        return self._is_complex(self._node.output[0])

    def real_dtype(self, name: str = "") -> int:
        """Return the element type of the parts of a tensor, by default of the node's output."""
        dtype: int = self.graph.get_dtype(name or self._node.output[0])
        return int(REAL_DTYPES.get(dtype, dtype))

    def redirect(self, *inputs: str, op_type: str = "") -> None:
        """Replace the inputs of the node itself, and its operator if one is passed."""
        self._node.type = op_type or self._node.type
        self.graph.replace_inputs(self._node, list(inputs))

    def get_parts(self, name: str) -> Pair:
        """Return the parts of a complex tensor; a real tensor is returned twice."""
        if name not in self.parts:
            if not self._is_complex(name):
                return name, name
            shapes = [self.graph.get_shape(name)]
            real, imaginary = (
                self._write_real(op_type, [name], {}, shapes, self.real_dtype(name))[0] for op_type in ("Real", "Imag")
            )
            self.parts[name] = (real, imaginary)
        return self.parts[name]

    def _stack(self, name: str) -> str:
        """Return the complex tensor that a transform reads: stacked parts, unless its producer stacks them."""
        if self.graph.get_node_by_output(name).type in STACKED_OPS:
            return name
        shapes = [self.graph.get_shape(name)]
        return self._write_real("Complex", self.get_parts(name), {}, shapes, self.graph.get_dtype(name))[0]

    def _has_parts(self, name: str) -> bool:
        producer = self.graph.get_node_by_output(name)
        return not self._is_complex(name) or name in self.parts or producer.type in STACKED_OPS

    def _is_complex(self, name: str) -> bool:
        return self.graph.get_dtype(name) in REAL_DTYPES

    def _broadcast_parts(self, real: str, imaginary: str) -> Pair:
        """Broadcast the inputs of `Complex` to one shape, and return them as parts."""
        shapes = [self.graph.get_shape(name) for name in (real, imaginary)]
        if shapes[0] is not None and shapes[0] == shapes[1]:
            return real, imaginary
        parts = (self.AddV2(real, self.ZerosLike(imaginary)), self.AddV2(imaginary, self.ZerosLike(real)))
        self.redirect(*parts)
        return parts

    def _write_per_part(self, inputs: Any) -> list[str]:
        return self._write_real(self._node.type, inputs, self._node.attr, self._node.output_shapes)

    def _write_real(
        self, op_type: str, inputs: Any, attributes: dict[str, Any], shapes: list[Any], dtype: int = 0
    ) -> list[str]:
        """Write a node that tf2onnx still has to convert; its element type is by default `real_dtype()`."""
        dtypes = [dtype or self.real_dtype()] * len(shapes)
        options = {"output_count": len(shapes), "shapes": shapes, "dtypes": dtypes, "skip_conversion": False}
        return self._write(op_type, inputs, attributes, **options)
