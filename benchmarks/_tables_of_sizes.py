"""The tables of the benchmarks that go over many sizes."""

from typing import Any

from _cells import number, speed, table, times

Result = dict[str, Any]
NEVER = 2**40  # pairs of query and key: no request has more


def against_keras(result: Result) -> list[str]:
    """A row for each shape; the contestants are Keras's file, ours, and others that ours is compared with."""
    labels = list(dict.fromkeys(row["contestant"] for case in result["cases"] for row in case["rows"]))
    theirs, ours, *others = labels
    heads = ["shape", f"{theirs}: ms (p10 to p90)", "ours: ms (p10 to p90)", "speed", "asked"]
    heads += [*(f"speed of: {label}" for label in others), "extra MiB: Keras's", "ours"]
    return [table(heads, (_against(case, theirs, ours, others) for case in result["cases"]))]


def _against(case: dict[str, Any], theirs: str, ours: str, others: list[str]) -> list[str]:
    rows = {row["contestant"]: row for row in case["rows"] if "ms" in row}
    peer, own = rows[theirs], rows.get(ours)
    return [
        f"{case['size']}, {case['fill']}",
        times(peer["ms"]),
        times(own["ms"]) if own else "",
        speed(own) if own else "",
        f"{number(case['asked'])}x",
        *(speed(rows[label]) if label in rows else "" for label in others),
        f"{peer['memory']:.0f}",
        f"{own['memory']:.0f}" if own else "",
    ]


def thresholds(result: Result) -> list[str]:
    """The rules, and what remains: how much longer the form that they take needs than the faster one."""
    heads = ["kind of call", "queries left out", "fewest pairs", "sizes", "loss, mean", "worst", "at"]
    heads += ["worst if always small", "always large"]
    grid = [point for machine in result["machines"] for point in machine["grid"]]
    rows = (
        _rule(kind, rule, [point for point in grid if point["kind"] == kind]) for kind, rule in result["rules"].items()
    )
    machines = "; ".join(_machine(*machine["kind"]) for machine in result["machines"])
    return [table(heads, rows), f"Measured on: {machines}."]


def _machine(processor: str, cores: int, threads: int, onnxruntime: str) -> str:
    return f"{processor}, {cores} cores, {threads} threads, onnxruntime {onnxruntime}"


def _rule(kind: str, rule: dict[str, Any], points: list[dict[str, Any]]) -> list[str]:
    bounds = ["never", ""] if rule["pairs"] > NEVER else [str(rule["queries"]), str(rule["pairs"])]
    at = rule["where"]
    shape = " ".join(f"{axis}{at[axis]}" for axis in ("B", "H", "Tq", "Tk", "D"))
    always = [max(point[form] / min(point["small"], point["large"]) for point in points) for form in ("small", "large")]
    losses = [rule["mean"], rule["worst"], *always]
    mean, worst, small, large = (f"{number(loss)}x" for loss in losses)
    where = ", ".join(part for part in (at["mask"], shape, at["fill"]) if part)
    return [kind, *bounds, str(len(points)), mean, worst, where, small, large]
