"""The tables of docs/performance.md, and its plots, from the results in benchmarks/results.

The text between `<!-- table: NAME -->` and `<!-- end of table -->` is replaced by the tables of `NAME.json`.
Writing the page again changes nothing.
"""

import json
import re
from pathlib import Path
from typing import Any

from _tables import markdown

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BLOCK = re.compile(r"(?P<head><!-- table: (?P<name>\w+) -->\n).*?(?P<foot><!-- end of table -->)", re.DOTALL)
PLOTS = {
    "models": ("performance_models.png", "Speed over the file of Keras's exporter, by model"),
    "layers": ("performance_against_keras.png", "Speed over Keras's own layers, by shape"),
    "cost_against_keys": ("performance_keys.png", "Time and extra memory against the number of keys"),
}

Results = dict[str, dict[str, Any]]


def write(results: Path, output: Path) -> None:
    """Write the document with the tables of a folder of results, and the plots beside it."""
    import _plots  # needs matplotlib

    found = load(results)
    output.write_text(render(DOCUMENT.read_text(encoding="utf-8"), found), encoding="utf-8")
    for name, (file, _) in PLOTS.items():
        if name in found:
            getattr(_plots, name)(found[name], output.parent / file)


def load(folder: Path) -> Results:
    """Return the results of a folder by file name."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}


def render(text: str, results: Results) -> str:
    """Return the document with each table as the results have it."""
    return BLOCK.sub(lambda found: f"{found['head']}{_block(found['name'], results)}\n{found['foot']}", text)


def _block(name: str, results: Results) -> str:
    if name not in results:
        return f"There are no results; `scripts/bench {name}` measures them."
    image = f"![{PLOTS[name][1]}]({PLOTS[name][0]})\n\n" if name in PLOTS else ""
    return image + markdown(results[name])
