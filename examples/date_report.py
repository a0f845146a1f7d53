"""Report of the demo: a table of accuracies by language, and a picture of attention weights."""

from pathlib import Path

import numpy as np
from babel import Locale
from date_data import LOCALES, Row
from matplotlib.figure import Figure
from rich import print as rich_print
from rich.columns import Columns
from rich.table import Table


def compute_accuracies(rows: list[Row], answers: list[str]) -> dict[str, float]:
    """Return the share of exact answers by locale."""
    is_exact: dict[str, list[bool]] = {locale: [] for locale in LOCALES}
    for row, answer in zip(rows, answers, strict=True):
        is_exact[row.locale].append(row.iso == answer)
    return {locale: sum(flags) / len(flags) for locale, flags in is_exact.items()}


def print_accuracies(clean: dict[str, float], noisy: dict[str, float]) -> None:
    """Print one line per locale, in two tables side by side."""
    locales = sorted(LOCALES, key=get_language_name)
    half = (len(locales) + 1) // 2
    rich_print(Columns([_build_table(part, clean, noisy) for part in (locales[:half], locales[half:])]))


def get_language_name(locale: str) -> str:
    """Return the English name of a locale's language; English has two locales and so is followed by the country."""
    locale_data = Locale.parse(locale)
    name = str(Locale(locale_data.language).english_name)
    return f"{name}, {locale_data.territory}" if locale_data.language == "en" else name


def _build_table(locales: list[str], clean: dict[str, float], noisy: dict[str, float]) -> Table:
    table = Table("language", box=None, padding=(0, 1))
    table.add_column("clean", justify="right")
    table.add_column("noisy", justify="right")
    for locale in locales:
        table.add_row(get_language_name(locale), f"{clean[locale]:.1%}", f"{noisy[locale]:.1%}")
    return table


def draw_attention(rows: list[Row], answers: list[str], weights: np.ndarray, path: Path, columns: int = 2) -> None:
    """Draw one panel per date: its characters across, the answer down, and the weights (B, 10, T) as colour."""
    num_lines = -(-len(rows) // columns)
    figure = Figure(figsize=(6.6 * columns, 3.1 * num_lines), layout="constrained")
    axes = figure.subplots(num_lines, columns, squeeze=False)
    for axis in axes.flat[len(rows) :]:
        axis.set_axis_off()
    for axis, row, answer, matrix in zip(axes.flat, rows, answers, weights, strict=False):
        image = axis.imshow(matrix[:, : len(row.text)], cmap="Reds", vmin=0, vmax=1, aspect="auto")
        axis.set_xticks(range(len(row.text)), list(row.text), fontsize=11, va="baseline")
        axis.set_yticks(range(len(answer)), list(answer), fontsize=11, family="monospace")
        axis.tick_params(length=0)
        axis.tick_params(axis="x", pad=14)
        axis.hlines([3.5, 4.5, 6.5, 7.5], -0.5, len(row.text) - 0.5, color="0.8", linewidth=0.8)  # year, month, day
        axis.set_title(f"{get_language_name(row.locale)}, {row.style}", fontsize=11)
    figure.colorbar(image, ax=axes, shrink=0.5, label="attention weight")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
