"""A traced model, the lowering of each of its attention calls, and what was measured to choose it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx

from .._options import PORTABLE, TRACED_OPSET
from .._tracing.attention_calls import Call
from .._tracing.traced import Traced
from .bodies import function_of, lowest_opset


@dataclass(frozen=True)
class Choice:
    """The lowering of one call, and the median time of each candidate that gave the right numbers."""

    lowering: str
    milliseconds: dict[str, float]


@dataclass(frozen=True)
class Lowered:
    """A traced model, each attention layer in a lowering.

    Attributes:
        traced: The model, at opset 18.
        lowerings: The lowering of each call, plain primitives among them.
        choices: What was measured for each call, where the fastest was to be found.
    """

    traced: Traced
    lowerings: Mapping[Call, str]
    choices: Mapping[Call, Choice] = field(default_factory=dict)

    def opset(self, asked: int | None) -> int:
        """Return the opset to write: the one asked for, or the lowest that the lowerings need."""
        needed = [lowest_opset(lowering) for lowering in self.lowerings.values() if lowering != PORTABLE]
        return max([TRACED_OPSET, *needed]) if asked is None else asked

    def functions(self, opset: int) -> list[onnx.FunctionProto]:
        """Return the bodies of the calls in the model."""
        lowered = ((call, lowering) for call, lowering in self.lowerings.items() if lowering != PORTABLE)
        return [function_of(call, lowering, opset) for call, lowering in lowered]

    def layers(self) -> dict[int, dict[str, Any]]:
        """Return what the manifest says of each layer that was called, by the layer's identity."""
        told: dict[int, dict[str, Any]] = {}
        for call, lowering in self.lowerings.items():
            layer = told.setdefault(call.owner, {"lowering": lowering})
            if lowering not in layer["lowering"].split(" and "):  # a layer that is called twice
                layer["lowering"] += f" and {lowering}"
            if call in self.choices:
                layer.setdefault("milliseconds", []).append(self.choices[call].milliseconds)
        return told
