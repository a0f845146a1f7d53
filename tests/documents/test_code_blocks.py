"""Code blocks of the README and docs/: every block runs, and writes the output that is shown below it.

The blocks of a page run in order, in one namespace and one empty folder. Code that a page needs and does not show is in
comments of the page, see page_blocks.py; page_commands.py selects the commands that run.
"""

import contextlib
import io
import json
import shutil
import warnings
from pathlib import Path
from types import CodeType

import keras
import pytest
from page_blocks import PAGES, ROOT, RUN_ELSEWHERE, Block, parse_blocks
from page_commands import check_command, parse_commands, run_command
from page_output import describe_difference

import keras_attn  # noqa: F401  its layers must be registered before a page runs, or the page would remove them

pytestmark = [pytest.mark.nightly, pytest.mark.needs("ray")]

# The reasons of `<!-- not run: REASON -->`, and where such blocks run.
NOT_RUN = {
    "below": "needs files that the page writes further down, and runs there in a comment",
    "cuda": "needs a GPU and onnxruntime-gpu, which no machine that runs these tests has; not tested, as the page says",
    "jax": "needs JAX, of the extra [backends]: nox -s interop exports models of JAX",
    "openvino": "needs onnxruntime-openvino: nox -s runtimes exports for it",
    "toolchain": "needs a compiler of C# or C++ and onnxruntime's package for it; not tested, as the page says",
    "torch": "needs torch, of the extra [backends]: nox -s interop migrates weights from torch",
}
# Commands with these texts are checked and not run, for the same reasons.
COMMANDS_NOT_RUN = ("--provider cuda", "KERAS_BACKEND=jax", "KERAS_BACKEND=torch", " --live")


def is_skipped(block: Block, page: str) -> bool:
    """Return True if a block does not run here, for a reason of `NOT_RUN` or because another test runs it."""
    kind, argument = block.mark or ("", "")
    if kind == "not run":
        assert argument in NOT_RUN, f"{page}, line {block.line}: `{argument}` is not a reason of NOT_RUN"
        if block.language == "python":
            compile_block(block, page)
    elif kind == "run by":
        assert Path(page).name in (ROOT / argument).read_text(encoding="utf-8"), f"{argument} does not name {page}"
    return kind in ("not run", "run by")


def run_commands(block: Block, folder: Path) -> str | None:
    """Run the commands of a block, and return their joined outputs; None if a command does not run here."""
    code = int(block.mark[1]) if block.mark and block.mark[0] == "exits" else 0
    outputs: list[str | None] = []
    for words in parse_commands(block.source):
        is_run = not any(text in " ".join(words) for text in COMMANDS_NOT_RUN)
        outputs.append(run_command(words, folder, code) if is_run else check_command(words))
    return None if None in outputs else "".join(outputs)


def compile_block(block: Block, page: str) -> CodeType:
    """Compile a block of Python with the line numbers of its page, so that tracebacks show the page."""
    return compile("\n" * (block.line - 1) + block.source, str(ROOT / page), "exec", dont_inherit=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Empty folder, which is the working directory; registered layers are restored afterwards."""
    monkeypatch.chdir(tmp_path)
    keras.utils.clear_session()  # else names such as `functional_1` would depend on other pages
    monkeypatch.syspath_prepend(tmp_path)
    registered = {**keras.saving.get_custom_objects()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pages do not show warnings
        yield tmp_path
    keras.saving.get_custom_objects().clear()
    keras.saving.get_custom_objects().update(registered)  # removes the classes of the page
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in RUN_ELSEWHERE])
def test_blocks_of_a_page_run(page, folder):
    names: dict[str, object] = {"__name__": "__main__"}
    output: str | None = None
    for block in parse_blocks((ROOT / page).read_text(encoding="utf-8"), page):
        if is_skipped(block, page):
            output = None
        elif block.is_output:
            difference = describe_difference(block.source, output) if output is not None else ""
            assert not difference, f"{page}, line {block.line}: {difference}"
        elif block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile_block(block, page), names)
            output = out.getvalue()
        elif block.language == "sh":
            output = run_commands(block, folder)
        elif block.language == "json":
            json.loads(block.source)
        else:
            assert block.language == "text", f"{page}, line {block.line}: name the test that runs this {block.language}"


@pytest.mark.parametrize("page", RUN_ELSEWHERE)
def test_commands_of_pages_tested_elsewhere_exist(page):
    test_file = RUN_ELSEWHERE[page]
    assert test_file is None or Path(page).name in (ROOT / test_file).read_text(encoding="utf-8")
    for block in parse_blocks((ROOT / page).read_text(encoding="utf-8"), page):
        assert test_file or block.language != "python", f"{page}, line {block.line}: nothing runs this block"
        for words in parse_commands(block.source) if block.language == "sh" else ():
            check_command(words)
