"""docs/coverage.md: options of layers, counts of the rows of docs/operators.md and docs/models.md, and our layers.

`python tests/repository/coverage_page.py` writes the page anew, in seconds; nothing is exported for it.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import keras
import tensorflow as tf

import keras_attn
from keras_attn_export._lowering_names import LOWERINGS, requested_lowering
from keras_attn_export._lowerings.lowering_choice import choose_lowering
from keras_attn_export._tracing.attention_calls import CallTracer

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "coverage.md"
RESULTS = ("equal", "equal at finite values", "refused", "wrong")
WITHIN = 1e-3  # of Keras, as docs/models.md counts
INNER = {"AttentionCell", "AttentionRNN"}  # their attention is that of another layer

BLOCK = re.compile(r"(?:^(?:\||- ).*\n)+", re.MULTILINE)  # a table, or the list of layers without a row
ATTENTION = {
    keras_attn.AdditiveAttention: {"num_hiddens": 4},
    keras_attn.BilinearAttention: {},
    keras_attn.CosineAttention: {},
    keras_attn.DotProductAttention: {},
    keras_attn.GaussianAttention: {},
    keras_attn.LocationSensitiveAttention: {"num_hiddens": 4, "filters": 2, "kernel_size": 3},
    keras_attn.MultiHeadAttention: {"attention": None, "num_heads": 2},
}


def sections(page: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield the title of each section of a page of tables, and its rows by the titles of their columns."""
    for section in page.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        head, _, *lines = (line for line in text.splitlines() if line.startswith("|"))
        titles = cells(head)
        yield title, [dict(zip(titles, cells(line), strict=True)) for line in lines]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def result(cell: str) -> str:
    return re.split("[:;]", cell)[0]


def table(*titles: str, rows: list[list[object]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def link(title: str, page: str) -> str:
    anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    return f"[{title}]({page}#{anchor})"


def counted(rows: list[dict[str, str]]) -> list[object]:
    """How many of some rows of docs/operators.md have each result by ours, and how many are equal by Keras's."""
    ours = Counter(result(row["ours"]) for row in rows)
    assert not set(ours) - set(RESULTS), ours
    theirs = sum(result(row["Keras's exporter"]) == RESULTS[0] for row in rows)
    return [len(rows), *(ours[each] or "" for each in RESULTS), theirs]


def forms(kind: type, options: dict[str, object]) -> list[str]:
    """In which lowerings a layer of attention has a form of its own, by the way that an export takes."""
    if "attention" in options:
        options = options | {"attention": keras_attn.DotProductAttention()}
    layer, tracer = kind(**options), CallTracer(needs_zeroed_padding=False)
    layer.build((2, 3, 4), (2, 5, 4), (2, 5, 6))

    def traced(queries: tf.Tensor, keys: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        with tracer.intercept():
            return layer(queries, keys, values)

    given = [tf.TensorSpec((None, None, size), tf.float32) for size in (4, 4, 6)]
    tf.function(traced, autograph=False).get_concrete_function(*given)
    return [
        each
        for each in LOWERINGS
        if tracer.calls and requested_lowering(choose_lowering(tracer.calls[0], each)) == each
    ]


def of_ours() -> str:
    rows: list[list[object]] = []
    for name in keras_attn.__all__:
        kind = getattr(keras_attn, name)
        if not isinstance(kind, type) or not issubclass(kind, keras.layers.Layer):
            continue
        found = ", ".join(f'`"{each}"`' for each in forms(kind, ATTENTION[kind])) if kind in ATTENTION else ""
        form = found or ("those of its attention layer" if name in INNER else "plain operators")
        stem = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        names = (f"tests/layers/test_{each}.py" for each in (stem, stem.removesuffix("_attention")))
        own = [f"`{each}`" for each in names if (ROOT / each).is_file()][:1]
        rows.append([f"`{name}`", form, ", ".join(["`tests/contract`", *own])])
    return table("layer", "forms", "tests", rows=rows)


def of_options() -> tuple[str, str]:
    """Return the table of exported and refused options by layer, and the reasons for layers without a row."""
    from zoo.layer_options import NO_ROW, ROWS

    options: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for row in ROWS:
        exported, refused = options.setdefault(f"`{row.layer}`", ({}, {}))
        text = f"`{row.option}`" if row.option else ""
        if row.refused:
            refused[f"{text}: {row.refused}".removeprefix(": ")] = None
        else:
            exported[text] = None
    rows = [
        [name, ", ".join(filter(None, exported)), "; ".join(refused)] for name, (exported, refused) in options.items()
    ]
    reasons = [f"- `{names.replace(' ', '`, `')}`: {reason}\n" for names, reason in NO_ROW.items()]
    return table("layer", "exported options", "refused", rows=sorted(rows)), "".join(reasons)


def of_models(page: str) -> str:
    lines = []
    for title, rows in sections(page):
        shares = [float(row["share of limit"]) for row in rows if row["share of limit"]]
        theirs = [row["Keras's exporter"] for row in rows if row["Keras's exporter"] != "not tried"]
        near = sum(bool(re.match(r"[\d.e+-]+$", each)) and float(each) <= WITHIN for each in theirs)
        counts = [len(rows), len(shares), len(rows) - len(shares) or "", f"{max(shares):.2f}"]
        lines.append([link(title, "models.md"), *counts, f"{near} of {len(theirs)}"])
    titles = ("kind", "models", "equal", "refused", "largest share of the limit", "right by Keras's exporter")
    return table(*titles, rows=lines)


def page() -> str:
    """Return the page with tables written anew."""
    operators = dict(sections((ROOT / "docs" / "operators.md").read_text(encoding="utf-8")))
    models = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    by_package = [[link(title, "operators.md"), *counted(rows)] for title, rows in operators.items()]
    by_package.append(["all", *counted([row for rows in operators.values() for row in rows])])
    titles = ("package", "operators", *RESULTS, "equal by Keras's exporter")
    blocks = iter([of_ours(), *of_options(), table(*titles, rows=by_package), of_models(models)])
    return BLOCK.sub(lambda _: next(blocks), PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    # of the package `zoo` and of what it imports
    sys.path += [str(ROOT / "tests"), *map(str, (ROOT / "tests" / "support").iterdir())]
    PAGE.write_text(page(), encoding="utf-8")
