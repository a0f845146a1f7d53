"""Two devices of one process, and two processes, train what one does: TensorFlow's strategies, and torch's DDP."""

import pytest
from backends import BACKEND, run_only_on
from distributed_models import (
    BRANCHES,
    DROPPED,
    FAULT,
    as_trained,
    assert_same_training,
    gaps,
    trained_alone,
    trained_in_turns,
)
from distributed_processes import Trained, cluster_of_tensorflow, group_of_torch, trained

pytestmark = run_only_on("tensorflow", "torch", reason="test_jax_distribution.py has what JAX has for this")
PLAIN = tuple(name for name in BRANCHES if name != DROPPED)
ENGINE, processes = ("ddp", group_of_torch) if BACKEND == "torch" else ("multi_worker", cluster_of_tensorflow)


@pytest.fixture(scope="module")
def in_turns() -> Trained:
    return as_trained(*trained_in_turns(DROPPED, 2, draws_as=lambda rank: rank))


def of_branch(result: Trained, name: str) -> Trained:
    """What there is of one branch, whose weights have its name at the front."""
    own = f"{name}/", f"{name}_head/"
    weights = {path: each for path, each in result.weights.items() if path.startswith(own)}
    return Trained(weights, [{loss: row[loss] for loss in (f"{name}_loss",)} for row in result.losses], result.found)


def check_branches(several: Trained, in_turns: Trained, told: str) -> None:
    alone = as_trained(*trained_alone(PLAIN, 2))
    for name in PLAIN:
        assert_same_training(of_branch(alone, name), of_branch(several, name), f"{told}, {name}")
    # each device draws a dropout of its own
    assert_same_training(of_branch(in_turns, DROPPED), of_branch(several, DROPPED), f"{told}, dropout")


@pytest.mark.slow
@run_only_on("tensorflow", reason="torch gives each device a process")
def test_two_devices_train_every_branch_as_one(tmp_path, in_turns):
    (both,) = trained("mirrored", tmp_path, BRANCHES, [{}])
    assert both.found["traces"] == 1
    check_branches(both, in_turns, "MirroredStrategy")


@pytest.mark.slow
def test_equal_dropout_on_both_devices_is_detected(in_turns):
    alike = as_trained(*trained_in_turns(DROPPED, 2, draws_as=lambda rank: 0))
    assert gaps(alike, in_turns)[f"{DROPPED}_loss"] > FAULT


@pytest.mark.slow
def test_two_processes_train_as_one_device(tmp_path, in_turns):
    workers = trained(ENGINE, tmp_path, BRANCHES, processes(2))
    check_branches(workers[0], in_turns, ENGINE)
    assert [worker.found["rank"] for worker in workers] == [0, 1]
    assert {worker.found["replicas"] for worker in workers} == {2}
    assert max(gaps(*workers).values()) == 0
