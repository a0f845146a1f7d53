"""docs/operators.md: what each operator's file gives, exported by us and by Keras's exporter."""

import ast
from collections import Counter, defaultdict
from collections.abc import Sequence

import onnx

from .grids import EMPTY, INFINITE, NAN
from .running import NOT_TAKEN, Outcome

EQUAL, NOT_FINITE, WRONG, REFUSED = "equal", "equal at finite values", "wrong", "refused"
WORST_LAST = (EQUAL, NOT_FINITE, REFUSED, WRONG)

HEAD = """# Operators

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
TABLE = "| operator | dtypes | variants | ours | Keras's exporter | opset |\n|---|---|---|---|---|---|"
SHOWN = 8  # variants of an operator that are listed


def page(pairs: Sequence[tuple[Outcome, Outcome]]) -> str:
    """Return the page: the results of the entries, by our export and by Keras's."""
    by_operator: dict[str, list[tuple[Outcome, Outcome]]] = defaultdict(list)
    for pair in pairs:
        if not pair[0].refused.startswith(NOT_TAKEN):  # by Keras itself, as some convolutions on some processors
            by_operator[pair[0].entry.operator.replace("tensorflow.", "tf.")].append(pair)
    counts = [Counter(_worst([pair[side] for pair in found]) for found in by_operator.values()) for side in (0, 1)]
    lines = [f"| {len(by_operator)} operators | {' | '.join(WORST_LAST)} |", "|---" * (len(WORST_LAST) + 1) + "|"]
    for name, count in zip(("ours", "Keras's exporter"), counts, strict=True):
        lines.append(f"| {name} | " + " | ".join(str(count[each]) for each in WORST_LAST) + " |")
    sections: dict[str, list[str]] = defaultdict(list)
    for operator, found in sorted(by_operator.items()):
        package = operator.rpartition(".")[0]
        sections[package].append(_row(operator.rpartition(".")[2], found))
    tables = [f"## {package}\n\n{TABLE}\n" + "\n".join(rows) + "\n" for package, rows in sorted(sections.items())]
    return "\n".join([HEAD, "\n".join(lines) + "\n", *tables])


def _row(name: str, found: Sequence[tuple[Outcome, Outcome]]) -> str:
    ways = dict.fromkeys(how for outcome, _ in found if (how := outcome.entry.how.strip(" ,")))
    dtypes = dict.fromkeys(outcome.dtype for outcome, _ in found)
    mine, theirs = zip(*found, strict=True)
    opset = max((_opset(each.model) for each in mine if each.model), default=0)
    cells = [f"`{name}`", ", ".join(dtypes), _listed([*ways]), _said(mine), _worst(theirs), str(opset or "")]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _listed(ways: Sequence[str]) -> str:
    """The first variants, and how many more there are."""
    shown = [", ".join(f"{k}={v}" for k, v in ast.literal_eval(way).items()) if way[0] == "{" else way for way in ways]
    more = [f"{len(shown) - SHOWN} more"] if len(shown) > SHOWN else []
    return "; ".join([*shown[:SHOWN], *more])


def _said(found: Sequence[Outcome]) -> str:
    """The worst result, with the reasons that the table of deviations gives."""
    reasons = {each.reason(kind) for each in found for kind in each.entry.deviates}
    reasons |= {_of_refusal(each.entry.refused) for each in found if each.entry.refused}
    return ": ".join([_worst(found), *(["; ".join(sorted(reasons))] if reasons else [])])


def _of_refusal(part: str) -> str:
    """The part of a refusal's message that a row names, with its last quote."""
    return part.replace("Op `", "operator `").replace("op `", "operator `") + "`" * (part.count("`") % 2)


def _worst(found: Sequence[Outcome]) -> str:
    return max((_verdict(each) for each in found), key=WORST_LAST.index)


def _verdict(outcome: Outcome) -> str:
    if outcome.refused:
        return REFUSED
    differs = {kind for kind, found in outcome.kinds.items() if found}
    return WRONG if differs - {INFINITE, NAN, EMPTY} else NOT_FINITE if differs else EQUAL


def _opset(model: onnx.ModelProto) -> int:
    opset = model.opset_import[0].version
    kinds = {node.op_type for node in model.graph.node if not node.domain}
    return max((onnx.defs.get_schema(kind, opset).since_version for kind in kinds), default=1)
