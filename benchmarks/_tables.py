"""Results as Markdown tables."""

from typing import Any

import _tables_of_decoding
import _tables_of_rows
import _tables_of_sizes
from _cells import number, speed, table, times

Result = dict[str, Any]


def markdown(result: Result) -> str:
    """Return a result's machine, tables and bars."""
    known = {
        "against_keras": _tables_of_sizes.against_keras,
        "batch": _tables_of_rows.batch,
        "decoding": _tables_of_decoding.decoding,
        "cost_against_keys": _cost_against_keys,
        "export_cost": _export_cost,
        "serving": _serving,
        "thresholds": _tables_of_sizes.thresholds,
        "training_defaults": _training_defaults,
    }
    tables = known.get(result["name"], _by_size)
    parts = [*tables(result), *_bars(result["bars"]), *_missing(result), _machine(result["environment"])]
    return "\n\n".join(parts)


def _machine(environment: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    gpu = f", {environment['gpu']}" if environment["gpu"] else ""
    machine = f"{environment['processor']}{gpu}, {environment['cores']} cores ({environment['system']})"
    how = f"{environment['threads']} threads, load {environment['load']} before"
    return f"Measured {environment['date']}: {machine}, {how}; {versions}."


def _by_size(result: Result) -> list[str]:
    """One table for each size; in it a group of columns for each way to fill it."""
    sizes = dict.fromkeys(case["size"] for case in result["cases"])
    return [_size_table([case for case in result["cases"] if case["size"] == size]) for size in sizes]


def _size_table(cases: list[dict[str, Any]]) -> str:
    additive = cases[0]["shape"]["layer"] == "additive"
    names = ["ms (p10 to p90)", *(["ns an element"] if additive else []), "speed", "extra MiB"]
    heads = [f"{cases[0]['size']}", *(f"{case['fill']}: {names[0]}" for case in cases[:1]), *names[1:]]
    for case in cases[1:]:
        heads += [f"{case['fill']}: {names[0]}", *names[1:]]
    labels = dict.fromkeys(row["contestant"] for case in cases for row in case["rows"] if "ms" in row)
    return table(heads, ([label, *(c for case in cases for c in _cells(case, label, additive))] for label in labels))


def _cells(case: dict[str, Any], label: str, additive: bool) -> list[str]:
    row = next((row for row in case["rows"] if row["contestant"] == label and "ms" in row), None)
    if row is None:
        return [""] * (4 if additive else 3)
    element = [number(row["ms"]["median"] * 1e6 / case["elements"])] if additive else []
    note = f" ({row['note']})" if row["note"] else ""
    return [times(row["ms"]) + note, *element, speed(row), f"{row['memory']:.0f}"]


def _serving(result: Result) -> list[str]:
    heads = ["what", "ms (p10 to p90)", "instead: ms (p10 to p90)", "speed"]
    rows = ([row["advice"], times(row["ms"]), times(row["instead"]), speed(row)] for row in result["rows"])
    return [table(heads, rows)]


def _cost_against_keys(result: Result) -> list[str]:
    heads = ["", "ns a key", "R²", "cost of a key, most over fewest keys", "extra MiB, fewest keys", "most keys"]
    fits = [
        [
            f"{f['layer']}: {f['contestant']}",
            number(f["ns_per_key"]),
            f"{f['r2']:.4f}",
            f"{f['growth']:.2f}",
            *memory(f),
        ]
        for f in result["fits"]
    ]
    keys = list(dict.fromkeys(case["shape"]["Tk"] for case in result["cases"]))
    found: dict[str, list[str]] = {}
    for case in result["cases"]:
        for row in case["rows"]:
            if "ms" in row:
                found.setdefault(f"{case['layer']}: {row['contestant']}", []).append(number(row["ms"]["median"]))
    timed = table(["ms for so many keys", *(str(count) for count in keys)], ([name, *ms] for name, ms in found.items()))
    return [timed, table(heads, fits)]


def _training_defaults(result: Result) -> list[str]:
    """One row for each size, and a group of columns for each backend."""
    forms = list(dict.fromkeys(case["form"] for case in result["cases"]))
    found = {(case["form"], case["size"]): case["rows"] for case in result["cases"]}
    heads = ["size", *(f"{form}: {name}" for form in forms for name in ("plain, ms", "default, ms", "over the plain"))]
    rows = [
        [size, *(cell for form in forms for cell in _beside_plain(*found[form, size]))]
        for size in dict.fromkeys(case["size"] for case in result["cases"])
    ]
    return [table(heads, rows)]


def _beside_plain(plain: dict[str, Any], default: dict[str, Any]) -> list[str]:
    if "ms" not in default:
        return [""] * 3
    ratio = number(1 / default["faster"]["median"])
    return [number(plain["ms"]["median"]), number(default["ms"]["median"]), ratio]


def _export_cost(result: Result) -> list[str]:
    heads = ["model", "MB of weights", "exported by", "seconds", "GB at most", "of these before", "of another process"]
    rows = [
        [
            case["model"],
            number(case["weights"] / 1e6),
            row["contestant"],
            *(
                [row["failed"], "", "", ""]
                if "failed" in row
                else [
                    number(row["seconds"]),
                    *(number(row[each] / 1e9) for each in ("memory", "before", "started")),
                ]
            ),
        ]
        for case in result["cases"]
        for row in case["rows"]
    ]
    return [table(heads, rows)]


def memory(fit: dict[str, Any]) -> list[str]:
    """Return the cells of the memory at the fewest and at the most keys."""
    return [f"{value:.0f}" for value in fit["memory"]]


def _bars(bars: list[dict[str, Any]]) -> list[str]:
    if not bars:
        return []
    said = {True: "yes", False: "**no**", None: "not measured"}
    rows = [
        [
            bar["bar"],
            f"{'at least' if bar['at_least'] else 'at most'} {number(bar['limit'])}",
            "" if bar["value"] is None else number(bar["value"]),
            said[bar["reached"]],
        ]
        for bar in bars
    ]
    return [table(["aim", "asked", "measured", "reached"], rows)]


def _missing(result: Result) -> list[str]:
    """Return a line for each contestant that could not take part, and why."""
    rows = [row for case in result["cases"] for row in case["rows"] if "unavailable" in row]
    said = dict.fromkeys(f"- {row['contestant']}, not available: {row['unavailable']}" for row in rows)
    return ["\n".join(said)] if said else []
