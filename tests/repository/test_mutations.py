"""The faults of our own code that nox -s mutate draws, and what becomes of them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mutations.__main__ import changed_lines
from mutations.choose import cheapest
from mutations.draw import drawn, faults, mutated
from tiers.measured import Measured

TESTS = Path(__file__).resolve().parents[1]
FILE = Path("keras_attn/_sums.py")
TEXT = (TESTS / "mutations" / "draw.py").read_text(encoding="utf-8")  # some code


@pytest.mark.parametrize(
    ("kind", "line", "faulty"),
    [
        ("comparison", "x = a < b <= c", ["x = (a <= b <= c)", "x = (a < b < c)"]),
        ("comparison", "x = a is not b, c not in d", ["x = (a is b), c not in d", "x = a is not b, (c in d)"]),
        ("arithmetic", "x = a * (b + c)", ["x = (a / (b + c))", "x = a * ((b - c))"]),
        ("arithmetic", "x //= -y", ["x /= -y", "x //= (y)"]),
        ("arithmetic", "x = 'ä', a @ b", ["x = 'ä', (a * b)"]),
        ("constant", "x = 2, 0.5", ["x = (3), 0.5", "x = 2, (1.5)"]),
        ("constant", "x = True, 'name', 1e30", ["x = (False), 'name', 1e30", "x = True, ('name_'), 1e30"]),
        ("condition", "x = a and b or c", ["x = ((a and b) and c)", "x = (a or b) or c"]),
        ("condition", "x = [y for y in z if not y]", ["x = [y for y in z if (not not y)]"]),
        ("condition", "while f(x): pass", ["while (not f(x)): pass"]),
        ("argument", "x = f(a, b, d=e, **g)", ["x = (f(b, a, d=e, **g))", "x = (f(a, b, **g))"]),
        ("dropped statement", "self.x = f()", ["pass"]),
        ("dropped statement", "f()", ["pass"]),
        ("dropped statement", "x += y", ["pass"]),
        ("returned value", "def f(): return a, b", ["def f(): return (None)", "def f(): return ((b, a))"]),
    ],
)  # fmt: skip
def test_faults_of_each_kind(kind, line, faulty):
    found = [fault for fault in faults(FILE, line) if fault.kind == kind]
    assert sorted(mutated(line, fault) for fault in found) == sorted(faulty)


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring."""\n\ndef f(x: int | None) -> "tuple[int, 3]":\n    """Another."""',
        'raise ValueError(f"{x + 1} is not " + str(y < 1))',
        'import x\n__all__ = ["f"]\nassert f(1) == 2\nif TYPE_CHECKING:\n    x = 1 < 2',
        'x = None\ny: int = x\nx = zip(y, strict=True)\nisinstance(x, y).x\nx = f"{y + 1}", "some prose"',
    ],
)
def test_what_says_nothing_of_how_code_works_has_no_faults(text):
    assert faults(FILE, text) == []


def test_what_is_drawn_hangs_on_the_seed_alone_and_has_lines_of_its_own():
    found = faults(FILE, TEXT)
    assert drawn(found, 20, seed=1) == drawn(found, 40, seed=1)[:20] != drawn(found, 20, seed=2)
    lines = {(fault.kind, fault.old.lineno) for fault in found}
    all_of_them = drawn(found, 10**6, seed=1)
    assert len(all_of_them) == len(lines) < len(found)
    assert {(fault.kind, fault.old.lineno) for fault in all_of_them} == lines
    assert len({fault.kind for fault in all_of_them[:7]}) == 7, "the kinds take turns"


CODE = """
LIMIT = 3

def is_below(x):
    return x < LIMIT

def last(n):
    while n > 0:
        n -= 1
    return n

def plus(x, by=1):
    if by:
        return x + by
    return 1
"""
TEST = """
import pytest
from keras_attn import _sums

@pytest.fixture(scope="module")
def shared():
    return _sums.is_below(2)

def test_below(shared):
    assert shared

def test_last():
    assert _sums.last(3) == 0

def test_plus():
    assert _sums.plus(0) == 1
"""
NAMED = """
from keras_attn import _sums

def test_limit():
    assert _sums.LIMIT == 3
"""
OUTCOMES = {
    (2, "constant"): "caught",  # an import runs it, and a test that is named like the file sees it
    (5, "comparison"): "survived",
    (5, "returned value"): "caught",
    (9, "dropped statement"): "caught",  # it would go on for ever
    (12, "constant"): "caught",
    (15, "returned value"): "not run",
}
SCRIPT = """
import mutations.__main__ as mutate
mutate.ENDLESS = mutate.ENDLESS.replace("60", "2")
mutate.drawn = lambda there, *_: [each for each in there if (each.old.lineno, each.kind) in OUTCOMES]
mutate.main()
"""


def python(folder, *arguments, **more):
    environment = os.environ | {"PYTHONPATH": f"{TESTS}:.", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **more}
    return subprocess.check_output([sys.executable, *arguments], cwd=folder, env=environment, text=True)


@pytest.mark.needs("coverage")
def test_what_becomes_of_faults(tmp_path, monkeypatch):
    """Of a package with tests of its own, which are recorded as ours are."""
    files = {"keras_attn/_sums.py": CODE, "tests/test_it.py": TEST, "tests/test_sums.py": NAMED}
    for name, text in (files | {"export/__init__.py": "", "pytest.ini": "[pytest]\n"}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    python(tmp_path, "-m", "pytest", "-p", "tiers.recording", "tests", RECORD="record", RECORD_LINES="yes")
    monkeypatch.chdir(tmp_path)
    measured = Measured(Path("record"))
    counts = {line: len(cheapest(measured, FILE, line, 60)) for line in (2, 5, 8, 12, 15)}
    assert counts == {2: 4, 5: 1, 8: 1, 12: 2, 15: 0}  # of a module, a fixture, a function, its head, and of nothing
    assert cheapest(measured, FILE, 2, 0.0) == ["tests/test_sums.py::test_limit"]
    said = python(tmp_path, "-c", f"{OUTCOMES=}{SCRIPT}", "--coverage", "record")
    found = re.findall(r"^keras_attn/_sums.py:(\d+): (.*)\n(?:.*\n)*?(caught|survived|not run)$", said, re.MULTILINE)
    assert {(int(line), kind): outcome for line, kind, outcome in found} == OUTCOMES
    assert said.endswith("6 faults: 4 caught, 1 survived, 1 not run\n")
    with pytest.raises(subprocess.CalledProcessError):
        python(tmp_path, "-m", "mutations", "--coverage", "nowhere")


def test_lines_that_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("export").mkdir()
    Path("export", "a.py").write_text("a\nb\nc\nd\n")
    for arguments in ("init --quiet", "add .", "-c user.name=A -c user.email=a@b.c commit --quiet --message Old"):
        subprocess.run(["git", *arguments.split()], check=True)
    Path("export", "a.py").write_text("a\nB\nB\nd\ne\n")
    assert changed_lines(Path("export/a.py"), "HEAD") == {2, 3, 5}
