"""`.ci/run` runs its steps by name and in turn, and workflows run each, with no more rights than they need."""

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
WORKFLOWS = {
    file.stem: yaml.safe_load(file.read_text(encoding="utf-8")) for file in (ROOT / ".github" / "workflows").iterdir()
}
JOBS = {f"{name} {job}": told for name, file in WORKFLOWS.items() for job, told in file["jobs"].items()}
RUNS = [step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step]

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # which git knows everywhere

needs_bash = pytest.mark.skipif(
    sys.platform == "win32" or not (ROOT / ".git").exists(),
    reason=".ci/run is a script of bash, and asks git whose turn it is; CI runs it on Linux in a checkout",
)


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


@pytest.mark.slow
@needs_bash
def test_every_step_is_listed_and_each_long_one_has_its_turn():
    listed = lines("--list")
    assert len(listed) == len(set(listed)) == len(re.findall(r"^(?:step|long) ", SCRIPT, flags=re.MULTILINE)) > 10
    long, listed = set(re.findall(r'^long "(.*?)"', SCRIPT, flags=re.MULTILINE)), set(listed)
    turns = [set(lines("--due", CI_TURN=str(5 + turn), CI_SINCE="HEAD")) for turn in range(len(long))]
    assert all(due >= listed - long for due in turns)
    assert {sum(name in due for due in turns) for name in long} == {2}
    assert set.union(*turns[: (len(long) + 1) // 2]) == listed
    changed = [set(lines("--due", CI_TURN=str(5 + turn), CI_SINCE=EMPTY_TREE)) for turn in range(len(long))]
    assert {len(due & long) for due in changed} == {3}, "though the files of each have changed"
    assert set.union(*changed) == listed
    assert set(lines("--all", "--due", CI_SINCE="HEAD")) == listed


@needs_bash
def test_the_workflow_runs_every_step_once():
    matrix = WORKFLOWS["ci"]["jobs"]["all"]["strategy"]["matrix"]["include"]
    groups = [group["steps"].split("\n") for group in matrix]
    listed = lines("--list")
    assert sorted(name for group in groups for name in group if name != "set-up") == sorted({*listed} - {"set-up"})
    (release,) = (shlex.split(run)[1:] for run in RUNS if run.startswith(".ci/run "))
    for group in (*groups, release):
        assert group == [name for name in listed if name in group], "what a step reads, an earlier one makes"


def test_a_job_may_read_and_only_those_of_a_release_sign():
    assert {name: file["permissions"] for name, file in WORKFLOWS.items()} == {
        "ci": {"contents": "read"},
        "prereleases": {"contents": "read"},
        "release": {},
    }
    assert {name: job["permissions"] for name, job in JOBS.items() if "permissions" in job} == {
        "release build": {"contents": "read"},
        "release attest": {"id-token": "write", "attestations": "write"},
        "release publish": {"id-token": "write"},
    }
    assert JOBS["release publish"]["environment"] == "pypi"
    assert {name for name, job in JOBS.items() if "needs" in job} == {"release attest", "release publish"}


def test_a_failure_is_seen():
    assert not any("continue-on-error" in each for job in JOBS.values() for each in (job, *job["steps"]))


def test_what_workflows_name_is_there():
    words = {word for run in RUNS for word in shlex.split(run)}
    words |= {*re.findall(r"^  (tests/\S+)$", (ROOT / ".ci" / "elsewhere").read_text("utf-8"), flags=re.MULTILINE)}
    paths = [word for word in words if word.startswith(("tests/", ".ci/"))]
    assert len(paths) > 10
    assert all((ROOT / path).exists() for path in paths)


@pytest.fixture
def released(tmp_path):
    """Return the folder of a checkout that may be tagged v1.2.0."""
    (tmp_path / "keras_attn").mkdir()
    (tmp_path / "keras_attn" / "__init__.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## [1.2.0] - 2027-03-01\n\n## [1.1.0] - 2027-02-01\n")
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.0\ndate-released: 2027-03-01\n")
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nSource = "somewhere"\n')
    (tmp_path / "docs").mkdir()
    for page in ("README.md", "README.zh.md", "docs/index.md", "docs/limits.md"):
        (tmp_path / page).write_text("A [page](https://somewhere).\n")
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "check_release.py", tmp_path / ".ci")
    return tmp_path


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("keras_attn/__init__.py", "1.2.0", "1.3.0", r"must be v1\.3\.0.* Received: v1\.2\.0"),
        ("README.md", "https://somewhere", "docs/index.md", r"whole addresses.* Received: docs/index\.md"),
        ("docs/limits.md", "A", "There is no\npublished release.", "docs/limits.md still says"),
        ("CHANGELOG.md", "# Changelog", "## [Unreleased]", r'Received: "## \[Unreleased\]"'),
        ("CHANGELOG.md", "2027-03-01", "not released", "Received: .* - not released"),
        ("CITATION.cff", "date-released: 2027-03-01", "", r"CITATION.* Received: \{'version': '1\.2\.0'\}"),
        ("CITATION.cff", "03-01", "02-01", "CITATION.* Received: .*2027-02-01"),
        ("pyproject.toml", "[project.urls]", "[project]", r"must have \[project\.urls\]"),
    ],
)
def test_a_tag_that_says_something_else_is_refused(released, file, old, new, said):
    problems = runpy.run_path(str(ROOT / ".ci" / "check_release.py"))["problems"]
    assert [*problems(released, "v1.2.0")] == []
    path = released / file
    path.write_text(path.read_text().replace(old, new))
    assert re.search(said, "\n".join(problems(released, "v1.2.0")))


@pytest.mark.parametrize(("tag", "code"), [("v1.2.0", 0), ("v1.3.0", 1)])
def test_the_exit_code_says_whether_a_tag_may_be_published(released, tag, code):
    done = subprocess.run([sys.executable, released / ".ci" / "check_release.py", tag], stderr=subprocess.PIPE)
    assert (done.returncode, bool(done.stderr)) == (code, bool(code))


def test_the_files_that_a_session_of_nox_names_are_there():
    calls = re.findall(r"\bfiles\((\"[^)]*)\)", (ROOT / "noxfile.py").read_text(encoding="utf-8"))
    names = [name for call in calls for name in re.findall(r'"([^"]+)"', call)]
    assert len(names) > 10
    assert [name for name in names if not [*(ROOT / "tests").rglob(f"test_{name}.py")]] == []
