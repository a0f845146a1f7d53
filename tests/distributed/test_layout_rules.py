"""The rules by which docs/howto/distributed-training.md divides weights: none that is large is left out."""

import keras
from distributed_models import Dk, Dq, Dv, U, rule_of, rules

from keras_attn import AdditiveAttention, BilinearAttention, CosineAttention, GaussianAttention, MultiHeadAttention

LAYERS = {
    "additive": lambda: AdditiveAttention(U, name="additive"),
    "normalized": lambda: AdditiveAttention(U, normalize=True, name="normalized"),
    "bilinear": lambda: BilinearAttention(name="bilinear"),
    "cosine": lambda: CosineAttention(name="cosine"),
    "gaussian": lambda: GaussianAttention(name="gaussian"),
    "heads": lambda: MultiHeadAttention(AdditiveAttention(U, name="score"), 2, name="heads"),
    "grouped": lambda: MultiHeadAttention(BilinearAttention(name="score"), 4, 2, num_kv_heads=2, name="grouped"),
}


def weights_of(name):
    """The weights of a layer, by paths as they are in a model."""
    size = Dq if name in ("cosine", "gaussian") else Dk
    queries, keys, values = (keras.Input((None, each)) for each in (Dq, size, Dv))
    return {
        each.path: each for each in keras.Model([queries, keys, values], LAYERS[name]()(queries, keys, values)).weights
    }


def test_every_large_weight_matches_one_rule_and_every_rule_a_weight():
    used = set()
    for path, weight in ((path, weight) for name in LAYERS for path, weight in weights_of(name).items()):
        axes = rule_of(path, rules())
        assert axes is not None or len(weight.shape) < 2, f"{path} {weight.shape} is whole on each device"
        assert axes is None or (len(axes) == len(weight.shape) and axes.count("model") == 1), f"{path}: {axes}"
        used |= {pattern for pattern in rules() if rule_of(path, {pattern: True})}
    assert used == set(rules())
