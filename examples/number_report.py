"""What the example of spelled numbers shows: a table of exact answers by language, and a picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from babel import Locale
from matplotlib.figure import Figure
from number_data import DIRECTIONS, LANGUAGES, Row
from rich import print as rich_print
from rich.table import Table

Shares = dict[str, dict[str, float]]  # by direction, then by language


def shares_of(rows: Sequence[Row], answers: Sequence[str]) -> Shares:
    """The share of exact answers."""
    exact: dict[tuple[str, str], list[bool]] = {}
    for row, answer in zip(rows, answers, strict=True):
        exact.setdefault((row.direction, row.language), []).append(row.answer == answer)
    return {
        direction: {language: _mean(exact[direction, language]) for language in LANGUAGES} for direction in DIRECTIONS
    }


def name_of(language: str) -> str:
    """The name in English."""
    return str(Locale(language).english_name)


def print_shares(shares: Shares) -> None:
    """One line a language."""
    table = Table("language", box=None, padding=(0, 1))
    for direction in shares:
        table.add_column(direction, justify="right")
    for language in sorted(LANGUAGES, key=name_of):
        table.add_row(name_of(language), *(f"{share[language]:.1%}" for share in shares.values()))
    rich_print(table)


def draw(shares: Shares, by_length: Mapping[int, Mapping[str, float]], path: Path) -> None:
    """Exact answers by language on the left, what a token costs by length on the right."""
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    languages = sorted(LANGUAGES, key=name_of, reverse=True)
    for direction, marker in zip(shares, "o^", strict=True):
        left.plot([100 * shares[direction][each] for each in languages], range(len(languages)), marker, label=direction)
    left.set_yticks(range(len(languages)), [name_of(language) for language in languages])
    left.set_xlabel("exact answers, %")
    left.grid(axis="x", color="0.9")
    left.legend()
    for name in next(iter(by_length.values())):
        right.plot(list(by_length), [taken[name] for taken in by_length.values()], "o-", label=name)
    right.set_xscale("log", base=2)
    right.set_yscale("log")
    right.set_xticks(list(by_length), [str(length) for length in by_length])
    right.set_xlabel("tokens so far")
    right.set_ylabel("milliseconds of one token")
    right.grid(color="0.9")
    right.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _mean(hits: list[bool]) -> float:
    return sum(hits) / len(hits)
