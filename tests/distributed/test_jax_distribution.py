"""`keras.distribution` on JAX against one device: batches over devices or processes, and weights over devices.

JAX compiles one program for all devices. It draws dropout for a whole batch, as on one device.
"""

import distributed_models as models
import pytest
from backends import run_only_on
from distributed_processes import Result, prepare_jax_devices, prepare_jax_processes, run_scripts, train

pytestmark = run_only_on("jax", reason="keras.distribution acts on JAX; `nox -s jax` runs this file")


INDIVISIBLE_HEADS = """import pytest
with pytest.raises(ValueError, match="Layer `odd` cannot divide the kernel .16, 7. of `W_k` .* num_kv_heads=1, "):
    MultiHeadAttention(CosineAttention(), 2, key_dim=7, num_kv_heads=1, name="odd")(*[keras.Input((None, 16))] * 3)"""


@pytest.fixture(scope="module")
def one_device() -> Result:
    """Result of one device, on batches that devices divide evenly."""
    return models.train_on_one_device(models.BRANCHES, last_batch_rows=models.BATCH)


def test_two_devices_train_as_one(tmp_path, one_device):
    (result,) = train("data_parallel", tmp_path, models.BRANCHES, prepare_jax_devices(2))
    assert result.details["replicas"] == 2
    models.assert_same_training(one_device, result, "DataParallel")


def test_weights_divided_over_devices_train_as_on_one(tmp_path, one_device):
    """Two shares of a batch by two shares of the weights, which are divided by the rules of the page."""
    (result,) = train("model_parallel", tmp_path, models.BRANCHES, prepare_jax_devices(4))
    models.assert_same_training(one_device, result, "ModelParallel")
    shards = result.details["shards"]
    divided_paths = {path for path, shard in shards.items() if shard != [*one_device.weights[path].shape]}
    assert divided_paths == {path for path in shards if models.find_rule(path, models.read_rules())}
    for path in divided_paths:
        sizes = zip(one_device.weights[path].shape, models.find_rule(path, models.read_rules()), strict=True)
        assert shards[path] == [size // 2 if axis == "model" else size for size, axis in sizes]


def test_example_of_the_page_runs(tmp_path):
    """The code blocks for JAX of docs/howto/distributed-training.md run in a process with four devices."""
    script = tmp_path / "block.py"
    blocks = models.find_code_block("RULES = {"), models.find_code_block("ModelParallel(")
    script.write_text("\n".join(("import keras", *blocks, INDIVISIBLE_HEADS, "print(model.count_params())")))
    (output,) = run_scripts([[str(script)]], tmp_path, prepare_jax_devices(4))
    assert int(output.split()[-1]) > 0


@pytest.mark.slow
def test_two_processes_train_as_one_device(tmp_path, one_device):
    branches = ("lengths", "mask", models.DROPOUT_BRANCH)
    workers = train("data_parallel", tmp_path, branches, prepare_jax_processes(2))
    expected = Result({path: one_device.weights[path] for path in workers[0].weights}, one_device.losses, {})
    models.assert_same_training(expected, workers[0], "DataParallel over two processes")
    assert {worker.details["replicas"] for worker in workers} == {2}
    assert max(models.measure_differences(*workers).values()) == 0
