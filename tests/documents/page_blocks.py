"""The pages and their blocks of code, as sybil's lexers find them."""

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
    from sybil import Document
    from sybil.parsers.markdown.lexers import DirectiveInHTMLCommentLexer, FencedCodeBlockLexer

    document = Document(text, name)
    found: list[tuple[int, int, Block | tuple[str, str]]] = []
    for region in DirectiveInHTMLCommentLexer(r"not run|run by|exits", arguments=r"[^\n]*?")(document):
        found.append((region.start, region.end, (region.lexemes["directive"], region.lexemes["arguments"].strip())))
    for lexer, hidden in (
        (FencedCodeBlockLexer(r"\w+"), False),
        (DirectiveInHTMLCommentLexer("invisible-code-block", arguments=r"\w+"), True),
    ):
        for region in lexer(document):
            source = region.lexemes["source"]
            line = text.count("\n", 0, region.start + source.offset) + 1
            language = region.lexemes["arguments" if hidden else "language"]
            found.append((region.start, region.end, Block(language, source, line, hidden)))

    blocks: list[Block] = []
    end, mark = 0, None
    for start, stop, item in sorted(found, key=lambda each: each[0]):
        if isinstance(item, tuple):
            mark, end = item, text.index("-->", start) + 3
            continue
        adjoins = not text[end:start].strip()
        assert mark is None or adjoins, unmarked(name, mark)
        item.is_output = bool(blocks) and adjoins and item.language in ("text", "json") and not blocks[-1].is_output
        item.mark, mark, end = mark, None, stop
        blocks.append(item)
    assert mark is None, unmarked(name, mark)
    return blocks


def unmarked(name: str, mark: tuple[str, str]) -> str:
    """Say that a mark has no block."""
    return f"{name}: no block of code follows the mark `{': '.join(mark)}`"


def fences_without_language(text: str) -> list[int]:
    """Return the lines of blocks that do not say their language."""
    from sybil import Document
    from sybil.parsers.markdown.lexers import RawFencedCodeBlockLexer

    return [text.count("\n", 0, region.start) + 1 for region in RawFencedCodeBlockLexer()(Document(text, "page"))]
