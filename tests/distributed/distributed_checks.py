"""How far two trainings are apart, and how far they may be.

The gradient of a weight is a mean over the `BATCH Tq Tk` = 280 pairs of a batch. Each device adds up its own, and then
the sums are added: another order, which changes a float32 sum by 280 roundings of 6e-8 at most, and by the root of that
many as a rule: 1e-6 of a number of size 1. A step adds it times `RATE / (1 - MOMENTUM)` = 0.2, and 20 steps as a rule
the root of 20: 1e-6 again; 7e-5 at most. The largest that was seen is 4e-7. What a fault does is 1e-2 and more.
"""

import numpy as np
from distributed_models import weights_of
from distributed_processes import Trained

TOLERANCE = 1e-5
FAULT = 100 * TOLERANCE


def as_trained(model, losses):
    return Trained(weights_of(model), losses, {})


def gaps(first, second):
    """Return the largest difference of each weight, by its path, and of each branch's losses."""
    assert first.weights.keys() == second.weights.keys()
    found = {name: np.abs(array - second.weights[name]).max() for name, array in first.weights.items()}
    branches = sorted({name for name in first.losses[0] if name != "loss"} & second.losses[0].keys())
    assert len(first.losses) == len(second.losses)
    assert branches
    for name in branches:
        found[name] = max(abs(a[name] - b[name]) for a, b in zip(first.losses, second.losses, strict=True))
    return {name: float(gap) for name, gap in found.items()}


def assert_same_training(first, second, told):
    """Check that losses and weights are the same within rounding, and print how far apart they are."""
    found = gaps(first, second)
    print(f"{told}: largest difference {max(found.values()):.1e}, of {max(found, key=found.__getitem__)}")
    assert {name: gap for name, gap in found.items() if not gap <= TOLERANCE} == {}
