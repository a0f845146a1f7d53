"""Check of the large form of attention against the golden cases.

Golden cases are too small for the large form: on a GPU, their sizes select the small form, and on a CPU, a case that
computes all scores unblocked would need the memory that the large form saves. So a temporary file uses the large form
at all sizes. On a GPU, a second file uses operators also for few queries, which float32 files compute in plain
operators.
"""

import shutil
from dataclasses import replace

from .._format.interruptible_session import run_cases
from .._format.names import MODEL
from .._format.parity_report import ZERO_TOLERANCE, ParityError, ParityReport, compare_cases
from .._onnx.model_files import save_model
from .._onnx.traced_model import TracedModel
from .._options import FLOAT16, FLOAT32
from .._precision.float16_overflow import convert_without_overflow
from .._rounding.reference import Reference
from .export_run import ExportRun
from .float32_file import Float32File


def check_large_forms(run: ExportRun, reference: Reference, file: Float32File) -> None:
    """Compare temporary files with the large form at all sizes with Keras, and raise `ParityError` if one differs."""
    operator_form = replace(file.lowered, precision="float16")  # operators also for few queries
    checked_functions = [file.lowered.build_functions(file.opset)]
    for lowered in (replace(file.lowered, force_large_form=True), operator_form):
        functions = lowered.build_functions(file.opset)
        if functions not in checked_functions:
            checked_functions.append(functions)
            _check_form(run, reference, lowered.finalize(reference.golden_cases, file.opset)[0])


def _check_form(run: ExportRun, reference: Reference, model: TracedModel) -> None:
    options, scratch = run.options, run.temporary_path("large")
    scratch.mkdir()
    is_float16 = options.precision == FLOAT16
    golden_cases = reference.converted_cases if is_float16 else reference.golden_cases.cases
    if is_float16:
        save_model(convert_without_overflow(model, golden_cases, options.provider, scratch)[0], scratch / MODEL)
    else:
        save_model(model, scratch / MODEL)
    # Attention functions stay float32 in an int8 file, so that the tolerance for int8 does not apply.
    tolerance = options.tolerance if is_float16 or options.precision == FLOAT32 else ZERO_TOLERANCE
    cases = [case for case in golden_cases if case.name not in reference.golden_cases.injections_by_case]
    rows = compare_cases(cases, run_cases(scratch / MODEL, cases, options.provider), tolerance, options.provider)
    shutil.rmtree(scratch)  # a second copy of the weights
    try:
        ParityReport(options.provider, rows).raise_if_failed()
    except ParityError as error:
        raise ParityError(f"In the forms of attention for large sizes: {error}", error.report) from None
