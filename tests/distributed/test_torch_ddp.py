"""DistributedDataParallel of torch: two processes, each with its half of every batch, train what one does."""

import pytest
from backends import only_on
from distributed_checks import FAULT, as_trained, assert_same_training, gaps
from distributed_models import BRANCHES, DROPPED, trained_alone, trained_in_turns
from distributed_processes import Trained, group_of_torch, trained

pytestmark = only_on("torch", reason="DistributedDataParallel is torch's; nox -s torch runs this file there")
PLAIN = tuple(name for name in BRANCHES if name != DROPPED)


@pytest.fixture(scope="module")
def workers(tmp_path_factory) -> list[Trained]:
    return trained("ddp", tmp_path_factory.mktemp("ddp"), BRANCHES, group_of_torch(2))


@pytest.fixture(scope="module")
def in_turns() -> Trained:
    return as_trained(*trained_in_turns(DROPPED, 2, draws_as=lambda rank: rank))


def test_two_processes_train_as_one_device(workers):
    alone = as_trained(*trained_alone(PLAIN, 2))
    both = Trained({path: workers[0].weights[path] for path in alone.weights}, workers[0].losses, {})
    assert_same_training(alone, both, "DistributedDataParallel")


def test_each_process_draws_its_own_dropout(workers, in_turns):
    dropped = Trained({path: workers[0].weights[path] for path in in_turns.weights}, workers[0].losses, {})
    assert_same_training(in_turns, dropped, "DistributedDataParallel, dropout")
    alike = as_trained(*trained_in_turns(DROPPED, 2, draws_as=lambda rank: 0))
    assert gaps(alike, in_turns)[f"{DROPPED}_loss"] > FAULT


def test_both_processes_end_with_the_same_weights(workers):
    assert [worker.found["rank"] for worker in workers] == [0, 1]
    assert {worker.found["replicas"] for worker in workers} == {2}
    assert max(gaps(*workers).values()) == 0
