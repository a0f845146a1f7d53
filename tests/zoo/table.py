"""docs/models.md, of the results that are there."""

import re
import textwrap
from collections.abc import Mapping

from . import ZOO
from .exports import KERAS, Result
from .registry import Architecture

Results = Mapping[str, Result]
MOST_SAID = 160  # letters of an error
WIDTH = 100  # of lines of text
LOADS = "does not load: "
EQUAL = 1e-3  # relative: beyond it Keras's own file gives another answer, not another rounding

HEAD = """# Models

Published architectures, exported by `export_model` and by Keras's exporter. The outputs of both
files are compared with those of Keras. Models of `keras.applications` and KerasHub (`keras_hub`)
are built by these packages. The others are written from their published descriptions, in
`tests/zoo`. All are small, and no weight keeps its initial value. `nox -s zoo-page` writes this
page.

- **inputs**: `?` stands for any size. The dtype is float32 unless another one is named.
- **share of limit**: the largest difference between our file and Keras, divided by what the check
  allows. The check passes up to 1.
- **difference**: the largest relative difference of our file, for `export_model` with its defaults.
  Other precisions follow in parentheses.
- **Keras's exporter**: the largest relative difference of the file that
  `Model.export(format="onnx")` writes, in onnxruntime, on the same inputs of several batch sizes
  and lengths; or why there is none.
"""
TABLE = (
    "| architecture | source | inputs | weights | share of limit | difference | Keras's exporter |\n"
    "|---|---|---|---|---|---|---|"
)
TITLES = {
    "applications": "keras.applications",
    "decoders": "Decoders and language models, with layers of keras-attn",
    "graphs": "Graph networks",
    "hub": "KerasHub",
    "hub_images": "KerasHub, images",
    "images": "Image and video classification",
    "ours": "Other models with layers of keras-attn",
    "pixels": "Segmentation, detection and generation of images",
    "series": "Time series, video and volumes",
    "speech": "Speech and sound",
    "tables": "Tabular data",
}
REASONS = {  # by what an error says
    r"No Op registered for (\w+)": "onnxruntime has no operator `{}`",
    r"Required inputs \(\['([^']+)'": "the file has inputs that the model does not have, such as `{}`",
    r"code returned while running (\w+) node": "the operator `{}` fails",
    r"(This is an invalid model)": "the file is not a valid model",
}


def page(results: Mapping[str, Results]) -> str:
    """Return the page: how many models each of the two exports, then a table for each kind of model."""
    passed = sum("error" not in each["float32"] for each in results.values())
    keras = [each[KERAS] for each in results.values() if KERAS in each]
    right = sum("error" not in each and not each["failed"] and each["max_rel"] <= EQUAL for each in keras)
    counted = (
        f"`export_model` exports {passed} of {len(results)} models, and all of these pass the check. Keras's exporter "
        f"was tried on {len(keras)} models. For {right} of them its file runs on all inputs and is within {EQUAL:g} "
        "of Keras."
    )
    parts = [HEAD, textwrap.fill(counted, WIDTH, break_on_hyphens=False) + "\n"]
    for kind in dict.fromkeys(each.kind for each in ZOO.values()):
        rows = [row(each, results[each.name]) for each in ZOO.values() if each.kind == kind]
        parts.append(f"## {TITLES.get(kind, kind.capitalize())}\n\n{TABLE}\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def row(each: Architecture, results: Results) -> str:
    plain = results["float32"]
    inputs = "; ".join(f"`{one}`" for one in plain["inputs"])
    others = ", ".join(
        f"{way} {'fails' if 'error' in (found := results[way]) else format(found['max_rel'], '.0e')}"
        for way in each.precisions
    )
    if "error" in plain:
        ours = ["", f"refused: {shortened(plain['error'])}"]
    else:
        ours = [f"{plain['of_limit']:.2f}", f"{plain['max_rel']:.0e}" + (f" ({others})" if others else "")]
    cells = [each.name.replace("_", " "), each.source.rstrip("."), inputs, f"{plain['weights']:,}", *ours]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in [*cells, keras_cell(results.get(KERAS))]) + " |"


def keras_cell(result: Result | None) -> str:
    if result is None:
        return "not tried"
    if "error" in result:
        return shortened(result["error"])
    if result["failed"]:
        return f"fails on {len(result['failed'])} of {result['cases']} inputs: {shortened(result['failed'][0])}"
    return f"{result['max_rel']:.0e}"


def shortened(error: str) -> str:
    """Return why a file fails: a few words for errors that are known, else the first of the error, without paths."""
    for pattern, words in REASONS.items():
        if found := re.search(pattern, error):
            return f"{LOADS if error.startswith(LOADS) else ''}{words.format(found[1])}"
    said = " ".join(re.sub(r"(?<![\w:)])/[\w./+-]+", "a file", error).split())
    return said if len(said) <= MOST_SAID else said[:MOST_SAID].rsplit(" ", 1)[0] + " ..."
