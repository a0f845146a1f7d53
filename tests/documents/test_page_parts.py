"""What runs the blocks of a page sees them all, and finds faults: a wrong output, a command that is not there."""

from contextlib import nullcontext

import pytest
from page_blocks import blocks_of
from page_commands import check, commands_of, run
from page_output import differs

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

Words between, so this is no output:

```text
2
```

<!-- not run: cuda -->
```sh
keras-attn verify bundle --provider cuda  # comment
```

- In a list:

    ```sh
    openssl version
    ```
"""


def test_blocks_marks_and_fences_without_language_are_found():
    blocks = blocks_of(PAGE)
    lines = [("python", 4), ("python", 8), ("text", 12), ("text", 18), ("sh", 23), ("sh", 29)]
    assert [(block.language, block.line) for block in blocks] == lines
    assert [block.line for block in blocks if block.hidden] == [4]
    assert [block.line for block in blocks if block.is_output] == [12]
    assert [block.mark for block in blocks] == [None, None, None, None, ("not run", "cuda"), None]
    assert blocks[-1].source == "openssl version\n"
    for rest in ("Words.\n\n```sh\nls\n```\n", ""):
        with pytest.raises(AssertionError, match="no block of code follows the mark `not run: cuda`"):
            blocks_of(f"<!-- not run: cuda -->\n{rest}")
    with pytest.raises(AssertionError, match="line 5: a block that does not say its language"):
        blocks_of("```text\na\n```\n\n```\nb\n```\n")


@pytest.mark.parametrize(
    ("shown", "came", "alike"),
    [
        ("a 1\nb", "a 1\nb\n", True),
        ("within 1.2e-07 of 4.25", "within 8.9e-08 of 4.31", True),
        ("a\n...\nz", "a\nb\nc\nz", True),
        ("0.04 of its limit", "0.31 of its limit", True),
        ("case   max\n-----  ---\nbase   1.0", "case    max\n------  ----\nbase    1.05", True),
        ("a 1", "a 2", False),
        ("a", "a\nb", False),
        ("a\n...\nz", "a\nb\nc", False),
        ("1.0 at 3", "1.0 at 4", False),
        ("0.5", "-0.5", False),
        ("0.04 of its limit", "1.31 of its limit", False),
    ],
)
def test_outputs_are_alike_or_differ(shown, came, alike):
    assert (differs(shown, came) == "") is alike


def test_commands_are_read_as_a_shell_reads_them():
    source = "A=1 keras-attn run b \\\n  --inputs 'x y.npz'  # comment\n\n# nothing\nls\n"
    assert commands_of(source) == [["A=1", "keras-attn", "run", "b", "--inputs", "x y.npz"], ["ls"]]


@pytest.mark.parametrize(
    ("command", "fault"),
    [
        ("keras-attn verify bundle --provider cuda", None),
        (".venv/bin/keras-attn export --help", None),
        ("python -m pip install 'keras-attn[plot]' numpy", None),
        ("keras-attn verify", "required: "),
        ("keras-attn verify bundle --no-such-option", "unrecognized"),
        ("scripts/no-such-script", "no executable file"),
        ("python -m pip install 'keras-attn[export,no-such-extra]'", "has no extra"),
        ("no-such-command", "nobody knows"),
        ("python", "does nothing"),
    ],
)
def test_commands_that_are_not_there_are_found(command, fault):
    (words,) = commands_of(command)
    with nullcontext() if fault is None else pytest.raises(AssertionError, match=fault):
        check(words)


def test_a_command_that_fails_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, said in ((["keras-attn", "inspect", "missing"], "1: error: "), (["python", "-c", "exit(3)"], "3")):
        with pytest.raises(AssertionError, match=f"exit code {said}"):
            run(words, tmp_path)
    assert run(["keras-attn", "inspect", "missing"], tmp_path, code=1).startswith("error: ")
    assert run(["python", "-c", "print('here')"], tmp_path) == "here\n"
    assert run(["npm", "install"], tmp_path) is None
