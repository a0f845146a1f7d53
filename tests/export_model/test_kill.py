"""Processes that are stopped: at every line by which they put a bundle in place, and exports at random moments."""

import json
import os
import sys
import tempfile
from pathlib import Path

import killing
import pytest
from bundles import finished
from environments import with_support
from interrupts import heeding_interrupts

SCRIPT = Path(killing.__file__)


def killed(kind, folder, seed, points, timeout):
    """Run killing.py and return what it found."""
    with heeding_interrupts():
        done = finished(sys.executable, SCRIPT, kind, folder, seed, points, timeout=timeout, env=with_support())
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"{kind}: {json.dumps(found, indent=1)}")
    assert not found["problems"], found
    return found


@pytest.fixture
def kills(pytestconfig):
    return pytestconfig.getoption("--kills")


@pytest.fixture
def place():
    """Return a folder, in memory where that is possible: hundreds of kills wait for the disk otherwise."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork; CI runs Linux")


@pytest.mark.slow
def test_stopped_at_every_line(place, random_seed, kills):
    found = killed("lines", place, random_seed, kills, timeout=600)
    assert found["points"] > 1000
    assert {"a bundle, exchanges: a", "a bundle, exchanges: b", "nothing, exchanges: absent"} <= set(found["found"])
    assert "a bundle, exchanges: absent" not in found["found"]


@pytest.mark.slow
def test_real_exports_stopped_at_random_moments(tmp_path, random_seed, kills):
    found = killed("exports", tmp_path, random_seed, kills, timeout=60 + 30 * kills)
    assert found["points"] == kills
    assert not found["beside"]
