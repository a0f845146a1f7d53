"""Train the model of distributed_models.py on several devices: `python distributed_worker.py ENGINE FOLDER BRANCH...`.

Devices are counted before a backend starts, so each run is a process, or two that find each other by their environment.
What came of it is in FOLDER/RANK.npz (weights by their paths) and FOLDER/RANK.json.
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
from distributed_processes import LIMIT

FOLDER, BRANCHES = Path(sys.argv[2]), tuple(sys.argv[3:])


def fitted(model, last=models.LAST):
    """Train by `fit`, and return the losses."""
    losses = models.Losses()
    model.fit(*models.data(BRANCHES, last=last), models.BATCH, shuffle=False, verbose=0, callbacks=[losses])
    return losses.rows


def mirrored():
    """Two logical devices in one process, and `fit`."""
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
    with strategy.scope():
        model = models.build(BRANCHES)
    traces: list[None] = []
    step = model.train_step
    model.train_step = lambda batch: (traces.append(None), step(batch))[1]
    losses = fitted(model)
    return model, losses, {"replicas": 2, "rank": 0, "traces": len(traces) // 2}


def multi_worker():
    """Two processes, told of each other by TF_CONFIG, and a loop: `fit` knows no such strategy (keras#20585)."""
    import tensorflow as tf

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = models.build(BRANCHES)
        model.optimizer.build(model.trainable_variables)
    dataset = tf.data.Dataset.from_tensor_slices(models.data(BRANCHES)).batch(models.BATCH)
    size, traces = strategy.num_replicas_in_sync, []

    def in_replica(x, y):
        traces.append(None)
        with tf.GradientTape() as tape:
            outputs = model(x, training=True)
            losses = {name: tf.reduce_mean((outputs[name] - y[name]) ** 2) for name in BRANCHES}
            total = sum(losses.values()) / size
        gradients = tape.gradient(total, [each.value for each in model.trainable_variables])
        model.optimizer.apply(gradients, model.trainable_variables)
        return losses

    @tf.function
    def step(batch):
        losses = strategy.run(in_replica, args=batch)
        return {name: strategy.reduce("MEAN", loss, axis=None) for name, loss in losses.items()}

    batches = strategy.experimental_distribute_dataset(dataset)
    rows = [{f"{name}_loss": float(loss) for name, loss in step(batch).items()} for batch in batches]
    found = {"replicas": size, "rank": strategy.cluster_resolver.task_id, "traces": len(traces)}
    return model, models.means_so_far(rows), found


def data_parallel():
    """Devices of one process, each with a share of the batch."""
    distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
    keras.distribution.set_distribution(distribution)
    model = models.build(BRANCHES)
    return model, fitted(model, models.BATCH), {"replicas": distribution.device_mesh.shape[0], "rank": 0}


def model_parallel():
    """Devices of one process: two shares of the batch by two shares of the weights, as the page lays them out."""
    mesh = keras.distribution.DeviceMesh((2, 2), ("batch", "model"))
    distribution = keras.distribution.ModelParallel(layout_map=models.layout_of(mesh), auto_shard_dataset=False)
    keras.distribution.set_distribution(distribution)
    model = models.build(BRANCHES)
    losses = fitted(model, models.BATCH)
    shards = {v.path: list(v.value.sharding.shard_shape(v.value.shape)) for v in model.trainable_variables}
    return model, losses, {"replicas": mesh.shape[0], "rank": 0, "shards": shards}


def ddp():
    """Two processes in a group of torch, each with its half of every batch."""
    import torch
    from torch import distributed

    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    model = models.build(BRANCHES)
    x, y = models.data(BRANCHES)
    shares = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(shares.parameters(), models.RATE, models.MOMENTUM)
    rows = []
    for start in range(0, len(y[BRANCHES[0]]), models.BATCH):
        inputs, targets = models.share_of(x, start, rank, size), models.share_of(y, start, rank, size)
        outputs = shares(inputs, training=True)
        losses = {name: torch.mean((outputs[name] - torch.as_tensor(targets[name])) ** 2) for name in BRANCHES}
        optimizer.zero_grad()
        sum(losses.values()).backward()
        optimizer.step()
        means = torch.stack([loss.detach() for loss in losses.values()]) / size
        distributed.all_reduce(means)
        rows.append({f"{name}_loss": float(mean) for name, mean in zip(losses, means, strict=True)})
    del shares  # before the group, or its destructor can deadlock with a gloo thread: pytorch issue 56297
    distributed.barrier()  # the first process holds the store that the others still ask
    distributed.destroy_process_group()
    return model, models.means_so_far(rows), {"replicas": size, "rank": rank}


def main():
    warnings.simplefilter("ignore")  # a strategy warns of its own deprecated calls, Keras of those of NumPy
    faulthandler.dump_traceback_later(LIMIT - 10)  # where it stands, before it is stopped
    engines = {each.__name__: each for each in (mirrored, multi_worker, data_parallel, model_parallel, ddp)}
    model, losses, found = engines[sys.argv[1]]()
    rank = found["rank"]
    np.savez(FOLDER / f"{rank}.npz", **models.weights_of(model))
    (FOLDER / f"{rank}.json").write_text(json.dumps(found | {"losses": losses}))
    if "torch" in sys.modules:  # its threads may deadlock with the finalization of Python: pytorch issue 190489
        os._exit(0)


main()
