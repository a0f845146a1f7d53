"""Training on two devices or in two processes against one device: strategies of TensorFlow, and DDP of torch."""

import distributed_models as models
import pytest
from backends import BACKEND, run_only_on
from distributed_models import BRANCHES, DROPOUT_BRANCH
from distributed_processes import Result, prepare_tensorflow, prepare_torch, train

pytestmark = run_only_on("tensorflow", "torch", reason="test_jax_distribution.py tests JAX")
BRANCHES_WITHOUT_DROPOUT = tuple(name for name in BRANCHES if name != DROPOUT_BRANCH)
ENGINE, prepare = ("ddp", prepare_torch) if BACKEND == "torch" else ("multi_worker", prepare_tensorflow)


@pytest.fixture(scope="module")
def dropout_result() -> Result:
    """Result of one device for the dropout branch, with the dropout of two replicas."""
    return models.train_by_shares(DROPOUT_BRANCH, 2, dropout_replica=lambda rank: rank)


def select_branch(result: Result, name: str) -> Result:
    """Return the weights and losses of one branch, whose paths begin with its name."""
    prefixes, loss_name = (f"{name}/", f"{name}_head/"), f"{name}_loss"
    weights = {path: array for path, array in result.weights.items() if path.startswith(prefixes)}
    return Result(weights, [{loss_name: losses[loss_name]} for losses in result.losses], result.details)


def assert_same_branches(several_devices: Result, dropout_result: Result, title: str) -> None:
    """Assert equal training of each branch; each device draws its own dropout, as `dropout_result` does."""
    one_device = models.train_on_one_device(BRANCHES_WITHOUT_DROPOUT, 2)
    for name in BRANCHES:
        expected = dropout_result if name == DROPOUT_BRANCH else one_device
        pair = (select_branch(result, name) for result in (expected, several_devices))
        models.assert_same_training(*pair, f"{title}, {name}")


@pytest.mark.slow
@run_only_on("tensorflow", reason="torch gives each device a process")
def test_two_devices_train_every_branch_as_one(tmp_path, dropout_result):
    (result,) = train("mirrored", tmp_path, BRANCHES, [{}])
    assert result.details["traces"] == 1
    assert_same_branches(result, dropout_result, "MirroredStrategy")


@pytest.mark.slow
def test_equal_dropout_on_both_devices_is_detected(dropout_result):
    equal_dropout = models.train_by_shares(DROPOUT_BRANCH, 2, dropout_replica=lambda rank: 0)
    assert models.measure_differences(equal_dropout, dropout_result)[f"{DROPOUT_BRANCH}_loss"] > models.FAULT_DIFFERENCE


@pytest.mark.slow
def test_two_processes_train_as_one_device(tmp_path, dropout_result):
    workers = train(ENGINE, tmp_path, BRANCHES, prepare(2))
    assert_same_branches(workers[0], dropout_result, ENGINE)
    assert [worker.details["rank"] for worker in workers] == [0, 1]
    assert {worker.details["replicas"] for worker in workers} == {2}
    assert max(models.measure_differences(*workers).values()) == 0
