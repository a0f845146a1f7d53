"""Signals to commands during computation and imports: exit codes, messages, remaining files."""

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
from handwritten_bundles import COUNTING_NODES, ENDLESS_STEPS, write_onnx_bundle
from sigint import enable_interrupts

from keras_attn_export import load_bundle
from keras_attn_export._bundle.bundle_files import finalize_bundle
from keras_attn_export._bundle.untrusted_input import REPORT_FILE
from keras_attn_export._format import names
from keras_attn_export._format.case_writing import save_cases
from keras_attn_export._format.names import CASES_FILE, Case
from keras_attn_export._format.parity_report import ParityReport
from keras_attn_export._format.stop_signals import GRACE_SECONDS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the state of a process in /proc")

MAX_STOP_SECONDS = 4  # twice the promised time: the machine may be busy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Create a bundle and tables. The model never finishes on the golden case, nor on some rows of the tables."""
    folder = tmp_path_factory.mktemp("endless")
    inputs = {"x": ("float32", ["batch"])}
    bundle = write_onnx_bundle(folder / "bundle", COUNTING_NODES, inputs, {"y": ("float32", ["batch"])})
    manifest, endless = load_bundle(bundle).entries, np.full(1, ENDLESS_STEPS, np.float32)
    save_cases(bundle / CASES_FILE, [Case("forever", {"x": endless}, {"y": endless})])
    (bundle / REPORT_FILE).write_text(ParityReport("cpu", ()).to_json(), encoding="utf-8")
    (bundle / names.MANIFEST).unlink()
    finalize_bundle(bundle, manifest)
    np.savez(folder / "forever.npz", x=endless)
    pq.write_table(pa.table({"x": endless}), folder / "all.parquet")
    rows = np.arange(2000, dtype=np.float32) % 5
    rows[1503] = ENDLESS_STEPS  # no probe run of `predict` has this row, so its main run starts
    pq.write_table(pa.table({"x": rows}), folder / "some.parquet")
    return folder


def wait_until(condition, process):
    deadline = time.monotonic() + 90
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def start_python(*command, cwd):
    """Start Python in the empty folder `cwd`, with SIGINT enabled, its own process group and temporary folder."""
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


def start_computing(*command, cwd, awaited_file=None):
    """Start Python, and wait until onnxruntime is loaded and the awaited file exists."""
    process = start_python(*command, cwd=cwd)
    maps = Path("/proc", str(process.pid), "maps")
    wait_until(lambda: "onnxruntime_pybind11_state" in maps.read_text(), process)
    wait_until(lambda: awaited_file is None or (cwd / awaited_file).exists(), process)
    time.sleep(1)  # enough to open the session
    return process


def stop_process(process, *signal_numbers, send=os.kill, timeout=MAX_STOP_SECONDS):
    """Send signals at intervals of 0.5 s. Return the exit code, both streams, and the seconds until the end."""
    assert process.poll() is None, process.communicate()
    try:
        for signal_number in signal_numbers[:-1]:
            send(process.pid, signal_number)
            time.sleep(0.5)
        start = time.monotonic()
        send(process.pid, signal_numbers[-1])
        out, err = process.communicate(timeout=timeout)
        return process.returncode, out, err, time.monotonic() - start
    finally:
        process.kill()
        process.communicate()


def list_remaining_files(cwd):
    """List the remaining files, except a file of onnxruntime and compiled modules."""
    paths = {path.relative_to(cwd).as_posix() for path in cwd.rglob("*") if "__pycache__" not in path.parts}
    return sorted(paths - {"temporary", "temporary/.ses"})


NOTHING_WRITTEN = "interrupted: nothing was written\n"
# `done` is the folder of the outputs
RESUMABLE = "interrupted: done holds the finished files; the same command continues the run\n"
LOCK_PATHS = ["done", "done/_predict", "done/_predict/lock"]
RUN_MANIFEST = "done/_predict/manifest.json"
VERIFY, PREDICT = "-m keras_attn_export verify {}/bundle", "-m keras_attn_export predict {0}/bundle {0}"
BENCH = "-m keras_attn_export bench {}/bundle"
RUN = "-m keras_attn_export run {0}/bundle --inputs {0}/forever.npz --outputs y.npz"
COMMANDS = {  # arguments of Python, awaited file, signal, standard error, remaining files
    "verify": (VERIFY, None, signal.SIGINT, NOTHING_WRITTEN, []),
    "verify, SIGTERM": (VERIFY, None, signal.SIGTERM, "", []),
    "run": (RUN, None, signal.SIGINT, NOTHING_WRITTEN, []),
    "run, SIGTERM": (RUN, None, signal.SIGTERM, "", []),
    "bench": (BENCH, None, signal.SIGINT, NOTHING_WRITTEN, []),
    "bench, SIGTERM": (BENCH, None, signal.SIGTERM, "", []),
    "predict, during its probe runs": (f"{PREDICT}/all.parquet done", None, signal.SIGINT, RESUMABLE, LOCK_PATHS),
    "predict": (f"{PREDICT}/some.parquet done", RUN_MANIFEST, signal.SIGTERM, "", [*LOCK_PATHS, RUN_MANIFEST]),
}


@pytest.mark.parametrize(
    ("command", "awaited_file", "signal_number", "message", "files"),
    [pytest.param(*values, marks=[] if name == "verify" else pytest.mark.slow) for name, values in COMMANDS.items()],
    ids=COMMANDS,
)
def test_signal_ends_a_computing_command(command, awaited_file, signal_number, message, files, folder, tmp_path):
    process = start_computing(*command.format(folder).split(), cwd=tmp_path, awaited_file=awaited_file)
    assert stop_process(process, signal_number)[:3] == (128 + signal_number, "", message)
    assert list_remaining_files(tmp_path) == files


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
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_script_in_a_bundle_inside_one_operator(signal_number, tmp_path):
    """The flag `terminate` of onnxruntime takes effect only between operators."""
    size = np.array([9000], np.float32)
    bundle = write_onnx_bundle(tmp_path / "b", LONG_NODE, {"x": ("float32", ["one"])}, {"y": ("float32", ["one"])})
    manifest = load_bundle(bundle).entries
    save_cases(bundle / CASES_FILE, [Case("long", {"x": size}, {"y": size})])
    (bundle / names.MANIFEST).unlink()
    finalize_bundle(bundle, manifest)
    (tmp_path / "empty").mkdir()
    process = start_computing(bundle / "verify.py", cwd=tmp_path / "empty")
    assert stop_process(process, signal_number)[:3] == (-signal_number, "", "")
    assert list_remaining_files(tmp_path / "empty") == []


CATCHING_SCRIPT = """
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
    process = start_python("-c", CATCHING_SCRIPT, cwd=tmp_path)
    time.sleep(2)
    code, out, _, seconds = stop_process(process, signal.SIGINT)
    assert (code, out) == (130, "caught\n")
    assert seconds > GRACE_SECONDS - 0.1


IMPORT_SCRIPT = """
import os, sys
from keras_attn_export._cli import main
main.stop_at_signals = lambda **_: os._exit(0 if "onnx" in sys.modules else 1)
main.main(["doctor"], owns_process=True)
"""


def test_onnx_is_imported_before_signals_raise():
    subprocess.run([sys.executable, "-c", IMPORT_SCRIPT], check=True)


EXPORT_SCRIPT = """
import sys
from pathlib import Path
import numpy as np
from keras_attn_export import _entry_point
from keras_attn_export._format import session

def compute_without_end(model, cases, provider, options):
    onnx_session = session.open_session(Path(bundle, "model.onnx"))
    Path("computes").touch()
    session.run_session(onnx_session, {"x": np.full(1, 2.0**62, np.float32)}, options)

bundle = sys.argv.pop()
session.run_cases = compute_without_end
sys.exit(_entry_point.main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signal_number", "message"), [(signal.SIGINT, NOTHING_WRITTEN), (signal.SIGTERM, "")], ids=["Ctrl-C", "SIGTERM"]
)
def test_signal_ends_an_export_during_computation(signal_number, message, folder, model_file, tmp_path):
    process = start_python("-c", EXPORT_SCRIPT, "export", model_file, "made/bundle", folder / "bundle", cwd=tmp_path)
    wait_until((tmp_path / "computes").exists, process)
    assert stop_process(process, signal_number)[:3] == (128 + signal_number, "", message)
    assert list_remaining_files(tmp_path) == ["computes"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signal_number", "send", "awaited_path", "message"),
    [
        # Ctrl-C in a terminal sends SIGINT to the whole process group. The folder exists before TensorFlow is imported.
        (signal.SIGINT, os.killpg, "bundle", NOTHING_WRITTEN),
        # This file is written shortly before a second process runs the SavedModel
        (signal.SIGTERM, os.kill, "bundle/saved_model/fingerprint.pb", ""),
    ],
)
def test_stopped_export_leaves_no_file_and_no_process(signal_number, send, awaited_path, message, model_file, tmp_path):
    process = start_python("-m", "keras_attn_export", "export", model_file, "made/bundle", cwd=tmp_path)
    wait_until(lambda: list(tmp_path.glob(f"made/.bundle.*.partial/{awaited_path}")), process)
    time.sleep(0.3)
    assert stop_process(process, signal_number, send=send, timeout=60)[:3] == (128 + signal_number, "", message)
    assert list_remaining_files(tmp_path) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # fails if the group has no process
