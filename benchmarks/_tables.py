"""Results of benchmarks: one CSV file and one Markdown table for each question."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BLOCK = re.compile(r"(?P<head><!-- table: (?P<name>\w+) -->\n).*?(?P<foot><!-- end of table -->)", re.DOTALL)
COLUMNS = {"ms": "ms", "speed": "speed"}  # of most tables: column of the CSV file, heading


def rows_of_case(case: Mapping[str, Any]) -> list[Row]:
    """Return the flat rows of a case, one for each contestant: times in ms, extra memory in MiB, speeds over the peer.

    A case of `thresholds` is one row.
    """
    if "point" in case:
        return [case["point"]]
    timed = {row["contestant"]: row["ms"] for row in case["rows"] if "ms" in row}
    peer = timed.get(case["peer"])
    return [_flat(case["case"], row, peer) for row in case["rows"]]


def _flat(case: str, row: Row, peer: Mapping[str, float] | None) -> Row:
    flat = {"case": case, "contestant": row["contestant"]}
    if "ms" in row:
        ms = row["ms"]
        flat |= {"ms": ms["median"], "p10": ms["p10"], "p90": ms["p90"], "best_ms": ms["min"]}
        if peer is not None and peer is not ms:
            flat |= {"speed": row["faster"]["median"], "speed_of_best": peer["min"] / ms["min"]}
        flat["extra_mib"] = row["memory"]
    if "unavailable" in row:
        flat["unavailable"] = row["unavailable"]
    return flat | row.get("facts", {})


def write_csv(file: Path, rows: Sequence[Row], measured: str) -> None:
    """Write rows with five digits of each number, below a comment that names the day and the machine."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with file.open("w", encoding="utf-8", newline="") as stream:
        stream.write(f"# {measured}\n")
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _digits(value, 5) for name, value in row.items()} for row in rows)


def read_csv(file: Path) -> tuple[list[Row], str]:
    """Return the rows of a CSV file, numbers as floats and empty cells left out, and its comment."""
    with file.open(encoding="utf-8", newline="") as stream:
        measured = stream.readline().removeprefix("#").strip()
        rows = [{name: _value(text) for name, text in row.items() if text} for row in csv.DictReader(stream)]
    return rows, measured


def _value(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def pivot(rows: Iterable[Row], columns: Mapping[str, str] = COLUMNS) -> list[Row]:
    """Return one row for each case, with the chosen columns of each contestant side by side."""
    cases: dict[str, Row] = {}
    for row in rows:
        case = cases.setdefault(row["case"], {"case": row["case"]})
        for column, heading in columns.items():
            if column in row:
                case[f"{row['contestant']}: {heading}"] = row[column]
    return list(cases.values())


def markdown(rows: Sequence[Row]) -> str:
    """Return a Markdown table, the first column aligned to the left and the others to the right."""
    headings = list(dict.fromkeys(name for row in rows for name in row))
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)]]
    lines += [[str(_digits(row.get(heading, ""), 3)) for heading in headings] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _digits(value: Any, digits: int) -> Any:
    """Return a float rounded to significant digits, as text without an exponent; return other values unchanged."""
    if not isinstance(value, float):
        return value
    text = f"{value:.{digits}g}"
    return f"{float(text):.12f}".rstrip("0").rstrip(".") if "e" in text else text


def render(text: str, tables: Mapping[str, str]) -> str:
    """Return a document with the tables between `<!-- table: NAME -->` and `<!-- end of table -->` replaced."""
    return BLOCK.sub(lambda block: f"{block['head']}{tables[block['name']]}\n{block['foot']}", text)
