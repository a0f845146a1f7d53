"""Every block of code of the README and docs/ runs, and gives the output that is shown below it.

The blocks of a page run in order, in one namespace and one empty folder. What they need and a page does not show stands
in comments of the page, see page_blocks.py; which commands run, in page_commands.py.
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
from page_blocks import PAGES, ROOT, RUN_ELSEWHERE, Block, blocks_of
from page_commands import check, commands_of, run
from page_output import differs

import keras_attn  # noqa: F401  so that its layers are registered before a page is run, and stay when that ends

pytestmark = [pytest.mark.nightly, pytest.mark.needs("ray")]

# The reasons of `<!-- not run: REASON -->`, and where such blocks run.
NOT_RUN = {
    "below": "needs what the page makes further down, and runs there in a comment",
    "cuda": "needs a GPU and onnxruntime-gpu, which no machine that runs these tests has; not tested, as the page says",
    "jax": "needs JAX, of the extra [backends]: nox -s interop exports models that live there",
    "openvino": "needs onnxruntime-openvino: nox -s runtimes exports for it",
    "toolchain": "needs a compiler of C# or C++ and onnxruntime's package for it; not tested, as the page says",
    "torch": "needs torch, of the extra [backends]: nox -s interop moves weights from there",
}
# Commands that are looked at and not run, wherever they stand, for the same reasons.
COMMANDS_NOT_RUN = ("--provider cuda", "KERAS_BACKEND=jax", "KERAS_BACKEND=torch", " --live")


def is_left_out(block: Block, page: str) -> bool:
    """Whether a block is not for this test to run, for a reason that is known or since another test runs it."""
    kind, argument = block.mark or ("", "")
    if kind == "not run":
        assert argument in NOT_RUN, f"{page}, line {block.line}: `{argument}` is no reason of NOT_RUN"
        if block.language == "python":
            compiled(block, page)
    elif kind == "run by":
        assert Path(page).name in (ROOT / argument).read_text(encoding="utf-8"), f"{argument} does not name {page}"
    return kind in ("not run", "run by")


def run_commands(block: Block, folder: Path) -> str | None:
    """Run the commands of a block, and return the outputs one after the other; None if one does not run here."""
    code = int(block.mark[1]) if block.mark and block.mark[0] == "exits" else 0
    outputs: list[str | None] = []
    for words in commands_of(block.source):
        is_run = not any(text in " ".join(words) for text in COMMANDS_NOT_RUN)
        outputs.append(run(words, folder, code) if is_run else check(words))
    return None if None in outputs else "".join(outputs)


def compiled(block: Block, page: str) -> CodeType:
    """Compile a block of Python as the lines of its page, which a traceback then shows."""
    return compile("\n" * (block.line - 1) + block.source, str(ROOT / page), "exec", dont_inherit=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return an empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    keras.utils.clear_session()  # or names such as `functional_1` would count the models of other pages
    monkeypatch.syspath_prepend(tmp_path)
    registered = {**keras.saving.get_custom_objects()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a reader sees them on standard error and goes on
        yield tmp_path
    keras.saving.get_custom_objects().clear()
    keras.saving.get_custom_objects().update(registered)  # without the classes of the page
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in RUN_ELSEWHERE])
def test_blocks_of_a_page_run(page, folder):
    names: dict[str, object] = {"__name__": "__main__"}
    output: str | None = None
    for block in blocks_of((ROOT / page).read_text(encoding="utf-8"), page):
        if is_left_out(block, page):
            output = None
        elif block.is_output:
            difference = differs(block.source, output) if output is not None else ""
            assert not difference, f"{page}, line {block.line}: {difference}"
        elif block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compiled(block, page), names)
            output = out.getvalue()
        elif block.language == "sh":
            output = run_commands(block, folder)
        elif block.language == "json":
            json.loads(block.source)
        else:
            assert block.language == "text", f"{page}, line {block.line}: say by which test this {block.language} runs"


@pytest.mark.parametrize("page", RUN_ELSEWHERE)
def test_commands_of_pages_tested_elsewhere_exist(page):
    elsewhere = RUN_ELSEWHERE[page]
    assert elsewhere is None or Path(page).name in (ROOT / elsewhere).read_text(encoding="utf-8")
    for block in blocks_of((ROOT / page).read_text(encoding="utf-8"), page):
        assert elsewhere or block.language != "python", f"{page}, line {block.line}: nothing runs this block"
        for words in commands_of(block.source) if block.language == "sh" else ():
            check(words)
