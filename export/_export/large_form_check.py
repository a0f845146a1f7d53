"""Check of the large-size form of attention against the portable lowering."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from .._format.interruptible_session import run_cases
from .._format.names import MODEL
from .._format.parity_report import NO_MORE, ParityError, ParityReport, compared
from .._lowerings.lowered_model import Lowered
from .._onnx.model_files import write
from .._options import FLOAT32, Options
from .._precision.float16_overflow import to_measured_float16
from .._rounding.reference import Reference


def check_large_forms(folder: Path, lowered: Lowered, reference: Reference, options: Options, opset: int) -> None:
    """Compare what a file gives where it takes the forms for large sizes at all sizes; it is not kept.

    Golden cases are too small for them: on a GPU they are long enough for the kernels that they get at sizes of their
    own, and on a CPU a case of all pairs at once would cost what the form is there to save.

    Raises:
        ParityError: An output differs.
    """
    by_operators = replace(lowered, precision="float16")  # for few queries too, which in float32 are plain
    forms = [lowered.functions(opset)]
    for form in (replace(lowered, only_large=True), by_operators):
        if form.functions(opset) not in forms:  # sizes decide
            forms.append(form.functions(opset))
            _check_form(folder, form, reference, options, opset)


def _check_form(folder: Path, form: Lowered, reference: Reference, options: Options, opset: int) -> None:
    large, _ = form.finished(reference.golden, opset)
    cases, limits, scratch = reference.golden.cases, options.tolerance, folder.with_name("large")
    scratch.mkdir()
    if options.precision == "float16":
        cases = reference.converted_cases
        large = to_measured_float16(large, cases, options.provider, scratch)[0]
    elif options.precision != FLOAT32:
        limits = NO_MORE  # what is in a function stays float32
    cases = [case for case in cases if case.name not in reference.golden.trials]
    write(large, scratch / MODEL)
    rows = compared(cases, run_cases(scratch / MODEL, cases, options.provider), limits, options.provider)
    shutil.rmtree(scratch)  # the weights, once more
    try:
        ParityReport(options.provider, rows).raise_if_failed()
    except ParityError as error:
        raise ParityError(f"In the forms of attention for large sizes: {error}", error.report) from None
