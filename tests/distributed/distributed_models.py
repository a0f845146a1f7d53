"""The model that is trained on one device and on two, and its data: one branch for each thing that could go wrong.

Each branch has its own layer, head and loss, so a difference tells by its name where it comes from. The steps are those
of plain gradient descent with momentum: Adam divides a gradient by its size, and makes a difference of 1e-9 in one that
should be zero, as that of the bias of `W_k` is, a step like any other.
"""

import re
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
from backends import compute_gradients
from distributed_processes import Trained

from keras_attn import AdditiveAttention, BilinearAttention, DotProductAttention, MultiHeadAttention

Tq, Tk, Dq, Dk, Dv, U = 5, 7, 4, 6, 3, 8
BATCH, STEPS = 8, 20
LAST = 5  # rows in the last batch: three for one of two devices, two for the other
RATE, MOMENTUM = 0.1, 0.5
BRANCHES = ("lengths", "blocks", "mask", "heads", "causal", "dropped")
DROPPED = "dropped"


def _attended(queries, keys, values, masks):
    lens, query_lens = masks["valid_lens"], masks["query_lens"]
    same_size = keras.layers.Dense(Dq, name="same_size")(keys)
    plain = AdditiveAttention(U, query_block_size=None, name="lengths")
    blocks = AdditiveAttention(U, normalize=True, query_block_size=2, name="blocks")
    causal = AdditiveAttention(U, query_block_size=2, name="causal_score")
    return {
        "lengths": plain(queries, keys, values, lens),
        "blocks": blocks(queries, keys, values, query_lens),
        "mask": DotProductAttention(name="mask_layer")(
            queries, same_size, values, attention_mask=keras.ops.cast(masks["mask"], "bool")
        ),
        "heads": MultiHeadAttention(BilinearAttention(name="heads_score"), 2, key_dim=4, name="heads")(
            queries, keys, values, lens
        ),
        "causal": MultiHeadAttention(causal, 2, key_dim=4, name="causal")(
            queries, keys, values, query_lens, use_causal_mask=True
        ),
        "dropped": AdditiveAttention(U, dropout=0.4, seed=11, name="dropped")(queries, keys, values, lens),
    }


def build(branches=BRANCHES):
    """Return the model, compiled, from the same weights each time, whichever branches it has."""
    keras.utils.set_random_seed(5)
    queries, keys, values = (
        keras.Input(shape, name=name)
        for name, shape in {"queries": (None, Dq), "keys": (None, Dk), "values": (None, Dv)}.items()
    )
    masks = {
        "valid_lens": keras.Input((), dtype="int32", name="valid_lens"),
        "query_lens": keras.Input((None,), dtype="int32", name="query_lens"),
        # Keras takes the mean of a batch over the devices before it trains, and there is none of booleans.
        "mask": keras.Input((None, None), dtype="uint8", name="mask"),
    }
    attended = _attended(queries, keys, values, masks)
    outputs = {name: keras.layers.Dense(1, name=f"{name}_head")(attended[name]) for name in BRANCHES}
    model = keras.Model([queries, keys, values, *masks.values()], {name: outputs[name] for name in branches})
    model.compile(keras.optimizers.SGD(RATE, MOMENTUM), {name: "mse" for name in branches})
    return model


def data(branches=BRANCHES, last=LAST):
    """Return inputs and targets: whole batches and a last one of fewer rows.

    In the first half of each batch some rows have length 0, in the second none has: only one of two devices meets them.
    """
    rows = (STEPS - 1) * BATCH + last
    rng = np.random.default_rng(17)
    first_half = (np.arange(rows) % BATCH) < BATCH // 2
    lens, query_lens = rng.integers(1, Tk + 1, rows), rng.integers(1, Tk + 1, (rows, Tq))
    mask = rng.random((rows, Tq, Tk)) < 0.6
    empty = first_half & (rng.random(rows) < 0.3)
    lens[empty], query_lens[empty, :2], mask[empty, 1:3] = 0, 0, False
    inputs = {
        name: rng.normal(size=(rows, *shape)).astype("float32")
        for name, shape in {"queries": (Tq, Dq), "keys": (Tk, Dk), "values": (Tk, Dv)}.items()
    }
    inputs |= {
        "valid_lens": lens.astype("int32"),
        "query_lens": query_lens.astype("int32"),
        "mask": mask.astype("uint8"),
    }
    goal = inputs["values"].mean(1, keepdims=True).sum(-1, keepdims=True) + inputs["queries"][..., :1]
    return inputs, {name: goal for name in branches}


def share_of(arrays, start, rank, size):
    """Return the rows of a batch that one of several devices gets; the first get one more where they do not divide."""
    return {name: np.array_split(array[start : start + BATCH], size)[rank] for name, array in arrays.items()}


def weights_of(model):
    """Return the variables of a model by their paths, but for seeds, whose names count all that were made before."""
    named = {each.path: each for each in model.variables if "seed_generator_state" not in each.path}
    return {path: keras.ops.convert_to_numpy(each) for path, each in named.items()}


class Losses(keras.callbacks.Callback):
    """The losses of each step, as `fit` tells them: the means of the steps so far."""

    def __init__(self):
        super().__init__()
        self.rows: list[dict[str, float]] = []

    def on_train_batch_end(self, batch, logs=None):
        self.rows.append({name: float(loss) for name, loss in (logs or {}).items()})


def means_so_far(rows):
    """Return what `fit` would tell of these losses, a step each, of batches of which the last may be short.

    It counts examples, but on TensorFlow, where a step is traced for any number of them, batches.
    """
    steps = np.arange(1, len(rows) + 1)
    counts = steps if keras.backend.backend() == "tensorflow" else np.minimum(steps * BATCH, (STEPS - 1) * BATCH + LAST)
    sizes = np.diff(counts, prepend=0)
    sums = {name: np.cumsum(np.array([row[name] for row in rows]) * sizes) for name in rows[0]}
    return [{name: float(each[at] / counts[at]) for name, each in sums.items()} for at in range(len(rows))]


def trained_alone(branches, replicas=1, last=LAST):
    """Train on one device, by `fit`; return the model and the losses.

    Where the last batch is divided among replicas, the mean of their means is the loss: that differs from the mean of
    all rows where they do not divide.
    """
    model = build(branches)
    x, y = data(branches, last)
    weights = np.ones((STEPS * BATCH, Tq), "float32")[: len(x["queries"])]
    for share in np.array_split(np.arange(last), replicas):
        weights[len(weights) - last + share] = last / (replicas * len(share))
    losses = Losses()
    of_each = {name: weights for name in branches}
    model.fit(x, y, BATCH, shuffle=False, verbose=0, callbacks=[losses], sample_weight=of_each)
    return model, losses.rows


def trained_in_turns(branch, replicas, draws_as):
    """Train one branch on one device, one share of a batch after the other, and average: what several devices must do.

    `draws_as` gives the number of the replica for which a share's dropout is drawn.
    """
    model = build([branch])
    seeds = [each for each in model.non_trainable_variables if "seed" in each.path]
    x, y = data([branch])
    rows = []
    for start in range(0, len(y[branch]), BATCH):
        before = [keras.ops.copy(each.value) for each in seeds]
        found: list[Any] = []

        def loss(start=start, before=before, found=found):
            for rank in range(replicas):
                for variable, state in zip(seeds, before, strict=True):
                    variable.assign(state)  # every replica begins a step with the same
                with mock.patch("keras_attn._keras.replica_seeds.replica_number", lambda rank=rank: draws_as(rank)):
                    output = model(share_of(x, start, rank, replicas), training=True)[branch]
                goal = keras.ops.convert_to_tensor(share_of(y, start, rank, replicas)[branch])
                found.append(keras.ops.mean((output - goal) ** 2))
            return sum(found) / replicas

        gradients = compute_gradients(loss, 0, model.trainable_variables)()
        model.optimizer.apply(gradients, model.trainable_variables)
        rows.append({f"{branch}_loss": sum(float(keras.ops.convert_to_numpy(each)) for each in found) / replicas})
    return model, means_so_far(rows)


# How far two trainings may be apart. The gradient of a weight is a mean over the `BATCH Tq Tk` = 280 pairs of a batch.
# Each device adds up its own, and then the sums are added: another order, which changes a float32 sum by 280 roundings
# of 6e-8 at most, and by the root of that many as a rule: 1e-6 of a number of size 1. A step adds it times
# `RATE / (1 - MOMENTUM)` = 0.2, and 20 steps as a rule the root of 20: 1e-6 again; 7e-5 at most. The largest that was
# seen is 4e-7. A fault changes 1e-2 and more.
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


# The rules of docs/howto/distributed-training.md are read from there, so that the tests run the page.
PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "distributed-training.md"


def block_with(text):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if text in block]
    return found


def rules():
    """Return the page's rules: for paths of weights, as expressions, the axis of the mesh for each axis of theirs."""
    names: dict[str, Any] = {}
    exec(re.findall(r"^RULES = \{.*?^\}", block_with("RULES = {"), flags=re.MULTILINE | re.DOTALL)[0], names)
    return dict(names["RULES"])


def rule_of(path, rules):
    """Return what the one rule says that matches a path; None where none does."""
    found = [pattern for pattern in rules if re.fullmatch(pattern, path)]
    assert len(found) <= 1, f"{path} falls under {found}: Keras takes one rule for a weight"
    return rules[found[0]] if found else None


def layout_of(mesh):
    layout = keras.distribution.LayoutMap(mesh)
    for path, axes in rules().items():
        layout[path] = axes
    return layout
