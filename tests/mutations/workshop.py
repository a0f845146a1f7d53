"""A copy of the tree to put faults into, with an interpreter of its own that imports the packages from there."""

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .fault import Fault, place_of, sources

NO_TESTS = 5  # pytest's exit codes
SOME_FAILED = 1

FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.py(?:::.*?)?)(?: - |$)", re.MULTILINE)

_ENTRY_POINT = """#!{python}
import sys
from {module} import {function}
sys.exit({function}())
"""


@dataclass(frozen=True)
class Result:
    """One run of pytest.

    Attributes:
        code: Its exit code; None when it passed the time limit.
        failed: The tests that failed.
        seconds: How long it took.
        output: What it printed.
    """

    code: int | None
    failed: tuple[str, ...]
    seconds: float
    output: str


class Workshop:
    """A copy of a tree, whose tests run on the packages in it.

    `PYTHONPATH` would not do: tests start processes, some with an environment of their own. So `sys.executable` is an
    environment that lies over the one this runs in, without its editable installation; the console script is there too.
    """

    def __init__(self, folder: Path, root: Path, revision: str | None) -> None:
        """Makes the copy in a folder that does not exist yet: of the files as they are, or as they were."""
        self.root = folder / "tree"
        self._python = folder / "python"
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = threading.Event()
        _copy(root, revision, self.root)
        self._make_interpreter(folder / "packages")

    def _make_interpreter(self, packages: Path) -> None:
        packages.mkdir()
        (packages / "keras_attn").symlink_to(self.root / "keras_attn")
        (packages / "keras_attn_export").symlink_to(self.root / "export")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", self._python], check=True)
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        site = self._python / "lib" / version / "site-packages"
        installed = sysconfig.get_path("purelib")  # as a plain path: the editable installation in it is not looked at
        (site / "mutated.pth").write_text(f"{packages}\n{installed}\n", encoding="utf-8")
        project = tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for name, target in project["scripts"].items():
            module, _, function = target.partition(":")
            script = self._python / "bin" / name
            text = _ENTRY_POINT.format(python=self._python / "bin" / "python", module=module, function=function)
            script.write_text(text, encoding="utf-8")
            script.chmod(0o755)

    def check_imports(self) -> None:
        """Raises RuntimeError unless a process started anywhere imports the packages of the copy."""
        code = "from importlib.util import find_spec as f; print(*(f(n).origin for n in ('{0}', '{0}_export')))"
        command = [self._python / "bin" / "python", "-c", code.format("keras_attn")]
        done = subprocess.run(command, cwd="/", env={}, capture_output=True, text=True, check=True)
        if any(not Path(file).resolve().is_relative_to(self.root.resolve()) for file in done.stdout.split()):
            raise RuntimeError(f"The copy in {self.root} is not what is imported: {done.stdout.strip()}.")

    @contextmanager
    def with_fault(self, fault: Fault) -> Iterator[Path]:
        """Puts a fault into the copy for as long as the context lasts; gives the file, relative to the root."""
        texts = sources(self.root)
        file = place_of(fault, texts)
        mutated = texts[file].replace(fault.snippet, fault.replacement)
        compile(mutated, str(file), "exec")
        file.write_text(mutated, encoding="utf-8")
        try:
            yield file.relative_to(self.root)
        finally:
            file.write_text(texts[file], encoding="utf-8")

    def pytest(self, arguments: Sequence[str], limit: float) -> Result:
        """Runs pytest up to the first failure, for at most so many seconds."""
        start = time.monotonic()
        command = [self._python / "bin" / "python", "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        environment |= {"PYTHONDONTWRITEBYTECODE": "1"}  # a file may change twice within the resolution of its time
        process = subprocess.Popen(
            [*map(str, command), *arguments],
            cwd=self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # a group of its own, to be ended with all that the tests have started
        )
        self._running.add(process)
        try:
            if self._stopped.is_set():
                raise KeyboardInterrupt
            output, _ = process.communicate(timeout=limit)
            code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            _end(process)
            output, code = process.communicate()[0], None
        finally:
            _end(process)
            self._running.discard(process)
        return Result(code, tuple(FAILED.findall(output)), time.monotonic() - start, output)

    def stop(self) -> None:
        """Ends what runs here, and whatever would be started still."""
        self._stopped.set()
        for process in tuple(self._running):
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError, PermissionError):  # the latter on macOS, for a group that has ended
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _copy(root: Path, revision: str | None, target: Path) -> None:
    """Copies the files that git knows or would add, or those of a revision."""
    target.mkdir(parents=True)
    if revision is not None:
        archive = subprocess.run(["git", "archive", revision], cwd=root, capture_output=True, check=True).stdout
        subprocess.run(["tar", "-x", "-C", target], input=archive, check=True)
        return
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    for name in filter(None, names.split("\0")):
        if (root / name).is_file():  # a file that was removed is still known
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target / name)
