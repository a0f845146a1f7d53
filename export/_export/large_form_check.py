"""Check of the large-size form of attention against the portable lowering."""

import shutil
from dataclasses import replace

from .._format.interruptible_session import run_cases
from .._format.names import MODEL
from .._format.parity_report import NO_MORE, ParityError, ParityReport, compared
from .._onnx.model_files import write
from .._onnx.traced_model import Traced
from .._options import FLOAT16, FLOAT32
from .._precision.float16_overflow import convert_without_overflow
from .._rounding.reference import Reference
from .export_run import ExportRun
from .float32_file import Float32File


def check_large_forms(run: ExportRun, reference: Reference, file: Float32File) -> None:
    """Compare the outputs of a file that takes the forms for large sizes at all sizes; the bundle does not keep it.

    Golden cases are too small for these forms: on a GPU, their sizes select kernels for small sizes, and on a CPU, a
    case of all pairs at once would cost what the form is there to save.

    Raises:
        ParityError: An output differs.
    """
    operator_form = replace(file.lowered, precision="float16")  # also for few queries, which are plain in float32
    checked_functions = [file.lowered.functions(file.opset)]
    for lowered in (replace(file.lowered, only_large=True), operator_form):
        functions = lowered.functions(file.opset)
        if functions not in checked_functions:  # sizes decide
            checked_functions.append(functions)
            _check_form(run, reference, lowered.finished(reference.golden, file.opset)[0])


def _check_form(run: ExportRun, reference: Reference, model: Traced) -> None:
    options, scratch = run.options, run.temporary_path("large")
    scratch.mkdir()
    is_float16 = options.precision == FLOAT16
    golden_cases = reference.converted_cases if is_float16 else reference.golden.cases
    if is_float16:
        write(convert_without_overflow(model, golden_cases, options.provider, scratch)[0], scratch / MODEL)
    else:
        write(model, scratch / MODEL)
    # In an int8 file, functions stay float32.
    tolerance = options.tolerance if is_float16 or options.precision == FLOAT32 else NO_MORE
    cases = [case for case in golden_cases if case.name not in reference.golden.trials]
    rows = compared(cases, run_cases(scratch / MODEL, cases, options.provider), tolerance, options.provider)
    shutil.rmtree(scratch)  # the weights, once more
    try:
        ParityReport(options.provider, rows).raise_if_failed()
    except ParityError as error:
        raise ParityError(f"In the forms of attention for large sizes: {error}", error.report) from None
