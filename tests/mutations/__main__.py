"""Puts one fault after another into a copy of the code, and tells which test sees it: `scripts/mutate --help`."""

import argparse
import json
import queue
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from .batch_faults import BATCH_FAULTS
from .bundle_faults import BUNDLE_FAULTS
from .command_faults import COMMAND_FAULTS
from .conversion_faults import CONVERSION_FAULTS
from .decoder_faults import DECODER_FAULTS
from .decoding_faults import DECODING_FAULTS
from .device_faults import DEVICE_FAULTS
from .example_faults import EXAMPLE_FAULTS
from .fault import Fault, StaleFaultError, arguments_for, place_of, sources
from .layer_faults import LAYER_FAULTS
from .loop_faults import LOOP_FAULTS
from .model_faults import MODEL_FAULTS
from .recurrent_faults import RECURRENT_FAULTS
from .report_faults import REPORT_FAULTS
from .serving_faults import SERVING_FAULTS
from .steps_export_faults import STEPS_EXPORT_FAULTS
from .steps_faults import STEPS_FAULTS
from .workshop import NO_TESTS, SOME_FAILED, Workshop

ROOT = Path(__file__).resolve().parents[2]
FAULTS = (
    *LAYER_FAULTS,
    *DECODER_FAULTS,
    *DECODING_FAULTS,
    *RECURRENT_FAULTS,
    *MODEL_FAULTS,
    *CONVERSION_FAULTS,
    *LOOP_FAULTS,
    *DEVICE_FAULTS,
    *BATCH_FAULTS,
    *BUNDLE_FAULTS,
    *STEPS_FAULTS,
    *STEPS_EXPORT_FAULTS,
    *REPORT_FAULTS,
    *SERVING_FAULTS,
    *COMMAND_FAULTS,
    *EXAMPLE_FAULTS,
)
FINE = ("caught", "equivalent")


@dataclass(frozen=True)
class Verdict:
    """What became of a fault.

    Attributes:
        name: Its name.
        file: Where it was.
        outcome: `caught`; `survived`; `equivalent`, where nothing can see it; `timed out`; `stale`, where the list no
            longer fits the code; or `broken`, where pytest could not run, or the test fails without the fault too.
        test: The test that saw it, or what is wrong.
        seconds: Until it was seen.
    """

    name: str
    file: str
    outcome: str
    test: str
    seconds: float


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the faults; 0 when each was caught."""
    arguments = _parser().parse_args(argv)
    chosen = _chosen(arguments)
    if arguments.list:
        for each in chosen:
            print(f"{each.name}: {', '.join(each.tests)}")
        return 0
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="mutations.", ignore_cleanup_errors=True) as folder:
        verdicts = _run(chosen, arguments, Path(folder))
    counts = {outcome: sum(v.outcome == outcome for v in verdicts) for outcome in {v.outcome for v in verdicts}}
    print(f"\n{len(verdicts)} faults:", ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    for verdict in verdicts:
        if verdict.outcome not in FINE:
            print(_line(verdict))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=2) + "\n")
    return 0 if all(verdict.outcome in FINE for verdict in verdicts) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/mutate", description=__doc__)
    parser.add_argument("--list", action="store_true", help="only list the faults, and where each should be seen")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these faults")
    parser.add_argument("--since", metavar="REV", help="only faults in files that differ from this revision of git")
    parser.add_argument("--at", metavar="REV", help="put them into the files of this revision, not into those here")
    parser.add_argument("--all-tests", action="store_true", help="run all tests on a fault that its own do not see")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="faults at a time (default 2)")
    parser.add_argument("--limit", type=float, default=600, metavar="S", help="seconds a run of tests may take (600)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found")
    return parser


def _chosen(arguments: argparse.Namespace) -> list[Fault]:
    if unknown := set(arguments.only or ()) - {each.name for each in FAULTS}:
        raise SystemExit(f"scripts/mutate: there is no fault {', '.join(sorted(unknown))}; see --list")
    chosen = [each for each in FAULTS if arguments.only is None or each.name in arguments.only]
    if arguments.since is None:
        return chosen
    command = ["git", "diff", "--name-only", arguments.since]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    changed, texts = {ROOT / name for name in names}, sources(ROOT)
    # one that is stale is kept: its place is not known
    return [each for each in chosen if any(each.snippet in texts.get(file, "") for file in changed) or _is_stale(each)]


def _is_stale(each: Fault) -> bool:
    try:
        place_of(each, sources(ROOT))
    except StaleFaultError:
        return True
    return False


def _run(chosen: Sequence[Fault], arguments: argparse.Namespace, folder: Path) -> list[Verdict]:
    workshops = [Workshop(folder / str(job), ROOT, arguments.at) for job in range(arguments.jobs)]
    free: queue.SimpleQueue[Workshop] = queue.SimpleQueue()
    for workshop in workshops:
        workshop.check_imports()
        free.put(workshop)

    def run(each: Fault) -> Verdict:
        workshop = free.get()
        try:
            return _verdict(each, workshop, arguments)
        finally:
            free.put(workshop)

    with ThreadPoolExecutor(len(workshops)) as pool:
        futures = {pool.submit(run, each): number for number, each in enumerate(chosen)}
        verdicts: dict[int, Verdict] = {}
        try:
            for future in as_completed(futures):
                verdicts[futures[future]] = future.result()
                print(_line(future.result()), flush=True)
        except BaseException:  # Ctrl-C too: nothing goes on running
            pool.shutdown(wait=False, cancel_futures=True)
            for workshop in workshops:
                workshop.stop()
            raise
    return _without_the_fault([verdicts[number] for number in sorted(verdicts)], workshops[0], arguments.limit)


def _verdict(each: Fault, workshop: Workshop, arguments: argparse.Namespace) -> Verdict:
    file, seconds = "", 0.0
    try:
        with workshop.with_fault(each) as place:
            file = str(place)
            if each.equivalent:
                return Verdict(each.name, file, "equivalent", each.equivalent, 0.0)
            for arguments_of_pytest in _runs(each, workshop, arguments.all_tests):
                result = workshop.pytest(["-x", *arguments_of_pytest], arguments.limit)
                seconds += result.seconds
                if result.code is None:
                    return Verdict(each.name, file, "timed out", " ".join(arguments_of_pytest), seconds)
                if result.code == SOME_FAILED and result.failed:
                    return Verdict(each.name, file, "caught", result.failed[0], seconds)
                if result.code != 0:
                    why = "no such tests" if result.code == NO_TESTS else result.output.strip()[-500:]
                    return Verdict(each.name, file, "broken", f"{' '.join(arguments_of_pytest)}: {why}", seconds)
    except StaleFaultError as error:
        return Verdict(each.name, file, "stale", str(error), seconds)
    except SyntaxError as error:
        return Verdict(each.name, file, "broken", str(error), seconds)
    return Verdict(each.name, file, "survived", ", ".join(each.tests), seconds)


def _runs(each: Fault, workshop: Workshop, all_tests: bool) -> list[list[str]]:
    runs = [arguments_for(workshop.root, tests) for tests in each.tests]
    return [*runs, []] if all_tests else runs


def _without_the_fault(verdicts: list[Verdict], workshop: Workshop, limit: float) -> list[Verdict]:
    """Runs every test that saw a fault once more on the code as it is: there it must pass."""
    tests = sorted({verdict.test for verdict in verdicts if verdict.outcome == "caught"})
    if not tests:
        return verdicts
    print(f"\nWithout faults, the {len(tests)} tests that saw one:", flush=True)
    result = workshop.pytest(tests, 10 * limit)
    print(*re.findall(r"^\d+ (?:passed|failed).* in .*s.*$", result.output, flags=re.MULTILINE)[-1:])
    if result.code not in (0, SOME_FAILED):
        raise SystemExit(f"scripts/mutate: pytest cannot run the tests without faults\n{result.output[-2000:]}")
    return [
        verdict
        if verdict.test not in result.failed
        else Verdict(verdict.name, verdict.file, "broken", f"fails without the fault too: {verdict.test}", 0.0)
        for verdict in verdicts
    ]


def _line(verdict: Verdict) -> str:
    return f"{verdict.outcome:10} {verdict.seconds:5.0f} s  {verdict.name}  ({verdict.file})  {verdict.test}"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
