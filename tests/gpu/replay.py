"""Replay a bundle's golden cases, and count where its attention ran."""

import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .index import Entry, Row
from .sessions import first_line, freed, opened
from .standalone import verify


def replayed(folder: Path, entry: Entry, provider: str) -> list[Row]:
    """A row for a bundle: what its golden cases gave, and where the nodes of attention were computed."""
    bundle = folder / entry["name"]
    row: Row = {"bundle": entry["name"], "layer": entry["layer"], "form": entry["form"], "problem": None}
    row["precision"] = entry["precision"]
    try:
        manifest = verify.read_manifest(bundle)
        compared, misplaced = _compared(bundle, manifest, provider)
        wrong = [each for each in compared if not each["passed"]]
        row |= {
            "outputs": len(compared),
            "failed": len(wrong),
            "of_limit": max((each["of_limit"] for each in compared), default=0.0),
        }
        nodes, elsewhere = placed(bundle, provider)
        row["nodes"] = nodes
        told = [f"`{each['name']}` {each['problem']} in case `{each['case']}`" for each in wrong[:1]]
        row["problem"] = "; ".join([*told, *filter(None, [misplaced or elsewhere])]) or None
    except Exception as error:  # noqa: BLE001 - whatever fails is a row, and the others go on
        row["problem"] = first_line(error)
    freed()
    return [{**row, "passed": row["problem"] is None}]


def _compared(bundle: Path, manifest: Mapping[str, Any], provider: str) -> tuple[list[Row], str | None]:
    """The rows of `verify.replay`, and what it says of where nodes ran.

    Where that is wrong it raises before it compares; the rows come all the same.
    """
    try:
        return verify.replay(bundle, manifest, provider), None
    except verify.ProviderError as error:
        session = opened(bundle, provider)  # raises the same error where the provider itself is what is wanting
        misplaced = str(error)
    tolerance, cases = verify.tolerance_of(bundle, manifest), verify.load_cases(bundle / verify.CASES)
    rows: list[Row] = []
    for case in cases:
        actual = verify.run_session(session, case.inputs)
        rows += verify.compare(case, actual, tolerance, verify.LENIENCE[provider])
    return rows, misplaced


def placed(bundle: Path, provider: str) -> tuple[dict[str, int], str | None]:
    """How many nodes of attention each provider computed in a run of the last golden case, and what is wrong."""
    case = verify.load_cases(bundle / verify.CASES)[-1]
    with tempfile.TemporaryDirectory() as scratch:
        session = verify.open_session(bundle / verify.MODEL, provider, profile_prefix=str(Path(scratch) / "profile"))
        verify.run_session(session, case.inputs)
        profile = Path(session.end_profiling())
        events = json.loads(profile.read_text(encoding="utf-8"))
        counts = dict(Counter(node.provider for node in verify.attention_nodes(events)))
        try:
            verify.check_placement(profile, provider)
        except verify.ProviderError as error:
            return counts, str(error)
    return counts, None if counts else "The profile names no node of an attention layer."
