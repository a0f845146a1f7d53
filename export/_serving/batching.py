"""Whether a server may merge requests: only where each example of a batch gets the answer it gets alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._errors import ExportError
from .._loaded_bundle import Bundle
from .._standalone import verify
from .._standalone.verify import Arrays, Case, Manifest


def why_not_merged(bundle: Bundle) -> str | None:
    """Return why requests must not be merged along the first axis; `None` where they may.

    Nothing in a manifest says that examples do not see each other, as they do where a model subtracts the mean of a
    batch. So the golden cases are run once more, example by example, and must give what Keras gave for all at once.
    """
    manifest = bundle.entries
    axis = batch_axis(manifest)
    if axis is None:
        return "the first axis of all inputs and outputs is not one dynamic axis"
    if (step := manifest.multiples.get(axis, 1)) != 1:
        return f"`{axis}` must be a multiple of {step}"
    cases = [case for case in verify.golden_cases(bundle.path, manifest) if _examples(case) > 1]
    if not cases:
        return "no golden case has more than one example"
    session, tolerance = bundle.session(), manifest.parity["tolerance"]
    for case in cases:
        try:
            rows = verify.compare(case, _one_by_one(session, case), tolerance)
        except ExportError:
            return f"one example of case `{case.name}` cannot be run alone"
        if failed := [row["name"] for row in rows if not row["passed"]]:
            return f"`{failed[0]}` in case `{case.name}` is another when its examples are run one by one"
    return None


def batch_axis(manifest: Manifest) -> str | None:
    """Return the dynamic axis that all inputs and outputs begin with, if there is one."""
    first = {spec.shape[0] if spec.shape else None for spec in manifest.specs}
    axis = first.pop()
    return axis if isinstance(axis, str) and not first else None


def _examples(case: Case) -> int:
    return len(next(iter(case.inputs.values())))


def _one_by_one(session: Any, case: Case) -> Arrays:
    """Return the outputs of a case, of which each example has been run by itself."""
    alone = [
        verify.run_session(session, {name: array[index : index + 1] for name, array in case.inputs.items()})
        for index in range(_examples(case))
    ]
    try:
        return {name: np.concatenate([outputs[name] for outputs in alone]) for name in alone[0]}
    except ValueError as error:  # the sizes of an output hang on what else is in the batch
        raise ExportError(f"Outputs of single examples do not fit together: {error}.") from error
