"""Command: replay the golden cases, compare, print."""

import argparse
import signal
import sys
from pathlib import Path

from .cases import load_cases
from .compare import compare
from .files import read_manifest
from .names import CASES, MODEL, ExportError, ProviderError
from .printing import format_rows, printable
from .providers import PROVIDERS, provider_of, short_name
from .session import run_cases


def main(argv: list[str] | None = None) -> int:
    """Check the bundle in the folder of this file and return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's handler runs after onnxruntime returns
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(description="Replay the golden cases of this bundle in onnxruntime.")
    parser.add_argument("--provider", metavar="P", default="cpu", help=f"{', '.join(PROVIDERS)} (default cpu)")
    try:
        provider = short_name(parser.parse_args(argv).provider)
    except ProviderError as error:
        parser.error(str(error))
    folder = Path(__file__).resolve().parent
    try:
        tolerance, lenience = read_manifest(folder)["parity"]["tolerance"], provider_of(provider).lenience
        cases = load_cases(folder / CASES)
        outputs = run_cases(folder / MODEL, cases, provider)
        pairs = zip(cases, outputs, strict=True)
        rows = [row for case, actual in pairs for row in compare(case, actual, tolerance, lenience)]
        failed = sum(not row["passed"] for row in rows)
        verdict = f"{failed} of {len(rows)} outputs differ" if failed else f"all {len(rows)} outputs match"
        print(*format_rows(rows), f"{verdict} on {PROVIDERS[provider].name}.", sep="\n", flush=True)
    except BrokenPipeError:  # the reader of standard output has ended
        return 141  # 128 + SIGPIPE
    except (ExportError, OSError) as error:
        print(printable(f"error: {' '.join(str(error).split())}"), file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
