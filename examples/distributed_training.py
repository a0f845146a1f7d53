# %% [markdown]
"""Trains one model on whatever there is: this machine, or all machines of a cluster, without a change.

Run it with `python examples/distributed_training.py` (`--quick` for few steps). Alone it is one process, on this
machine. A cluster says by the environment who takes part, and each of its processes runs the same command:

- TensorFlow: TF_CONFIG, as Kubernetes operators and most schedulers write it;
- torch, with KERAS_BACKEND=torch: what torchrun sets (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT);
- JAX, with KERAS_BACKEND=jax: KERAS_DISTRIBUTION_JOB_ADDRESSES, _NUM_PROCESSES and _PROCESS_ID.

Each process draws the same data and takes its share of every batch. The first one saves the model and exports it, to
`artifacts/distributed` (`--out FOLDER` for another place); the others write nothing.
"""

# %%
import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect

import keras
import numpy as np

from keras_attn import AdditiveAttention, MultiHeadAttention
from keras_attn_export import export_model

BATCH, KEYS, SIZE, RATE = 64, 12, 4, 0.02  # BATCH: of all processes together
Arrays = dict[str, np.ndarray]
Step = Callable[[Arrays, np.ndarray], float]

# %% [markdown]
# ## The task
#
# Which of some keys is like the query, and what is its value? Each example has as many keys as its length says.


# %%
def draw(rng: np.random.Generator) -> tuple[Arrays, np.ndarray]:
    """A batch of inputs, and the values that are asked for, (BATCH, 1, 1)."""
    keys, values = rng.normal(size=(BATCH, KEYS, SIZE)), rng.normal(size=(BATCH, KEYS, 1))
    lens = rng.integers(2, KEYS + 1, BATCH)
    right = rng.integers(0, lens)
    rows = np.arange(BATCH)
    queries = keys[rows, right][:, None] + 0.1 * rng.normal(size=(BATCH, 1, SIZE))
    inputs = {"queries": queries, "keys": keys, "values": values}
    goal = values[rows, right][:, None].astype("float32")
    return {**{name: x.astype("float32") for name, x in inputs.items()}, "valid_lens": lens.astype("int32")}, goal


def make_model() -> keras.Model:
    """From the same weights in every process."""
    keras.utils.set_random_seed(0)
    queries, keys = keras.Input((None, SIZE), name="queries"), keras.Input((None, SIZE), name="keys")
    values, lens = keras.Input((None, 1), name="values"), keras.Input((), dtype="int32", name="valid_lens")
    score = AdditiveAttention(32, dropout=0.05, seed=1, name="score")
    attend = MultiHeadAttention(score, num_heads=1, key_dim=8, output_dim=1, name="attend")
    model = keras.Model([queries, keys, values, lens], attend(queries, keys, values, lens))
    model.compile(keras.optimizers.Adam(RATE), "mse")
    return model


# %% [markdown]
# ## Who takes part
#
# An engine knows how many processes there are and which of them this is, and makes a step of all of them together:
# gradients are means over the whole batch, and all processes have the same weights after it.


# %%
@dataclass(frozen=True)
class Engine:
    """What takes part in the training, as this process sees it."""

    rank: int
    processes: int
    devices: int
    model: keras.Model
    step: Step
    leave: Callable[[], None] = lambda: None

    def share(self, array: np.ndarray) -> np.ndarray:
        return np.array_split(array, self.processes)[self.rank]


def with_tensorflow() -> Engine:
    """All devices of this process, or those of all processes of TF_CONFIG."""
    import tensorflow as tf

    several = "TF_CONFIG" in os.environ
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if several else tf.distribute.MirroredStrategy()
    resolver = strategy.cluster_resolver
    processes = len(resolver.cluster_spec().as_dict().get("worker", [])) if several else 1
    with strategy.scope():
        model = make_model()
        model.optimizer.build(model.trainable_variables)

    def in_replica(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            part = loss / strategy.num_replicas_in_sync  # the optimizer adds up those of all devices
        gradients = tape.gradient(part, [each.value for each in model.trainable_variables])
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    @tf.function
    def compiled(x: Any, y: Any) -> Any:
        return strategy.reduce("MEAN", strategy.run(in_replica, args=(x, y)), axis=None)

    def step(x: Arrays, y: np.ndarray) -> float:
        count = strategy.num_replicas_in_sync // processes

        def split(array: np.ndarray) -> Any:  # among the devices of this process
            parts = np.array_split(array, count)
            return strategy.experimental_distribute_values_from_function(
                lambda context: tf.constant(parts[context.replica_id_in_sync_group % count])
            )

        return float(compiled({name: split(array) for name, array in x.items()}, split(y)))

    return Engine(resolver.task_id if several else 0, processes, strategy.num_replicas_in_sync, model, step)


def with_jax() -> Engine:
    """All devices of this process, or of all processes that the environment names: one program over all of them."""
    several = "KERAS_DISTRIBUTION_NUM_PROCESSES" in os.environ
    if several:
        keras.distribution.initialize()
    import jax

    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    model = make_model()

    def step(x: Arrays, y: np.ndarray) -> float:
        return float(model.train_on_batch(x, y))

    def leave() -> None:  # or a variable that the first process makes would wait for the others
        keras.distribution.set_distribution(None)
        if several:
            jax.distributed.shutdown()

    return Engine(jax.process_index(), jax.process_count(), jax.device_count(), model, step, leave)


def with_torch() -> Engine:
    """This process, or all that torchrun started, each with one device."""
    import torch
    from torch import distributed

    several = "RANK" in os.environ
    if several:
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    model = make_model()
    called = torch.nn.parallel.DistributedDataParallel(model) if several else model
    rank, processes = (distributed.get_rank(), distributed.get_world_size()) if several else (0, 1)

    def step(x: Arrays, y: np.ndarray) -> float:
        loss = torch.mean((called(x, training=True) - keras.ops.convert_to_tensor(y)) ** 2)
        called.zero_grad()
        loss.backward()  # which makes gradients means over all processes
        with torch.no_grad():
            model.optimizer.apply([each.value.grad for each in model.trainable_variables], model.trainable_variables)
        mean = loss.detach() / processes
        if several:
            distributed.all_reduce(mean)
        return float(mean)

    def leave() -> None:
        nonlocal called
        # Free DistributedDataParallel first. Otherwise its destructor destroys the group: it holds the GIL and joins a
        # gloo thread that waits for the GIL (pytorch issue 56297).
        called = model
        if several:
            distributed.barrier()
            distributed.destroy_process_group()

    return Engine(rank, processes, processes, model, step, leave)


# %% [markdown]
# ## The training
#
# It is the same for all engines. What is drawn is the same in all processes, so it does not hang on how many there are.


# %%
def train(engine: Engine, steps: int) -> list[float]:
    """The loss of each step, over the whole batch."""
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(steps):
        x, y = draw(rng)
        losses.append(engine.step({name: engine.share(array) for name, array in x.items()}, engine.share(y)))
    return losses


def save_and_export(model: keras.Model, out: Path) -> Any:
    """The model as a file, and a bundle made of that, which knows nothing of devices."""
    out.mkdir(parents=True, exist_ok=True)
    model.save(out / "model.keras")
    return export_model(out / "model.keras", out / "bundle", overwrite=True)


# %% [markdown]
# ## All of it
#
# `main([])` trains for 300 steps; `main(["--quick"])` for 20.


# %%
def main(argv: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(description="Train on this machine, or on all of a cluster.")
    parser.add_argument("--quick", action="store_true", help="train hardly at all")
    parser.add_argument("--out", type=Path, default=Path("artifacts/distributed"), help="the folder to write to")
    args = parser.parse_args(argv)
    engine = {"tensorflow": with_tensorflow, "jax": with_jax, "torch": with_torch}[keras.backend.backend()]()
    losses = train(engine, 20 if args.quick else 300)
    engine.leave()
    if engine.rank == 0:
        print(f"{engine.processes} processes, {engine.devices} devices: loss {losses[0]:.4f}, then {losses[-1]:.4f}")
        bundle = save_and_export(engine.model, args.out)
        print(f"{bundle.report.summary()}\nwritten to {args.out}: model.keras, bundle")
    return losses


# %%
if __name__ == "__main__":
    # Run as a notebook it has no arguments: those of the process are Jupyter's.
    main(sys.argv[1:] if Path(sys.argv[0]).name == "distributed_training.py" else [])
