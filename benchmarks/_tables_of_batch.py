"""The tables of batch inference."""

from typing import Any

from _cells import factor, number, table
from _stats import inverse, rows_of, speed

Result = dict[str, Any]


def predict(result: Result) -> list[str]:
    """A table for each model, and what Ray costs."""
    return [*(_contestants(case) for case in result["cases"]), *(_ray(result["ray"]) if "ray" in result else [])]


def _contestants(case: dict[str, Any]) -> str:
    heads = [f"{case['size']}, {case['rows_of_table']:,} rows", "rows a second", "seconds (p10 to p90)"]
    heads += [f"speed of {case['peer']} over it", "extra MiB"]
    rows = (
        [
            label,
            f"{case['rows_of_table'] / row['ms']['median'] * 1e3:,.0f}",
            _seconds(row["ms"]),
            factor(inverse(speed(case, label))),
            f"{row['memory']:.0f}",
        ]
        for label, row in rows_of(case).items()
    )
    return table(heads, rows)


def _seconds(ms: dict[str, float]) -> str:
    median, p10, p90 = (number(ms[each] / 1e3) for each in ("median", "p10", "p90"))
    return f"{median} ({p10} to {p90})"


def _ray(ray: dict[str, Any]) -> list[str]:
    few, many = (f"{rows:,} rows: seconds" for rows in ray["rows"])
    engines = table(
        ["run by", few, many, "start, seconds", "rows a second after the start"],
        (
            [each["engine"], *map(number, each["seconds"]), number(each["start"]), f"{each['rate']:,.0f}"]
            for each in ray["engines"]
        ),
    )
    local, *_, cluster = ray["engines"]
    machines = table(
        ["machines", "rows from which Ray is faster", "time of so many rows on one machine without Ray"],
        ([str(count), *_pays(local, cluster, count)] for count in ray["machines"]),
    )
    return [engines, machines]


def _pays(local: dict[str, float], ray: dict[str, float], machines: int) -> list[str]:
    rows = pays_from(local, ray, machines)
    if rows is None:
        return ["never", ""]
    return [f"{float(f'{rows:.2g}'):,.0f}", f"{number(local['start'] + rows / local['rate'])} s"]


def pays_from(local: dict[str, float], ray: dict[str, float], machines: int) -> float | None:
    """Return from how many rows on machines with Ray are faster than one without, by T = start + rows / rate.

    Args:
        local: Start and rate of one machine without Ray.
        ray: Start and rate of one with it.
        machines: How many; their rates add up.
    """
    saved = 1 / local["rate"] - 1 / (machines * ray["rate"])  # seconds a row
    return max(0.0, (ray["start"] - local["start"]) / saved) if saved > 0 else None
