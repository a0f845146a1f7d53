"""Traced model with the lowering of each attention call."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

from .._errors import UnsupportedModelError
from .._golden_cases.golden_cases import GoldenCases
from .._lowering_names import FOR_ANY, FOR_CPU, FOR_CUDA, PORTABLE, UNRECOGNISED, requested_lowering
from .._onnx.traced_model import TracedModel
from .._onnxruntime_releases import LOWEST_ONNXRUNTIME
from .._operators.text.hash_functions import build_hash_functions, find_hash_opset
from .._operators.text.string_functions import build_string_functions, find_string_opset, has_string_loops
from .._options import FLOAT32, TF2ONNX_OPSET
from .._passes.finalize import finalize
from .._tracing.attention_calls import TracedCall
from .._tracing.trace_attention import AttentionLayerInfo
from .lowering_choice import build_lowered_function, describe_form, get_min_opset, get_preferred_opset

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoweredModel:
    """Traced model with the lowering of each attention call.

    Attributes:
        traced: The model, at opset 18.
        lowerings: Lowering of each call.
        attention_target: Device that attention is written for: `FOR_CPU`, `FOR_CUDA` or `FOR_ANY`.
        pattern_calls: Calls that replace attention patterns.
        force_large_form: Whether the large form is used at all sizes if a lowering, except `adaptive`, chooses by size.
        unsupported_reasons: Reason by call if the requested lowering does not support the call.
    """

    traced: TracedModel
    lowerings: Mapping[TracedCall, str]
    attention_target: str = FOR_CPU
    layers: tuple[AttentionLayerInfo, ...] = ()
    pattern_calls: tuple[TracedCall, ...] = ()
    force_large_form: bool = False
    precision: str = FLOAT32
    unsupported_reasons: Mapping[TracedCall, str] = field(default_factory=dict)

    def name_output_axes(self, golden: GoldenCases) -> dict[str, tuple[str | int, ...]]:
        """Return the symbolic shape of each output: dynamic axes by name."""
        return {name: golden.name_output_axes(name, shape) for name, shape in self.traced.outputs.items()}

    def finalize(self, golden: GoldenCases, opset: int | None, max_opset: int | None = None) -> tuple[TracedModel, int]:
        """Return the finished model and its opset: the requested one, or the best one to which the model converts.

        `max_opset` is the highest opset that the target allows, if higher than `opset`.

        Raises:
            UnsupportedModelError: If onnx cannot convert an operator to the opset, if string operators of the model
                need a higher opset, or if the file is for CUDA and joins strings.
        """
        if self.attention_target == FOR_CUDA and has_string_loops(self.traced.model):
            raise UnsupportedModelError(
                "This model joins strings in a loop, which onnxruntime 1.31 cannot load with CUDA. Export with "
                '`provider="cpu"`, or export the text processing and the rest as two models.'
            )
        *better_opsets, lowest_opset = self._list_opsets(opset, max_opset)
        for better_opset in better_opsets:
            try:
                return self._finish(golden, better_opset), better_opset
            except UnsupportedModelError as error:
                LOGGER.debug("opset %d is not possible, trying a lower one: %s", better_opset, error)
        return self._finish(golden, lowest_opset), lowest_opset

    def _list_opsets(self, opset: int | None, max_opset: int | None) -> list[int]:
        """Return the opsets to try, best first.

        If no opset is requested, the first one is that of the best form of each call, and the last one the lowest that
        has every operator of the file.
        """
        string_opset = max(find_string_opset(self.traced.model), find_hash_opset(self.traced.model))
        if opset is None:
            lowest = max([TF2ONNX_OPSET, string_opset, *(get_min_opset(name) for name in self.lowerings.values())])
            best = max([lowest, *(get_preferred_opset(call, lowering) for call, lowering in self.lowerings.items())])
            return sorted({best, lowest}, reverse=True)
        if (max_opset or opset) < string_opset:
            raise UnsupportedModelError(
                f"String operators of this model need opset {string_opset} (onnxruntime "
                f"{LOWEST_ONNXRUNTIME[string_opset]} or newer). Received: opset={opset}. Leave out `opset`, or pass a "
                "newer `target`."
            )
        return [max(opset, string_opset)]

    def _finish(self, golden: GoldenCases, opset: int) -> TracedModel:
        is_plain = self.attention_target == FOR_ANY
        inlined = [
            call.op_type for call, name in self.lowerings.items() if is_plain or requested_lowering(name) == PORTABLE
        ]
        return finalize(
            self.traced, golden.axes, self.name_output_axes(golden), opset, self.build_functions(opset), inlined=inlined
        )

    def build_functions(self, opset: int) -> list[onnx.FunctionProto]:
        """Return the ONNX functions of the file: one for each attention call, and for string operators."""
        target = self.attention_target
        call_functions = [
            build_lowered_function(
                call, name, opset, target, force_large_form=self.force_large_form, precision=self.precision
            )
            for call, name in self.lowerings.items()
        ]
        return [
            *call_functions,
            *build_string_functions(self.traced.model, opset),
            *build_hash_functions(self.traced.model, opset),
        ]

    def make_manifest_entries(self, opset: int) -> list[dict[str, str]]:
        """Return the manifest entry of each attention layer; attention patterns outside of layers are last."""
        by_owner = self._describe_owners(opset)
        layer_entries = [
            {
                "name": layer.path,
                "class": layer.class_name,
                "lowering": PORTABLE,
                "form": f"{UNRECOGNISED}{layer.reason}",
                "precision": self.precision,
                **by_owner.get(layer.layer_id, {}),
            }
            for layer in self.layers
        ]
        owners = {layer.layer_id for layer in self.layers}
        pattern_entries = [
            {"name": call.layer, "class": "operations", **by_owner[call.layer_id], "precision": self.precision}
            for call in self.pattern_calls
            if call.layer_id not in owners
        ]
        return [*layer_entries, *pattern_entries]

    def _describe_owners(self, opset: int) -> dict[int, dict[str, str]]:
        """Return the lowering and the form by the identity of a layer; a layer may have several calls."""
        entries: dict[int, dict[str, str]] = {}
        for call, lowering in self.lowerings.items():
            name = requested_lowering(lowering)
            form = describe_form(call, lowering, opset)
            if call in self.unsupported_reasons:
                form += f", because {self.unsupported_reasons[call]}"
            entry = entries.setdefault(call.layer_id, {"lowering": name, "form": form})
            if name not in entry["lowering"].split(" and "):
                entry["lowering"] += f" and {name}"
            if form not in entry["form"].split("; "):
                entry["form"] += f"; {form}"
        return entries
