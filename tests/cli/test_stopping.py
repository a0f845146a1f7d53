"""Commands that are told to end while onnxruntime or TensorFlow computes, or while they are still being imported."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from interrupts import heeding_interrupts
from onnx_bundles import COUNTING, ENDLESS, onnx_bundle

from keras_attn_export import load_bundle
from keras_attn_export._bundle.folder import seal
from keras_attn_export._bundle.parity import ParityReport
from keras_attn_export._bundle.untrusted_input import REPORT
from keras_attn_export._standalone import verify

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks in /proc for what a process does")

SECONDS = 4  # that a command may take to end: twice what is promised, for a machine that is busy


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a bundle whose golden case runs for ever, and inputs that do."""
    folder = tmp_path_factory.mktemp("endless")
    numbers = {"x": ("float32", ["batch"])}
    bundle = onnx_bundle(folder / "bundle", COUNTING, numbers, {"y": ("float32", ["batch"])})
    manifest, forever = load_bundle(bundle).entries, np.full(1, ENDLESS, np.float32)
    verify.save_cases(bundle / verify.CASES, [verify.Case("forever", {"x": forever}, {"y": forever})])
    (bundle / REPORT).write_text(ParityReport("cpu", ()).to_json(), encoding="utf-8")
    (bundle / verify.MANIFEST).unlink()
    seal(bundle, manifest)
    np.savez(folder / "x.npz", x=forever)
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


def started(folder, *command, cwd):
    """Start Python in an empty folder, with another for what is temporary."""
    (cwd / "temporary").mkdir()
    with heeding_interrupts():
        return subprocess.Popen(
            [sys.executable, *(str(part).format(folder=folder) for part in command)],
            cwd=cwd,
            env={**os.environ, "TMPDIR": str(cwd / "temporary")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def computing(folder, *command, cwd, writes=None):
    """Start Python, and wait until it runs a bundle: it has onnxruntime, and has written a file where it writes one."""
    process = started(folder, *command, cwd=cwd)
    maps = Path("/proc", str(process.pid), "maps")
    wait_for(lambda: "onnxruntime_pybind11_state" in maps.read_text(), process)
    wait_for(lambda: writes is None or (cwd / writes).exists(), process)
    time.sleep(1)  # until it has opened the session
    return process


def ended(process, *numbers):
    """Send signals, half a second apart; return the exit code, what was said, and after how many seconds."""
    assert process.poll() is None, process.communicate()
    try:
        for number in numbers[:-1]:
            process.send_signal(number)
            time.sleep(0.5)
        begun = time.monotonic()
        process.send_signal(numbers[-1])
        out, err = process.communicate(timeout=SECONDS)
        return process.returncode, out, err, time.monotonic() - begun
    finally:
        process.kill()
        process.communicate()


def left(cwd):
    """What is left, but for a file of onnxruntime's own and compiled modules."""
    found = {path.relative_to(cwd).as_posix() for path in cwd.rglob("*") if "__pycache__" not in path.parts}
    return sorted(found - {"temporary", "temporary/.ses"})


COMMANDS = {
    "verify": "verify {folder}/bundle",
    "run": "run {folder}/bundle --inputs {folder}/x.npz --outputs y.npz",
    "bench": "bench {folder}/bundle",
    "report": "report {folder}/bundle --inputs {folder}/x.npz --output page.html",
    "predict": "predict {folder}/bundle {folder}/all.parquet done",  # in the trial that comes before
    "predict, in threads": "predict {folder}/bundle {folder}/some.parquet done",
}
SAID = {
    "predict": "interrupted: the parts that are done are in done; the same command goes on from there\n",
    "predict, in threads": "interrupted: the parts that are done are in done; the same command goes on from there\n",
}
LEFT = {
    "predict": ["done", "done/_predict", "done/_predict/lock"],
    "predict, in threads": ["done", "done/_predict", "done/_predict/lock", "done/_predict/manifest.json"],
}


@pytest.mark.parametrize(
    ("command", "number"),
    [
        ("verify", signal.SIGINT),
        pytest.param("verify", signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param("verify", signal.SIGHUP, marks=pytest.mark.slow),
        pytest.param("run", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("bench", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("report", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("predict", signal.SIGINT, marks=pytest.mark.slow),
        pytest.param("predict, in threads", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_command_ends_while_onnxruntime_computes(command, number, folder, tmp_path):
    writes = "done/_predict/manifest.json" if command.endswith("threads") else None
    process = computing(folder, "-m", "keras_attn_export", *COMMANDS[command].split(), cwd=tmp_path, writes=writes)
    code, out, err, _ = ended(process, number)
    said = SAID.get(command, "interrupted: nothing was written\n") if number == signal.SIGINT else ""
    assert (code, out, err) == (128 + number, "", said)
    assert left(tmp_path) == LEFT.get(command, [])


@pytest.mark.slow
@pytest.mark.parametrize("number", verify.ENDING)
def test_the_script_in_a_bundle_ends_while_onnxruntime_computes(number, folder, tmp_path):
    process = computing(folder, "{folder}/bundle/verify.py", cwd=tmp_path)
    assert ended(process, number)[:3] == (128 + number, "", "")
    assert left(tmp_path) == []


STUCK = """
import sys
from pathlib import Path
import numpy as np
from keras_attn_export._standalone import verify

with verify.heeding_signals(), verify.scratch_folder() as folder:
    Path(folder, "file").touch()
    run = verify.open_session(Path(sys.argv[1], "bundle/model.onnx")).run  # without options that would end it
    run(None, {"x": np.full(1, 2.0**62, np.float32)})
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_what_cannot_be_ended_does_not_keep_a_process_from_its_end(number, folder, tmp_path):
    process = computing(folder, "-c", STUCK.replace("{", "{{").replace("}", "}}"), folder, cwd=tmp_path)
    code, *said, seconds = ended(process, number)
    assert (code, *said) == (128 + number, "", "")
    assert left(tmp_path) == []
    assert seconds > verify.GRACE - 0.1


@pytest.mark.slow
def test_a_second_signal_ends_a_process_at_once(folder, tmp_path):
    process = computing(folder, "-c", STUCK.replace("{", "{{").replace("}", "}}"), folder, cwd=tmp_path)
    assert ended(process, signal.SIGINT, signal.SIGTERM)[:3] == (128 + signal.SIGTERM, "", "")
    assert left(tmp_path) != []  # it did not put anything in order first


STARTED = """
import sys
print("started", flush=True)
from keras_attn_export._command import main
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", verify.ENDING)
def test_no_moment_of_a_command_shows_a_traceback(number, folder, tmp_path):
    """From where it begins to import what it needs until Python is gone."""
    command = [sys.executable, "-c", STARTED, "inspect", str(folder / "bundle")]
    durations = []
    for moment in (None, None, *(np.arange(10) / 9.0)):  # two whole runs first: the first imports are slow
        with heeding_interrupts():
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with process:
            assert process.stdout.readline() == "started\n"
            begun = time.monotonic()
            if moment is not None:
                time.sleep(0.01 + moment * min(durations))
                process.send_signal(number)
            out, err = process.communicate(timeout=SECONDS)
            if moment is None:
                durations.append(time.monotonic() - begun)
                continue
        assert err in ("", "interrupted: nothing was written\n"), moment
        # Python restores the default handlers after it has flushed the output.
        assert process.returncode in ((128 + number, -number, 0) if out else (128 + number,)), moment
        assert moment or not out  # the first signal arrives before the end


BEFORE_HEEDING = """
import sys
from keras_attn_export._cli import main
main.standalone.heeding_signals = lambda: sys.exit(0 if "onnx" in sys.modules else 1)
main.main(["doctor"], is_process=True)
"""


def test_onnx_is_imported_before_signals_raise():
    subprocess.run([sys.executable, "-c", BEFORE_HEEDING], check=True)


ENDLESS_LAYER = """
import keras
import tensorflow as tf

@tf.function  # else the loop is one of Python's
def endless(x):
    tf.print("computes", output_stream="file://computes")
    return tf.while_loop(lambda x: tf.reduce_any(x > -1e30), lambda x: (x + 0,), (x,))[0]

class Endless(keras.layers.Layer):
    def call(self, x):
        return endless(x)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_an_export_ends_while_tensorflow_computes(number, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("endless_layer.py").write_text(ENDLESS_LAYER, encoding="utf-8")
    from endless_layer import Endless

    x = keras.Input((3,), name="x")
    keras.Model(x, Endless()(x)).save("model.keras")
    command = "-m keras_attn_export export model.keras made/bundle --import endless_layer"
    before = left(tmp_path)
    process = started(None, *command.split(), cwd=tmp_path)
    wait_for(Path("computes").exists, process)
    time.sleep(0.5)
    assert list(tmp_path.glob("made/.bundle.*.partial"))
    assert ended(process, number)[:3] == (128 + number, "", "")
    Path("computes").unlink()
    assert left(tmp_path) == before
