"""Fixtures for `predict`: Ray, started once because a start takes 5 to 20 seconds, and a small bundle."""

import signal

import pytest
from handwritten_bundles import write_onnx_bundle

from keras_attn_export._batch.ray_engine import import_ray


def pytest_itemcollected(item):
    if "ray_address" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.needs("ray"))


@pytest.fixture(scope="session")
def ray_address():
    """The address of Ray, started in this process, for `RAY_ADDRESS` of other processes."""
    ray = import_ray()  # makes Ray refuse clients without a token
    handler = signal.getsignal(signal.SIGTERM)  # Ray replaces it
    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield ray.get_runtime_context().gcs_address
    ray.shutdown()
    signal.signal(signal.SIGTERM, handler)


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.needs("ray"))])
def engine(request):
    if request.param == "ray":
        request.getfixturevalue("ray_address")
    return request.param


@pytest.fixture
def sums(tmp_path):
    """A bundle that returns the sum of each row."""
    nodes = "last = Constant <value = int64[1] {1}> ()\n y = ReduceSum <keepdims = 0> (x, last)"
    inputs, outputs = {"x": ("float32", ["batch", "time"])}, {"y": ("float32", ["batch"])}
    return write_onnx_bundle(tmp_path / "bundle", nodes, inputs, outputs)
