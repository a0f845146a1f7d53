"""Signals to commands while onnxruntime or TensorFlow computes, or is imported: exit codes, messages, files left."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from handwritten_bundles import COUNTING, ENDLESS, write_onnx_bundle
from sigint import enable_interrupts

from keras_attn_export import load_bundle
from keras_attn_export._bundle.bundle_files import finalize_bundle
from keras_attn_export._bundle.untrusted_input import REPORT_FILE
from keras_attn_export._format import names
from keras_attn_export._format.case_writing import save_cases
from keras_attn_export._format.names import CASES, Case
from keras_attn_export._format.parity_report import ParityReport
from keras_attn_export._format.stop_signals import GRACE_SECONDS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks in /proc for what a process does")

SECONDS = 4  # for a command to end: twice what is promised, for a busy machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a bundle whose golden case never ends, and tables whose rows never end."""
    folder = tmp_path_factory.mktemp("endless")
    numbers = {"x": ("float32", ["batch"])}
    bundle = write_onnx_bundle(folder / "bundle", COUNTING, numbers, {"y": ("float32", ["batch"])})
    manifest, forever = load_bundle(bundle).entries, np.full(1, ENDLESS, np.float32)
    save_cases(bundle / CASES, [Case("forever", {"x": forever}, {"y": forever})])
    (bundle / REPORT_FILE).write_text(ParityReport("cpu", ()).to_json(), encoding="utf-8")
    (bundle / names.MANIFEST).unlink()
    finalize_bundle(bundle, manifest)
    np.savez(folder / "forever.npz", x=forever)
    pq.write_table(pa.table({"x": forever}), folder / "all.parquet")
    some = np.arange(2000, dtype=np.float32) % 5
    some[1503] = ENDLESS  # which no trial meets, and the threads of the run do
    pq.write_table(pa.table({"x": some}), folder / "some.parquet")
    return folder


def wait_for(condition, process):
    until = time.monotonic() + 90
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.02)


def started(*command, cwd):
    """Start Python in an empty folder, as a shell does, with another folder for temporary files."""
    (cwd / "temporary").mkdir()
    with enable_interrupts():
        return subprocess.Popen(
            [sys.executable, *map(str, command)],
            cwd=cwd,
            env={**os.environ, "TMPDIR": str(cwd / "temporary")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def computing(*command, cwd, writes=None):
    """Start Python, and wait until onnxruntime is loaded and a file is written."""
    process = started(*command, cwd=cwd)
    maps = Path("/proc", str(process.pid), "maps")
    wait_for(lambda: "onnxruntime_pybind11_state" in maps.read_text(), process)
    wait_for(lambda: writes is None or (cwd / writes).exists(), process)
    time.sleep(1)  # until it has opened the session
    return process


def ended(process, *numbers, send=os.kill, timeout=SECONDS):
    """Send signals, half a second apart; return the exit code, both streams, and the seconds until the end."""
    assert process.poll() is None, process.communicate()
    try:
        for number in numbers[:-1]:
            send(process.pid, number)
            time.sleep(0.5)
        begun = time.monotonic()
        send(process.pid, numbers[-1])
        out, err = process.communicate(timeout=timeout)
        return process.returncode, out, err, time.monotonic() - begun
    finally:
        process.kill()
        process.communicate()


def left(cwd):
    """Return the files that are left, without a file of onnxruntime's own and compiled modules."""
    found = {path.relative_to(cwd).as_posix() for path in cwd.rglob("*") if "__pycache__" not in path.parts}
    return sorted(found - {"temporary", "temporary/.ses"})


NOTHING = "interrupted: nothing was written\n"
RESUME = "interrupted: done holds the finished files; the same command continues the run\n"
LOCK = ["done", "done/_predict", "done/_predict/lock"]
MANIFEST = "done/_predict/manifest.json"
VERIFY, PREDICT = "-m keras_attn_export verify {}/bundle", "-m keras_attn_export predict {0}/bundle {0}"
BENCH = "-m keras_attn_export bench {}/bundle"
RUN = "-m keras_attn_export run {0}/bundle --inputs {0}/forever.npz --outputs y.npz"
COMMANDS = {  # arguments of Python, a file that is written first, signal, standard error, files that are left
    "verify": (VERIFY, None, signal.SIGINT, NOTHING, []),
    "verify, told to end": (VERIFY, None, signal.SIGTERM, "", []),
    "run": (RUN, None, signal.SIGINT, NOTHING, []),
    "run, told to end": (RUN, None, signal.SIGTERM, "", []),
    "bench": (BENCH, None, signal.SIGINT, NOTHING, []),
    "bench, told to end": (BENCH, None, signal.SIGTERM, "", []),
    "predict, in its trial": (f"{PREDICT}/all.parquet done", None, signal.SIGINT, RESUME, LOCK),
    "predict": (f"{PREDICT}/some.parquet done", MANIFEST, signal.SIGTERM, "", [*LOCK, MANIFEST]),
}


@pytest.mark.parametrize(
    ("command", "writes", "number", "said", "files"),
    [pytest.param(*each, marks=[] if name == "verify" else pytest.mark.slow) for name, each in COMMANDS.items()],
    ids=COMMANDS,
)
def test_signal_ends_a_command_while_onnxruntime_computes(command, writes, number, said, files, folder, tmp_path):
    process = computing(*command.format(folder).split(), cwd=tmp_path, writes=writes)
    assert ended(process, number)[:3] == (128 + number, "", said)
    assert left(tmp_path) == files


LONG_NODE = """
n = Cast <to = 7> (x)
size = Concat <axis = 0> (n, n)
ones = ConstantOfShape <value = float[1] {1}> (size)
product = MatMul (ones, ones)
first = Constant <value = int64[1] {0}> ()
row = Gather (product, first)
y = ReduceMax <axes = [1], keepdims = 0> (row)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_script_in_a_bundle_inside_one_operator(number, tmp_path):
    """The `terminate` of onnxruntime takes effect between operators."""
    size = np.array([9000], np.float32)
    bundle = write_onnx_bundle(tmp_path / "b", LONG_NODE, {"x": ("float32", ["one"])}, {"y": ("float32", ["one"])})
    manifest = load_bundle(bundle).entries
    save_cases(bundle / CASES, [Case("long", {"x": size}, {"y": size})])
    (bundle / names.MANIFEST).unlink()
    finalize_bundle(bundle, manifest)
    (tmp_path / "here").mkdir()
    process = computing(bundle / "verify.py", cwd=tmp_path / "here")
    assert ended(process, number)[:3] == (-number, "", "")
    assert left(tmp_path / "here") == []


STUCK = """
import sys, time
from keras_attn_export._format.stop_signals import stop_at_signals

with stop_at_signals():
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        print("caught", flush=True)
        time.sleep(60)
"""


@pytest.mark.slow
def test_process_ends_although_a_library_catches_the_interrupt(tmp_path):
    process = started("-c", STUCK, cwd=tmp_path)
    time.sleep(2)
    code, out, _, seconds = ended(process, signal.SIGINT)
    assert (code, out) == (130, "caught\n")
    assert seconds > GRACE_SECONDS - 0.1


IMPORTED = """
import os, sys
from keras_attn_export._cli import main
main.stop_at_signals = lambda **_: os._exit(0 if "onnx" in sys.modules else 1)
main.main(["doctor"], is_process=True)
"""


def test_onnx_is_imported_before_signals_raise():
    subprocess.run([sys.executable, "-c", IMPORTED], check=True)


EXPORT = """
import sys
from pathlib import Path
import numpy as np
from keras_attn_export import _entry_point
from keras_attn_export._format import session

def compute_without_end(model, cases, provider, options):
    opened = session.open_session(Path(bundle, "model.onnx"))
    Path("computes").touch()
    session.run_session(opened, {"x": np.full(1, 2.0**62, np.float32)}, options)

bundle = sys.argv.pop()
session.run_cases = compute_without_end
sys.exit(_entry_point.main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGINT, NOTHING), (signal.SIGTERM, "")], ids=["Ctrl-C", "SIGTERM"]
)
def test_signal_ends_an_export_while_onnxruntime_computes(number, said, folder, model_file, tmp_path):
    process = started("-c", EXPORT, "export", model_file, "made/bundle", folder / "bundle", cwd=tmp_path)
    wait_for((tmp_path / "computes").exists, process)
    assert ended(process, number)[:3] == (128 + number, "", said)
    assert left(tmp_path) == ["computes"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "send", "there", "said"),
    [
        (signal.SIGINT, os.killpg, "bundle", NOTHING),  # as a terminal does, while TensorFlow is imported
        # soon a process of its own runs the SavedModel, which this one traces
        (signal.SIGTERM, os.kill, "bundle/saved_model/fingerprint.pb", ""),
    ],
)
def test_signal_to_an_export_leaves_no_file_and_no_process(number, send, there, said, model_file, tmp_path):
    process = started("-m", "keras_attn_export", "export", model_file, "made/bundle", cwd=tmp_path)
    wait_for(lambda: list(tmp_path.glob(f"made/.bundle.*.partial/{there}")), process)
    time.sleep(0.3)
    assert ended(process, number, send=send, timeout=60)[:3] == (128 + number, "", said)
    assert left(tmp_path) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # the group has no process left
