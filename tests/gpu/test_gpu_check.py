"""The whole way of scripts/gpu-check, on the CPU provider: what it finds, and that it finds what is wrong."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import onnx
import pytest

from keras_attn_export._standalone import verify
from keras_attn_export._tracing.nodes import all_nodes

from . import make_bundles
from .__main__ import main
from .check import DOCUMENT
from .page import BEGIN, END, page, write_document
from .plans import plans
from .results import joined
from .wheels import WheelError, put_together

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["contract-dot-portable-float16", "contract-dot-fused", "timing-dot_D64-portable"]
CONTRACT = "contract-dot-fused"


@pytest.fixture(scope="session")
def kit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kit") / "bundles"
    chosen = [plan for plan in plans(make_bundles.FORMS, quick=True) if plan.name in NAMES]
    assert len(chosen) == len(NAMES)
    assert make_bundles.write(folder, chosen) == 0
    return folder


@pytest.fixture
def altered(kit, tmp_path):
    """A copy of the bundles that a test may change."""
    return shutil.copytree(kit, tmp_path / "bundles")


def checked(bundles, output, *arguments):
    code = main(["--bundles", str(bundles), "--provider", "cpu", "--output", str(output), "--quick", *arguments])
    return code, json.loads((output / "gpu.json").read_text())


@pytest.mark.out_of_turn  # .ci/run goes it from a folder of wheels
def test_the_whole_way(kit, tmp_path, capsys):
    code, found = checked(kit, tmp_path / "out")
    assert code == 0, capsys.readouterr()
    assert found["ended"] == "to its end"
    assert {row["bundle"] for row in found["replay"]} == {*NAMES}
    assert all(row["nodes"]["CPUExecutionProvider"] > 3 for row in found["replay"])
    promises = {row["promise"] for row in found["contract"]}
    assert promises == {"numbers", "poison", "garbage", "lengths beyond", "without a key"}
    assert {row["output"] for row in found["contract"]} == {"all", "lengths", "mask_of_pairs", "causal"}
    assert all(row["runs"] >= 2 for row in found["contract"] if row["promise"] == "numbers")
    ours = [row for row in found["timing"] if row["bundle"]]
    assert [(row["size"], row["fill"], row["where"]) for row in ours] == [
        ("B2 T16", fill, "cpu") for fill in ("all", "half")
    ]
    assert all(row["ms"] > 0 and row["faster"] == 1 for row in ours)
    told = (tmp_path / "out" / "gpu.md").read_text()
    assert "| fused | float32 | 1 of 1 |" in told
    assert "What failed" not in told


def test_bundles_that_are_there_are_left_alone(kit, capsys):
    before = {file: file.stat().st_mtime_ns for file in kit.rglob("*")}
    chosen = [plan for plan in plans(make_bundles.FORMS, quick=True) if plan.name in NAMES]
    assert make_bundles.write(kit, chosen) == 0
    assert {file: file.stat().st_mtime_ns for file in kit.rglob("*")} == before


def test_every_form_has_bundles():
    names = [plan.name for plan in plans(make_bundles.FORMS)]
    assert len(names) == len(set(names))
    for form in ("portable", "fused", "ragged", "batched", "adaptive"):
        for layer in ("additive", "dot", "multi_head", "grouped", "gaussian", "cosine", "sparsemax", "sigmoid"):
            assert any(name.startswith(f"contract-{layer}") and form in name for name in names)
    assert "contract-multi_head-portable-float16" in names


def test_bundles_are_those_of_an_export_for_cuda(kit):
    fused = onnx.load(kit / CONTRACT / "model.onnx")
    assert not [node for node in nodes_of(fused) if node.op_type == "If"], "what leaked would be asked of the device"
    assert not make_bundles.has_form("dot", "fused", weights=True)


def rewritten(folder, name, change):
    """Change the graph of a bundle, and say so in its manifest."""
    file = folder / name / "model.onnx"
    model = onnx.load(file)
    change(model)
    file.write_bytes(model.SerializeToString())
    resigned(folder / name)


def resigned(bundle):
    manifest = json.loads((bundle / "manifest.json").read_bytes())
    manifest["sha256"] = {name: verify.sha256(bundle / name) for name in manifest["sha256"]}
    (bundle / "manifest.json").write_bytes(verify.manifest_bytes(manifest))


def nodes_of(model):
    return [node for holder in (model.graph, *model.functions) for node in all_nodes(holder)]


def weights_leak(model):
    """What no query sees is read after all: values are not hidden."""
    for node in nodes_of(model):
        if node.op_type == "Where" and "values" in node.output[0]:
            node.op_type = "Identity"
            del node.input[2], node.input[0]


def masks_are_off_by_one(model):
    for node in nodes_of(model):
        if node.op_type in ("Less", "LessOrEqual") and "positions" in node.input[0]:
            node.op_type = {"Less": "LessOrEqual", "LessOrEqual": "Less"}[node.op_type]


@pytest.mark.parametrize(
    ("change", "promise"),
    [(weights_leak, "poison"), (masks_are_off_by_one, "numbers")],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_graph_that_breaks_the_contract_is_seen(change, promise, altered, tmp_path, capsys):
    name = CONTRACT if change is masks_are_off_by_one else "contract-dot-portable-float16"
    rewritten(altered, name, change)
    code, found = checked(altered, tmp_path / "out", "--stages", "contract", "--only", name)
    assert code == 1
    assert promise in {row["promise"] for row in found["contract"] if not row["passed"]}
    assert f"FAILED {name}" in capsys.readouterr().out
    assert "What failed" in (tmp_path / "out" / "gpu.md").read_text()


def test_a_golden_case_that_is_wrong_is_seen(altered, tmp_path):
    file = altered / CONTRACT / verify.CASES
    cases = verify.load_cases(file)
    cases[0].outputs["all"][:] += 1
    verify.save_cases(file, cases)
    resigned(altered / CONTRACT)
    code, found = checked(altered, tmp_path / "out", "--stages", "replay")
    assert code == 1
    (row,) = [row for row in found["replay"] if not row["passed"]]
    assert (row["bundle"], row["failed"]) == (CONTRACT, 1)
    assert "`all` is outside the tolerance" in row["problem"]


def test_a_bundle_that_does_not_run_is_a_row_and_the_others_go_on(altered, tmp_path):
    (altered / CONTRACT / "model.onnx").write_bytes(b"no model")
    code, found = checked(altered, tmp_path / "out", "--stages", "replay", "contract")
    assert code == 1
    assert [row["passed"] for row in found["replay"]].count(False) == 1
    assert {row["bundle"] for row in found["contract"] if row["passed"]} == {"contract-dot-portable-float16"}


def test_what_cannot_be_run_is_a_sentence(kit, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for arguments, told in [
        (["--bundles", str(tmp_path / "nowhere")], "There is no folder"),
        (["--bundles", str(tmp_path / "empty")], "There are no bundles in"),
        (["--bundles", str(kit), "--only", "nothing"], "with these words in their names"),
        (["--page", str(tmp_path / "empty" / "gpu.json")], "No such file"),
    ]:
        assert main([*arguments, "--output", str(tmp_path / "out")]) == 2
        assert told in capsys.readouterr().err


@pytest.mark.skipif(
    "CUDAExecutionProvider" in __import__("onnxruntime").get_available_providers(), reason="CUDA is here"
)
def test_without_cuda_nothing_is_run(kit, tmp_path, capsys):
    assert main(["--bundles", str(kit), "--output", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith("error: This onnxruntime has no CUDAExecutionProvider")


def test_an_interrupt_keeps_what_there_is(kit, tmp_path):
    command = [sys.executable, "-m", "gpu", "--bundles", kit, "--provider", "cpu", "--output", tmp_path / "out"]
    environment = {**os.environ, "PYTHONPATH": "tests:tests/support"}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout.readline().startswith("replay ")
        run.send_signal(signal.SIGINT)
        _, errors = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "Interrupted: what was found by then is kept." in errors
    found = json.loads((tmp_path / "out" / "gpu.json").read_text())
    assert found["ended"] == "interrupted"
    assert found["replay"]
    assert "did not come to its end" in (tmp_path / "out" / "gpu.md").read_text()


# ------------------------------------------------------------------- the page


def row(problem=None, **told):
    facts = {"bundle": "a", "layer": "dot", "form": "batched", "precision": "float32"}
    return {**facts, "problem": problem, "passed": problem is None, **told}


def timed(form, **told):
    where = {"where": "cuda", "tf32": False, "size": "B8 T512", "fill": "all"}
    return row(**where, **told) | {"layer": "dot D64", "form": form, "passed": True}


ON_CUDA = {
    "version": 1,
    "provider": "cuda",
    "quick": False,
    "ended": "to its end",
    "machine": {
        "date": "2026-01-02",
        "gpu": "NVIDIA H100, 580.0",
        "onnxruntime": "1.31.1",
        "built_for": {"cuda_version": "13.0"},
        "provider_options": {"use_tf32": "0"},
    },
    "left_out": [{"bundle": "contract-additive-fused", "reason": "no layer has the form fused"}],
    "replay": [
        row(
            outputs=8,
            failed=1,
            of_limit=3.2,
            nodes={"CUDAExecutionProvider": 9, "CPUExecutionProvider": 2},
            problem="`all` is outside",
        )
    ],
    "contract": [row(output="all", promise="numbers", runs=3, of_limit=0.5)],
    "timing": [
        timed("portable", ms=3.0, p10=3.0, p90=3.0, runs=20),
        timed("batched", ms=1.5, p10=1.5, p90=1.5, runs=20),
        timed("ragged", problem="does not fit"),
    ],
}


def test_the_page_of_a_gpu(tmp_path):
    document = tmp_path / "gpu.md"
    document.write_text(f"before\n{BEGIN}\nearlier tables\n{END}\nafter\n")
    write_document(document, joined([ON_CUDA]))
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "earlier tables" not in text
    assert "NVIDIA H100, 580.0; onnxruntime 1.31.1; built for CUDA 13.0. Options of the provider: `use_tf32=0`." in text
    assert "replay 0 of 1, contract 1 of 1, timing 3 of 3" in text
    assert "- replay: a: `all` is outside" in text
    assert "| batched | float32 | 0 of 1 | 8 | 1 | 3.2 | 9 | 2 |" in text
    assert "| B8 T512 | all | batched | cuda | float32 | 1.5 | 1.5 to 1.5 | 2 |  |" in text
    assert "| B8 T512 | all | ragged | cuda | float32 | does not fit |" in text
    assert "- `contract-additive-fused`: no layer has the form fused" in text
    write_document(document, ON_CUDA | {"ended": "interrupted"})
    assert document.read_text().count(BEGIN) == 1


def test_results_of_several_runs_are_joined():
    again = ON_CUDA | {
        "replay": [{**ON_CUDA["replay"][0], "passed": True, "problem": None}],
        "contract": [],
        "timing": [],
    }
    text = page(joined([ON_CUDA, again]))
    assert "replay 1 of 1, contract 1 of 1, timing 3 of 3" in text


def test_the_page_here_has_a_place_for_results():
    text = DOCUMENT.read_text()
    assert text.count(BEGIN) == text.count(END) == 1


# ------------------------------------------------------------ the environment


def run_script(*arguments, tmp_path, **environment):
    variables = {"PYTHON": sys.executable, "GPU_ENV": str(tmp_path / "env"), **environment}
    command = [str(ROOT / "scripts" / "gpu-check"), *map(str, arguments)]
    return subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )


def test_the_script(kit, tmp_path):
    shutil.copytree(kit, tmp_path / "kit")
    arguments = ("--bundles", "kit", "--provider=cpu", "--output=out", "--quick", "--stages", "replay")
    done = run_script(*arguments, tmp_path=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("3 of 3 rows passed on cpu: out/gpu.json\n")
    assert (tmp_path / "out" / "gpu.json").is_file()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--wheels", "nowhere"], "There is no folder of wheels"),
        (["--wheels"], "--wheels needs a value."),
        (["--page", "first.json", "second.json"], "No such file or directory: 'first.json'"),
    ],
)
def test_the_script_says_what_is_wanting(arguments, told, tmp_path):
    done = run_script("--provider", "cpu", *arguments, tmp_path=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def fake_wheel(folder, text):
    """A wheel of a package that stands for onnxruntime."""
    name = "onnxruntime-9.0-py3-none-any.whl"
    about = "onnxruntime-9.0.dist-info"
    files = {
        "onnxruntime/__init__.py": text,
        f"{about}/METADATA": "Metadata-Version: 2.1\nName: onnxruntime\nVersion: 9.0\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / name, "w") as wheel:
        for file, content in files.items():
            wheel.writestr(file, content)
        wheel.writestr(f"{about}/RECORD", "".join(f"{file},,\n" for file in (*files, f"{about}/RECORD")))
    return folder / name


def in_pieces(wheel, size=200):
    data = wheel.read_bytes()
    (wheel.parent / f"{wheel.name}.sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  {wheel.name}\n")
    for number, start in enumerate(range(0, len(data), size)):
        (wheel.parent / f"{wheel.name}.part-{number:03}").write_bytes(data[start : start + size])
    wheel.unlink()


@pytest.mark.out_of_turn  # .ci/run does
def test_a_wheel_in_pieces_is_put_together_and_installed(kit, tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    in_pieces(fake_wheel(wheels, "raise SystemExit('the one that was brought')"))
    done = run_script("--wheels", wheels, "--bundles", kit, "--provider", "cpu", tmp_path=tmp_path)
    assert done.returncode == 2
    wanting = "cannot import onnxruntime: the one that was brought. Bring its wheel: --wheels FOLDER."
    assert wanting in done.stderr or "no wheel of numpy" in done.stderr  # which Python may have, or not
    installed = next((tmp_path / "env").rglob("onnxruntime/__init__.py"))
    assert "the one that was brought" in installed.read_text()


@pytest.mark.parametrize("loss", ["altered", "lost"])
def test_a_piece_that_is_wrong_is_refused(loss, tmp_path):
    in_pieces(fake_wheel(tmp_path, ""))
    piece = sorted(tmp_path.glob("*.part-*"))[1]
    if loss == "lost":
        piece.unlink()
    else:
        piece.write_bytes(piece.read_bytes()[::-1])
    (tmp_path / "scratch").mkdir()
    with pytest.raises(WheelError, match="is not the wheel whose sha256 lies beside it"):
        put_together(tmp_path, tmp_path / "scratch")


def test_no_wheel_for_this_python(tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    done = run_script("--wheels", wheels, "--bundles", tmp_path, "--provider", "cpu", tmp_path=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("scripts/gpu-check: pip can install no wheel of onnxruntime for Python 3.")
    assert done.stderr.count("\n") == 1
