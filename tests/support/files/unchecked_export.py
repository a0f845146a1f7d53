"""The ONNX file of a model without golden cases: tracing and lowering alone, so that an export takes little time."""

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import keras

from keras_attn_export._format.interruptible_session import open_session, run_session
from keras_attn_export._lowering_names import ADAPTIVE
from keras_attn_export._lowerings.lower_model import _fold_model_shapes, _lower_calls, may_use_rotary_operator
from keras_attn_export._onnx.model_files import save_model
from keras_attn_export._onnx.traced_model import TracedModel
from keras_attn_export._options import Options
from keras_attn_export._signature.signature import build_signature
from keras_attn_export._thresholds import LARGE_THRESHOLDS, SizeThreshold
from keras_attn_export._tracing.attention_calls import TracedCall
from keras_attn_export._tracing.saved_model import trace_function
from keras_attn_export._tracing.trace_attention import has_attention, trace_attention


@dataclass
class UncheckedFile:
    """An ONNX file, its opset, the manifest entries of its attention layers, and the calls with a size threshold."""

    path: Path
    traced: TracedModel
    opset: int
    layers: list[dict[str, Any]]
    adaptive_calls: list[TracedCall]

    @property
    def lowerings(self):
        return {layer["name"].rpartition("/")[2]: layer["lowering"] for layer in self.layers}

    @property
    def functions(self):
        return [function.name for function in self.traced.model.functions]

    @cached_property
    def session(self):
        return open_session(self.path)

    def run(self, inputs):
        return run_session(self.session, inputs)


class UncheckedExport:
    """A traced model, and its lowered files."""

    def __init__(self, model, samples=None):
        self.model, self.signature = model, build_signature(model, samples)
        function = None if has_attention(self.signature) else trace_function(self.signature, nullcontext)
        self._traced = trace_attention(self.signature, function, needs_zeroed_padding=False)
        self.calls = self._traced.calls

    def write(self, folder, lowering=ADAPTIVE, opset=None, *, large=False):
        """Write the file in a lowering, with a distinct name for each dynamic axis, and check it with onnx.

        With `large` the size thresholds are 0: an adaptive file always runs its form for large sizes.
        """
        with patch.dict(LARGE_THRESHOLDS, dict.fromkeys(LARGE_THRESHOLDS, SizeThreshold(0, 1)) if large else {}):
            inputs = {spec.name: _name_axes(spec.name, spec.shape) for spec in self.signature.inputs}
            rotates = may_use_rotary_operator(lowering, "cpu", "float32")
            lowered = _lower_calls(self._traced, Options(lowering=lowering))
            lowered = _fold_model_shapes(lowered, inputs, rotates=rotates)
            finished, opset = lowered.finalize(SimpleNamespace(axes=inputs, name_output_axes=_name_axes), opset)
            layers = lowered.make_manifest_entries(opset)
        save_model(finished, path := folder / f"{lowering}.onnx")
        adaptive_calls = [call for call, name in lowered.lowerings.items() if name == ADAPTIVE]
        return UncheckedFile(path, finished, opset, layers, adaptive_calls)

    def compute_expected(self, inputs):
        return {name: keras.ops.convert_to_numpy(array) for name, array in self.signature.call(inputs).items()}


def _name_axes(name, shape):
    return tuple(f"{name}_{axis}" if size is None else size for axis, size in enumerate(shape))
