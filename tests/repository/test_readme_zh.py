"""The Chinese README says what README.md says: the same code, commands and figures, with links that lead somewhere."""

import re
from pathlib import Path

import pytest

import keras_attn

ROOT = Path(__file__).resolve().parents[2]
CHINESE = (ROOT / "README.zh.md").read_text(encoding="utf-8")
ENGLISH = (ROOT / "README.md").read_text(encoding="utf-8")
FENCES = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
# Of 《动手学深度学习》, https://zh.d2l.ai: a reader of the book finds its words again.
TERMS = (
    "注意力评分函数",
    "加性注意力",
    "缩放点积注意力",
    "掩蔽softmax操作",
    "多头注意力",
    "查询",
    "键",
    "值",
    "有效长度",
)


def without_comments(code: str) -> list[str]:
    """Return the lines of code or commands; comments are in the language of the page, but for what is printed."""
    return [line for each in code.splitlines() if (line := re.sub(r"\s*(?:^|\s)# (?!all ).*$", "", each).rstrip())]


def python_blocks(text: str) -> list[list[str]]:
    return [without_comments(code) for language, code in FENCES.findall(text) if language == "python"]


def commands(text: str) -> list[str]:
    return [line for language, code in FENCES.findall(text) if language != "python" for line in without_comments(code)]


def figures(text: str) -> set[str]:
    """Return the numbers of a text that are no part of a name, a version of the format or a link's target."""
    prose = re.sub(r"\]\([^)]*\)", "]", FENCES.sub("", text))
    return set(re.findall(r"(?<![\w.-])\d+(?:\.\d+)*%?(?![\w-]|\.\d)", prose))


def test_the_code_is_the_same():
    assert python_blocks(CHINESE) == python_blocks(ENGLISH)


def test_the_commands_are_among_those_of_the_readme():
    assert commands(CHINESE)
    assert set(commands(CHINESE)) <= set(commands(ENGLISH))


def test_the_figures_are_among_those_of_the_readme():
    shown = re.sub(r"(?s)<!-- results: .*?-->\n```|```\n<!-- results: end -->", "", ENGLISH)  # the demo's, as prose
    found = figures(CHINESE) - {"0"}
    assert len(found) >= 8
    assert found <= figures(shown), "a figure of README.zh.md is not in README.md"


@pytest.mark.parametrize("term", TERMS)
def test_the_words_are_those_of_the_textbook(term):
    assert term in CHINESE


def test_the_arguments_of_the_table_are_there():
    names = re.findall(r"^\| [^|]+ \| `(\w+)(?:\(|`)", CHINESE, flags=re.MULTILINE)
    layers = [name for name in names if name not in ("queries", "valid_lens")]
    assert len(layers) >= 6
    assert [name for name in layers if not hasattr(keras_attn, name)] == []


def test_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)\s#]+)", CHINESE)
    assert len(targets) >= 10
    assert [target for target in targets if "://" not in target and not (ROOT / target).exists()] == []
