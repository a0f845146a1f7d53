"""Several texts packed into one sequence: each gets what it would get alone, whatever else is masked."""

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
TEXTS = (3, 1, 4)  # lengths of the texts that are packed
IDS = np.repeat([[5, 0, 2]], TEXTS, axis=1)[0]
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


def built(name):
    layer = LAYERS[name]()
    layer.build(*[(None, None, D)] * 3)
    draw_weights(layer)
    return layer


def packed(seed=0):
    return np.random.default_rng(seed).normal(size=(1, sum(TEXTS), D)).astype("float32")


@every_layer
def test_packed_texts_get_the_outputs_they_get_alone(name):
    layer, x = built(name), packed()
    options = [{}, {"use_causal_mask": True}, {"window": (1, 2)}][[*LAYERS].index(name) % 3]
    output, weights = layer(x, x, x, segment_ids=IDS[None], return_attention_scores=True, **options)
    seen = np.zeros(to_numpy(weights).shape, bool)
    for end, length in zip(np.cumsum(TEXTS), TEXTS, strict=True):
        place = slice(end - length, end)
        text = x[:, place]
        assert_close(to_numpy(output)[:, place], to_numpy(layer(text, text, text, **options)), "float32")
        seen[..., place, place] = True
    assert np.all(to_numpy(weights)[~seen] == 0)


@every_layer
def test_query_without_keys_in_its_segment_gives_zeros(name):
    layer, x = built(name), packed()
    ids = np.where(IDS == 0, 9, IDS)[None], np.where(IDS == 0, 7, IDS)[None]
    output, weights = layer(x, x, x, segment_ids=ids, return_attention_scores=True)
    alone = IDS == 0
    assert np.all(to_numpy(output)[:, alone] == 0)
    assert np.all(to_numpy(weights)[..., alone, :] == 0)
    assert np.all(to_numpy(output)[:, ~alone] != 0)


def test_mask_of_each_head_intersects_segments():
    layer, x = built("multi_head"), np.concatenate([packed(seed) for seed in range(3)])
    ids = np.stack([IDS, np.roll(IDS, 1), 0 * IDS])
    mask = np.random.default_rng(2).random((3, 2, x.shape[1], x.shape[1])) < 0.7
    by_pairs = mask & (ids[:, None, :, None] == ids[:, None, None])
    found, expected = (
        to_numpy(layer(x, x, x, attention_mask=each, segment_ids=segments))
        for each, segments in ((mask, ids), (by_pairs, None))
    )
    assert_identical(found, expected)


@pytest.mark.parametrize("capacity", [None, 10])
@pytest.mark.parametrize("name", ["additive", "multi_head"])
def test_state_keeps_to_the_segments_of_its_queries(name, capacity):
    layer, x = built(name), packed()
    room = 0 if capacity is None else capacity - x.shape[1]
    state = layer.append(layer.precompute(x[:, :5], x[:, :5], capacity=capacity), x[:, 5:], x[:, 5:])
    ids = IDS[None, 5:], np.pad(IDS[None], [(0, 0), (0, room)])
    found = layer(x[:, 5:], state, use_causal_mask=True, segment_ids=ids)
    whole = layer(x, x, x, use_causal_mask=True, segment_ids=IDS[None])
    assert_close(to_numpy(found), to_numpy(whole)[:, 5:], "float32")


def test_lists_of_ids_equal_arrays():
    """Two rows are no pair, even as a list of two."""
    x, rows = np.concatenate([packed(0), packed(1)]), np.stack([IDS, np.roll(IDS, 1)])
    attend = DotProductAttention()
    expected = to_numpy(attend(x, x, x, segment_ids=rows))
    for given in (list(rows), rows.tolist()):
        assert_identical(to_numpy(attend(x, x, x, segment_ids=given)), expected)
    pair = (IDS[None, :3], IDS[None])
    of_lists, of_arrays = (
        to_numpy(attend(x[:1, :3], x[:1], x[:1], segment_ids=each)) for each in ([i.tolist() for i in pair], pair)
    )
    assert_identical(of_lists, of_arrays)


def test_half_a_pair_of_ids_is_refused():
    with pytest.raises(ValueError, match="`segment_ids` must be one tensor, or a pair"):
        DotProductAttention().call(*[ops.convert_to_tensor(packed())] * 3, segment_ids=(IDS[None], None))


@run_only_on("tensorflow", reason="Keras has no unsigned integers of 64 bits on the others")
def test_large_ids_of_two_dtypes_are_compared_exactly():
    ids = np.array([[2**24, 2**24]], "uint64"), np.array([[2**24, 2**24 + 1]], "int64")
    x = packed()[:, :2]
    weights = DotProductAttention()(x, x, x, segment_ids=ids, return_attention_scores=True)[1]
    assert_identical(to_numpy(weights), np.array([[[1, 0], [1, 0]]], "float32"))


@every_compiled_mode
def test_one_program_takes_every_size(mode):
    layer = built("multi_head")
    specs = [((None, None, D), "float32"), ((None, None), "int32")]
    program = compile_function(lambda x, ids: layer(x, x, x, segment_ids=ids), mode, signature=specs)
    for length in (sum(TEXTS), 5):
        x, ids = packed()[:, :length], IDS[None, :length].astype("int32")
        found = program(ops.convert_to_tensor(x), ops.convert_to_tensor(ids))
        assert_close(to_numpy(found), to_numpy(layer(x, x, x, segment_ids=ids)), "float32")


class Packing(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attend = LocationSensitiveAttention(6, 2, 1)

    def call(self, inputs):
        return self.attend(*[inputs["x"]] * 3, segment_ids=inputs["ids"])


def test_subclassed_model_with_ids_is_loaded(tmp_path):
    """Keras builds it on float placeholders, which the layer takes for integers."""
    model, inputs = Packing(), {"x": packed(), "ids": IDS[None].astype("int32")}
    expected = to_numpy(model(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", custom_objects={"Packing": Packing})
    assert_identical(to_numpy(loaded(inputs)), expected)


@every_layer
def test_no_gradient_goes_to_another_text(name):
    layer, x = built(name), packed()

    def loss(queries, keys, values):
        output = layer(queries, keys, values, segment_ids=(IDS[None, :3], IDS[None]))
        return ops.sum(output * output)

    take = compute_gradients(loss, 3, layer.trainable_variables)
    _, by_keys, by_values, *_ = map(to_numpy, take(*map(ops.convert_to_tensor, (x[:, :3], x, x))))
    assert not np.any(by_keys[:, 3:])
    assert not np.any(by_values[:, 3:])
    assert np.any(by_values[:, :3])
