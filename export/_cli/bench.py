"""`keras-attn bench BUNDLE`."""

import argparse
from collections.abc import Callable
from typing import Any

from .._bundle.bench_bundle import MEASURED_SECONDS, Bench, Timing, bench_bundle
from .._format.console import print_escaped
from .._formatting import format_bytes
from .._progress import progress_display
from .command_helpers import add_json, add_provider, new_parser, read_arrays


def add_parser(commands: Any) -> None:
    """Add the subcommand."""
    parser = new_parser(commands, "bench", main, "time a bundle: latency, throughput and peak memory")
    add = parser.add_argument
    add("bundle", metavar="BUNDLE", help="the folder to time")
    add("--against", metavar="OTHER.onnx", help="an ONNX file that is timed in turns with the bundle")
    add("--inputs", metavar="X.npz", help="input arrays by name (default: the largest golden case)")
    add("--threads", type=int, metavar="N", help="threads of a run (default: all CPUs)")
    add(
        "--seconds",
        type=float,
        metavar="S",
        default=MEASURED_SECONDS,
        help=f"duration of the timing (default {MEASURED_SECONDS:g})",
    )
    add_provider(parser)
    add_json(parser)


def main(arguments: argparse.Namespace) -> None:
    """Time a bundle and print a table."""
    inputs = read_arrays(arguments.inputs) if arguments.inputs else None
    with progress_display(False if arguments.json else None) as step:
        bench = bench_bundle(
            arguments.bundle,
            against=arguments.against,
            inputs=inputs,
            provider=arguments.provider,
            threads=arguments.threads,
            seconds=arguments.seconds,
            on_step=step,
        )
    print_escaped(*(bench.to_json().splitlines() if arguments.json else format_bench(bench, arguments.inputs)))


TABLE_ROWS: tuple[tuple[str, Callable[[Timing], str]], ...] = (
    ("median", lambda timing: f"{timing.median:.3f} ms"),
    ("5th percentile", lambda timing: f"{timing.p5:.3f} ms"),
    ("95th percentile", lambda timing: f"{timing.p95:.3f} ms"),
    ("throughput", lambda timing: f"{timing.rows_per_second:,.0f} rows/s"),
    ("runs", lambda timing: f"{timing.runs:,}"),
    ("time to load", lambda timing: f"{timing.load:.0f} ms"),
    ("file", lambda timing: format_bytes(timing.file_size)),
    ("peak memory", lambda timing: format_bytes(timing.peak_memory)),
    ("  of it the model", lambda timing: format_bytes(timing.model_memory)),
)


def format_bench(bench: Bench, file: str | None) -> list[str]:
    """Return the result as lines: the conditions, then a table with one column for each model."""
    versions = ", ".join(f"{name} {bench.environment[name]}" for name in ("onnxruntime", "numpy", "python"))
    shapes = [f"  {name} {list(shape)}" for name, shape in bench.shapes.items()]
    header, columns = ["", "bundle", "other"], [("bundle", bench.timings[0].model)]
    if len(bench.timings) > 1:
        columns.append(("other", bench.timings[1].model))
    lines = [f"{name:10}  {model}" for name, model in columns]
    lines.append(f"{'inputs':10}  {file or bench.inputs}, {bench.rows} rows")
    lines += [f"{'':10}{shape}" for shape in shapes]
    lines.append(f"{'runs on':10}  {bench.provider}, {bench.threads} threads")
    lines.append(f"{'machine':10}  {bench.environment['processor']}, {bench.environment['cpus']} CPUs")
    lines.append(f"{'versions':10}  {versions}")
    rows = ([name, *map(format_cell, bench.timings)] for name, format_cell in TABLE_ROWS)
    table = [header[: len(columns) + 1], *rows]
    lines += ["", *(f"{name:17}" + "".join(f"  {cell:>18}" for cell in cells) for name, *cells in table)]
    lines.append("")
    if bench.ratio is not None:
        lines.append(f"Median of the other / of the bundle: {bench.ratio:.3f} (above 1: the bundle is faster).")
        for name, largest in (bench.differences or {}).items():
            lines.append(f"Outputs `{name}` of the two models differ by at most {largest:.1e}.")
        if not bench.differences:
            lines.append("The models have no output name in common, so their outputs were not compared.")
    lines.append("Peak memory: of a worker process with numpy, onnxruntime and the model only.")
    return lines
