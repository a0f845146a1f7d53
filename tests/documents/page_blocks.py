"""The pages and their blocks of code."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

# Pages whose Python another test runs; their commands are looked at here, and not run.
RUN_ELSEWHERE = {
    "README.md": "tests/repository/test_readme.py",
    "CONTRIBUTING.md": None,  # sets up and tests a checkout, as .ci/run does
    "docs/migrating.md": "tests/layers/test_migrate.py",
}
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(page.relative_to(ROOT).as_posix() for page in DOCS.rglob("*.md"))]
ITEM = re.compile(  # a mark, a block in a comment, a block
    r"<!-- (?P<kind>not run|run by|exits): (?P<argument>[^\n]*?) -->"
    r"|<!-- invisible-code-block: (?P<hidden>\w+)\n(?P<code>.*?)-->"
    r"|^(?P<indent> *)(?P<fence>`{3,})(?P<language>\w*)[^\n]*\n(?P<source>.*?)^(?P=indent)(?P=fence)$",
    flags=re.MULTILINE | re.DOTALL,
)
NO_BLOCK = "{}: no block of code follows the mark `{}: {}`"


@dataclass
class Block:
    """A block of code: its language, its text, the line where that begins, and the mark above it, `KIND: ARGUMENT`."""

    language: str
    source: str
    line: int
    hidden: bool = False
    mark: tuple[str, str] | None = None
    is_output: bool = False


def blocks_of(text: str, name: str = "page") -> list[Block]:
    """Return the blocks of a page in order, those in comments among them.

    `<!-- invisible-code-block: python` and `-->` hold what a page needs and does not show. Of the block that follows,
    `<!-- not run: REASON -->` says why it does not run, `<!-- run by: FILE -->` which test runs it, and
    `<!-- exits: CODE -->` with which code its commands end. A block of text right below another one is its output.
    """
    blocks: list[Block] = []
    end, mark = 0, None
    for found in ITEM.finditer(text):
        adjoins = not text[end : found.start()].strip()
        assert mark is None or adjoins, NO_BLOCK.format(name, *mark)
        end = found.end()
        if found["kind"]:
            mark = (found["kind"], found["argument"])
            continue
        hidden, language = found["hidden"] is not None, found["hidden"] or found["language"]
        group = "code" if hidden else "source"
        line = text.count("\n", 0, found.start(group)) + 1
        assert language, f"{name}, line {line - 1}: a block that does not say its language"
        is_output = bool(blocks) and adjoins and language in ("text", "json") and not blocks[-1].is_output
        blocks.append(Block(language, textwrap.dedent(found[group]), line, hidden, mark, is_output))
        mark = None
    assert mark is None, NO_BLOCK.format(name, *mark)
    return blocks
