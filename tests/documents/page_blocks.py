"""Pages of the documentation and their code blocks."""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

# Pages whose Python another test runs; their commands are checked here without running them.
RUN_ELSEWHERE = {
    "README.md": "tests/repository/test_readme.py",
    "CONTRIBUTING.md": None,  # its commands set up and test a checkout, as .ci/run does
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
    """A code block: language, text, number of its first line, and the mark above it, `KIND: ARGUMENT`."""

    language: str
    source: str
    line: int
    hidden: bool = False
    mark: tuple[str, str] | None = None
    is_output: bool = False


def parse_blocks(text: str, name: str = "page") -> list[Block]:
    """Return the blocks of a page in order, including the blocks in comments.

    `<!-- invisible-code-block: python` and `-->` enclose code that a page needs and does not show. A mark refers to the
    next block: `<!-- not run: REASON -->`, `<!-- run by: FILE -->` with the test that runs it, `<!-- exits: CODE -->`
    with the exit code of its commands. A text block directly below another block is the output of that block.
    """
    blocks: list[Block] = []
    end, mark = 0, None
    for match in ITEM.finditer(text):
        adjoins = not text[end : match.start()].strip()
        assert mark is None or adjoins, NO_BLOCK.format(name, *mark)
        end = match.end()
        if match["kind"]:
            mark = (match["kind"], match["argument"])
            continue
        hidden, language = match["hidden"] is not None, match["hidden"] or match["language"]
        group = "code" if hidden else "source"
        line = text.count("\n", 0, match.start(group)) + 1
        assert language, f"{name}, line {line - 1}: a block without a language"
        is_output = bool(blocks) and adjoins and language in ("text", "json") and not blocks[-1].is_output
        blocks.append(Block(language, textwrap.dedent(match[group]), line, hidden, mark, is_output))
        mark = None
    assert mark is None, NO_BLOCK.format(name, *mark)
    return blocks
