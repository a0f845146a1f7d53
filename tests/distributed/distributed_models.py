"""Model, data and comparisons of the tests of distributed training: one branch of the model for each feature.

Each branch has its own layer, head and loss, so the name of a different loss or weight shows the feature. The optimizer
is gradient descent with momentum. Adam divides a gradient by its magnitude, so a rounding error of 1e-9 in a gradient
that is zero, as that of the bias of `W_k`, would become a step of usual size.
"""

import re
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
from backends import compute_gradients
from distributed_processes import Result

from keras_attn import AdditiveAttention, BilinearAttention, DotProductAttention, MultiHeadAttention

Tq, Tk, Dq, Dk, Dv, U = 5, 7, 4, 6, 3, 8
BATCH, STEPS = 8, 20
LAST_BATCH_ROWS = 5  # three for one of two devices, two for the other
LEARNING_RATE, MOMENTUM = 0.1, 0.5
BRANCHES = ("lengths", "blocks", "mask", "heads", "causal", "dropped")
DROPOUT_BRANCH = "dropped"


def _attend(queries, keys, values, masks):
    """Return the output of the attention layer of each branch, by name of the branch."""
    lens, query_lens = masks["valid_lens"], masks["query_lens"]
    projected_keys = keras.layers.Dense(Dq, name="same_size")(keys)
    lengths_layer = AdditiveAttention(U, query_block_size=None, name="lengths")
    blocks_layer = AdditiveAttention(U, normalize=True, query_block_size=2, name="blocks")
    causal_score = AdditiveAttention(U, query_block_size=2, name="causal_score")
    return {
        "lengths": lengths_layer(queries, keys, values, lens),
        "blocks": blocks_layer(queries, keys, values, query_lens),
        "mask": DotProductAttention(name="mask_layer")(
            queries, projected_keys, values, attention_mask=keras.ops.cast(masks["mask"], "bool")
        ),
        "heads": MultiHeadAttention(BilinearAttention(name="heads_score"), 2, key_dim=4, name="heads")(
            queries, keys, values, lens
        ),
        "causal": MultiHeadAttention(causal_score, 2, key_dim=4, name="causal")(
            queries, keys, values, query_lens, use_causal_mask=True
        ),
        "dropped": AdditiveAttention(U, dropout=0.4, seed=11, name="dropped")(queries, keys, values, lens),
    }


def build_model(branches=BRANCHES):
    """Return the compiled model with outputs of the given branches; initial weights do not depend on the branches."""
    keras.utils.set_random_seed(5)
    queries, keys, values = (
        keras.Input(shape, name=name)
        for name, shape in {"queries": (None, Dq), "keys": (None, Dk), "values": (None, Dv)}.items()
    )
    masks = {
        "valid_lens": keras.Input((), dtype="int32", name="valid_lens"),
        "query_lens": keras.Input((None,), dtype="int32", name="query_lens"),
        # To build a model under a strategy, Keras averages a batch over the devices, and booleans have no mean.
        "mask": keras.Input((None, None), dtype="uint8", name="mask"),
    }
    attended = _attend(queries, keys, values, masks)
    outputs = {name: keras.layers.Dense(1, name=f"{name}_head")(attended[name]) for name in BRANCHES}
    model = keras.Model([queries, keys, values, *masks.values()], {name: outputs[name] for name in branches})
    model.compile(keras.optimizers.SGD(LEARNING_RATE, MOMENTUM), {name: "mse" for name in branches})
    return model


def create_data(branches=BRANCHES, last_batch_rows=LAST_BATCH_ROWS):
    """Return inputs and targets of `STEPS` batches, of which the last may have fewer rows.

    Only the first half of each batch has rows of length 0, so only one of two devices has fully masked queries.
    """
    rows = (STEPS - 1) * BATCH + last_batch_rows
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
    targets = inputs["values"].mean(1, keepdims=True).sum(-1, keepdims=True) + inputs["queries"][..., :1]
    return inputs, {name: targets for name in branches}


def take_share(arrays, start, rank, size):
    """Return the rows that replica `rank` of `size` gets of a batch; the first replicas get the remaining rows."""
    return {name: np.array_split(array[start : start + BATCH], size)[rank] for name, array in arrays.items()}


def read_weights(model):
    """Return the variables of a model by path, without seeds, whose paths depend on the number of earlier seeds."""
    variables = [variable for variable in model.variables if "seed_generator_state" not in variable.path]
    return {variable.path: keras.ops.convert_to_numpy(variable) for variable in variables}


class LossRecorder(keras.callbacks.Callback):
    """Recorder of the losses that `fit` logs in each step: means over the steps up to this one."""

    def __init__(self):
        super().__init__()
        self.losses: list[dict[str, float]] = []

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append({name: float(loss) for name, loss in (logs or {}).items()})


def compute_running_means(losses):
    """Return the means that `fit` logs for the losses of single steps, of which the last may have fewer rows.

    Keras weights a step by its rows. On TensorFlow, which traces a step for any number of rows, steps count equally.
    """
    steps = np.arange(1, len(losses) + 1)
    rows = np.minimum(steps * BATCH, (STEPS - 1) * BATCH + LAST_BATCH_ROWS)
    counts = steps if keras.backend.backend() == "tensorflow" else rows
    sizes = np.diff(counts, prepend=0)
    means = {name: np.cumsum([loss[name] for loss in losses] * sizes) / counts for name in losses[0]}
    return [{name: float(values[step]) for name, values in means.items()} for step in range(len(losses))]


def train_on_one_device(branches, replicas=1, last_batch_rows=LAST_BATCH_ROWS):
    """Train by `fit` on one device, and return the result.

    The sample weights of the last batch make its loss the mean of the means of the replicas. If the rows do not divide
    evenly, this differs from the mean of all rows.
    """
    model = build_model(branches)
    x, y = create_data(branches, last_batch_rows)
    weights = np.ones((STEPS * BATCH, Tq), "float32")[: len(x["queries"])]
    for share in np.array_split(np.arange(last_batch_rows), replicas):
        weights[len(weights) - last_batch_rows + share] = last_batch_rows / (replicas * len(share))
    recorder = LossRecorder()
    sample_weights = {name: weights for name in branches}
    model.fit(x, y, BATCH, shuffle=False, verbose=0, callbacks=[recorder], sample_weight=sample_weights)
    return Result(read_weights(model), recorder.losses, {})


def train_by_shares(branch, replicas, dropout_replica):
    """Train one branch on one device with the averaged losses of a batch's shares, and return the result.

    `dropout_replica(rank)` is the number of the replica whose dropout the share of replica `rank` draws.
    """
    model = build_model([branch])
    seeds = [variable for variable in model.non_trainable_variables if "seed" in variable.path]
    x, y = create_data([branch])
    losses = []
    for start in range(0, len(y[branch]), BATCH):
        states = [keras.ops.copy(seed.value) for seed in seeds]
        share_losses: list[Any] = []

        def compute_loss(start=start, states=states, share_losses=share_losses):
            for rank in range(replicas):
                for seed, state in zip(seeds, states, strict=True):
                    seed.assign(state)  # all replicas begin a step with the same state
                replica = dropout_replica(rank)
                with mock.patch("keras_attn._keras.replica_seeds.replica_number", lambda replica=replica: replica):
                    output = model(take_share(x, start, rank, replicas), training=True)[branch]
                targets = keras.ops.convert_to_tensor(take_share(y, start, rank, replicas)[branch])
                share_losses.append(keras.ops.mean((output - targets) ** 2))
            return sum(share_losses) / replicas

        gradients = compute_gradients(compute_loss, 0, model.trainable_variables)()
        model.optimizer.apply(gradients, model.trainable_variables)
        losses.append({f"{branch}_loss": sum(map(float, map(keras.ops.convert_to_numpy, share_losses))) / replicas})
    return Result(read_weights(model), compute_running_means(losses), {})


# Limit of the difference between two trainings. The gradient of a weight is a mean over the `BATCH Tq Tk` = 280 pairs
# of a batch. Devices sum in another order, which changes a float32 sum of magnitude 1 by up to 280 roundings of 6e-8,
# usually by 280**0.5 = 17 of them: 1e-6. A step adds this times `LEARNING_RATE / (1 - MOMENTUM)` = 0.2, and 20 steps
# usually 20**0.5 times that: 1e-6 again, and at most 7e-5. The largest difference observed is 4e-7; a fault causes 1e-2
# and more.
TOLERANCE = 1e-5
FAULT_DIFFERENCE = 100 * TOLERANCE


def measure_differences(first, second):
    """Return the largest absolute difference of each weight, by path, and of each branch's losses, by name."""
    assert first.weights.keys() == second.weights.keys()
    differences = {name: np.abs(array - second.weights[name]).max() for name, array in first.weights.items()}
    branches = sorted({name for name in first.losses[0] if name != "loss"} & second.losses[0].keys())
    assert len(first.losses) == len(second.losses)
    assert branches
    for name in branches:
        differences[name] = max(abs(a[name] - b[name]) for a, b in zip(first.losses, second.losses, strict=True))
    return {name: float(difference) for name, difference in differences.items()}


def assert_same_training(first, second, title):
    """Assert that losses and weights are equal up to rounding, and print the largest difference."""
    differences = measure_differences(first, second)
    largest = max(differences, key=differences.__getitem__)
    print(f"{title}: largest difference {differences[largest]:.1e}, of {largest}")
    assert {name: difference for name, difference in differences.items() if not difference <= TOLERANCE} == {}


# The tests read the sharding rules from the page, so the page itself is tested.
PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "distributed-training.md"


def find_code_block(text):
    """Return the one Python block of the page that contains a text."""
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if text in block]
    return block


def read_rules():
    """Return the page's sharding rules: a mesh axis, or None, for each axis of a weight, by pattern of its path."""
    names: dict[str, Any] = {}
    exec(re.findall(r"^RULES = \{.*?^\}", find_code_block("RULES = {"), flags=re.MULTILINE | re.DOTALL)[0], names)
    return dict(names["RULES"])


def find_rule(path, rules):
    """Return the mesh axes of the rule that matches a path, or None without a match."""
    patterns = [pattern for pattern in rules if re.fullmatch(pattern, path)]
    assert len(patterns) <= 1, f"{path} matches {patterns}: Keras accepts one rule for a weight"
    return rules[patterns[0]] if patterns else None


def create_layout_map(mesh):
    layout_map = keras.distribution.LayoutMap(mesh)
    for pattern, axes in read_rules().items():
        layout_map[pattern] = axes
    return layout_map
