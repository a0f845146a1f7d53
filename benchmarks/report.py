"""Write the tables of docs/performance.md, and its plots, from the results in benchmarks/results.

What stands between `<!-- table: NAME -->` and `<!-- end of table -->` is replaced by the tables of `NAME`.json; `gpu`
stands for all results of a GPU. Running it again changes nothing.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

from _tables import markdown

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DOCUMENT = HERE.parent / "docs" / "performance.md"
BLOCK = re.compile(r"(?P<head><!-- table: (?P<name>\w+) -->\n).*?(?P<foot><!-- end of table -->)", re.DOTALL)
PLOTS = {
    "against_keras": ("performance_against_keras.png", "Speed over Keras's own layers, by shape"),
    "additive_inference": ("performance_additive.png", "Time for an element of additive attention, by implementation"),
    "cost_against_keys": ("performance_keys.png", "Time and extra memory against the number of keys"),
}

Results = dict[str, dict[str, Any]]


def load(folder: Path) -> Results:
    """Return the results of a folder by file name."""
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("*.json"))}


def render(text: str, results: Results) -> str:
    """Return the document with each table as the results have it."""
    return BLOCK.sub(lambda found: f"{found['head']}{_block(found['name'], results)}\n{found['foot']}", text)


def _block(name: str, results: Results) -> str:
    if name == "gpu":
        parts = [f"### {r['title']}\n\n{markdown(r)}" for stem, r in results.items() if stem.endswith(".cuda")]
        return "\n\n".join(parts) or "No results of a GPU are here."
    if name not in results:
        return f"No results are here; `scripts/bench {name}` measures them."
    image = f"![{PLOTS[name][1]}]({PLOTS[name][0]})\n\n" if name in PLOTS else ""
    return image + markdown(results[name])


def draw(results: Results, folder: Path) -> None:
    """Write the plots beside the document."""
    import _plots  # needs matplotlib

    draws = {
        "additive_inference": _plots.additive,
        "against_keras": _plots.against_keras,
        "cost_against_keys": _plots.keys,
    }
    for name, (file, _) in PLOTS.items():
        if name in results:
            draws[name](results[name], folder / file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of results (benchmarks/results)")
    parser.add_argument("--document", type=Path, default=DOCUMENT, help="the document (docs/performance.md)")
    parser.add_argument(
        "--output", type=Path, help="where it is written, with the plots beside it (the document itself)"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the tables are not those of the results"
    )
    given = parser.parse_args()
    text = given.document.read_text(encoding="utf-8")
    results = load(given.results)
    new = render(text, results)
    if given.check:
        sys.exit(f"{given.document} is out of date: run scripts/bench --report." if new != text else 0)
    output = given.output or given.document
    output.write_text(new, encoding="utf-8")
    draw(results, output.parent)


if __name__ == "__main__":
    main()
