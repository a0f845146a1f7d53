"""Graphs, whose edges come as dense matrices."""

from keras import layers as L  # noqa: N812 - these files consist of them
from keras import ops

from .registry import HALF, architecture

NODES, ADJACENCY = (None, 6), (None, None)  # a row of features for each node, and how strongly each two are connected


class Connected(L.Layer):
    """Whether two nodes are connected; each is with itself."""

    def call(self, adjacency):
        steps = ops.arange(ops.shape(adjacency)[-1])
        return ops.logical_or(adjacency > 0.3, ops.expand_dims(steps, -1) == steps)


@architecture(precisions=HALF)
def graph_convolution(nodes=NODES, adjacency=ADJACENCY):
    """Kipf and Welling, 2017: Semi-Supervised Classification with Graph Convolutional Networks."""
    edges = ops.cast(Connected()(adjacency), "float32")
    edges = ops.maximum(edges, ops.swapaxes(edges, 1, 2))
    degrees = ops.rsqrt(ops.sum(edges, -1))
    normalized = edges * ops.expand_dims(degrees, -1) * ops.expand_dims(degrees, -2)
    x = ops.relu(ops.matmul(normalized, L.Dense(16)(nodes)))
    return {"classes": ops.softmax(ops.matmul(normalized, L.Dense(4)(x)))}


class EachPair(L.Layer):
    """Sums of two columns, each of one with each of the other: (B, N, 1) twice to (B, N, N)."""

    def call(self, rows, columns):
        return rows + ops.swapaxes(columns, 1, 2)


def with_operators(rows, columns):
    """The same as operations of the model, which Keras 3.15.1 gets wrong at a batch of 1.

    `keras.ops.add` then takes what has one axis larger than 1 for a bias of the channels, here of the second axis, and
    returns (1, N, 1).
    """
    return rows + ops.swapaxes(columns, 1, 2)


def attended_graph(each_pair, nodes, adjacency):
    seen, x = Connected()(adjacency), nodes
    for units in (12, 5):
        heads = []
        for _ in range(2):
            y = L.Dense(units, use_bias=False)(x)
            scores = each_pair(L.Dense(1, use_bias=False)(y), L.Dense(1, use_bias=False)(y))
            scores = ops.where(seen, ops.leaky_relu(scores, 0.2), -1e9)
            heads.append(ops.matmul(ops.softmax(scores), y))
        x = ops.elu(L.Concatenate()(heads) if units == 12 else L.Average()(heads))
    return {"logits": x}


@architecture()
def graph_attention(nodes=NODES, adjacency=ADJACENCY):
    """Velickovic et al., 2018: Graph Attention Networks."""
    return attended_graph(EachPair(), nodes, adjacency)


@architecture()
def graph_attention_of_operators(nodes=NODES, adjacency=ADJACENCY):
    """Velickovic et al., 2018: Graph Attention Networks, with an operator that Keras gets wrong for a batch of 1."""
    return attended_graph(with_operators, nodes, adjacency)


class Updated(L.Layer):
    """One step of a GRU cell for each node."""

    def __init__(self, units, **options):
        super().__init__(**options)
        self.cell = L.GRUCell(units)

    def build(self, message_shape, state_shape):
        self.cell.build((None, message_shape[-1]))

    def call(self, message, state):
        size = state.shape[-1]
        new, _ = self.cell(ops.reshape(message, (-1, size)), [ops.reshape(state, (-1, size))])
        return ops.reshape(new, ops.shape(state))


@architecture()
def message_passing(atoms=(None, 6), bonds=(None, None, 3)):
    """Gilmer et al., 2017: Neural Message Passing for Quantum Chemistry, edges of several kinds, GRU updates."""
    size, updated = 8, Updated(8)
    x = L.Dense(size, activation="relu")(atoms)
    matrices = L.Reshape((-1, size, size))(L.Dense(size * size)(L.GlobalAveragePooling1D()(ops.sum(bonds, 2))[:, None]))
    flat_bonds = ops.sum(bonds, -1)
    for _ in range(2):
        message = ops.matmul(flat_bonds, ops.matmul(x, matrices[:, 0]))
        x = updated(message, x)
    return {"permeable": L.Dense(1, activation="sigmoid")(ops.max(x, axis=1))}
