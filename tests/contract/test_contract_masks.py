"""Promise 5 of every public layer: masks compose by intersection, and none is dropped or overwritten."""

from itertools import product

import keras
import numpy as np
import pytest
import reference
from backends import carrying, mask_of
from contract_cases import CASES, as_numpy, call, expected, outputs
from tolerances import assert_close, assert_identical

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)

B, Tq, Tk = 2, 6, 7  # longer than elsewhere, so that all masks together still leave keys

# Each mask hides something that no other one hides, so that dropping any of them shows.
LENGTHS = {
    "": None,
    "lengths": np.array([5, 4]),
    "lengths_by_query": np.array([[7, 7, 7, 2, 7, 3], [7, 1, 7, 7, 4, 7]]),
}
OTHERS = {
    "mask": {"attention_mask": np.random.default_rng(0).random((B, Tq, Tk)) < 0.8},
    "causal": {"causal": True},
    "queries": {"queries_mask": np.arange(Tq) != np.array([[2], [0]])},
    "keys": {"keys_mask": np.arange(Tk) != np.array([[1], [3]])},
    "values": {"values_mask": np.arange(Tk) != np.array([[3], [2]])},
}
SUBSETS = [
    pytest.param(lengths, chosen, id="+".join(filter(None, [lengths, *chosen])) or "none")
    for lengths in LENGTHS
    for chosen in (
        tuple(name for name, take in zip(OTHERS, taken, strict=True) if take)
        for taken in product([False, True], repeat=len(OTHERS))
    )
]


def masks_of(lengths: str, chosen: tuple[str, ...]) -> dict:
    masks = {} if LENGTHS[lengths] is None else {"valid_lens": LENGTHS[lengths]}
    for name in chosen:
        masks |= OTHERS[name]
    return masks


def ten_times(array):
    return array if array is True else np.concatenate([array] * 10)


@pytest.mark.parametrize("lengths", ["lengths", "lengths_by_query"])
def test_each_mask_of_the_table_hides_what_no_other_hides(lengths):
    masks = masks_of(lengths, tuple(OTHERS))
    everything = reference.takes_part((B,), Tq, Tk, **masks)
    assert everything.any()
    for name in masks:
        without = {other: mask for other, mask in masks.items() if other != name}
        assert np.any(reference.takes_part((B,), Tq, Tk, **without) != everything), name


@every_case
@pytest.mark.parametrize(("lengths", "chosen"), SUBSETS)
def test_every_subset_of_masks(case, lengths, chosen):
    layer, inputs, masks = case.layer(), case.inputs(Tq=Tq, Tk=Tk), masks_of(lengths, chosen)
    output, weights = outputs(layer, inputs, masks)
    expected_output, expected_weights = expected(case, layer, inputs, masks)
    assert_close(output, expected_output, "float32")
    assert_close(weights, expected_weights, "float32")
    assert np.array_equal(weights == 0, expected_weights == 0)
    assert_identical(as_numpy(call(layer, inputs, masks)), output)


@every_case
@pytest.mark.parametrize(("lengths", "chosen"), SUBSETS)
def test_every_subset_of_masks_under_dropout(case, lengths, chosen):
    """Values are the unit vectors, so that the output is the dropped weights: each is 0 or weight / (1 - rate).

    Keras once lost the causal mask here (keras#23038).
    """
    inputs, masks = case.inputs(Tq=Tq, Tk=Tk, Dv=Tk), masks_of(lengths, chosen)
    inputs["values"] = np.broadcast_to(np.eye(Tk, dtype="float32"), (B, Tk, Tk))
    layer = case.layer(inputs, dropout=0.5, seed=13)
    _, expected_weights = expected(case, layer, inputs, masks)
    # The batch ten times over, so that a mask that leaves few pairs still has some dropped and some kept.
    inputs, masks = ({name: ten_times(array) for name, array in group.items()} for group in (inputs, masks))
    expected_weights = ten_times(expected_weights)
    dropped, weights = outputs(layer, inputs, masks, training=True)
    assert_close(weights, expected_weights, "float32")  # those before dropout
    kept = dropped != 0
    assert not np.any(kept & (expected_weights == 0))
    assert_close(dropped, np.where(kept, 2 * weights, 0), tolerance=1e-5)  # 2: float32 rounding of doubled weights
    assert np.any(kept)
    assert np.any(~kept & (expected_weights > 0))
    assert_close(as_numpy(call(layer, inputs, masks, training=False)), expected_weights, "float32")


@every_case
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_causal_in_training_hides_the_future_whatever_the_sizes(case, dropout):
    for queries, keys in ((3, 5), (5, 3), (4, 4)):
        inputs = case.inputs(Tq=queries, Tk=keys, Dv=keys)
        inputs["values"] = np.broadcast_to(np.eye(keys, dtype="float32"), (B, keys, keys))
        layer = case.layer(inputs, dropout=dropout, seed=1)
        for options in ({}, {"return_attention_scores": True}):
            result = call(layer, inputs, {"causal": True}, training=True, **options)
            dropped = as_numpy(result[0] if options else result)
            assert np.all(dropped[:, ~np.tri(queries, keys, dtype=bool)] == 0)


@every_case
def test_attention_masks_of_every_shape_that_broadcasts(case):
    layer, inputs, rng = case.layer(), case.inputs(Tq=Tq, Tk=Tk), np.random.default_rng(2)
    for shape in ((Tk,), (1, Tk), (Tq, 1), (Tq, Tk), (B, 1, Tk), (B, Tq, 1), (1, Tq, Tk), (B, Tq, Tk), (1, 1, 1), ()):
        masks = {"attention_mask": rng.random(shape) < 0.7}
        assert_close(outputs(layer, inputs, masks)[1], expected(case, layer, inputs, masks)[1], "float32")


@every_case
def test_lengths_given_as_lists_and_in_every_integer_dtype(case):
    layer, inputs, masks = case.layer(), case.inputs(Tq=Tq, Tk=Tk), {"valid_lens": np.array([3, 0])}
    oracle = expected(case, layer, inputs, masks)[0]
    for dtype in ("int8", "uint8", "int16", "int32", "uint32", "int64"):
        given = {"valid_lens": masks["valid_lens"].astype(dtype)}
        assert_close(as_numpy(call(layer, inputs, given)), oracle, "float32")
    # Keras takes a list by keyword only.
    assert_close(as_numpy(layer(**inputs, valid_lens=[3, 0])), oracle, "float32")


@every_case
@pytest.mark.parametrize("length", [-(2**31), -1, Tk, Tk + 1, 2**31 - 1])
def test_lengths_outside_the_key_axis(case, length):
    layer, inputs, masks = case.layer(), case.inputs(Tq=Tq, Tk=Tk), {"valid_lens": np.array([length, 2], "int32")}
    output, weights = outputs(layer, inputs, masks)
    assert_close(weights, expected(case, layer, inputs, masks)[1], "float32")
    assert np.all(output[0] == 0) == (length < 0)


@every_case
@pytest.mark.parametrize("name", ["queries", "keys", "values"])
def test_an_explicit_mask_is_not_overwritten_by_an_implicit_one(case, name):
    layer, inputs = case.layer(), case.inputs(Tq=Tq, Tk=Tk)
    size = Tq if name == "queries" else Tk
    implicit = np.arange(size) != np.array([[0], [1]])
    explicit = np.arange(size) != np.array([[2], [0]])
    tensors = inputs | {name: carrying(inputs[name], implicit)}
    pair = layer(**tensors, **{f"{name}_mask": explicit}, return_attention_scores=True)
    assert_close(as_numpy(pair[1]), expected(case, layer, inputs, {f"{name}_mask": explicit})[1], "float32")


@every_case
def test_an_attention_mask_and_lengths_survive_implicit_masks_of_an_embedding(case):
    layer, masks = case.layer(), masks_of("lengths_by_query", ("mask",))
    tokens = np.array([[3, 0, 1, 2, 4, 1, 1], [1, 2, 3, 0, 0, 4, 0]])
    embedding = keras.layers.Embedding(5, case.Dk, mask_zero=True)
    inputs = case.inputs(Tq=Tq, Tk=Tk)
    pair = layer(
        inputs["queries"],
        embedding(tokens),
        inputs["values"],
        masks["valid_lens"],
        attention_mask=masks["attention_mask"],
        return_attention_scores=True,
    )
    embedded = inputs | {"keys": as_numpy(embedding.embeddings)[tokens]}
    assert_close(as_numpy(pair[1]), expected(case, layer, embedded, masks | {"keys_mask": tokens != 0})[1], "float32")


@every_case
def test_queries_mask_zeroes_its_rows_and_is_the_mask_of_the_output(case):
    layer, inputs, mask = case.layer(), case.inputs(Tq=Tq, Tk=Tk), OTHERS["queries"]["queries_mask"]
    for weights_too in (False, True):
        result = call(layer, inputs, {"queries_mask": mask}, return_attention_scores=weights_too)
        output = result[0] if weights_too else result
        assert np.all(as_numpy(output)[~mask] == 0)
        assert np.all(np.any(as_numpy(output)[mask] != 0, axis=-1))
        assert np.array_equal(as_numpy(mask_of(output)), mask)
    assert np.array_equal(as_numpy(layer.compute_mask(inputs["queries"], mask)), mask)
    assert layer.compute_mask(inputs["queries"], None) is None
    assert mask_of(call(layer, inputs)) is None


@every_case
def test_the_mask_of_the_output_reaches_the_next_layer_of_a_functional_model(case):
    tokens = keras.Input((None,), dtype="int32")
    keys, values = keras.Input((None, case.Dk)), keras.Input((None, 1))
    layer = case.make()
    output = layer(keras.layers.Embedding(5, case.Dq, mask_zero=True)(tokens), keys, values)
    pooled = keras.layers.GlobalAveragePooling1D()(output)  # a mean over the rows that its mask lets through
    model = keras.Model([tokens, keys, values], pooled)
    ones = np.ones((B, Tk, 1), "float32")  # a weighted mean of ones is 1 in each row with keys
    result = model([np.array([[1, 0, 2, 4], [0, 0, 3, 0]], "int32"), case.inputs(Tq=Tq, Tk=Tk)["keys"], ones])
    assert_close(as_numpy(result), np.ones((B, 1), "float32"))


@every_case
@pytest.mark.parametrize("weights_too", [False, True])
def test_nan_in_queries_that_queries_mask_hides(case, weights_too):
    layer, inputs, mask = case.layer(), case.inputs(Tq=Tq, Tk=Tk), OTHERS["queries"]["queries_mask"]
    dirty = inputs | {"queries": np.where(mask[..., None], inputs["queries"], np.float32(np.nan))}
    clean = call(layer, inputs, {"queries_mask": mask}, return_attention_scores=weights_too)
    result = call(layer, dirty, {"queries_mask": mask}, return_attention_scores=weights_too)
    for tensor, clean_tensor in zip(keras.tree.flatten(result), keras.tree.flatten(clean), strict=True):
        assert_identical(as_numpy(tensor), as_numpy(clean_tensor))
