"""Write the page docs/models.md from the results of the exports."""

import re
import textwrap
from collections.abc import Mapping

from . import ZOO
from .exports import KERAS_EXPORTER, Result
from .registry import Architecture

ModelResults = Mapping[str, Result]
MAX_ERROR_LENGTH = 160
LINE_WIDTH = 100
LOAD_ERROR = "does not load: "
# If the relative difference between Keras and the file of its exporter is larger, the file is wrong: this is more than
# float rounding.
MAX_DIFFERENCE = 1e-3

INTRODUCTION = """# Models

Published architectures, exported by `export_model` and by Keras's exporter. The outputs of both
files are compared with those of Keras. Models of `keras.applications` and KerasHub (`keras_hub`)
are built by these packages. The others are written from their published descriptions, in
`tests/zoo`. All models are small and not trained: their weights are random, and also biases and
statistics, which begin as zeros or ones, are changed. `nox -s zoo-page` writes this page.

- **inputs**: `?` stands for any size. The dtype is float32 unless another one is named.
- **share of limit**: the largest difference between our file and Keras, divided by what the check
  allows. The check passes up to 1.
- **difference**: the largest relative difference of our file, for `export_model` with its defaults.
  Other precisions follow in parentheses.
- **Keras's exporter**: the largest relative difference between Keras and the file that
  `Model.export(format="onnx")` writes. onnxruntime runs the file on the same inputs, of several
  batch sizes and lengths. If the export or a run fails, the reason.
"""
TABLE_HEADER = (
    "| architecture | source | inputs | weights | share of limit | difference | Keras's exporter |\n"
    "|---|---|---|---|---|---|---|"
)
SECTION_TITLES = {
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
REASON_BY_ERROR_PATTERN = {
    r"No Op registered for (\w+)": "onnxruntime has no operator `{}`",
    r"Required inputs \(\['([^']+)'": "the file has inputs that the model does not have, such as `{}`",
    r"code returned while running (\w+) node": "the operator `{}` fails",
    r"(This is an invalid model)": "the file is not a valid model",
}


def render_page(results_by_model: Mapping[str, ModelResults], current_page: str = "") -> str:
    """Return the page: a summary with the number of models that each exporter exports, and a table for each kind.

    A model that lacks the result of a precision keeps its line of the current page.
    """
    line_by_name_cell = {line.split(" | ")[0]: line for line in current_page.splitlines() if line.startswith("| ")}
    for name, results in results_by_model.items():
        if set(ZOO[name].float32_and_low_precisions) <= set(results):
            line_by_name_cell[f"| {format_name(name)}"] = render_row(ZOO[name], results)
    lines_by_kind: dict[str, list[str]] = {}
    for architecture in ZOO.values():
        if line := line_by_name_cell.get(f"| {format_name(architecture.name)}"):
            lines_by_kind.setdefault(architecture.kind, []).append(line)
    # The last two cells of a line describe our file (its difference, or a refusal) and the file of Keras's exporter.
    last_cells = [line.removesuffix(" |").split(" | ")[-2:] for lines in lines_by_kind.values() for line in lines]
    num_models, num_refused = len(last_cells), sum(cell.startswith("refused") for cell, _ in last_cells)
    keras_cells = [cell for _, cell in last_cells if cell != "not tried"]
    is_float = re.compile(r"[\d.e+-]+").fullmatch
    num_close = sum(bool(is_float(cell)) and float(cell) <= MAX_DIFFERENCE for cell in keras_cells)
    summary = (
        f"`export_model` exports {num_models - num_refused} of {num_models} models, and all of these pass the check. "
        f"Keras's exporter was tried on {len(keras_cells)} models. For {num_close} of them its file runs on all inputs "
        f"and is within {MAX_DIFFERENCE:g} of Keras."
    )
    parts = [INTRODUCTION, textwrap.fill(summary, LINE_WIDTH, break_on_hyphens=False) + "\n"]
    for kind, lines in lines_by_kind.items():
        parts.append(f"## {SECTION_TITLES.get(kind, kind.capitalize())}\n\n{TABLE_HEADER}\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def format_name(name: str) -> str:
    return name.replace("_", " ")


def render_row(architecture: Architecture, results: ModelResults) -> str:
    """Return the line of a model in the table.

    In a result, `of_limit` is the largest difference from Keras divided by what the check allows, and `max_rel` is the
    largest relative difference.
    """
    float32_result = results["float32"]
    inputs = "; ".join(f"`{description}`" for description in float32_result["inputs"])
    low_precision_text = ", ".join(
        f"{precision} {'fails' if 'error' in (result := results[precision]) else format(result['max_rel'], '.0e')}"
        for precision in architecture.precisions
    )
    if "error" in float32_result:
        difference_cells = ["", f"refused: {summarize_error(float32_result['error'])}"]
    else:
        suffix = f" ({low_precision_text})" if low_precision_text else ""
        difference_cells = [f"{float32_result['of_limit']:.2f}", f"{float32_result['max_rel']:.0e}{suffix}"]
    cells = [format_name(architecture.name), architecture.source.rstrip("."), inputs, f"{float32_result['weights']:,}"]
    cells += [*difference_cells, render_keras_cell(results.get(KERAS_EXPORTER))]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def render_keras_cell(result: Result | None) -> str:
    if result is None:
        return "not tried"
    if "error" in result:
        return summarize_error(result["error"])
    if errors := result["failed"]:
        return f"fails on {len(errors)} of {result['cases']} inputs: {summarize_error(errors[0])}"
    return f"{result['max_rel']:.0e}"


def summarize_error(error: str) -> str:
    """Return a short reason for an error.

    It comes from `REASON_BY_ERROR_PATTERN`. If no pattern matches, it is the beginning of the message without paths.
    """
    for pattern, reason in REASON_BY_ERROR_PATTERN.items():
        if match := re.search(pattern, error):
            return f"{LOAD_ERROR if error.startswith(LOAD_ERROR) else ''}{reason.format(match[1])}"
    message = " ".join(re.sub(r"(?<![\w:)])/[\w./+-]+", "a file", error).split())
    return message if len(message) <= MAX_ERROR_LENGTH else message[:MAX_ERROR_LENGTH].rsplit(" ", 1)[0] + " ..."
