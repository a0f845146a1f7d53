"""The faults of our own code that nox -s mutate draws, and what becomes of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mutations.__main__ import changed_lines
from mutations.draw import NAMED, drawn, faults, mutated
from mutations.record import Record

TESTS = Path(__file__).resolve().parents[1]
TEXT = (TESTS / "mutations" / "draw.py").read_text(encoding="utf-8")  # some code


@pytest.mark.parametrize(
    ("kind", "line", "faulty"),
    [
        ("comparison", "x = a < b <= c", ["x = (a <= b <= c)", "x = (a < b < c)"]),
        ("comparison", "x = a is not b, c not in d", ["x = (a is b), c not in d", "x = a is not b, (c in d)"]),
        ("arithmetic", "x = a * (b + c)", ["x = (a / (b + c))", "x = a * ((b - c))"]),
        ("arithmetic", "x //= -y", ["x /= -y", "x //= (y)"]),
        ("arithmetic", "x = 'ä', a @ b", ["x = 'ä', (a * b)"]),
        ("constant", "x = 2, 0.5", ["x = 3, 0.5", "x = 2, 1.5"]),
        ("constant", "x = True, 'name', 1e30", ["x = False, 'name', 1e30", "x = True, 'name_', 1e30"]),
        ("condition", "x = a and b or c", ["x = ((a and b) and c)", "x = (a or b) or c"]),
        ("condition", "x = [y for y in z if not y]", ["x = [y for y in z if (y)]"]),
        ("condition", "while f(x): pass", ["while (not f(x)): pass"]),
        ("argument", "x = f(a, b, d=e, **g)", ["x = (f(b, a, d=e, **g))", "x = (f(a, b, **g))"]),
        ("dropped statement", "self.x = f()", ["pass"]),
        ("dropped statement", "f()", ["pass"]),
        ("dropped statement", "x += y", ["pass"]),
        ("returned value", "def f(): return a, b", ["def f(): return None", "def f(): return ((b, a))"]),
    ],
)  # fmt: skip
def test_faults_of_each_kind(kind, line, faulty):
    found = [fault for fault in faults("file.py", line) if fault.kind == kind]
    assert sorted(mutated(line, fault)[1] for fault in found) == sorted(faulty)


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring."""\n\ndef f(x: int | None) -> "tuple[int, 3]":\n    """Another."""',
        'raise ValueError(f"{x + 1} is not " + str(y < 1))',
        "class C:\n    def __repr__(self):\n        return str(1)",
        'import x\n__all__ = ["f"]\nassert f(1) == 2\nif TYPE_CHECKING:\n    x = 1 < 2',
        'x = None\ny: int = x\nx = zip(*y, z, strict=True)\nisinstance(x, y).x\nx = f"{y + 1}", "some prose"',
    ],
)
def test_what_says_nothing_of_how_code_works_has_no_faults(text):
    assert faults("file.py", text) == []


def test_what_is_drawn_hangs_on_the_seed_alone_and_has_lines_of_its_own():
    found = faults("draw.py", TEXT)
    assert drawn(found, 20, seed=1) == drawn(reversed(found), 40, seed=1)[:20] != drawn(found, 20, seed=2)
    lines = {(fault.kind, fault.line) for fault in found}
    all_of_them = drawn(found, 10**6, seed=1)
    assert len(all_of_them) == len(lines) < len({fault[:6] for fault in found}) == len(found)
    assert {(fault.kind, fault.line) for fault in all_of_them} == lines


CODE = """
LIMIT = 3

def is_below(x):
    return x < LIMIT

def last(n):
    while n > 0:
        n -= 1
    return n

def plus(x, by=1):
    return x + by

def nothing():
    return 1
"""
TEST = """
import keras_attn
import pytest

@pytest.fixture(scope="module")
def shared():
    return keras_attn.is_below(2)

def test_below(shared):
    assert shared

def test_last():
    assert keras_attn.last(3) == 0

def test_plus():
    assert keras_attn.plus(0) == 1
"""
OUTCOMES = {
    ("LIMIT = 3", "3 to 4"): "survived ",  # an import runs it: all tests of its module try it
    ("return x < LIMIT", "Lt to LtE"): "survived ",
    ("return x < LIMIT", "None"): "caught tests/test_it.py::test_below",
    ("n -= 1", "AugAssign"): "timed out ",
    ("def plus(x, by=1):", "1 to 2"): "caught tests/test_it.py::test_plus",
    ("return 1", "None"): "not run ",
}
SCRIPT = "import mutations.__main__ as mutate; mutate.LIMIT = 3; mutate.main(preloaded=())"


def python(folder, *arguments, **more):
    environment = os.environ | {"PYTHONPATH": f"{TESTS}:.", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **more}
    return subprocess.check_output([sys.executable, *arguments], cwd=folder, env=environment, text=True)


@pytest.mark.needs("coverage")
def test_what_becomes_of_faults(tmp_path, monkeypatch):
    """Of a package with tests of its own, which are recorded as ours are."""
    for name, text in {"keras_attn/__init__.py": CODE, "tests/test_it.py": TEST}.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    python(tmp_path, "-m", "pytest", "-p", "tiers.recording", "tests", RECORD="record", RECORD_LINES="yes")
    monkeypatch.chdir(tmp_path)
    record = Record(Path("record"))
    counts = {line: len(record.cheapest("keras_attn/__init__.py", line, 60)[0]) for line in (2, 5, 8, 12, 16)}
    assert counts == {2: 3, 5: 1, 8: 1, 12: 1, 16: 0}  # of a module, a fixture, a function, its head, and of nothing
    (_,), spent = record.cheapest("keras_attn/__init__.py", 2, 0.0)
    assert spent == min(record.cheapest("keras_attn/__init__.py", line, 0.0)[1] for line in (5, 8, 13)) > 0
    with pytest.raises(SystemExit, match="does not hold which tests run which lines"):
        Record(tmp_path)
    there = {(each.text, each.what): each for each in faults("keras_attn/__init__.py", CODE)}
    named = [{name: getattr(there[each], name) for name in NAMED} | {"line": 1} for each in OUTCOMES]
    (tmp_path / "earlier.json").write_text(json.dumps([*named, named[0] | {"text": "LIMIT = 5"}]))  # the last is gone
    options = ("--coverage", "record", "--from", "earlier.json", "--json", "out.json", "--jobs", "2")
    said = python(tmp_path, "-c", SCRIPT, *options)
    verdicts = json.loads((tmp_path / "out.json").read_text())
    assert {(each["text"], each["what"]): f"{each['outcome']} {each['test']}" for each in verdicts} == OUTCOMES
    assert "6 faults: 2 survived, 2 caught, " in said
    assert said.endswith("50.0% caught\n")


def test_lines_that_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("export").mkdir()
    Path("export", "a.py").write_text("a\nb\nc\nd\n")
    for arguments in ("init --quiet", "add .", "-c user.name=A -c user.email=a@b.c commit --quiet --message Old"):
        subprocess.run(["git", *arguments.split()], check=True)
    Path("export", "a.py").write_text("a\nB\nB\nd\ne\n")
    assert changed_lines("HEAD") == {("export/a.py", line) for line in (2, 3, 5)}
