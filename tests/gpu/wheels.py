"""Put wheels together that came in pieces, and install from a folder of wheels alone. The standard library alone.

`python wheels.py FOLDER SCRATCH PACKAGE` installs the newest wheel of a package that fits the Python that runs it.
"""

import hashlib
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PIECE = re.compile(r"(?P<wheel>.+\.whl)\.part-?.+")
BLOCK = 2**20


class WheelError(Exception):
    """A wheel is wanting, or is not what it was; the message is a sentence."""


def put_together(folder: Path, scratch: Path) -> list[Path]:
    """Join `NAME.whl.part-*`, in order of their names, to files in scratch; check each that has a `NAME.whl.sha256`.

    Raises:
        WheelError: There is no folder, or a wheel is not the one whose sha256 lies beside it.
    """
    if not folder.is_dir():
        raise WheelError(f"There is no folder of wheels {folder}.")
    pieces: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        if found := PIECE.fullmatch(path.name):
            pieces.setdefault(found["wheel"], []).append(path)
    joined = []
    for name, parts in pieces.items():
        with (scratch / name).open("wb") as whole:
            for part in parts:
                whole.write(part.read_bytes())
        joined.append(scratch / name)
    for wheel in [*joined, *folder.glob("*.whl")]:
        _check(wheel, folder / f"{wheel.name}.sha256")
    return joined


def _check(wheel: Path, beside: Path) -> None:
    if not beside.is_file():
        return
    wanted = beside.read_text(encoding="ascii", errors="replace").split()[:1]
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if wanted != [found]:
        raise WheelError(
            f"{wheel.name} is not the wheel whose sha256 lies beside it: a piece is wanting or was altered."
        )


def install(folder: Path, scratch: Path, package: str) -> None:
    """Install a package from the folder, or from what was put together of it; nothing that it needs, and no network.

    Raises:
        WheelError: As `put_together`, or pip finds no wheel for this Python.
    """
    put_together(folder, scratch)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-index",
        "--no-deps",
    ]
    links = [argument for place in (folder, scratch) for argument in ("--find-links", str(place))]
    told = subprocess.run([*command, *links, package], capture_output=True, text=True, check=False)
    if told.returncode == 0:
        return
    said = [line.removeprefix("ERROR: ") for line in told.stderr.splitlines() if line.startswith("ERROR: ")]
    version = ".".join(map(str, sys.version_info[:2]))
    raise WheelError(
        f"pip can install no wheel of {package} for Python {version} from {folder}: {said[-1] if said else 'no reason'}"
    )


def main(arguments: Sequence[str]) -> int:
    folder, scratch, package = arguments
    try:
        install(Path(folder), Path(scratch), package)
    except (WheelError, OSError) as error:
        print(f"scripts/gpu-check: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
