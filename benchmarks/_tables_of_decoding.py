"""The tables of decoding."""

from typing import Any

from _cells import number, table, times

Result = dict[str, Any]


def decoding(result: Result) -> list[str]:
    """A table of whole answers, and one of a step by the number of tokens so far."""
    return [_answers(result["answers"]), _steps(result["cases"])]


def _answers(cases: list[dict[str, Any]]) -> str:
    labels = [row["contestant"] for row in cases[0]["rows"]]
    heads = ["ms (p10 to p90)", *labels, f"{labels[1]}, over {labels[0]}", "the same without the encoder"]
    return table(heads, (_answer(case) for case in cases))


def _answer(case: dict[str, Any]) -> list[str]:
    rows = {row["contestant"]: row for row in case["rows"]}
    one, loop, encoder = (row["ms"]["median"] for row in rows.values())
    whole = 1 / rows["a loop in Python"]["faster"]["median"]
    without = number((loop - encoder) / (one - encoder)) + "x" if one > encoder else ""
    return [case["size"], *(times(row["ms"]) for row in rows.values()), f"{number(whole)}x", without]


def _steps(cases: list[dict[str, Any]]) -> str:
    labels = [row["contestant"] for row in cases[0]["rows"]]
    heads = ["tokens so far", *(f"{label}: ms a step (p10 to p90)" for label in labels), "the cache is faster"]
    return table(heads, (_step(case) for case in cases))


def _step(case: dict[str, Any]) -> list[str]:
    *_, full = case["rows"]
    faster = f"{number(1 / full['faster']['median'])}x"
    return [f"{case['length']:,}", *(times(row["ms"]) for row in case["rows"]), faster]
