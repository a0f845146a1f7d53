"""Table of features in docs/design.md: each feature with its code, its tests and their numbers of lines.

`python tests/repository/feature_table.py` updates the numbers. `test_design.py` does not compare the
numbers, so a change of a few lines needs no update. A file belongs to the feature with the longest matching prefix.
"""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "design.md"
TABLE_PATTERN = re.compile(r"(?<=<!-- features -->\n).*?(?=\n<!-- end of features -->)", re.DOTALL)
COUNTED_PATHS = ("keras_attn", "export", "tests", "benchmarks", "examples", "scripts", ".ci", "noxfile.py")
# Largest numbers of lines to which the project may grow
BUDGETS = {"keras_attn/ and export/": 37_000, "tests/": 38_500, "all Python": 82_500}

# For each feature, prefixes of the paths of its code, and prefixes of its tests. A feature is what a user can do.
FEATURES = {
    "attention layers with masks, on three backends": (
        "keras_attn/",
        "tests/layers/ tests/contract/",
    ),
    "recurrent decoders with attention": (
        "keras_attn/_recurrent/",
        "tests/layers/test_attention_rnn tests/layers/test_attention_cell tests/layers/test_recurrent_inputs",
    ),
    "positions: rotary, relative, linear biases": (
        "keras_attn/_positions/",
        "tests/layers/test_rotary tests/layers/test_linear_bias tests/layers/test_relative_position_bias "
        "tests/layers/test_position_bias",
    ),
    "greedy and beam search in one model": (
        "keras_attn/decoding/",
        "tests/layers/test_decoding tests/export_model/test_decoding_export.py",
    ),
    "heat maps during training": ("keras_attn/callbacks/", "tests/layers/test_callbacks.py"),
    "weights from other frameworks": ("keras_attn/migrate/", "tests/layers/test_migrate"),
    "training on several devices": ("", "tests/distributed/ tests/layers/test_replicas.py"),
    "export of a Keras model, SavedModel and ONNX": (
        "export/ export/_export/ export/_tracing/ export/_private_api/ export/_signature/ export/_processes/",
        "tests/export_model/ tests/tracing/ tests/private_api/ tests/signature/",
    ),
    "operators that tf2onnx lacks or converts wrongly": ("export/_operators/", "tests/operators/ tests/values/"),
    "each attention layer exported in its fastest form": (
        "export/_lowerings/ export/_thresholds.py",
        "tests/lowerings/",
    ),
    "graphs simplified for onnxruntime": ("export/_onnx/ export/_passes/", "tests/onnx/ tests/passes/"),
    "golden cases and rounding limits": (
        "export/_golden_cases/ export/_rounding/",
        "tests/golden_cases/ tests/rounding/",
    ),
    "float16 and int8 files": ("export/_precision/", "tests/precision/"),
    "bundle: verification, `verify.py`, replacement of folders": (
        "export/_bundle/ export/_format/",
        "tests/bundle/ tests/format/",
    ),
    "bundle: first layer that differs from Keras, run time and memory": (
        "export/_bundle/bench export/_bundle/first_difference export/_bundle/onnx_tensors "
        "export/_bundle/saved_model_tensors export/_processes/peak_memory export/_latency",
        "tests/bundle/test_bench_bundle.py tests/bundle/test_first_difference.py tests/test_latency.py",
    ),
    "report with a live page": ("export/_report/", "tests/report/"),
    "tables of rows of any length, locally or on Ray": ("export/_batch/ export/_tables/", "tests/batch/"),
    "command line": ("export/_cli/ export/__main__.py", "tests/cli/"),
    "example service behind HTTP": ("examples/serve_bundle.py", "tests/serving/"),
    "examples, benchmarks, scripts": (
        "examples/ benchmarks/ scripts/ .ci/ noxfile.py",
        "tests/repository/ tests/documents/",
    ),
    "published models and options of layers (nightly)": ("", "tests/zoo/ tests/runtimes/ tests/mutations/"),
    "models, oracles and processes of the tests": ("", "tests/support/ tests/conftest.py tests/test_"),
}


def list_files() -> list[str]:
    """Return the Python files of the repository."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *COUNTED_PATHS],
        cwd=ROOT, check=True, capture_output=True, text=True,
    ).stdout.splitlines()  # fmt: skip
    return [name for name in names if name.endswith(".py") and (ROOT / name).exists()]


def map_prefixes_to_features() -> dict[str, str]:
    """Return a dict with the prefixes in `FEATURES` as keys and their features as values."""
    return {prefix: feature for feature, parts in FEATURES.items() for part in parts for prefix in part.split()}


def find_prefix(file: str) -> str:
    """Return the longest prefix that matches a file, or an empty string."""
    return max((prefix for prefix in map_prefixes_to_features() if file.startswith(prefix)), key=len, default="")


def format_table() -> str:
    """Return the Markdown table."""
    line_counts = dict.fromkeys(((feature, kind) for feature in FEATURES for kind in ("code", "tests")), 0)
    total = dict.fromkeys(BUDGETS, 0)
    for file in list_files():
        count = len((ROOT / file).read_text(encoding="utf-8").splitlines())
        is_test = file.startswith("tests/")
        line_counts[map_prefixes_to_features()[find_prefix(file)], "tests" if is_test else "code"] += count
        total["all Python"] += count
        if is_test:
            total["tests/"] += count
        elif file.startswith(("keras_attn/", "export/")):
            total["keras_attn/ and export/"] += count
    rows = []
    for feature, prefixes in FEATURES.items():
        counts = [f"{line_counts[feature, kind]:,}" for kind in ("code", "tests")]
        rows.append(f"| {' | '.join([feature, *map(format_prefixes, prefixes), *counts])} |")
    total_rows = [f"| **{name}** | {total[name]:,} | {budget:,} |" for name, budget in BUDGETS.items()]
    feature_rows = [
        "| what a user can do | code | tests | lines of code | lines of tests |",
        "|---|---|---|---:|---:|",
        *rows,
    ]
    return "\n".join([*feature_rows, "", "| lines | now | budget |", "|---|---:|---:|", *total_rows])


def format_prefixes(prefixes: str) -> str:
    """Return prefixes as Markdown code, with a `*` if a prefix matches several files."""
    return ", ".join(f"`{prefix}{'' if prefix.endswith(('/', '.py')) else '*'}`" for prefix in prefixes.split())


def build_page() -> str:
    """Return docs/design.md with the table."""
    return TABLE_PATTERN.sub(lambda _: format_table(), PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(build_page(), encoding="utf-8")
