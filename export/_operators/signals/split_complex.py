"""tf2onnx rewriter: replace each complex tensor by its real and imaginary parts.

What moves or adds numbers is written twice, once for each part; products, quotients and angles are written out. Only
transforms (`fft.py`) have both parts in one tensor, which lies between `Complex` and `Real`, `Imag` or
`ComplexAbs`. A reader without a form here is renamed, `Sqrt` to `ComplexSqrt`, which has no mapping: so a message
names it, and not what made its numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from ..._private_api.tf2onnx_internals import make_name
from .complex_rules import FORMS, Pair

REAL = {TensorProto.COMPLEX64: TensorProto.FLOAT, TensorProto.COMPLEX128: TensorProto.DOUBLE}

TRANSFORMS = {f"{kind}FFT{axes}" for kind in ("", "I", "R", "IR") for axes in ("", "2D", "3D")}
TOGETHER = {*TRANSFORMS, "Complex", "ComplexAbs"}  # these read or make both parts in one tensor
TWICE = {
    *("Identity", "StopGradient", "EnsureShape", "Snapshot", "Fill", "ZerosLike", "Select", "SelectV2"),
    *("Reshape", "ExpandDims", "Squeeze", "Transpose", "BroadcastTo", "Tile", "Roll", "ReverseV2", "ReverseSequence"),
    *("Slice", "StridedSlice", "GatherV2", "GatherNd", "Split", "SplitV", "Unpack", "Pack", "ConcatV2"),
    *("Pad", "PadV2", "MirrorPad", "SpaceToBatchND", "BatchToSpaceND", "MatrixDiagV3", "MatrixDiagPartV3"),
    *("Add", "AddV2", "AddN", "Sub", "Neg", "Sum", "Mean", "Cumsum", "UnsortedSegmentSum"),
}
OF_ITS_SHAPE = {"Shape", "Size", "Rank"}


def parts_apart(graph: Any, nodes: list[Any]) -> list[Any]:
    """Write what reads or makes complex numbers with real ones: a rewriter of tf2onnx, for the graphs of loops too."""
    if any(graph.get_dtype(name) in REAL for node in nodes for name in node.output):
        graph.topological_sort(nodes)
        apart = _Apart(graph)
        for node in list(graph.get_nodes()):
            if any(graph.get_dtype(name) in REAL for name in (*node.input, *node.output)):
                apart.write(node)
    found: list[Any] = graph.get_nodes()
    return found


class _Apart:
    """A graph, and the parts of each complex tensor that has been written; what nothing reads any more tf2onnx drops.

    Attributes:
        parts: By the tensor's name.
    """

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self.parts: dict[str, Pair] = {}

    def write(self, node: Any) -> None:
        """Write a node that reads or makes complex numbers."""
        self._node = node
        if node.is_graph_input():
            return
        if node.is_const():
            value = node.get_tensor_value(as_list=False)
            self.parts[node.output[0]] = (self._constant(value.real), self._constant(value.imag))
            return
        if not all(self._are_known(name) for name in node.input):
            node.type = f"Complex{node.type}"
        elif node.type in TOGETHER:
            self.reads(*(self._joined(name) if self._is_complex(name) else name for name in node.input))
            if node.type == "Complex":
                self.parts[node.output[0]] = self._of_one_shape(*node.input)
        elif node.type in OF_ITS_SHAPE:
            self.reads(self.of(node.input[0])[0])
        elif node.type in TWICE:
            made = [
                self._again([self.of(x)[part] if self._is_complex(x) else x for x in node.input]) for part in (0, 1)
            ]
            self.parts.update(zip(node.output, zip(*made, strict=True), strict=True))
        elif node.type in FORMS:
            found = FORMS[node.type](self, *(self.of(name) for name in node.input))
            if found is not None:
                self.parts[node.output[0]] = found
        else:
            node.type = f"Complex{node.type}"

    def __call__(self, op: str, *inputs: str, like: str = "", **attributes: Any) -> str:
        """Write an operator of TensorFlow on parts, with the shape of another tensor or of what the node makes."""
        return self._made(op, inputs, attributes, [self._graph.get_shape(like or self._node.output[0])])[0]

    def same(self, *inputs: str) -> str:
        """Write the node's own operator, on parts."""
        return self._again(list(inputs))[0]

    def adjoint(self, z: Pair, side: str) -> Pair:
        """Return the conjugate of one side of a product of matrices if the node transposes that side."""
        return (z[0], self("Neg", z[1], like=z[1])) if self._node.get_attr_value(f"adj_{side}", 0) else z

    def size(self, z: Pair) -> str:
        """Write the magnitude of what has the shape of what the node makes."""
        shapes = [self._graph.get_shape(self._node.output[0])]
        together = self._made("Complex", z, {}, shapes, TensorProto.COMPLEX64)[0]
        return self("ComplexAbs", together)

    def makes_complex(self) -> bool:
        """Tell whether the node makes complex numbers."""
        return self._is_complex(self._node.output[0])

    def cast(self, part: str) -> str:
        """Write a part as one of what the node makes."""
        return self("Cast", part, to=self._real(self._node.output[0]))

    def reads(self, *inputs: str, op: str = "") -> None:
        """Let the node itself read other tensors, by another operator if one is named."""
        self._node.type = op or self._node.type
        self._graph.replace_inputs(self._node, list(inputs))

    def of(self, name: str) -> Pair:
        """Return the parts of a complex tensor, and of a real one the tensor twice."""
        if name not in self.parts:
            if not self._is_complex(name):
                return name, name
            shapes = [self._graph.get_shape(name)]
            kind = self._real(name)
            real, imaginary = (self._made(op, [name], {}, shapes, kind)[0] for op in ("Real", "Imag"))
            self.parts[name] = (real, imaginary)
        return self.parts[name]

    def _joined(self, name: str) -> str:
        if self._graph.get_node_by_output(name).type in TOGETHER:
            return name
        return self._made("Complex", self.of(name), {}, [self._graph.get_shape(name)], self._graph.get_dtype(name))[0]

    def _are_known(self, name: str) -> bool:
        made = self._graph.get_node_by_output(name)
        return not self._is_complex(name) or name in self.parts or made.type in TOGETHER

    def _is_complex(self, name: str) -> bool:
        return self._graph.get_dtype(name) in REAL

    def _real(self, name: str) -> int:
        kind: int = self._graph.get_dtype(name)
        return int(REAL.get(kind, kind))

    def _constant(self, value: np.ndarray) -> str:
        return str(self._graph.make_const(make_name("part"), np.ascontiguousarray(value)).output[0])

    def _of_one_shape(self, real: str, imaginary: str) -> Pair:
        """Two parts as `Complex` takes them, which broadcasts: a shape that is not the other's is made so."""
        shapes = [self._graph.get_shape(name) for name in (real, imaginary)]
        if shapes[0] is not None and shapes[0] == shapes[1]:
            return real, imaginary
        both = [self("AddV2", a, self("ZerosLike", b)) for a, b in ((real, imaginary), (imaginary, real))]
        self.reads(*both)
        return both[0], both[1]

    def _again(self, inputs: list[str]) -> list[str]:
        node = self._node
        kind = self._real(node.output[0])
        return self._made(node.type, inputs, node.attr, node.output_shapes, kind, len(node.output))

    def _made(
        self, op: str, inputs: Any, attributes: Any, shapes: Any, kind: int | None = None, outputs: int = 1
    ) -> list[str]:
        made = self._graph.make_node(
            op,
            list(inputs),
            attr=attributes,
            output_count=outputs,
            shapes=shapes,
            dtypes=[self._real(self._node.output[0]) if kind is None else kind] * outputs,
            skip_conversion=False,
        )
        return list(made.output)
