"""A traced model with the lowering of each attention call."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

from .._errors import UnsupportedModelError
from .._golden_cases.golden_cases import Cases
from .._lowering_names import FOR_ANY, FOR_CPU, FOR_CUDA, PORTABLE, UNRECOGNISED, asked_by
from .._onnx.traced_model import Traced
from .._onnxruntime_releases import LOWEST_ONNXRUNTIME
from .._operators.text.hash_functions import hash_functions, opset_of_hashes
from .._operators.text.string_functions import has_loops_of_strings, opset_of_texts, text_functions
from .._options import FLOAT32, TRACED_OPSET
from .._passes.finalize import finish
from .._tracing.attention_calls import Call
from .._tracing.trace_attention import AttentionLayerInfo
from .lowering_choice import form_of, function_of, lowest_opset, opset_of

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lowered:
    """A traced model, each attention layer in a lowering.

    Attributes:
        traced: The model, at opset 18.
        lowerings: The lowering of each call, plain primitives among them.
        written_for: What the file is to run on, as `Provider` has it.
        layers: The attention layers of the model.
        written: Those of the calls that no layer made: attention that a package wrote by hand.
        only_large: Whether what decides by sizes, but `adaptive`, takes its form for large ones at all sizes.
        precision: That of the file.
        refusals: By call, the reason if the requested lowering has no form for the call.
    """

    traced: Traced
    lowerings: Mapping[Call, str]
    written_for: str = FOR_CPU
    layers: tuple[AttentionLayerInfo, ...] = ()
    written: tuple[Call, ...] = ()
    only_large: bool = False
    precision: str = FLOAT32
    refusals: Mapping[Call, str] = field(default_factory=dict)

    def outputs(self, golden: Cases) -> dict[str, tuple[str | int, ...]]:
        """Return the shape of every output, dynamic axes by name."""
        return {name: golden.output_axes(name, shape) for name, shape in self.traced.outputs.items()}

    def finished(self, golden: Cases, asked: int | None, most: int | None = None) -> tuple[Traced, int]:
        """Return the finished model and its opset: the requested one, or the best one to which the model converts.

        Args:
            golden: The golden cases.
            asked: The requested opset, if any.
            most: The highest opset that the target allows, if higher than `asked`.

        Raises:
            UnsupportedModelError: onnx does not convert an operator of the model to the opset, or the opset is too low
                for the texts of the model, or the file is for CUDA and joins texts.
        """
        if self.written_for == FOR_CUDA and has_loops_of_strings(self.traced.model):
            raise UnsupportedModelError(
                "Texts are put together by loops of strings, which onnxruntime 1.31 does not load with CUDA. Export "
                'with `provider="cpu"`, or export what takes the texts and what follows it as two models.'
            )
        *better, last = self._opsets(asked, most)
        for opset in better:
            try:
                return self._finished(golden, opset), opset
            except UnsupportedModelError as error:
                LOGGER.debug("opset %d is not possible, trying a lower one: %s", opset, error)
        return self._finished(golden, last), last

    def _opsets(self, asked: int | None, most: int | None) -> list[int]:
        """Return the opsets to try, best first.

        A requested opset is the only one. If none is requested, the first one is that of the best form of each call,
        and the last one is the lowest that has every operator of the file.
        """
        of_texts = max(opset_of_texts(self.traced.model), opset_of_hashes(self.traced.model))
        if asked is None:
            lowest = max([TRACED_OPSET, of_texts, *(lowest_opset(lowering) for lowering in self.lowerings.values())])
            best = max([lowest, *(opset_of(call, lowering) for call, lowering in self.lowerings.items())])
            return sorted({best, lowest}, reverse=True)
        if (most or asked) < of_texts:
            raise UnsupportedModelError(
                f"Texts are put together by operators of opset {of_texts}, which onnxruntime has from "
                f"{LOWEST_ONNXRUNTIME[of_texts]} on. Received: opset={asked}. Leave `opset` out, or name a later "
                "`target`."
            )
        return [max(asked, of_texts)]

    def _finished(self, golden: Cases, opset: int) -> Traced:
        all_plain = self.written_for == FOR_ANY
        plain = [call.op for call, lowering in self.lowerings.items() if all_plain or asked_by(lowering) == PORTABLE]
        return finish(self.traced, golden.axes, self.outputs(golden), opset, self.functions(opset), inlined=plain)

    def functions(self, opset: int) -> list[onnx.FunctionProto]:
        """Return how each call is written."""
        of_calls = [
            function_of(call, lowering, opset, self.written_for, only_large=self.only_large, precision=self.precision)
            for call, lowering in self.lowerings.items()
        ]
        return [*of_calls, *text_functions(self.traced.model, opset), *hash_functions(self.traced.model, opset)]

    def manifest_entries(self, opset: int) -> list[dict[str, str]]:
        """Return how each attention layer is written; hand-written attention outside of layers is last."""
        by_owner = self._entries_by_owner(opset)
        listed = [
            {
                "name": layer.path,
                "class": layer.class_name,
                "lowering": PORTABLE,
                "form": f"{UNRECOGNISED}{layer.reason}",
                "precision": self.precision,
                **by_owner.get(layer.owner, {}),
            }
            for layer in self.layers
        ]
        owners = {layer.owner for layer in self.layers}
        unowned = [
            {"name": call.layer, "class": "operations", **by_owner[call.owner], "precision": self.precision}
            for call in self.written
            if call.owner not in owners
        ]
        return [*listed, *unowned]

    def _entries_by_owner(self, opset: int) -> dict[int, dict[str, str]]:
        entries: dict[int, dict[str, str]] = {}
        for call, lowering in self.lowerings.items():
            name = asked_by(lowering)
            form = form_of(call, lowering, opset)
            if call in self.refusals:
                form += f", because {self.refusals[call]}"
            entry = entries.setdefault(call.owner, {"lowering": name, "form": form})
            if name not in entry["lowering"].split(" and "):  # a layer that is called twice
                entry["lowering"] += f" and {name}"
            if form not in entry["form"].split("; "):
                entry["form"] += f"; {form}"
        return entries
