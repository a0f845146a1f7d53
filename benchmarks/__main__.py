"""Run the named benchmarks, or all of them, and write their tables into docs/performance.md."""

import argparse
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

from _harness import HERE, QUESTIONS, RESULTS, measure, render_table
from _tables import DOCUMENT, replace_tables


def main() -> None:
    """Run the command line."""
    arguments = _parse_arguments()
    if arguments.list:
        for question in QUESTIONS:
            summary = (HERE / f"{question}.py").read_text(encoding="utf-8").splitlines()[0].strip('"')
            print(f"{question:16}{summary}")
        return
    with tempfile.TemporaryDirectory(prefix="keras_attn_quick_") as folder:
        output = arguments.output or (Path(folder) if arguments.quick else None)
        results = output or RESULTS
        for question in () if arguments.report else arguments.names or QUESTIONS:
            _measure_in_process(question, arguments.quick, arguments.threads, results)
        text = DOCUMENT.read_text(encoding="utf-8")
        tables = {question: render_table(question, results) for question in QUESTIONS}
        (output / DOCUMENT.name if output else DOCUMENT).write_text(replace_tables(text, tables), encoding="utf-8")


def _measure_in_process(question: str, quick: bool, threads: int, results: Path) -> None:
    """Measure in a worker process, which frees the memory of its imports."""
    process = multiprocessing.get_context("spawn").Process(target=measure, args=(question, quick, threads, results))
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(process.exitcode)


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    # argparse also compares the empty list of names with the choices.
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*QUESTIONS, []], help="benchmarks, see --list")
    parser.add_argument("--list", action="store_true", help="list the benchmarks")
    parser.add_argument("--report", action="store_true", help="only write the tables again, from existing results")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to check that all run; keeps no results")
    parser.add_argument("--output", type=Path, help="a folder for results and page instead of the checkout")
    parser.add_argument("--threads", type=int, default=2, help="number of threads (default: 2)")
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
