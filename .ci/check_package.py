"""Check what was built: `check_package.py files DIST`, and `check_package.py imports` where the wheel is installed."""

import subprocess
import sys
import tarfile
from importlib import import_module
from importlib.metadata import files
from pathlib import Path
from zipfile import ZipFile

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"keras_attn": "keras_attn", "export": "keras_attn_export"}  # folders of the checkout, and import names
GENERATED = ("PKG-INFO", "setup.cfg", "keras_attn.egg-info/")
LARGEST = 2_000_000  # bytes of the wheel
NOT_IMPORTED = {
    "keras_attn_export.__main__": "it runs the command",
}


def check_files(folder: Path) -> None:
    """Require that the wheel holds the files of the packages in git, and the sdist all files, and neither any other."""
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    tracked = set(in_git())
    packaged = {path.replace(top, PACKAGES[top], 1) for path in tracked if (top := path.split("/")[0]) in PACKAGES}
    with ZipFile(wheel) as archive:
        in_wheel = {name for name in archive.namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as archive:
        in_sdist = {member.name.split("/", 1)[1] for member in archive if member.isfile()}
    require_same(wheel, in_wheel, packaged)
    require_same(sdist, {name for name in in_sdist if not name.startswith(GENERATED)}, tracked)
    if wheel.stat().st_size > LARGEST:
        raise SystemExit(f"{wheel.name} has {wheel.stat().st_size:,} bytes, and may have {LARGEST:,}.")


def in_git() -> list[str]:
    """Return all files of the checkout that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


def require_same(file: Path, held: set[str], wanted: set[str]) -> None:
    if held != wanted:
        lacks, more = sorted(wanted - held), sorted(held - wanted)
        raise SystemExit(f"{file.name} lacks {lacks}, and holds beside what git has {more}.")
    print(f"{file.name}: {file.stat().st_size:,} bytes, {len(held)} files")


def import_all() -> None:
    """Import every module of the installed wheel, from there and not from a checkout."""
    modules = [file for file in files("keras-attn") or () if file.suffix == ".py"]
    names = [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in modules]
    imported = {name: import_module(name) for name in names if name not in NOT_IMPORTED}
    strangers = [name for name, module in imported.items() if Path(module.__file__ or ".").is_relative_to(ROOT)]
    if strangers or len(imported) != len(names) - len(NOT_IMPORTED):
        raise SystemExit(f"Of {len(names)} modules {len(imported)} were imported, from the checkout {strangers}.")
    print(f"imported {len(imported)} modules; not {', '.join(NOT_IMPORTED)}")


if __name__ == "__main__":
    if sys.argv[1:] == ["imports"]:
        import_all()
    else:
        check_files(Path(sys.argv[2]))
