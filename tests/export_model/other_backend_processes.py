"""Processes of other_backend_worker.py, on a backend other than TensorFlow."""

import subprocess
import sys
from pathlib import Path

from environments import with_support
from interrupts import heeding_interrupts

WORKER = Path(__file__).with_name("other_backend_worker.py")
BACKENDS = ("jax", "torch")
ACROSS = 1e-5  # each backend adds up in an order of its own


def environment(backend):
    return with_support(KERAS_BACKEND=backend, CUDA_VISIBLE_DEVICES="-1")


def start(backend, what, folder, stderr=subprocess.PIPE):
    command = [sys.executable, str(WORKER), what, str(folder)]
    with heeding_interrupts():
        return subprocess.Popen(command, env=environment(backend), stderr=stderr, text=True)
