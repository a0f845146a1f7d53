"""Results of benchmarks: one CSV file and one Markdown table for each question."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BLOCK = re.compile(r"(?P<head><!-- table: (?P<name>\w+) -->\n).*?(?P<foot><!-- end of table -->)", re.DOTALL)
COLUMNS = {"ms": "ms", "speed": "speed"}  # default: column of the CSV file, heading of the table


def flatten_case(case: Mapping[str, Any]) -> list[Row]:
    """Return a flat row for each contestant of a case: times in ms, extra memory in MiB, speeds relative to the peer.

    A case of `thresholds` has one row.
    """
    if "point" in case:
        return [case["point"]]
    times = {row["contestant"]: row["ms"] for row in case["rows"] if "ms" in row}
    peer = times.get(case["peer"])
    return [_flatten_row(case["case"], row, peer) for row in case["rows"]]


def _flatten_row(case: str, row: Row, peer: Mapping[str, float] | None) -> Row:
    flat = {"case": case, "contestant": row["contestant"]}
    if "ms" in row:
        ms = row["ms"]
        flat |= {"ms": ms["median"], "p10": ms["p10"], "p90": ms["p90"], "best_ms": ms["min"]}
        if peer is not None and peer is not ms:
            flat |= {"speed": row["speed"]["median"], "speed_of_best": peer["min"] / ms["min"]}
        flat["extra_mib"] = row["memory"]
    if "unavailable" in row:
        flat["unavailable"] = row["unavailable"]
    return flat | row.get("facts", {})


def write_csv(file: Path, rows: Sequence[Row], conditions: str) -> None:
    """Write rows with five digits of each number, after a comment with the day and the machine."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with file.open("w", encoding="utf-8", newline="") as stream:
        stream.write(f"# {conditions}\n")
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _format_digits(value, 5) for name, value in row.items()} for row in rows)


def read_csv(file: Path) -> tuple[list[Row], str]:
    """Return the rows of a CSV file, with floats and without empty cells, and its comment."""
    with file.open(encoding="utf-8", newline="") as stream:
        conditions = stream.readline().removeprefix("#").strip()
        rows = [{name: _parse_value(text) for name, text in row.items() if text} for row in csv.DictReader(stream)]
    return rows, conditions


def _parse_value(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def pivot_contestants(rows: Iterable[Row], columns: Mapping[str, str] = COLUMNS) -> list[Row]:
    """Return one row for each case, with the chosen columns of each contestant side by side."""
    cases: dict[str, Row] = {}
    for row in rows:
        case = cases.setdefault(row["case"], {"case": row["case"]})
        for column, heading in columns.items():
            if column in row:
                case[f"{row['contestant']}: {heading}"] = row[column]
    return list(cases.values())


def format_markdown(rows: Sequence[Row]) -> str:
    """Format a Markdown table with the first column aligned to the left and the other columns to the right."""
    headings = list(dict.fromkeys(name for row in rows for name in row))
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)]]
    lines += [[str(_format_digits(row.get(heading, ""), 3)) for heading in headings] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _format_digits(value: Any, digits: int) -> Any:
    """Format a float with significant digits and without an exponent; return other values unchanged."""
    if not isinstance(value, float):
        return value
    text = f"{value:.{digits}g}"
    return f"{float(text):.12f}".rstrip("0").rstrip(".") if "e" in text else text


def replace_tables(text: str, tables: Mapping[str, str]) -> str:
    """Replace the tables between `<!-- table: NAME -->` and `<!-- end of table -->` in a document."""
    return BLOCK.sub(lambda block: f"{block['head']}{tables[block['name']]}\n{block['foot']}", text)
