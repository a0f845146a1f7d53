"""Run all benchmarks, or those that are named, and write their tables into docs/performance.md."""

import argparse
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path

import _report
from _harness import HERE, QUESTIONS, RESULTS, measure

SPAWN = multiprocessing.get_context("spawn")


def main() -> None:
    given = _arguments()
    if given.list:
        for question, parts in QUESTIONS.items():
            asked = (HERE / f"{question}.py").read_text(encoding="utf-8").splitlines()[0].strip('"')
            print(f"{question:16}{asked}", *(f"    {part}" for part in parts if part != question), sep="\n")
        return
    with tempfile.TemporaryDirectory(prefix="keras_attn_quick_") as folder:
        kept = given.output or (Path(folder) if given.quick else None)
        results = kept or RESULTS
        for question, parts in QUESTIONS.items():
            wanted = [part for part in parts if not given.names or {question, part} & set(given.names)]
            if wanted and not given.report:
                print(f"\n## {question}\n", flush=True)
                # in a process that ends with the question, and gives back the memory of what it imported
                process = SPAWN.Process(target=measure, args=(question, wanted, given.quick, given.threads, results))
                process.start()
                process.join()
                if process.exitcode:
                    sys.exit(process.exitcode)
        _report.write(results, kept / _report.DOCUMENT.name if kept else _report.DOCUMENT)


def _arguments() -> argparse.Namespace:
    names = list(dict.fromkeys(name for question, parts in QUESTIONS.items() for name in (question, *parts)))
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks or their parts, see --list; default: all")
    parser.add_argument("--list", action="store_true", help="list the benchmarks, their questions and parts")
    parser.add_argument("--report", action="store_true", help="only write the page again, from the results that exist")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="tiny sizes, to check that all runs; keeps no results",
    )
    parser.add_argument("--output", type=Path, help="a folder for results, page and plots, instead of the checkout")
    parser.add_argument("--provider", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, default=2, help="number of threads (default: 2)")
    given = parser.parse_args()
    if given.provider:
        parser.error("benchmarks run on a CPU; scripts/replay_bundles.py times bundles on a GPU, see docs/gpu.md")
    if unknown := sorted(set(given.names) - set(names)):
        parser.error(f"unknown benchmarks: {', '.join(unknown)}. Choose from: {', '.join(names)}")
    return given


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
