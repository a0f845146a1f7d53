"""Check a wheel and an sdist: `check_package.py files DIST`; check an installed wheel: `check_package.py imports`."""

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
MAX_WHEEL_BYTES = 2_000_000
NOT_IMPORTED = {
    "keras_attn_export.__main__": "it runs the command",
}


def check_files(folder: Path) -> None:
    """Require that the wheel contains exactly the packages' files in git, and the sdist exactly all files in git."""
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    tracked = set(list_git_files())
    packaged = {path.replace(top, PACKAGES[top], 1) for path in tracked if (top := path.split("/")[0]) in PACKAGES}
    with ZipFile(wheel) as archive:
        wheel_files = {name for name in archive.namelist() if ".dist-info/" not in name}
    with tarfile.open(sdist) as archive:
        sdist_files = {member.name.split("/", 1)[1] for member in archive if member.isfile()}
    require_same(wheel, wheel_files, packaged)
    require_same(sdist, {name for name in sdist_files if not name.startswith(GENERATED)}, tracked)
    if wheel.stat().st_size > MAX_WHEEL_BYTES:
        raise SystemExit(f"{wheel.name} has {wheel.stat().st_size:,} bytes, and may have {MAX_WHEEL_BYTES:,}.")


def list_git_files() -> list[str]:
    """Return all files of the checkout that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in process.stdout.splitlines() if (ROOT / name).is_file()]


def require_same(file: Path, names: set[str], expected: set[str]) -> None:
    if names != expected:
        missing, extra = sorted(expected - names), sorted(names - expected)
        raise SystemExit(f"{file.name} lacks {missing}, and contains files that are not in git: {extra}.")
    print(f"{file.name}: {file.stat().st_size:,} bytes, {len(names)} files")


def import_all() -> None:
    """Import every module of the installed wheel; fail if one is imported from the checkout."""
    modules = [file for file in files("keras-attn") or () if file.suffix == ".py"]
    names = [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in modules]
    imported = {name: import_module(name) for name in names if name not in NOT_IMPORTED}
    checkout_modules = [name for name, module in imported.items() if Path(module.__file__ or ".").is_relative_to(ROOT)]
    if checkout_modules or len(imported) != len(names) - len(NOT_IMPORTED):
        raise SystemExit(
            f"{len(imported)} of {len(names)} modules were imported, from the checkout {checkout_modules}."
        )
    print(f"imported {len(imported)} modules; not {', '.join(NOT_IMPORTED)}")


if __name__ == "__main__":
    if sys.argv[1:] == ["imports"]:
        import_all()
    else:
        check_files(Path(sys.argv[2]))
