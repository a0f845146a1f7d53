"""Run benchmarks, all or by name, and write their tables into docs/performance.md."""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from keras_attn_export import ProviderError
from keras_attn_export._standalone import verify

HERE = Path(__file__).resolve().parent


def questions() -> dict[str, str]:
    """Return the benchmarks and what each asks: the scripts whose names do not begin with an underscore."""
    scripts = [file for file in sorted(HERE.glob("*.py")) if not file.stem.startswith("_") and file.stem != "report"]
    return {file.stem: file.read_text(encoding="utf-8").splitlines()[0].strip('"') for file in scripts}


def main() -> None:
    asked = questions()
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run, see --list; all if none is named")
    parser.add_argument("--list", action="store_true", help="name the benchmarks and what each asks")
    parser.add_argument(
        "--report", action="store_true", help="only write the tables again from the results that are there"
    )
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes and few repeats; nothing that is kept is written"
    )
    parser.add_argument("--provider", choices=("cpu", "cuda"), default="cpu", help="where the ONNX files run")
    parser.add_argument("--threads", type=int, default=2, help="how many threads a run uses (2)")
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - asked.keys()):
        parser.error(f"no benchmark is called {', '.join(unknown)}; there are {', '.join(asked)}")
    if given.list:
        for name, question in asked.items():
            print(f"{name:24}{question}")
        return
    try:
        verify.check_provider(given.provider)  # before TensorFlow is loaded and says much
    except ProviderError as error:
        sys.exit(f"scripts/bench: {error}")
    passed = ["--provider", given.provider, "--threads", str(given.threads), *(["--quick"] if given.quick else [])]
    with _report_arguments(given.quick) as (results, report):
        for name in [] if given.report else given.names or asked:
            print(f"\n## {name}: {asked[name]}\n", flush=True)
            _python(f"{name}.py", *passed, *results)
        _python("report.py", *results, *report)


@contextlib.contextmanager
def _report_arguments(quick: bool) -> Iterator[tuple[list[str], list[str]]]:
    """Yield where results and the document go: those of a quick run into a folder that is removed."""
    if not quick:
        yield [], []
        return
    with tempfile.TemporaryDirectory(prefix="keras_attn_quick_") as folder:
        yield ["--results", folder], ["--output", str(Path(folder) / "performance.md")]


def _python(script: str, *arguments: str) -> None:
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}
    done = subprocess.run([sys.executable, str(HERE / script), *arguments], env=environment, check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
