"""Sharding rules of docs/howto/distributed-training.md: every large weight of the layers has exactly one rule."""

import keras
from distributed_models import Dk, Dq, Dv, U, find_rule, read_rules

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


def build_weights(name):
    """Return the weights of a layer by path, as in a model."""
    key_size = Dq if name in ("cosine", "gaussian") else Dk
    inputs = [keras.Input((None, size)) for size in (Dq, key_size, Dv)]
    model = keras.Model(inputs, LAYERS[name]()(*inputs))
    return {weight.path: weight for weight in model.weights}


def test_every_large_weight_matches_one_rule_and_every_rule_a_weight():
    used_patterns = set()
    for path, weight in ((path, weight) for name in LAYERS for path, weight in build_weights(name).items()):
        axes = find_rule(path, read_rules())
        assert axes is not None or len(weight.shape) < 2, f"{path} {weight.shape} is whole on each device"
        assert axes is None or (len(axes) == len(weight.shape) and axes.count("model") == 1), f"{path}: {axes}"
        used_patterns |= {pattern for pattern in read_rules() if find_rule(path, {pattern: True})}
    assert used_patterns == set(read_rules())
