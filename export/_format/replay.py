"""Command that replays the golden cases and prints the comparisons."""

import argparse
import signal
import sys
from pathlib import Path

from .cases import load_cases
from .compare import compare
from .files import read_manifest
from .names import CASES_FILE, MODEL, ExportError
from .printing import escape_unprintable, format_rows
from .providers import PROVIDERS, provider_of, short_name
from .session import run_cases


def main(argv: list[str] | None = None) -> int:
    """Check the bundle in the folder of this file and return the exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # runs only after onnxruntime returns
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(description="Replay the golden cases of this bundle in onnxruntime.")
    choices = [*PROVIDERS, *(entry.name for entry in PROVIDERS.values())]
    parser.add_argument("--provider", choices=choices, metavar="P", default="cpu", help=", ".join(PROVIDERS))
    provider = short_name(parser.parse_args(argv).provider)
    folder = Path(__file__).resolve().parent
    try:
        tolerance, factor = read_manifest(folder)["parity"]["tolerance"], provider_of(provider).limit_factor
        cases = load_cases(folder / CASES_FILE)
        pairs = zip(cases, run_cases(folder / MODEL, cases, provider), strict=True)
        rows = [row for case, actual in pairs for row in compare(case, actual, tolerance, factor)]
        failed = sum(not row["passed"] for row in rows)
        verdict = f"{failed} of {len(rows)} outputs differ" if failed else f"all {len(rows)} outputs match"
        print(*format_rows(rows), f"{verdict} on {PROVIDERS[provider].name}.", sep="\n", flush=True)
    except BrokenPipeError:  # standard output is a pipe whose reader has ended
        return 141  # 128 + SIGPIPE
    except Exception as error:  # noqa: BLE001 - such as a missing entry of the manifest
        kind = "" if isinstance(error, ExportError) else f"{type(error).__name__}: "
        print(escape_unprintable(f"error: {kind}{' '.join(str(error).split())}"), file=sys.stderr)
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
