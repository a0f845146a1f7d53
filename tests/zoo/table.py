"""docs/models.md, of the results that are there."""

import re
from collections.abc import Mapping

from . import ZOO
from .exports import KERAS, Result
from .registry import Architecture

Results = Mapping[str, Result]
MOST_SAID = 160  # letters of an error
EQUAL = 1e-3  # relative: beyond it Keras's own file gives another answer, not another rounding

HEAD = """# Models

Architectures that are exported and compared with Keras. Those of `keras.applications` and keras_hub are built by these,
the others are written for these tests from their published descriptions (`tests/zoo`). All are small, and
every weight is moved from where it is initialized. `nox -s zoo-page` makes this page.

- **ours**: `export_model` with its defaults: the largest difference as a share of its limit, and of what stands beside
  it. In parentheses other precisions.
- **Keras's own**: `Model.export(format="onnx")` of the same model, in onnxruntime, on the same inputs of several batch
  sizes and lengths: the largest relative difference, or what went wrong.
"""
TABLE = "| architecture | source | inputs | weights | ours | Keras's own |\n|---|---|---|---|---|---|"


def page(results: Mapping[str, Results]) -> str:
    """Return the page: how many models each of the two exports, then a table for each kind of model."""
    passed = sum("error" not in each["float32"] for each in results.values())
    keras = [each[KERAS] for each in results.values()]
    right = sum("error" not in each and not each["failed"] and each["max_rel"] <= EQUAL for each in keras)
    counted = (
        f"Of {len(results)} models {passed} are exported by ours and proven equal. Of {len(keras)} that Keras's own "
        f"exporter was given, {right} came out as files that run in every case and are within {EQUAL:g} of Keras.\n"
    )
    parts = [HEAD, counted]
    for kind in dict.fromkeys(each.kind for each in ZOO.values()):
        rows = [row(each, results[each.name]) for each in ZOO.values() if each.kind == kind]
        parts.append(f"## {kind.replace('_', ' ').capitalize()}\n\n{TABLE}\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def row(each: Architecture, results: Results) -> str:
    plain = results["float32"]
    inputs = "; ".join(f"`{one}`" for one in plain["inputs"])
    others = ", ".join(
        f"{way} {'fails' if 'error' in (found := results[way]) else format(found['max_rel'], '.0e')}"
        for way in each.precisions
    )
    if "error" in plain:
        ours = f"refused: {shortened(plain['error'])}"
    else:
        ours = f"{plain['of_limit']:.2f}, {plain['max_rel']:.0e}" + (f" ({others})" if others else "")
    cells = [each.name.replace("_", " "), each.source.rstrip("."), inputs, f"{plain['weights']:,}", ours]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in [*cells, keras_cell(results[KERAS])]) + " |"


def keras_cell(result: Result) -> str:
    if "error" in result:
        return shortened(result["error"])
    if result["failed"]:
        return f"fails in {len(result['failed'])} of {result['cases']} cases: {shortened(result['failed'][0])}"
    return f"{result['max_rel']:.0e}"


def shortened(error: str) -> str:
    """Return the first words of an error, without files of the machine it was on."""
    said = " ".join(re.sub(r"(?<![\w:)])/[\w./+-]+", "a file", error).split())
    return said if len(said) <= MOST_SAID else said[:MOST_SAID].rsplit(" ", 1)[0] + " ..."
