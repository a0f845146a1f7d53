"""TensorFlow's strategies: two devices of one process, and two processes, train what one device does."""

import pytest
from backends import only_on
from distributed_checks import FAULT, as_trained, assert_on_loopback, assert_same_training, gaps
from distributed_models import BRANCHES, DROPPED, RATE, trained_alone, trained_in_turns
from distributed_processes import Trained, cluster_of_tensorflow, trained

pytestmark = only_on("tensorflow", reason="tf.distribute is TensorFlow's; scripts/test runs this file there")
PLAIN = tuple(name for name in BRANCHES if name != DROPPED)
SOME = ("blocks", "mask", DROPPED)


@pytest.fixture(scope="module")
def in_turns() -> Trained:
    return as_trained(*trained_in_turns(DROPPED, 2, draws_as=lambda rank: rank))


def of_branch(result: Trained, name: str) -> Trained:
    """What there is of one branch, whose weights have its name at the front."""
    own = f"{name}/", f"{name}_head/"
    weights = {path: each for path, each in result.weights.items() if path.startswith(own)}
    return Trained(weights, [{loss: row[loss] for loss in (f"{name}_loss",)} for row in result.losses], result.found)


@pytest.fixture(scope="module")
def mirrored_some(tmp_path_factory) -> Trained:
    return trained("mirrored", tmp_path_factory.mktemp("mirrored"), SOME, [{}])[0]


def test_two_devices_train_as_one(mirrored_some):
    alone = as_trained(*trained_alone(SOME[:-1], 2))
    for name in SOME[:-1]:
        assert_same_training(of_branch(alone, name), of_branch(mirrored_some, name), f"MirroredStrategy, {name}")
    assert mirrored_some.found["traces"] == 1
    assert mirrored_some.found["peers"] == []


def test_each_device_draws_its_own_dropout(mirrored_some, in_turns):
    assert_same_training(of_branch(in_turns, DROPPED), of_branch(mirrored_some, DROPPED), "MirroredStrategy, dropout")


def test_draws_of_one_device_for_all_would_be_seen(in_turns):
    alike = as_trained(*trained_in_turns(DROPPED, 2, draws_as=lambda rank: 0))
    assert gaps(alike, in_turns)[f"{DROPPED}_loss"] > FAULT


# What takes longer.


@pytest.mark.out_of_turn
def test_two_devices_train_every_branch_as_one(tmp_path, in_turns):
    (both,) = trained("mirrored", tmp_path, BRANCHES, [{}])
    check_branches(both, in_turns, "MirroredStrategy")


@pytest.fixture(scope="module")
def workers(tmp_path_factory) -> list[Trained]:
    return trained("multi_worker", tmp_path_factory.mktemp("workers"), BRANCHES, cluster_of_tensorflow(2))


@pytest.mark.out_of_turn
def test_two_processes_train_as_one_device(workers, in_turns):
    check_branches(workers[0], in_turns, "MultiWorkerMirroredStrategy")


@pytest.mark.out_of_turn
def test_two_processes_end_with_the_same_weights_and_talk_on_loopback(workers):
    assert [worker.found["rank"] for worker in workers] == [0, 1]
    assert {worker.found["replicas"] for worker in workers} == {2}
    assert max(gaps(*workers).values()) == 0
    assert_on_loopback(workers)
    assert all(worker.found["peers"] for worker in workers)


def check_branches(several: Trained, in_turns: Trained, told: str) -> None:
    alone = as_trained(*trained_alone(PLAIN, 2))
    for name in PLAIN:
        assert_same_training(of_branch(alone, name), of_branch(several, name), f"{told}, {name}")
    assert_same_training(of_branch(in_turns, DROPPED), of_branch(several, DROPPED), f"{told}, dropout")


@pytest.mark.out_of_turn
def test_faults_are_far_beyond_rounding():
    """Gradients that are summed and not averaged, and masks of the other device's rows."""
    alone, summed, swapped = (
        as_trained(*trained_alone(PLAIN, 2, **fault)) for fault in ({}, {"rate": 2 * RATE}, {"swapped": True})
    )
    for name in PLAIN:
        for faulty in (summed, swapped):
            found = gaps(of_branch(alone, name), of_branch(faulty, name))
            assert min(found[f"{name}_loss"], found[f"{name}_head/kernel"]) > FAULT
