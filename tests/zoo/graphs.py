"""Graph networks on dense adjacency matrices."""

from keras import layers as L  # noqa: N812 - used in every line of the models
from keras import ops

from .registry import LOW_PRECISIONS, architecture

# Shapes without the batch axis: the features of N nodes, and the strength of the edge between each two nodes.
NODES, ADJACENCY = (None, 6), (None, None)


class EdgeMask(L.Layer):
    """Boolean mask (B, N, N) of the pairs of connected nodes, including each node with itself."""

    def call(self, adjacency):
        indices = ops.arange(ops.shape(adjacency)[-1])
        return ops.logical_or(adjacency > 0.3, ops.expand_dims(indices, -1) == indices)


@architecture(precisions=LOW_PRECISIONS)
def graph_convolution(nodes=NODES, adjacency=ADJACENCY):
    """Kipf and Welling, 2017: Semi-Supervised Classification with Graph Convolutional Networks."""
    edges = ops.cast(EdgeMask()(adjacency), "float32")
    edges = ops.maximum(edges, ops.swapaxes(edges, 1, 2))
    degrees = ops.rsqrt(ops.sum(edges, -1))
    normalized = edges * ops.expand_dims(degrees, -1) * ops.expand_dims(degrees, -2)
    x = ops.relu(ops.matmul(normalized, L.Dense(16)(nodes)))
    return {"classes": ops.softmax(ops.matmul(normalized, L.Dense(4)(x)))}


class PairwiseSum(L.Layer):
    """Sums rows_i + columns_j of all pairs: two tensors (B, N, 1) to (B, N, N)."""

    def call(self, rows, columns):
        return rows + ops.swapaxes(columns, 1, 2)


def add_pairs(rows, columns):
    """Return the pairwise sums of `PairwiseSum` by operations of the functional model."""
    # Wrong in Keras 3.15.1 at a batch of 1: `keras.ops.add` adds a tensor with one axis larger than 1 as a bias of the
    # channels, here along the second axis, and returns shape (1, N, 1).
    return rows + ops.swapaxes(columns, 1, 2)


def attend_to_neighbours(sum_pairs, nodes, adjacency):
    mask, x = EdgeMask()(adjacency), nodes
    for units in (12, 5):
        heads = []
        for _ in range(2):
            y = L.Dense(units, use_bias=False)(x)
            scores = sum_pairs(L.Dense(1, use_bias=False)(y), L.Dense(1, use_bias=False)(y))
            scores = ops.where(mask, ops.leaky_relu(scores, 0.2), -1e9)
            heads.append(ops.matmul(ops.softmax(scores), y))
        x = ops.elu(L.Concatenate()(heads) if units == 12 else L.Average()(heads))
    return {"logits": x}


@architecture()
def graph_attention(nodes=NODES, adjacency=ADJACENCY):
    """Velickovic et al., 2018: Graph Attention Networks."""
    return attend_to_neighbours(PairwiseSum(), nodes, adjacency)


@architecture()
def graph_attention_of_operators(nodes=NODES, adjacency=ADJACENCY):
    """Velickovic et al., 2018: Graph Attention Networks, with an operator that Keras gets wrong for a batch of 1."""
    return attend_to_neighbours(add_pairs, nodes, adjacency)


class NodeUpdate(L.Layer):
    """One step of a GRU cell for each node: messages and states of shape (B, N, D) to states (B, N, D)."""

    def __init__(self, units, **options):
        super().__init__(**options)
        self.cell = L.GRUCell(units)

    def build(self, message_shape, state_shape):
        self.cell.build((None, message_shape[-1]))

    def call(self, message, state):
        size = state.shape[-1]
        next_state, _ = self.cell(ops.reshape(message, (-1, size)), [ops.reshape(state, (-1, size))])
        return ops.reshape(next_state, ops.shape(state))


@architecture()
def message_passing(atoms=(None, 6), bonds=(None, None, 3)):
    """Gilmer et al., 2017: Neural Message Passing for Quantum Chemistry, edges of several kinds, GRU updates."""
    size, update = 8, NodeUpdate(8)
    x = L.Dense(size, activation="relu")(atoms)
    matrices = L.Reshape((-1, size, size))(L.Dense(size * size)(L.GlobalAveragePooling1D()(ops.sum(bonds, 2))[:, None]))
    flat_bonds = ops.sum(bonds, -1)
    for _ in range(2):
        message = ops.matmul(flat_bonds, ops.matmul(x, matrices[:, 0]))
        x = update(message, x)
    return {"permeable": L.Dense(1, activation="sigmoid")(ops.max(x, axis=1))}
