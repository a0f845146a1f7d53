"""Continuous integration: the checks before a release is tagged, and one nightly job for each step of `.ci/run`."""

import re
import runpy
import shutil
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def release_checkout(tmp_path):
    """A checkout that may be tagged v1.2.0."""
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
    ("file", "old", "new", "message"),
    [
        ("keras_attn/__init__.py", "1.2.0", "1.3.0", r"must be v1\.3\.0.* Received: v1\.2\.0"),
        ("README.md", "https://somewhere", "docs/index.md", r"absolute links.* Received: docs/index\.md"),
        ("docs/limits.md", "A", "There is no\npublished release.", r'limits\.md still contains "no published release"'),
        ("CHANGELOG.md", "2027-03-01", "not released", "Received: .* - not released"),
        ("CITATION.cff", "date-released: 2027-03-01", "", r"CITATION.* Received: \{'version': '1\.2\.0'\}"),
        ("pyproject.toml", "[project.urls]", "[project]", r"must have \[project\.urls\]"),
    ],
)
def test_release_check_refuses_files_that_disagree_with_the_tag(release_checkout, file, old, new, message):
    find_errors = runpy.run_path(str(ROOT / ".ci" / "check_release.py"))["find_errors"]
    assert [*find_errors(release_checkout, "v1.2.0")] == []
    path = release_checkout / file
    path.write_text(path.read_text().replace(old, new))
    assert re.search(message, "\n".join(find_errors(release_checkout, "v1.2.0")))


def test_nightly_workflow_has_a_job_for_every_step():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    # A push runs every `step`, and two of the `in_turn` steps. Only the nightly job also runs the `at_night` steps.
    steps = re.findall(r'^(?:step|in_turn|at_night) "(.+?)" ', script, flags=re.MULTILINE)
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    assert {"set-up", *workflow["jobs"]["night"]["strategy"]["matrix"]["step"]} == {*steps}
