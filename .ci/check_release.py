"""Check that a tag fits the checkout: `check_release.py v1.2.3`."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

UNRELEASED_TEXTS = {
    "README.md": "Until the first release",
    "README.zh.md": "首次发布之前",
    "docs/index.md": "Until the first release",
    "docs/limits.md": "no published release",
}


def find_errors(root: Path, tag: str) -> Iterator[str]:
    """Yield errors that must be corrected before the tag may be published."""
    texts = {name: (root / name).read_text(encoding="utf-8") for name in ("CHANGELOG.md", "CITATION.cff")}
    code = (root / "keras_attn" / "__init__.py").read_text(encoding="utf-8")
    version = re.findall(r'^__version__ = "(.+)"$', code, flags=re.MULTILINE)[0]
    if tag != f"v{version}":
        yield f"The tag must be v{version}, after `keras_attn.__version__`. Received: {tag}."
    heading = re.findall(r"^## .*$", texts["CHANGELOG.md"], flags=re.MULTILINE)[0]
    date = re.fullmatch(rf"## \[{re.escape(version)}\] - (\d{{4}}-\d\d-\d\d)", heading)
    if not date:
        yield f'CHANGELOG.md must begin with "## [{version}] - YYYY-MM-DD". Received: "{heading}".'
    citation = dict(re.findall(r"^(version|date-released): (.+)$", texts["CITATION.cff"], flags=re.MULTILINE))
    expected = {"version": version, "date-released": date[1] if date else "YYYY-MM-DD"}
    if citation != expected:
        yield f"CITATION.cff must contain {expected}. Received: {citation}."
    if not tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls"):
        yield "pyproject.toml must have [project.urls], with the repository's address."
    for name, words in UNRELEASED_TEXTS.items():
        if words in " ".join((root / name).read_text(encoding="utf-8").split()):
            yield f'{name} still contains "{words}".'
    if relative_links := re.findall(r"\]\((?!https?:|#)([^)]+)\)", (root / "README.md").read_text(encoding="utf-8")):
        yield f"README.md must have absolute links, since PyPI shows it too. Received: {relative_links[0]}."


if __name__ == "__main__":
    sys.exit("\n".join(find_errors(Path(__file__).resolve().parents[1], *sys.argv[1:])) or None)
