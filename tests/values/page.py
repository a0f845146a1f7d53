"""docs/operators.md: what each operator's file gives, by ours and by Keras's own exporter."""

from collections import Counter, defaultdict
from collections.abc import Sequence

import onnx

from .grids import EMPTY, INFINITE, NAN
from .running import Outcome

EQUAL, NOT_FINITE, WRONG, REFUSED = "equal", "equal at finite values", "wrong", "refused"
WORST_LAST = (EQUAL, NOT_FINITE, REFUSED, WRONG)

HEAD = """# Operators

Every public function of `keras.ops`, every layer of `keras.layers` that infers, and operators of TensorFlow that
custom layers use, each as a file that runs in onnxruntime beside Keras: on negative, zero, large and extreme numbers,
ties, zeros of both signs, infinities and NaN, on axes of 0 and of 1, in every dtype that Keras takes. The rows are in
`tests/values`; `nox -s operators-page` makes this page.

- **ours**: what `export_model` writes. Where it is known to differ from Keras, the reason follows, and an export of a
  model that contains the operator says it too.
- **Keras's own**: what `Model.export(format="onnx")` writes.
- **opset**: the newest operator of ONNX that ours needs.

*equal*: integers and booleans to the bit, floats to rounding. *equal at finite values*: infinities, NaN or an axis of 0
give another answer. *refused*: no file. *wrong*: another answer at finite values, or a file that does not load or run.
"""
TABLE = "| operator | tried | ours | Keras's own | opset |\n|---|---|---|---|---|"


def page(pairs: Sequence[tuple[Outcome, Outcome]]) -> str:
    """Return the page of what came of the entries, by ours and by Keras's own."""
    by_operator: dict[str, list[tuple[Outcome, Outcome]]] = defaultdict(list)
    for pair in pairs:
        by_operator[pair[0].entry.operator].append(pair)
    counts = [Counter(_worst([pair[side] for pair in found]) for found in by_operator.values()) for side in (0, 1)]
    lines = [f"| {len(by_operator)} operators | {' | '.join(WORST_LAST)} |", "|---" * (len(WORST_LAST) + 1) + "|"]
    for name, count in zip(("ours", "Keras's own"), counts, strict=True):
        lines.append(f"| {name} | " + " | ".join(str(count[each]) for each in WORST_LAST) + " |")
    sections: dict[str, list[str]] = defaultdict(list)
    for operator, found in sorted(by_operator.items()):
        package = operator.rpartition(".")[0]
        sections[package].append(_row(operator.rpartition(".")[2], found))
    tables = [
        f"## {package}\n\n| operator | tried | ours | Keras's own | opset |\n|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
        for package, rows in sorted(sections.items())
    ]
    return "\n".join([HEAD, "\n".join(lines) + "\n", *tables])


def _row(name: str, found: Sequence[tuple[Outcome, Outcome]]) -> str:
    ways = dict.fromkeys(how for outcome, _ in found if (how := outcome.entry.how.strip(" ,")))
    dtypes = dict.fromkeys(outcome.dtype for outcome, _ in found)
    tried = "; ".join([", ".join(dtypes), *([", ".join(ways)] if ways else [])])
    mine, theirs = zip(*found, strict=True)
    opset = max((_opset(each.model) for each in mine if each.model), default=0)
    cells = [f"`{name}`", tried, _said(mine), _worst(theirs), str(opset or "")]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _said(found: Sequence[Outcome]) -> str:
    """The worst of it, with the reasons that the table gives."""
    reasons = {each.reason(kind) for each in found for kind in each.entry.deviates}
    refused = {each.entry.refused for each in found if each.entry.refused}
    return "; ".join([_worst(found), *sorted(reasons | refused)])


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
