"""The faults of our own code that nox -s mutate draws, and what it says of them."""

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from mutations.__main__ import _again, _changed
from mutations.draw import KINDS, drawn, faults, mutated
from mutations.record import MODULE, Record

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("kind", "line", "faulty"),
    [
        ("comparison", "x = a < b <= c", ["x = (a <= b <= c)", "x = (a < b < c)"]),
        ("comparison", "x = a is not b", ["x = (a is b)"]),
        ("comparison", "x = a not in b", ["x = (a in b)"]),
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
    assert {fault.text for fault in found} == {line}


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring."""\n\ndef f(x: int | None) -> "tuple[int, 3]":\n    """Another."""',
        "if TYPE_CHECKING:\n    x = 1 < 2",
        'raise ValueError(f"{x + 1} is not " + str(y < 1))',
        "class C:\n    def __repr__(self):\n        return str(1)",
        'import x\n__all__ = ["f"]\nassert f(1) == 2',
        "x = None\ny: int = x\nx = y, None\nx = zip(*y, z, strict=True)\nisinstance(x, y).x",
        'x = f"{y + 1}", "some prose"',
    ],
)
def test_what_says_nothing_of_how_code_works_has_no_faults(text):
    assert faults("file.py", text) == []


TEXT = (TESTS / "mutations" / "draw.py").read_text()  # some code
FAULTS = faults("draw.py", TEXT)


def test_a_drawn_fault_compiles_and_differs():
    chosen = drawn(FAULTS, 2 * len(KINDS), seed=1)
    assert Counter(fault.kind for fault in chosen) == dict.fromkeys(KINDS, 2)
    trees = {ast.dump(ast.parse(mutated(TEXT, fault)[0])) for fault in chosen}
    assert len(trees | {ast.dump(ast.parse(TEXT))}) == len(chosen) + 1


def test_what_is_drawn_hangs_on_the_seed_alone():
    assert drawn(FAULTS, 20, seed=1) == drawn(reversed(FAULTS), 40, seed=1)[:20]
    assert drawn(FAULTS, 20, seed=1) != drawn(FAULTS, 20, seed=2)


def test_all_that_are_drawn_have_lines_of_their_own():
    all_of_them = drawn(FAULTS, 10**6, seed=1)
    lines = {(fault.kind, fault.line) for fault in FAULTS}
    assert len(all_of_them) == len(lines) < len({*FAULTS}) == len(FAULTS)
    assert {(fault.kind, fault.line) for fault in all_of_them} == lines


def test_a_fault_is_found_again_where_its_line_has_moved():
    before, after = faults("a.py", "x = 1\nf(x)\nx = 1"), faults("a.py", "# More\nx = 1\nf(x)\ny = 1\nx = 1")
    assert [_again(fault, after).line for fault in before] == [2, 3, 2]  # the nearest, where lines are the same
    assert mutated("x = 2", _again(before[0], faults("a.py", "x = 2"))) == ("", "")


def test_lines_that_changed(tmp_path, monkeypatch):
    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b.c", *arguments], check=True)

    monkeypatch.chdir(tmp_path)
    for folder in ("export", "keras_attn"):
        Path(folder).mkdir()
        Path(folder, "old.py").write_text("a\nb\nc\nd\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "Old")
    Path("export", "old.py").write_text("a\nB\nB\nd\ne\n")
    Path("export", "new.py").write_text("a\n")
    changed = _changed("HEAD")
    assert changed["export/old.py"] == {2, 3, 5}
    assert 1 in changed["export/new.py"]
    assert "keras_attn/old.py" not in changed


INIT = "keras_attn/__init__.py"
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
OTHER = """
def twice(x):
    return 2 * x
"""
TEST = """
import keras_attn
from keras_attn._other import twice


def test_below():
    assert keras_attn.is_below(2)


def test_last():
    assert keras_attn.last(3) == 0


def test_plus():
    assert keras_attn.plus(twice(0)) == 1


def test_plus_too():
    assert keras_attn.plus(twice(1)) == 3
"""
OUTCOMES = {
    ("LIMIT = 3", "3 to 4"): "survived",
    ("return x < LIMIT", "Lt to LtE"): "survived",
    ("return n", "None"): "caught",
    ("def plus(x, by=1):", "1 to 2"): "caught",
    ("return 1", "None"): "not run by any test",
    ("return 2 * x", "2 to 3"): "caught",
}


of_a_tree = pytest.mark.needs("coverage")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A package with tests, and what was recorded of them."""
    from coverage import CoverageData

    root = tmp_path_factory.mktemp("tree")
    files = {INIT: CODE, "keras_attn/_other.py": OTHER, "tests/test_it.py": TEST, "pytest.ini": "[pytest]\n"}
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    (root / "record").mkdir()
    seconds = {nodeid("below"): 0.02, nodeid("last"): 0.01, nodeid("plus"): 0.04, nodeid("plus_too"): 0.03}
    record = {"tests": seconds, "fixtures": {"tests::shared": 7.0}, "users": {nodeid("below"): ["tests::shared"]}}
    (root / "record" / "seconds.gw0.json").write_text(json.dumps(record))
    data = CoverageData(str(root / "record" / "lines.gw0"))
    for context, lines in {
        "": [2, 5, 9, 15, 19],
        "fixture tests::shared": [6],
        nodeid("last"): [10, 11, 12],
        nodeid("plus"): [16],
        nodeid("plus_too"): [16],
    }.items():
        data.set_context(context)
        data.add_lines({str(root / INIT): lines})
        data.add_lines({str(root / "keras_attn" / "_other.py"): [3] if "plus" in context else []})
    data.write()
    return root


def nodeid(name):
    return f"tests/test_it.py::test_{name}"


@of_a_tree
def test_which_tests_run_a_line(tree):
    record = Record(tree / "record", tree)
    found = {line: record.stages(INIT, line, 60) for line in (2, 6, 11, 15, 16, 20)}
    plus = [nodeid("plus_too"), nodeid("plus")]  # the cheapest first
    assert found == {
        2: [[nodeid("below")]],
        6: [[nodeid("below")]],
        11: [[nodeid("last")]],
        15: [plus],
        16: [plus],
        20: [],
    }
    assert record.stages(INIT, 16, 0.0) == [plus[:1]]
    assert record.seconds([nodeid("below"), nodeid("last")]) == pytest.approx(0.02 + 0.01 + 7 + MODULE)


def run(tree, *arguments):
    """nox -s mutate without the set-up, and without what takes long to import."""
    command = [sys.executable, "-m", "mutations", "--coverage", "record", "--preload", "--json", "out.json", *arguments]
    environment = os.environ | {"PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


@of_a_tree
def test_what_becomes_of_faults(tree):
    recorded = (tree / "record" / "lines.gw0").read_bytes()
    both = [*faults(INIT, CODE), *faults("keras_attn/_other.py", OTHER)]
    there = {(fault.text, fault.what): fault for fault in both}
    chosen = [there[each] for each in OUTCOMES]
    gone = chosen[0]._replace(text="LIMIT = 5")
    (tree / "chosen.json").write_text(json.dumps([fault._asdict() for fault in [*chosen, gone]]))
    done = run(tree, "--from", "chosen.json", "--fail-below", "0.6")
    assert done.stderr == ""
    assert (tree / "record" / "lines.gw0").read_bytes() == recorded
    verdicts = json.loads((tree / "out.json").read_text())
    assert [each["outcome"] for each in verdicts] == [*OUTCOMES.values(), "gone"]
    assert verdicts[2]["tests"] == [nodeid("last")]
    assert f"  - return x < LIMIT\n  + return (x <= LIMIT)\n    1 tests ran:\n    {nodeid('below')}" in done.stdout
    assert "50.0% caught" in done.stdout
    assert done.returncode == 1


@of_a_tree
def test_no_fault_is_tried_where_tests_fail_without_one(tree):
    done = run(tree, "--limit", "-100")  # no time at all
    assert done.returncode == 1
    assert done.stderr.startswith("nox -s mutate: without a fault timed out: tests/test_it.py")


def test_lines_that_nobody_recorded(tmp_path):
    with pytest.raises(SystemExit, match=r"does not hold which tests run which lines\. RECORD="):
        Record(tmp_path, tmp_path)
