"""Train the model of distributed_models.py on several devices: `python distributed_worker.py ENGINE FOLDER BRANCH...`.

A backend counts its devices when it starts, so each run needs a process, or two that their environment connects. The
results are FOLDER/RANK.npz (weights by path) and FOLDER/RANK.json (losses and details).
"""

import faulthandler
import json
import os
import sys
import warnings
from pathlib import Path

import distributed_models as models
import keras
import numpy as np
from distributed_processes import PROCESS_TIMEOUT_SECONDS

FOLDER, BRANCHES = Path(sys.argv[2]), tuple(sys.argv[3:])


def fit(model, last_batch_rows=models.LAST_BATCH_ROWS, rank=0, size=1):
    """Train by `fit` on the share of process `rank` of `size` in each batch, and return the losses."""
    recorder = models.LossRecorder()
    x, y = models.create_data(BRANCHES, last_batch_rows)
    in_share = np.arange(len(x["queries"])) % models.BATCH * size // models.BATCH == rank
    x, y = ({name: array[in_share] for name, array in arrays.items()} for arrays in (x, y))
    model.fit(x, y, models.BATCH // size, shuffle=False, verbose=0, callbacks=[recorder])
    return recorder.losses


def train_mirrored():
    """Train by `fit` on two logical devices of one process."""
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    with strategy.scope():
        model = models.build_model(BRANCHES)
    traces: list[None] = []
    step = model.train_step
    model.train_step = lambda batch: (traces.append(None), step(batch))[1]
    losses = fit(model)
    return model, losses, {"replicas": 2, "rank": 0, "traces": len(traces) // 2}


def train_multi_worker():
    """Train in a loop in two processes that TF_CONFIG connects: `fit` does not support the strategy (keras#20585)."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = models.build_model(BRANCHES)
        model.optimizer.build(model.trainable_variables)
    dataset = tf.data.Dataset.from_tensor_slices(models.create_data(BRANCHES)).batch(models.BATCH)
    size, traces = strategy.num_replicas_in_sync, []

    def train_replica(x, y):
        traces.append(None)
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            losses = {name: tf.reduce_mean((outputs[name] - y[name]) ** 2) for name in BRANCHES}
            total = sum(losses.values()) / size
        gradients = tape.gradient(total, [variable.value for variable in model.trainable_variables])
        model.optimizer.apply(gradients, model.trainable_variables)
        return losses

    @tf.function
    def step(batch):
        losses = strategy.run(train_replica, args=batch)
        return {name: strategy.reduce("MEAN", loss, axis=None) for name, loss in losses.items()}

    batches = strategy.experimental_distribute_dataset(dataset)
    losses = [{f"{name}_loss": float(loss) for name, loss in step(batch).items()} for batch in batches]
    details = {"replicas": size, "rank": strategy.cluster_resolver.task_id, "traces": len(traces)}
    return model, models.compute_running_means(losses), details


def train_data_parallel():
    """Train on all devices of one process, or of the processes that KERAS_DISTRIBUTION_* connects."""
    import jax

    if "KERAS_DISTRIBUTION_JOB_ADDRESSES" in os.environ:
        keras.distribution.initialize()
    rank, size = jax.process_index(), jax.process_count()
    distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
    keras.distribution.set_distribution(distribution)
    model = models.build_model(BRANCHES)
    losses = fit(model, models.BATCH, rank, size)
    return model, losses, {"replicas": distribution.device_mesh.shape[0], "rank": rank}


def train_model_parallel():
    """Train on a mesh of one process: two shares of the batch by two shares of the weights, by the page's rules."""
    mesh = keras.distribution.DeviceMesh((2, 2), ("batch", "model"))
    distribution = keras.distribution.ModelParallel(layout_map=models.create_layout_map(mesh), auto_shard_dataset=False)
    keras.distribution.set_distribution(distribution)
    model = models.build_model(BRANCHES)
    losses = fit(model, models.BATCH)
    values = {variable.path: variable.value for variable in model.trainable_variables}
    shards = {path: list(value.sharding.shard_shape(value.shape)) for path, value in values.items()}
    return model, losses, {"replicas": mesh.shape[0], "rank": 0, "shards": shards}


def train_ddp():
    """Train in a loop in two processes of a torch process group, each with half of every batch."""
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    model = models.build_model(BRANCHES)
    x, y = models.create_data(BRANCHES)
    replica = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), models.LEARNING_RATE, models.MOMENTUM)
    step_losses = []
    for start in range(0, len(y[BRANCHES[0]]), models.BATCH):
        inputs, targets = models.take_share(x, start, rank, size), models.take_share(y, start, rank, size)
        outputs = replica(inputs, training=True)
        losses = {name: torch.mean((outputs[name] - torch.as_tensor(targets[name])) ** 2) for name in BRANCHES}
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
        means = torch.stack([loss.detach() for loss in losses.values()]) / size
        distributed.all_reduce(means)
        step_losses.append({f"{name}_loss": float(mean) for name, mean in zip(losses, means, strict=True)})
    del replica  # before the group: the destructor can deadlock with a gloo thread, pytorch issue 56297
    distributed.barrier()  # the first process serves the store, which the second may still read
    distributed.destroy_process_group()
    return model, models.compute_running_means(step_losses), {"replicas": size, "rank": rank}


def main():
    warnings.simplefilter("ignore")  # strategies and Keras warn of deprecated calls of their own
    faulthandler.dump_traceback_later(PROCESS_TIMEOUT_SECONDS - 10)  # before the process is stopped
    engines = (train_mirrored, train_multi_worker, train_data_parallel, train_model_parallel, train_ddp)
    (train,) = (engine for engine in engines if engine.__name__ == f"train_{sys.argv[1]}")
    model, losses, details = train()
    rank = details["rank"]
    np.savez(FOLDER / f"{rank}.npz", **models.read_weights(model))
    (FOLDER / f"{rank}.json").write_text(json.dumps(details | {"losses": losses}))
    if "torch" in sys.modules:  # threads of torch may deadlock when Python exits: pytorch issue 190489
        os._exit(0)


main()
