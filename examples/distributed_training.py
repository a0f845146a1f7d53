# %% [markdown]
"""Distributed training of a model: the same script runs on one machine and on a cluster.

Run it with `python examples/distributed_training.py` (`--quick` for few steps). Alone it is one process. In a
cluster each process runs the same command, and environment variables describe the processes:

- TensorFlow: TF_CONFIG, as Kubernetes operators and most schedulers set it;
- torch, with KERAS_BACKEND=torch: the variables of torchrun (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT);
- JAX, with KERAS_BACKEND=jax: KERAS_DISTRIBUTION_JOB_ADDRESSES, _NUM_PROCESSES and _PROCESS_ID.

All processes draw the same data, and each trains on its share of every batch. The first process saves and exports the
model to `artifacts/distributed` (`--out FOLDER` for another folder); the other processes write nothing.
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

BATCH_SIZE, KEYS, SIZE, LEARNING_RATE = 64, 12, 4, 0.02  # BATCH_SIZE: of all processes
Arrays = dict[str, np.ndarray]
Step = Callable[[Arrays, np.ndarray], float]

# %% [markdown]
# ## The task
#
# Find the key that is closest to the query, and return its value. The number of keys is the valid length of an example.


# %%
def draw_batch(rng: np.random.Generator) -> tuple[Arrays, np.ndarray]:
    """Return a batch of inputs, and the values to predict, (BATCH_SIZE, 1, 1)."""
    keys, values = rng.normal(size=(BATCH_SIZE, KEYS, SIZE)), rng.normal(size=(BATCH_SIZE, KEYS, 1))
    lens = rng.integers(2, KEYS + 1, BATCH_SIZE)
    index = rng.integers(0, lens)
    rows = np.arange(BATCH_SIZE)
    queries = keys[rows, index][:, None] + 0.1 * rng.normal(size=(BATCH_SIZE, 1, SIZE))
    arrays = {"queries": queries, "keys": keys, "values": values}
    inputs = {name: array.astype("float32") for name, array in arrays.items()} | {"valid_lens": lens.astype("int32")}
    return inputs, values[rows, index][:, None].astype("float32")


def make_model() -> keras.Model:
    """Build a model with the same weights in every process."""
    keras.utils.set_random_seed(0)
    queries, keys = keras.Input((None, SIZE), name="queries"), keras.Input((None, SIZE), name="keys")
    values, lens = keras.Input((None, 1), name="values"), keras.Input((), dtype="int32", name="valid_lens")
    score = AdditiveAttention(32, dropout=0.05, seed=1, name="score")
    attend = MultiHeadAttention(score, num_heads=1, key_dim=8, output_dim=1, name="attend")
    model = keras.Model([queries, keys, values, lens], attend(queries, keys, values, lens))
    model.compile(keras.optimizers.Adam(LEARNING_RATE), "mse")
    return model


# %% [markdown]
# ## Processes
#
# An engine has the number of processes, the rank of this process, and a training step over all processes: gradients are
# means over the whole batch, so all processes have the same weights after a step.


# %%
@dataclass(frozen=True)
class Engine:
    """Processes, devices, model and training step, for one process."""

    rank: int
    processes: int
    devices: int
    model: keras.Model
    step: Step
    leave: Callable[[], None] = lambda: None

    def share(self, array: np.ndarray) -> np.ndarray:
        """Return the part (BATCH_SIZE / processes, ...) of an array (BATCH_SIZE, ...) for this process."""
        return np.array_split(array, self.processes)[self.rank]


def make_tensorflow_engine() -> Engine:
    """Use all devices of this process, or of all processes in TF_CONFIG."""
    import tensorflow as tf

    is_cluster = "TF_CONFIG" in os.environ
    strategy = tf.distribute.MultiWorkerMirroredStrategy() if is_cluster else tf.distribute.MirroredStrategy()
    resolver = strategy.cluster_resolver
    processes = len(resolver.cluster_spec().as_dict().get("worker", [])) if is_cluster else 1
    with strategy.scope():
        model = make_model()
        model.optimizer.build(model.trainable_variables)

    def replica_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
            part = loss / strategy.num_replicas_in_sync  # the optimizer sums the gradients of all devices
        gradients = tape.gradient(part, [variable.value for variable in model.trainable_variables])
        model.optimizer.apply(gradients, model.trainable_variables)
        return loss

    @tf.function
    def compiled(x: Any, y: Any) -> Any:
        return strategy.reduce("MEAN", strategy.run(replica_step, args=(x, y)), axis=None)

    def step(x: Arrays, y: np.ndarray) -> float:
        num_devices = strategy.num_replicas_in_sync // processes  # of this process

        def split(array: np.ndarray) -> Any:
            parts = np.array_split(array, num_devices)
            return strategy.experimental_distribute_values_from_function(
                lambda context: tf.constant(parts[context.replica_id_in_sync_group % num_devices])
            )

        return float(compiled({name: split(array) for name, array in x.items()}, split(y)))

    return Engine(resolver.task_id if is_cluster else 0, processes, strategy.num_replicas_in_sync, model, step)


def make_jax_engine() -> Engine:
    """Use all devices of this process, or of all processes in the environment, in one program."""
    is_cluster = "KERAS_DISTRIBUTION_NUM_PROCESSES" in os.environ
    if is_cluster:
        keras.distribution.initialize()
    import jax

    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    model = make_model()

    def step(x: Arrays, y: np.ndarray) -> float:
        return float(model.train_on_batch(x, y))

    def leave() -> None:
        # Otherwise a variable that only the first process creates would wait for the other processes.
        keras.distribution.set_distribution(None)
        if is_cluster:
            jax.distributed.shutdown()

    return Engine(jax.process_index(), jax.process_count(), jax.device_count(), model, step, leave)


def make_torch_engine() -> Engine:
    """Use this process, or all processes of torchrun, with one device each."""
    import torch
    from torch import distributed

    is_cluster = "RANK" in os.environ
    if is_cluster:
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
        distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    model = make_model()
    parallel_model = torch.nn.parallel.DistributedDataParallel(model) if is_cluster else model
    rank, processes = (distributed.get_rank(), distributed.get_world_size()) if is_cluster else (0, 1)

    def step(x: Arrays, y: np.ndarray) -> float:
        loss = torch.mean((parallel_model(x, training=True) - keras.ops.convert_to_tensor(y)) ** 2)
        parallel_model.zero_grad()
        loss.backward()  # averages the gradients over all processes
        with torch.no_grad():
            gradients = [variable.value.grad for variable in model.trainable_variables]
            model.optimizer.apply(gradients, model.trainable_variables)
        mean = loss.detach() / processes
        if is_cluster:
            distributed.all_reduce(mean)
        return float(mean)

    def leave() -> None:
        nonlocal parallel_model
        # Free DistributedDataParallel first. Otherwise its destructor destroys the group: it holds the GIL and joins a
        # gloo thread that waits for the GIL (pytorch issue 56297).
        parallel_model = model
        if is_cluster:
            distributed.barrier()
            distributed.destroy_process_group()

    return Engine(rank, processes, processes, model, step, leave)


# %% [markdown]
# ## The training
#
# The loop is the same for all engines. All processes draw the same data, so it does not depend on their number.


# %%
def train(engine: Engine, steps: int) -> list[float]:
    """Train, and return the loss of each step over the whole batch."""
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(steps):
        x, y = draw_batch(rng)
        losses.append(engine.step({name: engine.share(array) for name, array in x.items()}, engine.share(y)))
    return losses


def save_and_export(model: keras.Model, out: Path) -> Any:
    """Save the model, and export the saved file: the bundle does not depend on devices."""
    out.mkdir(parents=True, exist_ok=True)
    model.save(out / "model.keras")
    return export_model(out / "model.keras", out / "bundle", overwrite=True)


# %% [markdown]
# ## Run
#
# `main([])` trains for 300 steps; `main(["--quick"])` for 20.


# %%
def main(argv: list[str] | None = None) -> list[float]:
    parser = argparse.ArgumentParser(description="Train on this machine, or on all of a cluster.")
    parser.add_argument("--quick", action="store_true", help="train hardly at all")
    parser.add_argument("--out", type=Path, default=Path("artifacts/distributed"), help="the folder to write to")
    args = parser.parse_args(argv)
    engine = {"tensorflow": make_tensorflow_engine, "jax": make_jax_engine, "torch": make_torch_engine}[
        keras.backend.backend()
    ]()
    losses = train(engine, 20 if args.quick else 300)
    engine.leave()
    if engine.rank == 0:
        print(f"{engine.processes} processes, {engine.devices} devices: loss {losses[0]:.4f}, then {losses[-1]:.4f}")
        bundle = save_and_export(engine.model, args.out)
        print(f"{bundle.report.summary()}\nwritten to {args.out}: model.keras, bundle")
    return losses


# %%
if __name__ == "__main__":
    # In a notebook the arguments of the process are those of Jupyter.
    main(sys.argv[1:] if Path(sys.argv[0]).name == "distributed_training.py" else [])
