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
    "hub_multimodal": "KerasHub, images with texts, sound and video",
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


def page(results: Mapping[str, Results], present: str = "") -> str:
    """Return the page: the number of models that both exporters export, and a table for each kind of model.

    Models without complete results keep their line of the present page.
    """
    lines = {line.split(" | ")[0]: line for line in present.splitlines() if line.startswith("| ")}
    complete = [ZOO[name] for name, ways in results.items() if set(ZOO[name].ways) <= set(ways)]
    lines |= {f"| {title(model.name)}": row(model, results[model.name]) for model in complete}
    kinds: dict[str, list[str]] = {}
    for model in ZOO.values():
        if line := lines.get(f"| {title(model.name)}"):
            kinds.setdefault(model.kind, []).append(line)
    cells = [line.removesuffix(" |").split(" | ")[-2:] for rows in kinds.values() for line in rows]
    refused = sum(ours.startswith("refused") for ours, _ in cells)
    measured = [keras for _, keras in cells if keras != "not tried"]
    right = sum(bool(re.fullmatch(r"[\d.e+-]+", keras)) and float(keras) <= EQUAL for keras in measured)
    counted = (
        f"`export_model` exports {len(cells) - refused} of {len(cells)} models, and all of these pass the check. "
        f"Keras's exporter was tried on {len(measured)} models. For {right} of them its file runs on all inputs and is "
        f"within {EQUAL:g} of Keras."
    )
    parts = [HEAD, textwrap.fill(counted, WIDTH, break_on_hyphens=False) + "\n"]
    for kind, rows in kinds.items():
        parts.append(f"## {TITLES.get(kind, kind.capitalize())}\n\n{TABLE}\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def title(name: str) -> str:
    return name.replace("_", " ")


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
    cells = [title(each.name), each.source.rstrip("."), inputs, f"{plain['weights']:,}", *ours]
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
