"""What runs the blocks of a page sees them all, and finds faults: a wrong output, a command that is not there."""

import pytest
from page_blocks import blocks_of, fences_without_language
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


def test_blocks_are_found_in_order():
    blocks = blocks_of(PAGE)
    assert [(block.language, block.line, block.hidden, block.is_output) for block in blocks] == [
        ("python", 4, True, False),
        ("python", 8, False, False),
        ("text", 12, False, True),
        ("text", 18, False, False),
        ("sh", 23, False, False),
        ("sh", 29, False, False),
    ]
    assert [block.mark for block in blocks] == [None, None, None, None, ("not run", "cuda"), None]
    assert blocks[-1].source == "openssl version\n"


def test_a_mark_must_stand_above_a_block():
    with pytest.raises(AssertionError, match="no block of code follows the mark `not run: cuda`"):
        blocks_of("<!-- not run: cuda -->\nWords.\n\n```sh\nls\n```\n")
    with pytest.raises(AssertionError, match="no block of code follows the mark `not run: cuda`"):
        blocks_of("<!-- not run: cuda -->\n")


def test_a_block_without_language_is_found():
    assert fences_without_language("```text\na\n```\n\n```\nb\n```\n") == [5]


@pytest.mark.parametrize(
    ("shown", "came"),
    [
        ("a 1\nb", "a 1\nb\n"),
        ("loss 1.6729", "loss 1.6801"),
        ("within 1.2e-07 of 4.25", "within 8.9e-08 of 4.25"),
        ("a\n...\nz", "a\nb\nc\nz"),
        ("a\n...", "a\nb\nc"),
        ("took ... ms", "took 123 ms"),
        ("0.04 of its limit", "0.31 of its limit"),
        ("case   max\n-----  ---\nbase   1.0", "case    max\n------  ----\nbase    1.05"),
        ("-0.5 (x+y)*", "-0.49 (x+y)*"),
    ],
)
def test_outputs_that_are_alike(shown, came):
    assert differs(shown, came) == ""


@pytest.mark.parametrize(
    ("shown", "came"),
    [
        ("a 1", "a 2"),
        ("loss 1.6729", "loss 2.6729"),
        ("4.25", "2.99"),
        ("a\nb", "a"),
        ("a", "a\nb"),
        ("a\n...\nz", "a\nb\nc"),
        ("True", "False"),
        ("1.0 at 3", "1.0 at 4"),
        ("0.5", "-0.5"),
        ("0.04 of its limit", "1.31 of its limit"),
    ],
)
def test_outputs_that_differ(shown, came):
    assert differs(shown, came)


def test_commands_are_read_as_a_shell_reads_them():
    source = "A=1 keras-attn run b \\\n  --inputs 'x y.npz'  # comment\n\n# nothing\nls\n"
    assert commands_of(source) == [["A=1", "keras-attn", "run", "b", "--inputs", "x y.npz"], ["ls"]]


@pytest.mark.parametrize(
    "command",
    [
        "keras-attn verify bundle --provider cuda",
        "keras-attn export --help",
        ".venv/bin/keras-attn inspect bundle",
        "python -m keras_attn_export inspect bundle --json",
        "scripts/test -k heatmaps",
        ".ci/run",
        "pip install '.[cpu,plot]'",
        "pip install 'keras-attn[sign]' numpy",
        "python -m pip install numpy",
        "npm install --ignore-scripts onnxruntime-node",
    ],
)
def test_commands_that_are_there(command):
    (words,) = commands_of(command)
    check(words)


@pytest.mark.parametrize(
    "command",
    [
        "keras-attn verify",
        "keras-attn verify bundle --no-such-option",
        "keras-attn no-such-command",
        "scripts/no-such-script",
        "pip install '.[no-such-extra]'",
        "python -m pip install 'keras-attn[cpu,no-such-extra]'",
        "no-such-command",
        "python",
    ],
)
def test_commands_that_are_not_there(command):
    (words,) = commands_of(command)
    with pytest.raises(AssertionError):
        check(words)


def test_a_command_that_fails_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AssertionError, match="exit code 1: error: "):
        run(["keras-attn", "inspect", "missing"], tmp_path)
    assert run(["keras-attn", "inspect", "missing"], tmp_path, code=1).startswith("error: ")
    with pytest.raises(AssertionError, match="exit code 3"):
        run(["python", "-c", "raise SystemExit(3)"], tmp_path)
    assert run(["python", "-c", "print('here')"], tmp_path) == "here\n"
    assert run(["npm", "install"], tmp_path) is None
