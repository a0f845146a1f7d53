"""Tables of docs/coverage.md: layers, their options, and counts of rows of docs/operators.md and docs/models.md.

`python tests/repository/coverage_page.py` updates the page in seconds: it exports no model.
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
TOLERANCE = 1e-3  # largest difference from Keras that docs/models.md counts as equal
WRAPPERS = {"AttentionCell", "AttentionRNN"}  # layers that call an attention layer

BLOCK = re.compile(r"(?:^(?:\||- ).*\n)+", re.MULTILINE)  # a table, or the list of layers without a row
ATTENTION_OPTIONS = {
    keras_attn.AdditiveAttention: {"num_hiddens": 4},
    keras_attn.BilinearAttention: {},
    keras_attn.CosineAttention: {},
    keras_attn.DotProductAttention: {},
    keras_attn.GaussianAttention: {},
    keras_attn.LocationSensitiveAttention: {"num_hiddens": 4, "filters": 2, "kernel_size": 3},
    keras_attn.MultiHeadAttention: {"attention": None, "num_heads": 2},
}


def read_sections(page: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield the title of each section of a page of tables, and its rows as cells by column title."""
    for section in page.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        head, _, *lines = (line for line in text.splitlines() if line.startswith("|"))
        titles = split_cells(head)
        yield title, [dict(zip(titles, split_cells(line), strict=True)) for line in lines]


def split_cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def read_result(cell: str) -> str:
    return re.split("[:;]", cell)[0]


def format_table(*titles: str, rows: list[list[object]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines) + "\n"


def format_link(title: str, page: str) -> str:
    anchor = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
    return f"[{title}]({page}#{anchor})"


def count_results(rows: list[dict[str, str]]) -> list[object]:
    """Count rows of docs/operators.md: all, those with each result of this package, and equal ones of Keras's."""
    counts = Counter(read_result(row["ours"]) for row in rows)
    assert not set(counts) - set(RESULTS), counts
    keras_equal = sum(read_result(row["Keras's exporter"]) == RESULTS[0] for row in rows)
    return [len(rows), *(counts[result] or "" for result in RESULTS), keras_equal]


def find_forms(kind: type, options: dict[str, object]) -> list[str]:
    """Return the lowerings in which an attention layer has its own form, chosen as in an export."""
    if "attention" in options:
        options = options | {"attention": keras_attn.DotProductAttention()}
    layer, tracer = kind(**options), CallTracer(needs_zeroed_padding=False)
    layer.build((2, 3, 4), (2, 5, 4), (2, 5, 6))

    def call(queries: tf.Tensor, keys: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        with tracer.intercept():
            return layer(queries, keys, values)

    specs = [tf.TensorSpec((None, None, size), tf.float32) for size in (4, 4, 6)]
    tf.function(call, autograph=False).get_concrete_function(*specs)
    return [
        lowering
        for lowering in LOWERINGS
        if tracer.calls and requested_lowering(choose_lowering(tracer.calls[0], lowering)) == lowering
    ]


def format_layers() -> str:
    rows: list[list[object]] = []
    for name in keras_attn.__all__:
        kind = getattr(keras_attn, name)
        if not isinstance(kind, type) or not issubclass(kind, keras.layers.Layer):
            continue
        forms = find_forms(kind, ATTENTION_OPTIONS[kind]) if kind in ATTENTION_OPTIONS else []
        default = "those of its attention layer" if name in WRAPPERS else "plain operators"
        stem = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
        paths = (f"tests/layers/test_{module}.py" for module in (stem, stem.removesuffix("_attention")))
        files = [f"`{path}`" for path in paths if (ROOT / path).is_file()][:1]
        form = ", ".join(f'`"{form}"`' for form in forms) or default
        rows.append([f"`{name}`", form, ", ".join(["`tests/contract`", *files])])
    return format_table("layer", "forms", "tests", rows=rows)


def format_options() -> tuple[str, str]:
    """Return the table of exported and refused options by layer, and the reasons for layers without a row."""
    from zoo.layer_options import LAYERS_WITHOUT_ROW, ROWS

    options: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for row in ROWS:
        exported, refused = options.setdefault(f"`{row.layer}`", ({}, {}))
        text = f"`{row.option}`" if row.option else ""
        if row.refusal_reason:
            refused[f"{text}: {row.refusal_reason}".removeprefix(": ")] = None
        else:
            exported[text] = None
    rows = [
        [name, ", ".join(filter(None, exported)), "; ".join(refused)] for name, (exported, refused) in options.items()
    ]
    reasons = [f"- `{names.replace(' ', '`, `')}`: {reason}\n" for names, reason in LAYERS_WITHOUT_ROW.items()]
    return format_table("layer", "exported options", "refused", rows=sorted(rows)), "".join(reasons)


def format_models(page: str) -> str:
    lines = []
    for title, rows in read_sections(page):
        shares = [float(row["share of limit"]) for row in rows if row["share of limit"]]
        cells = [row["Keras's exporter"] for row in rows if row["Keras's exporter"] != "not tried"]
        equal_count = sum(bool(re.match(r"[\d.e+-]+$", cell)) and float(cell) <= TOLERANCE for cell in cells)
        counts = [len(rows), len(shares), len(rows) - len(shares) or "", f"{max(shares):.2f}"]
        lines.append([format_link(title, "models.md"), *counts, f"{equal_count} of {len(cells)}"])
    titles = ("kind", "models", "equal", "refused", "largest share of the limit", "right by Keras's exporter")
    return format_table(*titles, rows=lines)


def build_page() -> str:
    """Return the page with generated tables."""
    operators = dict(read_sections((ROOT / "docs" / "operators.md").read_text(encoding="utf-8")))
    models = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    packages = [[format_link(title, "operators.md"), *count_results(rows)] for title, rows in operators.items()]
    packages.append(["all", *count_results([row for rows in operators.values() for row in rows])])
    titles = ("package", "operators", *RESULTS, "equal by Keras's exporter")
    blocks = iter([format_layers(), *format_options(), format_table(*titles, rows=packages), format_models(models)])
    return BLOCK.sub(lambda _: next(blocks), PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    # For the package `zoo` and its imports.
    sys.path += [str(ROOT / "tests"), *map(str, (ROOT / "tests" / "support").iterdir())]
    PAGE.write_text(build_page(), encoding="utf-8")
