"""A traced model, the lowering of each of its attention calls, and what was measured to choose it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .._errors import UnsupportedModelError
from .._model.golden_cases import Cases
from .._options import PORTABLE, TRACED_OPSET
from .._tracing.attention_calls import Call
from .._tracing.onnx_file import finish
from .._tracing.traced import Traced
from .bodies import form_of, function_of, lowest_opset, opset_of


@dataclass(frozen=True)
class Choice:
    """What was measured to choose the lowering of a call.

    Attributes:
        lowering: The one chosen.
        milliseconds: What the whole model took with each that gave the right numbers.
        unclear: Those of them of which it could not be told whether they are faster.
    """

    lowering: str
    milliseconds: dict[str, float] = field(default_factory=dict)
    unclear: Sequence[str] = ()


@dataclass(frozen=True)
class Lowered:
    """A traced model, each attention layer in a lowering.

    Attributes:
        traced: The model, at opset 18.
        lowerings: The lowering of each call, plain primitives among them.
        choices: What was measured for each call, where the fastest was to be found.
        provider: Where the file is to run.
    """

    traced: Traced
    lowerings: Mapping[Call, str]
    choices: Mapping[Call, Choice] = field(default_factory=dict)
    provider: str = "cpu"

    def with_lowering(self, calls: Iterable[Call], lowering: str, choice: Choice | None = None) -> Lowered:
        """Return the model with some calls in another lowering, and what was measured to choose it."""
        calls = list(calls)
        choices = self.choices if choice is None else {**self.choices, **dict.fromkeys(calls, choice)}
        return replace(self, lowerings={**self.lowerings, **dict.fromkeys(calls, lowering)}, choices=choices)

    def outputs(self, golden: Cases) -> dict[str, tuple[str | int, ...]]:
        """Return the shape of every output, dynamic axes by name."""
        return {name: golden.output_axes(name, shape) for name, shape in self.traced.outputs.items()}

    def finished(self, golden: Cases, asked: int | None) -> tuple[Traced, int]:
        """Return the model as it is written, and its opset: the one asked for, or one that the lowerings are best at.

        Raises:
            UnsupportedModelError: onnx has no conversion to that opset for an op of the model.
        """
        lowest = max([TRACED_OPSET, *(lowest_opset(lowering) for lowering in self.lowerings.values())])
        best = max([lowest, *(opset_of(call, lowering) for call, lowering in self.lowerings.items())])
        if asked is not None or best == lowest:
            return self._finished(golden, asked or lowest)
        try:
            return self._finished(golden, best)
        except UnsupportedModelError:
            return self._finished(golden, lowest)

    def _finished(self, golden: Cases, opset: int) -> tuple[Traced, int]:
        functions = [function_of(call, lowering, opset, self.provider) for call, lowering in self.lowerings.items()]
        plain = [call.op for call, lowering in self.lowerings.items() if lowering == PORTABLE]
        return finish(self.traced, golden.axes, self.outputs(golden), opset, functions, inlined=plain), opset

    def layers(self, opset: int) -> dict[int, dict[str, Any]]:
        """Return what the manifest says of each layer that was called, by the layer's identity."""
        told: dict[int, dict[str, Any]] = {}
        for call, lowering in self.lowerings.items():
            layer = told.setdefault(call.owner, {"lowering": lowering, "form": form_of(call, lowering, opset)})
            if lowering not in layer["lowering"].split(" and "):  # a layer that is called twice
                layer["lowering"] += f" and {lowering}"
            if call in self.choices:
                layer.setdefault("milliseconds", []).append(self.choices[call].milliseconds)
                layer.setdefault("unclear", []).append(list(self.choices[call].unclear))
        return told
