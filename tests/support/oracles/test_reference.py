"""The oracle against results computed by hand, with the arithmetic in comments.

Two identities keep the numbers exact: exp(ln a) = a, so that softmax([ln a, ln b]) = [a/(a+b), b/(a+b)], and
tanh(ln a) = (a^2 - 1)/(a^2 + 1), so that tanh(ln 2) = 3/5 and tanh(ln 3) = 4/5.
"""

from pathlib import Path

import numpy as np
import pytest
import reference
from backend_neutral_tests import find_direct_imports
from tolerances import assert_close

LN2, LN3, LN5 = np.log(2.0), np.log(3.0), np.log(5.0)


def test_oracle_imports_only_numpy_and_the_standard_library():
    assert find_direct_imports(Path(reference.__file__)) == {"numpy", "collections", "typing"}


def test_additive_score_equals_the_hand_computed_one():
    # U = 2, Dq = 1, Dk = 2. hidden = (1*ln2 + 0, 0 + 1*ln3) for q = (ln2,), k = (ln3, 9):
    # W_q q = (ln2, 0); W_k k = (0*ln3 + 0*9, 1*ln3 + 0*9) = (0, ln3); tanh = (3/5, 4/5)
    # w_v^T tanh = 10*3/5 + 100*4/5 = 6 + 80 = 86
    W_k = np.array([[0.0, 1.0], [0.0, 0.0]])
    score = reference.additive_score(np.array([[1.0, 0.0]]), W_k, np.array([[10], [100]]))
    assert score(np.array([LN2]), np.array([LN3, 9.0])) == pytest.approx(86.0, rel=1e-14)
    # q = (0,), k = (0, 9): tanh(0) = 0
    assert score(np.array([0.0]), np.array([0.0, 9.0])) == 0.0
    # tanh is odd
    assert score(np.array([-LN2]), np.array([-LN3, 9.0])) == pytest.approx(-86.0, rel=1e-14)
    # q and k are added before tanh, in one unit: tanh(ln2 + ln(3/2)) = tanh(ln3) = 4/5
    one_unit = reference.additive_score(np.array([[1.0]]), np.array([[1.0]]), np.array([[1.0]]))
    assert one_unit(np.array([LN2]), np.array([np.log(1.5)])) == pytest.approx(0.8, rel=1e-14)


def test_scaled_dot_score_equals_the_hand_computed_one():
    query, key = np.array([1.0, 2.0, 3.0, 4.0]), np.array([5.0, 6.0, 7.0, 8.0])
    # 5 + 12 + 21 + 32 = 70; / sqrt(4) = 35
    assert reference.scaled_dot_score()(query, key) == 35.0
    assert reference.scaled_dot_score(0.1)(query, key) == pytest.approx(7.0, rel=1e-14)


def test_masked_softmax_equals_the_hand_computed_one():
    scores = np.array([[[0.0, LN3, LN5], [LN2, LN2, 50.0]], [[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]]])  # (2, 2, 3)
    # no mask: row one is (1, 3, 5)/9
    assert_close(reference.masked_softmax(scores)[0, 0], [1 / 9, 3 / 9, 5 / 9])
    # the same after adding 1e4, whose power is infinite; 1e4 + ln 3 is rounded
    assert_close(reference.masked_softmax(scores + 1e4)[0, 0], [1 / 9, 3 / 9, 5 / 9], tolerance=1e-11)
    # lengths of shape (B,): 2 keys, then none
    expected = [[[1 / 4, 3 / 4, 0], [1 / 2, 1 / 2, 0]], [[0, 0, 0], [0, 0, 0]]]
    assert_close(reference.masked_softmax(scores, [2, 0]), expected)
    # lengths of shape (B, Tq); 9 masks none and -1 masks all
    expected = [[[1, 0, 0], [1 / 2, 1 / 2, 0]], [[1 / 3, 1 / 3, 1 / 3], [0, 0, 0]]]
    assert_close(reference.masked_softmax(scores, [[1, 2], [9, -1]]), expected)
    # a mask and lengths intersect: the mask keeps keys 0 and 2, length 2 keeps keys 0 and 1, so key 0 remains
    mask = np.array([True, False, True])
    assert_close(reference.masked_softmax(scores, [2, 3], mask)[0], [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    # in the second entry of the batch keys 0 and 2 remain: equal scores give 1/2
    assert_close(reference.masked_softmax(scores, [2, 3], mask)[1, 0], [1 / 2, 0, 1 / 2])


def test_attention_equals_the_hand_computed_one():
    # One feature, scale 1, one query q = 1: the scores are the keys ln1, ln2, ln3, so weights are as 1 : 2 : 3.
    queries, keys = np.array([[[1.0]]]), np.array([[[0.0], [LN2], [LN3]]])
    values = np.array([[[6.0, 0.0], [0.0, 6.0], [60.0, 12.0]]])
    score = reference.scaled_dot_score(1.0)
    output, weights = reference.attention(queries, keys, values, score)
    assert_close(weights, [[[1 / 6, 2 / 6, 3 / 6]]])
    # 1/6*6 + 0 + 3/6*60 = 31; 0 + 2/6*6 + 3/6*12 = 8
    assert_close(output, [[[31.0, 8.0]]])
    # causal: query 0 attends to key 0 only
    output, weights = reference.attention(queries, keys, values, score, causal=True)
    assert_close(weights, [[[1.0, 0.0, 0.0]]])
    assert_close(output, [[[6.0, 0.0]]])
    # values_mask removes key 1, keys_mask removes key 0: key 2 remains
    masks = {"keys_mask": np.array([[False, True, True]]), "values_mask": np.array([[True, False, True]])}
    output, weights = reference.attention(queries, keys, values, score, **masks)
    assert_close(weights, [[[0.0, 0.0, 1.0]]])
    assert_close(output, [[[60.0, 12.0]]])
    # with a length of 2 in addition no key remains, nor for a query that queries_mask removes
    for masks in ({"valid_lens": [2], "keys_mask": [[False, False, True]]}, {"queries_mask": [[False]]}):
        arrays = {name: np.array(mask) for name, mask in masks.items()}
        output, weights = reference.attention(queries, keys, values, score, **arrays)
        assert_close(weights, [[[0.0, 0.0, 0.0]]])
        assert_close(output, [[[0.0, 0.0]]])


def test_lengths_of_a_wrong_shape_are_refused():
    with pytest.raises(ValueError, match="valid_lens"):
        reference.compute_mask((2,), 4, 3, valid_lens=[1, 2, 3])


def test_masked_keys_are_not_scored_and_masked_values_not_read():
    scored = []

    def record_key(query, key):
        scored.append(float(key[0]))
        return 0.0

    keys = np.array([[[1.0], [np.nan], [3.0]]])
    values = np.array([[[2.0], [np.inf], [4.0]]])
    mask = np.array([True, False, True])
    output, weights = reference.attention(np.ones((1, 1, 1)), keys, values, record_key, attention_mask=mask)
    assert scored == [1.0, 3.0]
    assert_close(weights, [[[0.5, 0.0, 0.5]]])
    assert_close(output, [[[3.0]]])  # (2 + 4)/2
