"""A traced model with the lowering of each attention call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import onnx

from .._errors import UnsupportedModelError
from .._golden_cases.golden_cases import Cases
from .._lowering_names import FOR_ANY, FOR_CPU, FOR_CUDA, PORTABLE, asked_by
from .._onnx.traced_model import Traced
from .._onnxruntime_releases import LOWEST_ONNXRUNTIME
from .._operators.text.hash_functions import hash_functions, opset_of_hashes
from .._operators.text.string_functions import has_loops_of_strings, opset_of_texts, text_functions
from .._options import FLOAT32, TRACED_OPSET
from .._passes.finalize import finish
from .._tracing.attention_calls import Call
from .lowering_choice import form_of, function_of, lowest_opset, opset_of


@dataclass(frozen=True)
class Lowered:
    """A traced model, each attention layer in a lowering.

    Attributes:
        traced: The model, at opset 18.
        lowerings: The lowering of each call, plain primitives among them.
        written_for: What the file is to run on, as `Provider` has it.
        written: Those of the calls that no layer made: attention that a package wrote by hand.
        only_large: Whether what decides by sizes, but `adaptive`, takes its form for large ones at all sizes.
        precision: That of the file.
        reasons: By the identity of a layer, the reason if a call of the layer was traced as it is.
        refusals: By call, the reason if the requested lowering has no form for the call.
    """

    traced: Traced
    lowerings: Mapping[Call, str]
    written_for: str = FOR_CPU
    written: tuple[Call, ...] = ()
    only_large: bool = False
    precision: str = FLOAT32
    reasons: Mapping[int, str] = field(default_factory=dict)
    refusals: Mapping[Call, str] = field(default_factory=dict)

    def outputs(self, golden: Cases) -> dict[str, tuple[str | int, ...]]:
        """Return the shape of every output, dynamic axes by name."""
        return {name: golden.output_axes(name, shape) for name, shape in self.traced.outputs.items()}

    def finished(self, golden: Cases, asked: int | None, most: int | None = None) -> tuple[Traced, int]:
        """Return the model as it is written, and its opset: the one asked for, or one that the lowerings are best at.

        Args:
            golden: The golden cases.
            asked: The opset that is asked for.
            most: The highest that will do, where that is another.

        Raises:
            UnsupportedModelError: onnx has no conversion to that opset for an op of the model, or it is too low; or
                the model puts texts together, and the file is for CUDA.
        """
        if self.written_for == FOR_CUDA and has_loops_of_strings(self.traced.model):
            raise UnsupportedModelError(
                "Texts are put together by loops of strings, which onnxruntime 1.31 does not load with CUDA. Export "
                'with `provider="cpu"`, or export what takes the texts and what follows it as two models.'
            )
        of_texts = max(opset_of_texts(self.traced.model), opset_of_hashes(self.traced.model))
        if asked is not None and asked < of_texts:
            if (most or asked) < of_texts:
                raise UnsupportedModelError(
                    f"Texts are put together by operators of opset {of_texts}, which onnxruntime has from "
                    f"{LOWEST_ONNXRUNTIME[of_texts]} on. Received: opset={asked}. Leave `opset` out, or name a later "
                    "`target`."
                )
            asked = of_texts
        lowest = max([TRACED_OPSET, of_texts, *(lowest_opset(lowering) for lowering in self.lowerings.values())])
        best = max([lowest, *(opset_of(call, lowering) for call, lowering in self.lowerings.items())])
        if asked is not None or best == lowest:
            return self._finished(golden, asked or lowest)
        try:
            return self._finished(golden, best)
        except UnsupportedModelError:
            return self._finished(golden, lowest)

    def _finished(self, golden: Cases, opset: int) -> tuple[Traced, int]:
        all_plain = self.written_for == FOR_ANY
        plain = [call.op for call, each in self.lowerings.items() if all_plain or asked_by(each) == PORTABLE]
        outputs = self.outputs(golden)
        return finish(self.traced, golden.axes, outputs, opset, self.functions(opset), inlined=plain), opset

    def functions(self, opset: int) -> list[onnx.FunctionProto]:
        """Return how each call is written."""
        of_calls = [
            function_of(call, lowering, opset, self.written_for, only_large=self.only_large, precision=self.precision)
            for call, lowering in self.lowerings.items()
        ]
        return [*of_calls, *text_functions(self.traced.model, opset), *hash_functions(self.traced.model, opset)]

    def layers(self, opset: int) -> dict[int, dict[str, Any]]:
        """Return the manifest's entries about the lowering of each layer, by the owner of its calls."""
        layers: dict[int, dict[str, Any]] = {}
        for call, lowering in self.lowerings.items():
            name = asked_by(lowering)
            form = form_of(call, lowering, opset)
            if call in self.refusals:
                form += f", because {self.refusals[call]}"
            layer = layers.setdefault(call.owner, {"lowering": name, "form": form})
            if name not in layer["lowering"].split(" and "):  # a layer that is called twice
                layer["lowering"] += f" and {name}"
        return layers
