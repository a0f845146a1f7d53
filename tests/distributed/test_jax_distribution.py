"""`keras.distribution` on JAX: a batch over devices and processes, and weights over devices, train what one does.

There is one program over all devices, whose dropout draws one mask for the whole batch: it is compared as all else.
"""

import pytest
from backends import run_only_on
from distributed_models import (
    BATCH,
    BRANCHES,
    DROPPED,
    as_trained,
    assert_same_training,
    block_with,
    gaps,
    rule_of,
    rules,
    trained_alone,
)
from distributed_processes import Trained, devices_of_jax, processes_of_jax, run, trained

pytestmark = run_only_on("jax", reason="keras.distribution acts on JAX; nox -s jax runs this file there")


ODD_HEAD = """import pytest
with pytest.raises(ValueError, match="Layer `odd` cannot divide the kernel .16, 7. of `W_k` .* num_kv_heads=1, "):
    MultiHeadAttention(CosineAttention(), 2, key_dim=7, num_kv_heads=1, name="odd")(*[keras.Input((None, 16))] * 3)"""


@pytest.fixture(scope="module")
def alone() -> Trained:
    return as_trained(*trained_alone(BRANCHES, last=BATCH))


def test_two_devices_train_as_one(tmp_path, alone):
    (both,) = trained("data_parallel", tmp_path, BRANCHES, devices_of_jax(2))
    assert both.found["replicas"] == 2
    assert_same_training(alone, both, "DataParallel")


def test_weights_over_devices_train_as_on_one(tmp_path, alone):
    """Two shares of a batch by two shares of the weights; each weight is divided as its rule on the page says."""
    (four,) = trained("model_parallel", tmp_path, BRANCHES, devices_of_jax(4))
    assert_same_training(alone, four, "ModelParallel")
    divided = {path for path, shard in four.found["shards"].items() if shard != [*alone.weights[path].shape]}
    assert divided == {path for path in four.found["shards"] if rule_of(path, rules())}
    for path in divided:
        whole, axes = alone.weights[path].shape, rule_of(path, rules())
        assert four.found["shards"][path] == [
            size // 2 if axis == "model" else size for size, axis in zip(whole, axes, strict=True)
        ]


def test_example_of_the_page_runs(tmp_path):
    """What docs/howto/distributed-training.md shows for JAX, in a process with the devices that it asks for."""
    script = tmp_path / "block.py"
    blocks = block_with("RULES = {"), block_with("ModelParallel(")
    script.write_text("\n".join(("import keras", *blocks, ODD_HEAD, "print(model.count_params())")))
    (told,) = run([[str(script)]], tmp_path, devices_of_jax(4))
    assert int(told.split()[-1]) > 0


@pytest.mark.slow
def test_two_processes_train_as_one_device(tmp_path, alone):
    branches = ("lengths", "mask", DROPPED)
    workers = trained("processes", tmp_path, branches, processes_of_jax(2))
    of_these = Trained({path: alone.weights[path] for path in workers[0].weights}, alone.losses, {})
    assert_same_training(of_these, workers[0], "DataParallel over two processes")
    assert {worker.found["replicas"] for worker in workers} == {2}
    assert max(gaps(*workers).values()) == 0
