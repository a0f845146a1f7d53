"""Page docs/operators.md: results of each operator's file, exported by `export_model` and by Keras's exporter."""

import ast
from collections import Counter, defaultdict
from collections.abc import Sequence

import onnx

from .grids import EMPTY_AXIS, INFINITIES, NAN
from .running import REJECTED_BY_KERAS, Result

EQUAL, EQUAL_AT_FINITE, WRONG, REFUSED = "equal", "equal at finite values", "wrong", "refused"
WORST_LAST = (EQUAL, EQUAL_AT_FINITE, REFUSED, WRONG)

INTRODUCTION = """# Operators

Which operators give in onnxruntime what they give in Keras. The tables contain every public
function of `keras.ops`, every layer of `keras.layers` that computes outputs from inputs, and the
operators of TensorFlow that custom layers use. Each was exported and run on negative, zero, large
and extreme numbers, ties, zeros of both signs, infinities and NaN, and on axes of size 0 and 1, in
every dtype that Keras accepts. The test cases are in `tests/values`; `nox -s operators-page` writes
this page.

- **dtypes**, **variants**: what was tried, besides the defaults.
- **ours**: the result for the file of `export_model`. If it is known to differ from Keras, the
  reason follows; an export of a model with this operator says so too.
- **Keras's exporter**: the result for the file of `Model.export(format="onnx")`.
- **opset**: the lowest ONNX opset that our file needs.

The results:

- *equal*: integers and booleans are the same to the bit, floats to rounding.
- *equal at finite values*: only infinities, NaN or an axis of size 0 give another result.
- *refused*: the exporter writes no file.
- *wrong*: another result at finite values, or a file that does not load or run.
"""
TABLE_HEADER = "| operator | dtypes | variants | ours | Keras's exporter | opset |\n|---|---|---|---|---|---|"
MAX_VARIANTS = 8  # in a row


def build_page(pairs: Sequence[tuple[Result, Result]]) -> str:
    """Return the page for pairs of results: of our export and of Keras's exporter for the same case."""
    pairs_by_operator: dict[str, list[tuple[Result, Result]]] = defaultdict(list)
    for pair in pairs:
        if not pair[0].refusal.startswith(REJECTED_BY_KERAS):  # some convolutions, on some processors
            pairs_by_operator[pair[0].case.operator.replace("tensorflow.", "tf.")].append(pair)
    groups = pairs_by_operator.values()
    counts = [Counter(_find_worst([pair[side] for pair in group]) for group in groups) for side in (0, 1)]
    lines = [f"| {len(groups)} operators | {' | '.join(WORST_LAST)} |", "|---" * (len(WORST_LAST) + 1) + "|"]
    for name, count in zip(("ours", "Keras's exporter"), counts, strict=True):
        lines.append(f"| {name} | " + " | ".join(str(count[verdict]) for verdict in WORST_LAST) + " |")
    sections: dict[str, list[str]] = defaultdict(list)
    for operator, group in sorted(pairs_by_operator.items()):
        package, _, name = operator.rpartition(".")
        sections[package].append(_format_row(name, group))
    tables = [f"## {name}\n\n{TABLE_HEADER}\n" + "\n".join(rows) + "\n" for name, rows in sorted(sections.items())]
    return "\n".join([INTRODUCTION, "\n".join(lines) + "\n", *tables])


def _format_row(name: str, pairs: Sequence[tuple[Result, Result]]) -> str:
    variants = dict.fromkeys(variant for result, _ in pairs if (variant := result.case.variant.strip(" ,")))
    dtypes = dict.fromkeys(result.dtype for result, _ in pairs)
    our_results, keras_results = zip(*pairs, strict=True)
    opset = max((_compute_opset(result.model) for result in our_results if result.model), default="")
    result_cells = [_format_results(our_results), _find_worst(keras_results), str(opset)]
    cells = [f"`{name}`", ", ".join(dtypes), _format_variants([*variants]), *result_cells]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _format_variants(variants: Sequence[str]) -> str:
    """Return the first variants and the number of the others; a variant may be a dict of arguments, as a string."""
    descriptions = [
        ", ".join(f"{k}={v}" for k, v in ast.literal_eval(text).items()) if text[0] == "{" else text
        for text in variants
    ]
    remainder = [f"{len(descriptions) - MAX_VARIANTS} more"] if len(descriptions) > MAX_VARIANTS else []
    return "; ".join([*descriptions[:MAX_VARIANTS], *remainder])


def _format_results(results: Sequence[Result]) -> str:
    """Return the worst result, with the reasons for deviations and refusals."""
    reasons = {result.find_reason(kind) for result in results for kind in result.case.deviations}
    reasons |= {_format_refusal(result.case.refusal) for result in results if result.case.refusal}
    return ": ".join([_find_worst(results), *(["; ".join(sorted(reasons))] if reasons else [])])


def _format_refusal(message: str) -> str:
    """Return the part of a refusal's message that a case contains, with its closing backquote."""
    return message.replace("Op `", "operator `").replace("op `", "operator `") + "`" * (message.count("`") % 2)


def _find_worst(results: Sequence[Result]) -> str:
    return max((_classify(result) for result in results), key=WORST_LAST.index)


def _classify(result: Result) -> str:
    if result.refusal:
        return REFUSED
    kinds = {kind for kind, difference in result.differences.items() if difference}
    return WRONG if kinds - {INFINITIES, NAN, EMPTY_AXIS} else EQUAL_AT_FINITE if kinds else EQUAL


def _compute_opset(model: onnx.ModelProto) -> int:
    opset = model.opset_import[0].version
    operators = {node.op_type for node in model.graph.node if not node.domain}
    return max((onnx.defs.get_schema(operator, opset).since_version for operator in operators), default=1)
