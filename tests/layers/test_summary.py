"""`model.summary()` of subclassed models: output shapes and parameters of each layer."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_attn import (
    AdditiveAttention,
    AttentionCell,
    AttentionRNN,
    DotProductAttention,
    MaskedSoftmax,
    MultiHeadAttention,
    RelativePositionBias,
    RotaryEmbedding,
)

LAYERS = {  # factory of a layer, a call of the layer, the shapes in a summary
    "additive": (lambda: AdditiveAttention(4, name="layer"), lambda layer, x: layer(x, x, x), "(2, 3, 4)"),
    "heads": (lambda: MultiHeadAttention(DotProductAttention(), 2, name="layer"), lambda h, x: h(x, x, x), "(2, 3, 4)"),
    "cell": (
        lambda: AttentionCell(layers.GRUCell(5), AdditiveAttention(4), name="layer"),
        lambda cell, x: cell(x[:, 0], cell.get_initial_state(batch_size=2, memory=x), x),
        "((2, 5), [(2, 5)])",
    ),
    "rnn": (
        lambda: AttentionRNN(AttentionCell(layers.GRUCell(5), AdditiveAttention(4)), name="layer"),
        lambda layer, x: layer(x, x),
        "(2, 3, 5)",
    ),
    "softmax": (lambda: MaskedSoftmax(name="layer"), lambda layer, x: layer(x), "(2, 3, 4)"),
    "bias": (lambda: RelativePositionBias(2, name="layer"), lambda layer, x: layer(x, x), "(1, 2, 3, 3)"),
    "rotary": (lambda: RotaryEmbedding(name="layer"), lambda layer, x: layer(x), "(2, 3, 4)"),
}


class SubclassedModel(keras.Model):
    """Model that calls one layer; unlike a functional model, it stores no shapes of the call."""

    def __init__(self, layer, call_layer):
        super().__init__()
        self.layer, self.call_layer = layer, call_layer

    def call(self, x):
        self.call_layer(self.layer, x)
        return x


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")


def read_summary(model):
    """Return the other cells of each row of a summary, by the name of the layer."""
    lines = []
    model.summary(line_length=160, print_fn=lambda text, **_: lines.append(text))
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in "\n".join(lines).split("\n") if "│" in line]
    return {name.split(" ")[0]: columns for name, *columns in cells if name}


@pytest.mark.parametrize(("build_layer", "call_layer", "expected"), LAYERS.values(), ids=LAYERS)
def test_summary_of_a_subclassed_model_shows_shapes(build_layer, call_layer, expected):
    model = SubclassedModel(build_layer(), call_layer)
    model(np.zeros((2, 3, 4), "float32"))
    shapes, parameters = read_summary(model)["layer"]
    assert shapes == expected
    assert int(parameters) == model.layer.count_params()
