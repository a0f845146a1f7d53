"""Tables of what the check found, in Markdown, and their place in docs/gpu.md."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .index import Row
from .results import STAGES, failures, told

BEGIN, END = "<!-- results -->", "<!-- end of results -->"
MOST_FAILURES = 40
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"


def page(content: dict[str, Any]) -> str:
    """All tables of a run."""
    parts = [_machine(content), _verdict(content), _failures(content), _replay(content["replay"])]
    parts += [_contract(content["contract"]), _timing(content["timing"]), _left_out(content["left_out"])]
    return "\n\n".join(part for part in parts if part) + "\n"


def write_document(document: Path, content: dict[str, Any]) -> None:
    """Put the tables between the markers of a page.

    Raises:
        ValueError: The page has no such place.
    """
    text = document.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{document} has no place between {BEGIN} and {END}.")
    document.write_text(f"{before}{BEGIN}\n\n{page(content)}\n{END}{after}", encoding="utf-8")


def _machine(content: dict[str, Any]) -> str:
    machine = content["machine"]
    named = [
        ("", machine.get("gpu")),
        ("", machine.get("processor")),
        ("cores", machine.get("cores")),
        ("Python", machine.get("python")),
        ("NumPy", machine.get("numpy")),
        ("onnxruntime", machine.get("onnxruntime")),
        *((name.replace("_version", ", built for").strip(), value) for name, value in _built(machine)),
        ("torch", machine.get("torch")),
        ("CUDA of torch", machine.get("torch_cuda")),
        ("cuDNN of torch", machine.get("torch_cudnn")),
    ]
    told_ = "; ".join(f"{name} {value}".strip() for name, value in named if value)
    quick = " A quick run: its sizes are tiny and its times say nothing." if content["quick"] else ""
    options = machine.get("provider_options") or {}
    used = ", ".join(f"`{name}={value}`" for name, value in options.items()) or "none"
    return f"On {machine.get('date', 'no machine')}: {told_}. Options of the provider: {used}.{quick}"


def _built(machine: dict[str, Any]) -> list[tuple[str, str]]:
    names = {"cuda_version": "built for CUDA", "cudnn_version": "built for cuDNN"}
    return [(names.get(name, name), value) for name, value in machine.get("built_for", {}).items() if value]


def _verdict(content: dict[str, Any]) -> str:
    counts = {stage: (sum(row["passed"] for row in content[stage]), len(content[stage])) for stage in STAGES}
    parts = [f"{stage} {passed} of {count}" for stage, (passed, count) in counts.items()]
    ended = "" if content["ended"] == "to its end" else f" **The run did not come to its end: {content['ended']}.**"
    return f"Rows that passed: {', '.join(parts)}.{ended}"


def _failures(content: dict[str, Any]) -> str:
    wrong = failures(content)
    if not wrong:
        return ""
    lines = [f"- {stage}: {_cell(told(row))}" for stage, row in wrong[:MOST_FAILURES]]
    more = [f"- and {len(wrong) - MOST_FAILURES} more"] if len(wrong) > MOST_FAILURES else []
    return "\n".join(["**What failed**", "", *lines, *more])


def _replay(rows: list[Row]) -> str:
    if not rows:
        return ""
    lines = []
    for (form, precision), group in _grouped(rows, "form", "precision"):
        nodes = [sum(row.get("nodes", {}).get(name, 0) for row in group) for name in (CUDA, CPU)]
        numbers = sum(row.get("outputs", 0) for row in group), sum(row.get("failed", 0) for row in group)
        passed = f"{sum(row['passed'] for row in group)} of {len(group)}"
        lines.append([form, precision, passed, *numbers, _number(_worst(group)), *nodes])
    heads = ["form", "precision", "bundles", "outputs", "failed", "worst, of limit", "nodes on CUDA", "nodes on CPU"]
    return "### Golden cases\n\n" + table(heads, lines)


def _contract(rows: list[Row]) -> str:
    if not rows:
        return ""
    promises = list(dict.fromkeys(row["promise"] for row in rows if "promise" in row))
    lines = []
    for (form, precision), group in _grouped(rows, "form", "precision"):
        of = [[row for row in group if row.get("promise") == promise] for promise in promises]
        cells = [f"{sum(row['passed'] for row in each)} of {len(each)}" if each else "" for each in of]
        runs = sum(row.get("runs", 0) for row in group)
        lines.append([form, precision, *cells, _number(_worst(group)), runs])
    return "### Contract\n\n" + table(["form", "precision", *promises, "worst, of limit", "comparisons"], lines)


def _timing(rows: list[Row]) -> str:
    parts = []
    for (layer,), group in _grouped(rows, "layer"):
        lines = []
        for (size, fill), each in sorted(_grouped(group, "size", "fill"), key=lambda pair: pair[0]):
            for row in each:
                precision = "TF32" if row["tf32"] else row["precision"]
                spread = f"{_number(row['p10'])} to {_number(row['p90'])}" if "ms" in row else ""
                time = _number(row["ms"]) if "ms" in row else _cell(row["problem"] or "")
                faster, memory = _number(row.get("faster")), row.get("memory_mib", "")
                lines.append([size, fill, row["form"], row["where"], precision, time, spread, faster, memory])
        heads = ["size", "keys", "form", "on", "precision", "ms", "p10 to p90", "speed, portable = 1", "MiB"]
        parts.append(f"#### {layer}\n\n{table(heads, lines)}")
    return "\n\n".join(["### Times", *parts]) if parts else ""


def _left_out(rows: Sequence[dict[str, str]]) -> str:
    if not rows:
        return ""
    return "\n".join(["Not run:", "", *(f"- `{row['bundle']}`: {_cell(row['reason'])}" for row in rows)])


def table(heads: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    return "\n".join(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)


def _grouped(rows: list[Row], *keys: str) -> list[tuple[tuple[str, ...], list[Row]]]:
    found: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return list(found.items())


def _worst(rows: list[Row]) -> float | None:
    return max((row["of_limit"] for row in rows if row.get("of_limit") is not None), default=None)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
