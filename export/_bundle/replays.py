"""Replay what a bundle brings along: its golden cases in onnxruntime, against what Keras gave."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

from .._standalone import verify
from .bundle import Bundle, load_bundle
from .parity import ParityReport, ParityRow, compared, rows_of


def replayed(path: str | Path, provider: str = "cpu") -> tuple[Bundle, ParityReport]:
    """Replay the golden cases of a bundle in onnxruntime, and compare them with the outputs Keras gave.

    Of a decoder in steps those of the encoder, of the step, and of whole answers are replayed.

    Returns:
        The bundle, and the comparison, whatever came of it.

    Raises:
        BundleError: As for `load_bundle`.
        ProviderError: The provider is absent, or is not the one that ran.
    """
    bundle = load_bundle(path)
    exported = bundle.report  # read first: the replay ends by finding out whether another bundle was put there since
    rows = _of_steps(bundle, provider) if bundle.parts else _of_one_file(bundle, provider)
    return bundle, ParityReport(provider, rows, refused=exported.refused, coverage=exported.coverage)


def _of_one_file(bundle: Bundle, provider: str, prefix: str = "") -> tuple[ParityRow, ...]:
    rows = verify.replay(bundle.path, bundle.manifest, provider)
    return rows_of({**row, "case": prefix + row["case"]} for row in rows)


def _of_steps(bundle: Bundle, provider: str) -> tuple[ParityRow, ...]:
    of_parts = [_of_one_file(part, provider, f"{name}: ") for name, part in bundle.parts.items()]
    return (*chain(*of_parts), *of_answers(bundle, provider))


def of_answers(bundle: Bundle, provider: str) -> tuple[ParityRow, ...]:
    """Return how the whole answers of a decoder in steps compare with Keras's."""
    cases = verify.load_cases(bundle.path / verify.CASES)
    answers = [bundle.generate(case.inputs, provider=provider) for case in cases]
    verify.check_hashes(bundle.path, bundle.manifest["sha256"], [verify.CASES])  # after they were read
    return compared(cases, answers, verify.tolerance_of(bundle.path, bundle.manifest), provider)
