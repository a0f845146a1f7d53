"""Write the float32 ONNX file: the first lowering of the model whose outputs match Keras."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from .._errors import ExportError, ProviderError
from .._format.interruptible_session import run_cases
from .._format.names import MODEL, Arrays
from .._format.parity_report import ZERO_TOLERANCE, compare_cases
from .._golden_cases.golden_cases import GoldenCases
from .._lowerings.lower_model import iter_lowered_models
from .._lowerings.lowered_model import LoweredModel
from .._onnx.metadata import write_producer
from .._onnx.model_files import save_model
from .._onnx.traced_model import TracedModel
from .._onnxruntime_releases import check_onnxruntime
from .._options import FLOAT32, Options
from .._tracing.trace_attention import TracedAttention
from .export_run import ExportRun
from .package_versions import PACKAGES, read_versions

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Float32File:
    """A float32 ONNX file and its outputs."""

    lowered: LoweredModel  # the traced model, with the lowering of each attention call
    model: TracedModel  # the model in the file
    opset: int
    outputs: list[Arrays]  # of onnxruntime, for each golden case


def select_float32_tolerance(options: Options) -> Mapping[str, float]:
    """Return the tolerance of the float32 file: zero if a conversion follows, which gets the user's tolerance."""
    return options.tolerance if options.precision == FLOAT32 else ZERO_TOLERANCE


def write_float32_file(run: ExportRun, traced: TracedAttention, golden: GoldenCases) -> Float32File:
    """Write the model with attention patterns replaced by operators, or unchanged patterns if the outputs differ.

    Raises:
        UnsupportedModelError: If onnx cannot convert an operator to the opset of the export.
        ProviderError: If the provider is missing, or did not compute all of attention.
        ExportError: If onnxruntime cannot load or run the file.
    """
    for lowered in iter_lowered_models(traced, run.options, golden.axes):
        is_last = not lowered.pattern_calls
        try:
            file = _write(run, traced.name, lowered, golden)
        except ProviderError:
            raise
        except ExportError as error:
            if is_last:
                raise
            LOGGER.debug("attention patterns stay unchanged: %s", error)
            continue
        rows = compare_cases(golden.cases, file.outputs, select_float32_tolerance(run.options), run.options.provider)
        failed_row = next((row for row in rows if not row.passed), None)
        if is_last or failed_row is None:
            break
        LOGGER.debug("attention patterns stay unchanged: output `%s` %s", failed_row.name, failed_row.problem)
    return file


def _write(run: ExportRun, name: str, lowered: LoweredModel, golden: GoldenCases) -> Float32File:
    model, opset = lowered.finalize(golden, run.options.opset, run.options.max_opset)
    check_onnxruntime(opset, lowered.lowerings.values())
    write_producer(model.model, name, FLOAT32, read_versions(PACKAGES)["keras-attn"])
    save_model(model, run.folder / MODEL)
    run.on_step("Running onnxruntime on the golden cases")
    return Float32File(lowered, model, opset, run_cases(run.folder / MODEL, golden.cases, run.options.provider))
