"""Parsing of page blocks, comparison of outputs, and refusal of unknown commands."""

from contextlib import nullcontext

import pytest
from page_blocks import parse_blocks
from page_commands import check_command, parse_commands
from page_output import describe_difference

PAGE = """# Page

<!-- invisible-code-block: python
x = 1
-->

```python
print(x)
```

```text
1
```

<!-- not run: cuda -->
```sh
keras-attn verify bundle --provider cuda  # comment
```

"""


def test_page_blocks_have_language_line_and_mark():
    blocks = parse_blocks(PAGE)
    lines = [("python", 4), ("python", 8), ("text", 12), ("sh", 17)]
    assert [(block.language, block.line) for block in blocks] == lines
    assert [block.line for block in blocks if block.hidden] == [4]
    assert [block.line for block in blocks if block.is_output] == [12]
    assert [block.mark for block in blocks] == [None, None, None, ("not run", "cuda")]


@pytest.mark.parametrize(
    ("shown", "actual", "is_match"),
    [
        ("within 1.2e-07 of 4.25", "within 8.9e-08 of 4.31", True),
        ("a\n...\nz", "a\nb\nc\nz", True),
        ("0.04 of its limit", "0.31 of its limit", True),
        ("case   max\n-----  ---\nbase   1.0", "case    max\n------  ----\nbase    1.05", True),
        ("a", "a\nb", False),
        ("1.0 at 3", "1.0 at 4", False),
        ("0.04 of its limit", "1.31 of its limit", False),
    ],
)
def test_output_comparison_allows_only_computed_numbers_to_differ(shown, actual, is_match):
    assert (describe_difference(shown, actual) == "") is is_match


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("keras-attn verify bundle --provider cuda", None),
        ("keras-attn verify bundle --no-such-option", "unrecognized"),
        ("scripts/no-such-script", "not an executable file"),
        ("python -m pip install 'keras-attn[export,no-such-extra]'", "has no extra"),
        ("no-such-command", "unknown command"),
    ],
)
def test_unknown_commands_and_options_are_refused(command, message):
    (words,) = parse_commands(command)
    with nullcontext() if message is None else pytest.raises(AssertionError, match=message):
        check_command(words)
