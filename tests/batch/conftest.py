"""A plugin of pytest: Ray, started once for all tests of a process, since that takes five to twenty seconds."""

import os
import signal

import pytest
from batch_processes import WORKERS, ended, family

from keras_attn_export._batch.on_ray import check_ray


def pytest_itemcollected(item):
    if "ray_address" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.needs("ray"))


@pytest.fixture(scope="session")
def ray_address():
    """Start Ray in this process; the address is for `RAY_ADDRESS` of others."""
    ray = check_ray()  # which also sees to it that nobody else can use what is started here
    others = family([os.getpid()])
    heeds = signal.getsignal(signal.SIGTERM)  # Ray has a handler of its own
    ray.init(
        address="local",
        num_cpus=WORKERS,
        include_dashboard=False,
        logging_level="ERROR",
        log_to_driver=False,
    )
    started = family([os.getpid()]) - others
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()
    signal.signal(signal.SIGTERM, heeds)
    assert ended(started) == {}
