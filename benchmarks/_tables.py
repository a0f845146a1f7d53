"""Results as Markdown tables."""

from typing import Any

import _tables_of_batch
from _cells import by_case, cell, factor, number, table
from _notes import machine, missing, wrapped
from _stats import best_speed, inverse, rows_of, speed

Result = dict[str, Any]
NEVER = 2**40  # pairs of query and key: no request has more


def markdown(result: Result) -> str:
    """Return a result's tables, targets, contestants that are missing, and machine."""
    tables = TABLES.get(result["name"], _by_size)
    parts = [*tables(result), *_aims(result), *missing(result), machine(result["environment"])]
    return "\n\n".join(parts)


def _aims(result: Result) -> list[str]:
    said = {True: "yes", False: "**no**", None: "not measured"}
    rows = [
        [
            bar["bar"],
            f"{'at least' if bar['at_least'] else 'at most'} {number(bar['limit'])}",
            "" if bar["value"] is None else number(bar["value"]),
            said[bar["reached"]],
        ]
        for bar in ([] if result["quick"] else result["bars"])
    ]
    return [table(["target", "required", "measured", "met"], rows)] if rows else []


# --------------------------------------------------------------------------- a row for each contestant


def _by_size(result: Result) -> list[str]:
    """One table for each size; in it a group of columns for each way to fill it."""
    sizes = dict.fromkeys(case["size"] for case in result["cases"])
    return [_size_table([case for case in result["cases"] if case["size"] == size]) for size in sizes]


def _size_table(cases: list[dict[str, Any]]) -> str:
    element = ["ns an element"] if "elements" in cases[0] else []
    heads = [cases[0]["size"]]
    for case in cases:
        heads += [f"{case['fill']}: ms (p10 to p90)", *element, "speed", "extra MiB"]
    labels = dict.fromkeys(label for case in cases for label in rows_of(case))
    return table(heads, ([label, *(c for case in cases for c in _cells(case, label))] for label in labels))


def _cells(case: dict[str, Any], label: str) -> list[str]:
    row = rows_of(case).get(label)
    if row is None:
        return [""] * (4 if "elements" in case else 3)
    element = [number(row["ms"]["median"] * 1e6 / case["elements"])] if "elements" in case else []
    return [cell(case, label), *element, factor(speed(case, label)), f"{row['memory']:.0f}"]


# --------------------------------------------------------------------------- a row for each case


def _beside_peer(result: Result) -> list[str]:
    """A row for each shape; the contestants are Keras's file, ours, and others that ours is compared with."""
    peer, ours, *others = dict.fromkeys(row["contestant"] for case in result["cases"] for row in case["rows"])
    asked = ["target"] if "asked" in result["cases"][0] else []
    heads = ["shape", f"{peer}: ms (p10 to p90)", f"{ours}: ms (p10 to p90)", "speed", *asked]
    heads += [*(f"speed of: {label}" for label in others), "extra MiB: Keras's", ours]
    return [table(heads, (_shape(case, peer, ours, others) for case in result["cases"]))]


def _shape(case: dict[str, Any], peer: str, ours: str, others: list[str]) -> list[str]:
    rows, asked, found = rows_of(case), case.get("asked", 0), speed(case, ours)
    ms = [cell(case, label) for label in (peer, ours)]
    memory = [f"{rows[label]['memory']:.0f}" if label in rows else "" for label in (peer, ours)]
    shown = f"**{factor(found)}**" if found and found < asked else factor(found)
    speeds = [factor(speed(case, label)) for label in others]
    return [f"{case['size']}, {case['fill']}", *ms, shown, *([factor(asked)] if asked else []), *speeds, *memory]


def _models(result: Result) -> list[str]:
    """A row for each size of each model, with the speed over each of the others' files: that of the fastest runs."""
    ours = "ours"
    others = list(dict.fromkeys(row["contestant"] for case in result["cases"] for row in case["rows"]))
    others.remove(ours)
    heads = ["model", "size", f"{ours}: ms, best", *(f"speed over {label}" for label in others)]
    heads += [f"median speed over {others[0]}", "products", "attention, recurrence", "total over both"]
    return [table(heads, (_model(case, ours, others) for case in result["cases"]))]


def _model(case: dict[str, Any], ours: str, others: list[str]) -> list[str]:
    inner, whole = case["products"], rows_of(case)[ours]["ms"]["min"]
    speeds = [factor(best_speed(case, ours, over=label)) for label in others]
    shares = [f"{inner[name] / whole:.0%}" for name in ("products", "attention and recurrence")]
    over_both = factor(whole / sum(inner.values())) if sum(inner.values()) else ""
    return [case["size"], case["fill"], number(whole), *speeds, factor(speed(case, ours)), *shares, over_both]


def _int8(result: Result) -> list[str]:
    """A row for each model: what is right, how large the file is, and how fast, beside float32."""
    float32, *others = (row["contestant"] for row in result["cases"][0]["rows"])
    heads = ["model", "accuracy in float32", *(f"{label}: points" for label in others), "largest difference"]
    heads += ["int8 layers", "float32 layers", *(f"{label}: size" for label in others), f"{float32}: ms, best"]
    heads += [f"{label}: speed" for label in others]
    return [table(heads, (_int8_row(case, float32, others) for case in result["cases"]))]


def _int8_row(case: dict[str, Any], float32: str, others: list[str]) -> list[str]:
    files, before = case["files"], case["files"][float32]
    points = [f"{100 * (files[label]['right'] - before['right']):+.2f}" for label in others]
    sizes = [f"{files[label]['bytes'] / before['bytes']:.2f}" for label in others]
    layers = [str(case["int8_layers"]), ", ".join(case["float32_layers"]) or "none"]
    speeds = [factor(best_speed(case, label)) for label in others]
    timed = number(rows_of(case)[float32]["ms"]["min"])
    return [case["size"], f"{before['right']:.2%}", *points, f"{case['off']:.1%}", *layers, *sizes, timed, *speeds]


def _training_defaults(result: Result) -> list[str]:
    cases = [{**case, "size": f"{case['backend']}, {case['size']}"} for case in result["cases"]]
    return [by_case("size", cases, **{"time ratio": lambda case: factor(inverse(_last_speed(case)))})]


def _serving(result: Result) -> list[str]:
    return [by_case("what", result["cases"], speed=lambda case: factor(speed(case, "as advised")))]


def _decoding(result: Result) -> list[str]:
    """A table of whole answers, and one of a step by the number of tokens so far."""
    over = {"loop over one file": lambda case: factor(inverse(speed(case, "a loop in Python")))}
    without = {"without the encoder": _without_encoder}
    faster = {"speed with the cache": lambda case: factor(inverse(_last_speed(case)))}
    return [
        by_case("answers", result["answers"], **over, **without),
        by_case("tokens before the step", result["cases"], **faster),
    ]


def _without_encoder(case: dict[str, Any]) -> str:
    one, loop, encoder = (row["ms"]["median"] for row in case["rows"])
    return factor((loop - encoder) / (one - encoder)) if one > encoder else ""


def _last_speed(case: dict[str, Any]) -> float | None:
    return speed(case, case["rows"][-1]["contestant"])


def _export_cost(result: Result) -> list[str]:
    heads = ["model", "MB of weights", "exported by", "seconds", "peak GB", "GB before", "GB of a child process"]
    cases = result["cases"]
    return [table(heads, (_export(case["model"], row) for case in cases for row in case["rows"] if "seconds" in row))]


def _export(model: str, row: dict[str, Any]) -> list[str]:
    sizes = [row["memory"] + row["before"], row["before"], row["started"]]
    numbers = [row["seconds"], *(size / 1e9 for size in sizes)]
    return [model, number(row["weights"] / 1e6), row["contestant"], *map(number, numbers)]


# --------------------------------------------------------------------------- a row for each rule


def _thresholds(result: Result) -> list[str]:
    """The rules, and their losses: how much longer the form that a rule chooses takes than the faster one."""
    heads = ["kind of call", "q", "p", "sizes timed", "mean loss", "worst loss", "at"]
    heads += ["worst loss, always small form", "worst loss, always large form"]
    grid = [point for machine in result["machines"] for point in machine["grid"]]
    rows = (
        _rule(kind, rule, [point for point in grid if point["kind"] == kind]) for kind, rule in result["rules"].items()
    )
    known = [machine["kind"] for machine in result["machines"]]
    machines = "; ".join(
        f"{cpu}, {cores} cores, {threads} threads, onnxruntime {ort}" for cpu, cores, threads, ort in known
    )
    return [table(heads, rows), wrapped(f"Measured on: {machines}.")]


def _rule(kind: str, rule: dict[str, Any], points: list[dict[str, Any]]) -> list[str]:
    bounds = ["never", ""] if rule["pairs"] > NEVER else [str(rule["queries"]), str(rule["pairs"])]
    at = rule["where"]
    shape = " ".join(f"{axis}{at[axis]}" for axis in ("B", "H", "Tq", "Tk", "D"))
    always = [max(point[form] / min(point["small"], point["large"]) for point in points) for form in ("small", "large")]
    mean, worst, small, large = map(factor, [rule["mean"], rule["worst"], *always])
    where = ", ".join(part for part in (at["mask"], shape, at["fill"]) if part)
    return [kind, *bounds, str(len(points)), mean, worst, where, small, large]


TABLES = {
    "layers": _beside_peer,
    "cost_against_keys": _beside_peer,
    "models": _models,
    "thresholds": _thresholds,
    "int8": _int8,
    "training_defaults": _training_defaults,
    "export_cost": _export_cost,
    "predict": _tables_of_batch.predict,
    "serving": _serving,
    "decoding": _decoding,
}
