"""What every benchmark does: read its arguments, describe the machine, write the results and print the tables."""

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _machine

from keras_attn_export import ProviderError
from keras_attn_export._standalone import verify

RESULTS = Path(__file__).with_name("results")


@dataclass(frozen=True)
class Options:
    """How to measure.

    Attributes:
        quick: Tiny sizes and few repeats, to see that it runs; the numbers mean nothing.
        provider: `"cpu"` or `"cuda"`.
        threads: How many threads a run uses.
        results: Where the results are written.
        work: A folder for files of no further use.
    """

    quick: bool
    provider: str
    threads: int
    results: Path
    work: Path

    def pace(self, rounds: int = 15, turn: float = 0.1) -> dict[str, Any]:
        """Return the arguments of `race` for this many rounds; fewer and shorter ones when quick."""
        rounds, turn = (3, 0.01) if self.quick else (rounds, turn)
        return {"provider": self.provider, "threads": self.threads, "rounds": rounds, "turn": turn}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes and few repeats; results go to a temporary folder"
    )
    parser.add_argument("--provider", choices=("cpu", "cuda"), default="cpu", help="where the ONNX files run")
    parser.add_argument("--threads", type=int, default=2, help="how many threads a run uses (2)")
    parser.add_argument("--results", type=Path, help="where the JSON goes (benchmarks/results)")


def run(name: str, description: str, measure: Callable[[Options], dict[str, Any]]) -> None:
    """Measure and write `name`.json, for which `measure` gives title, cases and bars."""
    parser = argparse.ArgumentParser(description=description)
    add_arguments(parser)
    given = parser.parse_args()
    with _options(given) as options:
        try:
            verify.check_provider(options.provider)
        except ProviderError as error:
            sys.exit(f"benchmarks: {error}")
        environment = _machine.environment(options.provider, options.threads)
        result = {"name": name, "quick": options.quick, "environment": environment, **measure(options)}
        file = options.results / (f"{name}.json" if options.provider == "cpu" else f"{name}.{options.provider}.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(_rounded(result), indent=1) + "\n", encoding="utf-8")
        from _tables import markdown

        print(markdown(json.loads(file.read_text(encoding="utf-8"))))


@contextlib.contextmanager
def _options(given: argparse.Namespace) -> Iterator[Options]:
    with tempfile.TemporaryDirectory(prefix="keras_attn_bench_") as work:
        results = given.results or (Path(work) / "results" if given.quick else RESULTS)
        yield Options(given.quick, given.provider, given.threads, results, Path(work))


def _rounded(value: Any) -> Any:
    """Return the results with five digits of each number: more are noise, and change every line of a difference."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
