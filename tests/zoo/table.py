"""docs/models.md, of the results that are there."""

import re
from collections.abc import Mapping

from . import ZOO
from .exports import Result, ways
from .registry import Architecture

UNTRIED = "not tried yet"
NOTHING: Result = {"inputs": [], "weights": 0}
MOST_SAID = 160  # letters of an error
EQUAL = 1e-3  # relative: beyond it Keras's own file gives another answer, not another rounding

HEAD = """# Models

Architectures that are exported and compared with Keras. Those of `keras.applications` and keras_hub are built by these,
the others are written for these tests from their published descriptions (`tests/zoo`). All are small, and
every weight is moved from where it is initialized. `scripts/zoo` makes this page.

- **ours**: `export_model` with its defaults: the largest difference as a share of its limit, and of what stands beside
  it. In parentheses what else was exported: `auto`, the fastest lowerings, and precisions.
- **Keras's own**: `Model.export(format="onnx")` of the same model, in onnxruntime, on the same inputs of several batch
  sizes and lengths: the largest relative difference, or what went wrong.
"""


def page(results: Mapping[str, Mapping[str, Result]]) -> str:
    """Return the page: what it holds in numbers, then a table for each kind of model."""
    parts = [HEAD, counted(results)]
    kinds = dict.fromkeys(each.kind for each in ZOO.values())
    for kind in kinds:
        rows = [row(each, results[each.name]) for each in ZOO.values() if each.kind == kind]
        head = "| architecture | source | inputs | weights | ours | Keras's own |\n|---|---|---|---|---|---|"
        parts.append(f"## {kind.replace('_', ' ').capitalize()}\n\n{head}\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def counted(results: Mapping[str, Mapping[str, Result]]) -> str:
    """Return how many models each of the two exports."""
    tried = [each["float32"] for each in results.values() if "float32" in each]
    passed = sum("error" not in each for each in tried)
    keras = [each["keras"] for each in results.values() if "keras" in each]
    right = sum(is_right(each) for each in keras)
    some = f"{len(tried)} were tried, and " if len(tried) < len(ZOO) else ""
    return (
        f"Of {len(ZOO)} models {some}{passed} are exported by ours and proven equal. "
        f"Of {len(keras)} that Keras's own "
        f"exporter was given, {right} came out as files that run in every case and are within {EQUAL:g} of Keras.\n"
    )


def is_right(result: Result) -> bool:
    return "error" not in result and not result["failed"] and result["max_rel"] <= EQUAL


def row(each: Architecture, results: Mapping[str, Result]) -> str:
    plain = results.get("float32", NOTHING)
    cells = [
        each.name.replace("_", " "),
        each.source.rstrip("."),
        "; ".join(f"`{one}`" for one in plain["inputs"]),
        f"{plain['weights']:,}" if plain["weights"] else "",
        our_cell(each, results),
        keras_cell(results.get("keras")),
    ]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def our_cell(each: Architecture, results: Mapping[str, Result]) -> str:
    plain = results.get("float32", NOTHING)
    if plain is NOTHING:
        return UNTRIED
    first = (
        f"refused: {shortened(plain['error'])}"
        if "error" in plain
        else f"{plain['of_limit']:.2f}, {plain['max_rel']:.0e}"
    )
    others = [f"{way} {brief(results[way])}" for way, _ in ways(each)[1:] if way in results]
    return first + (f" ({', '.join(others)})" if others else "")


def shortened(error: str) -> str:
    """Return the first words of an error, without files of the machine it was on."""
    said = " ".join(re.sub(r"(?<![\w:)])/[\w./+-]+", "a file", error).split())
    return said if len(said) <= MOST_SAID else said[:MOST_SAID].rsplit(" ", 1)[0] + " ..."


def brief(result: Result) -> str:
    return "fails" if "error" in result else f"{result['max_rel']:.0e}"


def keras_cell(result: Result | None) -> str:
    if result is None:
        return UNTRIED
    if "error" in result:
        return shortened(result["error"])
    if result["failed"]:
        return f"fails in {len(result['failed'])} of {result['cases']} cases: {shortened(result['failed'][0])}"
    return f"{result['max_rel']:.0e}"
