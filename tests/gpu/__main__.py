"""Replays bundles on a GPU, holds them to the contract of attention layers, and times them: `scripts/gpu-check --help`.

It needs NumPy and onnxruntime-gpu, and neither TensorFlow nor Keras. What it finds is kept from the first row on.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from .apart import ApartError
from .check import DOCUMENT, check, is_there
from .index import Entry, FolderError, read_index
from .page import write_document
from .results import FILE, PAGE, STAGES, joined, read

WRONG_USAGE = 2


def main(argv: Sequence[str] | None = None) -> int:
    """0 when everything passed, 1 when something failed or was not run to its end, 2 when nothing could be run."""
    parser = argparse.ArgumentParser(prog="scripts/gpu-check", description=__doc__, allow_abbrev=False)
    parser.add_argument("--bundles", type=Path, metavar="FOLDER", help="what scripts/gpu-bundles wrote")
    parser.add_argument("--provider", choices=("cuda", "cpu"), default="cuda", help="where bundles run")
    parser.add_argument("--output", type=Path, metavar="FOLDER", help=f"where {FILE} and {PAGE} go: build/gpu")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=list(STAGES), help="only these")
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="WORD", help="bundles whose name holds all these words"
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, three runs: to see that the way works")
    parser.add_argument(
        "--page", nargs="+", type=Path, metavar="JSON", help="only write docs/gpu.md from these results"
    )
    arguments = parser.parse_args(argv)
    try:
        if arguments.page:
            write_document(DOCUMENT, joined([read(path) for path in arguments.page]))
            return 0
        if arguments.bundles is None:
            parser.error("--bundles FOLDER is needed, or --page JSON")
        entries = chosen(arguments.bundles, arguments.only)
        return check(arguments, entries)
    except (FolderError, ApartError, ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return WRONG_USAGE


def chosen(folder: Path, only: Sequence[str]) -> list[Entry]:
    """The entries of the index to be checked, those without a bundle among them.

    Raises:
        FolderError: There are none.
    """
    entries = [entry for entry in read_index(folder) if all(word in entry["name"] for word in only)]
    if not any(is_there(entry) for entry in entries):
        raise FolderError(f"There are no bundles in {folder}{' with these words in their names' if only else ''}.")
    return entries


if __name__ == "__main__":
    sys.exit(main())
