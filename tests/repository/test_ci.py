"""`.ci/run` runs its steps by name and in turn, and the workflow runs each, with no more rights than it needs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
WORKFLOW = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # which git knows everywhere

needs_bash = pytest.mark.skipif(sys.platform == "win32", reason=".ci/run is a script of bash; CI runs it on Linux")


def ci_run(*arguments, **environment):
    command, environment = [ROOT / ".ci" / "run", *arguments], {"PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def lines(*arguments, **environment):
    done = ci_run(*arguments, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@needs_bash
@pytest.mark.parametrize("names", [["no such step"], ["set-up", "no such step"], [""]])
def test_a_step_that_is_not_there_is_wrong_usage(names):
    done = ci_run(*names)
    assert (done.returncode, done.stdout) == (2, "")
    assert f'there is no step "{names[-1]}"' in done.stderr


@needs_bash
def test_every_step_is_listed_and_each_long_one_has_its_turn():
    listed = lines("--list")
    assert len(listed) == len(set(listed)) == len(re.findall(r"^(?:step|long) ", SCRIPT, flags=re.MULTILINE)) > 10
    long, listed = set(re.findall(r'^long "(.*?)"', SCRIPT, flags=re.MULTILINE)), set(listed)
    assert len(long) == 8
    turns = [set(lines("--due", CI_TURN=str(turn), CI_SINCE="HEAD")) for turn in range(5, 13)]
    assert all(due >= listed - long for due in turns)
    assert sorted({name: sum(name in due for due in turns) for name in long}.values()) == [2] * 8
    assert set.union(*turns[:4]) == listed
    assert set(lines("--due", CI_SINCE=EMPTY_TREE)) == listed, "the files of each have changed"
    assert set(lines("--all", "--due", CI_SINCE="HEAD")) == listed


@needs_bash
def test_the_workflow_runs_every_step_once():
    groups = [shlex.split(group["steps"]) for group in WORKFLOW["jobs"]["all"]["strategy"]["matrix"]["include"]]
    listed = lines("--list")
    assert sorted(name for group in groups for name in group if name != "set-up") == sorted({*listed} - {"set-up"})
    for group in groups:
        assert group == [name for name in listed if name in group], "what a step reads, an earlier one makes"


def test_the_workflow_may_only_read():
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert not any("permissions" in job for job in WORKFLOW["jobs"].values())
    for step in STEPS:
        assert "run" in step or re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"])
        if step.get("uses", "").startswith("actions/checkout"):
            assert step["with"]["persist-credentials"] is False


def test_what_the_workflow_names_is_there():
    words = [word for step in STEPS for word in shlex.split(step.get("run", ""))]
    paths = [word for word in words if word.startswith(("tests/", ".ci/"))]
    assert len(paths) >= 3
    assert all((ROOT / path).exists() for path in paths)


def test_the_files_that_a_session_of_nox_names_are_there():
    calls = re.findall(r"\bfiles\((\"[^)]*)\)", (ROOT / "noxfile.py").read_text(encoding="utf-8"))
    names = [name for call in calls for name in re.findall(r'"([^"]+)"', call)]
    assert len(names) > 10
    assert [name for name in names if not [*(ROOT / "tests").rglob(f"test_{name}.py")]] == []
