"""Texts packed into one sequence with `segment_ids`: outputs equal those of separate texts, under all other masks."""

import keras
import numpy as np
import pytest
from backends import compile_function, compute_gradients, every_compiled_mode, run_only_on
from keras import ops
from layer_contract import draw_weights, to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import (
    AdditiveAttention,
    DotProductAttention,
    GaussianAttention,
    LocationSensitiveAttention,
    MultiHeadAttention,
)

D = 8
TEXT_LENGTHS = (3, 1, 4)
IDS = np.repeat([[5, 0, 2]], TEXT_LENGTHS, axis=1)[0]
LAYERS = {
    "additive": lambda: AdditiveAttention(6),
    "blocks": lambda: AdditiveAttention(6, query_block_size=2),
    "dot_product": DotProductAttention,
    "gaussian": lambda: GaussianAttention(2.0),
    "location_sensitive": lambda: LocationSensitiveAttention(6, 2, 1),
    "multi_head": lambda: MultiHeadAttention(DotProductAttention(), 2),
    "groups": lambda: MultiHeadAttention(AdditiveAttention(5), 4, num_kv_heads=2),
}
every_layer = pytest.mark.parametrize("name", LAYERS)


def build_layer(name):
    layer = LAYERS[name]()
    layer.build(*[(None, None, D)] * 3)
    draw_weights(layer)
    return layer


def draw_packed_texts(seed=0):
    return np.random.default_rng(seed).normal(size=(1, sum(TEXT_LENGTHS), D)).astype("float32")


@every_layer
def test_packed_texts_equal_separate_texts(name):
    layer, x = build_layer(name), draw_packed_texts()
    options = [{}, {"use_causal_mask": True}, {"window": (1, 2)}][[*LAYERS].index(name) % 3]
    output, weights = layer(x, x, x, segment_ids=IDS[None], return_attention_scores=True, **options)
    mask = np.zeros(to_numpy(weights).shape, bool)
    for end, length in zip(np.cumsum(TEXT_LENGTHS), TEXT_LENGTHS, strict=True):
        span = slice(end - length, end)
        text = x[:, span]
        assert_close(to_numpy(output)[:, span], to_numpy(layer(text, text, text, **options)), "float32")
        mask[..., span, span] = True
    assert np.all(to_numpy(weights)[~mask] == 0)


@every_layer
def test_query_without_keys_in_its_segment_returns_zeros(name):
    layer, x = build_layer(name), draw_packed_texts()
    ids = np.where(IDS == 0, 9, IDS)[None], np.where(IDS == 0, 7, IDS)[None]
    output, weights = layer(x, x, x, segment_ids=ids, return_attention_scores=True)
    is_fully_masked = IDS == 0
    assert np.all(to_numpy(output)[:, is_fully_masked] == 0)
    assert np.all(to_numpy(weights)[..., is_fully_masked, :] == 0)
    assert np.all(to_numpy(output)[:, ~is_fully_masked] != 0)


def test_masks_of_heads_and_segments_are_combined():
    layer, x = build_layer("multi_head"), np.concatenate([draw_packed_texts(seed) for seed in range(3)])
    ids = np.stack([IDS, np.roll(IDS, 1), 0 * IDS])
    mask = np.random.default_rng(2).random((3, 2, x.shape[1], x.shape[1])) < 0.7
    combined_mask = mask & (ids[:, None, :, None] == ids[:, None, None])
    output = layer(x, x, x, attention_mask=mask, segment_ids=ids)
    assert_identical(to_numpy(output), to_numpy(layer(x, x, x, attention_mask=combined_mask)))


@pytest.mark.parametrize("capacity", [None, 10])
@pytest.mark.parametrize("name", ["additive", "multi_head"])
def test_key_value_cache_applies_segments(name, capacity):
    layer, x = build_layer(name), draw_packed_texts()
    padding = 0 if capacity is None else capacity - x.shape[1]
    state = layer.append(layer.precompute(x[:, :5], x[:, :5], capacity=capacity), x[:, 5:], x[:, 5:])
    ids = IDS[None, 5:], np.pad(IDS[None], [(0, 0), (0, padding)])
    output = layer(x[:, 5:], state, use_causal_mask=True, segment_ids=ids)
    expected = layer(x, x, x, use_causal_mask=True, segment_ids=IDS[None])
    assert_close(to_numpy(output), to_numpy(expected)[:, 5:], "float32")


def test_lists_of_ids_equal_arrays():
    """A list of two rows is one batch of ids, not a pair of query and key ids."""
    x, rows = np.concatenate([draw_packed_texts(0), draw_packed_texts(1)]), np.stack([IDS, np.roll(IDS, 1)])
    attend = DotProductAttention()
    expected = to_numpy(attend(x, x, x, segment_ids=rows))
    for ids in (list(rows), rows.tolist()):
        assert_identical(to_numpy(attend(x, x, x, segment_ids=ids)), expected)
    pair = (IDS[None, :3], IDS[None])
    output, expected = (
        to_numpy(attend(x[:1, :3], x[:1], x[:1], segment_ids=ids)) for ids in ([i.tolist() for i in pair], pair)
    )
    assert_identical(output, expected)


def test_incomplete_pair_of_ids_is_rejected():
    with pytest.raises(ValueError, match="`segment_ids` must be one tensor, or a pair"):
        DotProductAttention().call(*[ops.convert_to_tensor(draw_packed_texts())] * 3, segment_ids=(IDS[None], None))


@run_only_on("tensorflow", reason="Keras supports uint64 on TensorFlow only")
def test_large_ids_of_two_dtypes_are_compared_exactly():
    ids = np.array([[2**24, 2**24]], "uint64"), np.array([[2**24, 2**24 + 1]], "int64")
    x = draw_packed_texts()[:, :2]
    weights = DotProductAttention()(x, x, x, segment_ids=ids, return_attention_scores=True)[1]
    assert_identical(to_numpy(weights), np.array([[[1, 0], [1, 0]]], "float32"))


@every_compiled_mode
def test_one_program_accepts_every_size(mode):
    layer = build_layer("multi_head")
    specs = [((None, None, D), "float32"), ((None, None), "int32")]
    program = compile_function(lambda x, ids: layer(x, x, x, segment_ids=ids), mode, signature=specs)
    for length in (sum(TEXT_LENGTHS), 5):
        x, ids = draw_packed_texts()[:, :length], IDS[None, :length].astype("int32")
        output = program(ops.convert_to_tensor(x), ops.convert_to_tensor(ids))
        assert_close(to_numpy(output), to_numpy(layer(x, x, x, segment_ids=ids)), "float32")


class PackedModel(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attend = LocationSensitiveAttention(6, 2, 1)

    def call(self, inputs):
        return self.attend(*[inputs["x"]] * 3, segment_ids=inputs["ids"])


def test_subclassed_model_with_ids_is_loaded(tmp_path):
    """Keras builds a loaded model with float placeholders for the ids, which the layer accepts as integers."""
    model, inputs = PackedModel(), {"x": draw_packed_texts(), "ids": IDS[None].astype("int32")}
    expected = to_numpy(model(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", custom_objects={"PackedModel": PackedModel})
    assert_identical(to_numpy(loaded(inputs)), expected)


@every_layer
def test_gradients_of_other_texts_are_zero(name):
    layer, x = build_layer(name), draw_packed_texts()

    def loss(queries, keys, values):
        output = layer(queries, keys, values, segment_ids=(IDS[None, :3], IDS[None]))
        return ops.sum(output * output)

    program = compute_gradients(loss, 3, layer.trainable_variables)
    _, keys_gradient, values_gradient, *_ = map(to_numpy, program(*map(ops.convert_to_tensor, (x[:, :3], x, x))))
    assert not np.any(keys_gradient[:, 3:])
    assert not np.any(values_gradient[:, 3:])
    assert np.any(values_gradient[:, :3])
