"""Promise 10 of every public layer: errors of bad inputs name the argument, in eager and symbolic calls.

Keras appends a list of all arguments to the message of a layer, so the pattern matches the sentence of the layer: the
name between backticks, the rule, and the received value.
"""

import keras
import numpy as np
import pytest
from layer_contract import B, Dv, Tk, Tq, build_error_pattern, call_layer, every_case, parametrize_in_turn

from keras_attn import (
    AdditiveAttention,
    AttentionPooling,
    DotProductAttention,
    GaussianAttention,
    LocationSensitiveAttention,
)


def ones(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.ones(shape, dtype)


BAD = {  # overrides of arguments; None stands for Dq or Dk
    "queries_of_rank_1": ({"queries": (None,)}, "queries"),
    "keys_of_rank_2": ({"keys": (Tk, None)}, "keys"),
    "values_of_rank_2": ({"values": (Tk, Dv)}, "values"),
    "keys_of_rank_4": ({"keys": (B, 1, Tk, None)}, "keys"),
    "fewer_values_than_keys": ({"values": (B, Tk - 1, Dv)}, "keys|values"),
    "another_batch_of_keys": ({"keys": (B + 2, Tk, None)}, "keys"),
    "another_batch_of_values": ({"values": (B + 2, Tk, Dv)}, "values"),
    "keys_batch_of_one": ({"keys": (1, Tk, None)}, "keys"),
    "float_lengths": ({"valid_lens": ones(B)}, "valid_lens"),
    "boolean_lengths": ({"valid_lens": ones(B, dtype="bool")}, "valid_lens"),
    "a_length_for_each_key": ({"valid_lens": ones(B, Tk, dtype="int32")}, "valid_lens"),
    "lengths_with_an_axis_of_one": ({"valid_lens": ones(B, 1, dtype="int32")}, "valid_lens"),
    "mask_that_does_not_broadcast": ({"attention_mask": ones(B, Tq, Tk + 1, dtype="bool")}, "attention_mask"),
    "transposed_mask": ({"attention_mask": ones(B, Tk, Tq, dtype="bool")}, "attention_mask"),
    "padding_mask_without_its_query_axis": ({"attention_mask": ones(B, Tk, dtype="bool")}, "attention_mask"),
    "mask_of_rank_4": ({"attention_mask": ones(1, B, Tq, Tk, dtype="bool")}, "attention_mask"),
    "additive_float_mask": ({"attention_mask": ones(B, Tq, Tk)}, "attention_mask"),
    "integer_mask": ({"attention_mask": ones(B, Tq, Tk, dtype="int32")}, "attention_mask"),
    "keys_mask_of_the_queries": ({"keys_mask": ones(B, Tq, dtype="bool")}, "keys_mask"),
    "queries_mask_of_the_keys": ({"queries_mask": ones(B, Tk, dtype="bool")}, "queries_mask"),
    "float_segments": ({"segment_ids": (ones(B, Tq), ones(B, Tk))}, "segment_ids"),
    "segments_of_the_queries_alone": ({"segment_ids": ones(B, Tq, dtype="int32")}, "segment_ids"),
    "segments_in_another_order": (
        {"segment_ids": (ones(B, Tk, dtype="int32"), ones(B, Tq, dtype="int32"))},
        "segment_ids",
    ),
    "integer_bias": ({"score_bias": ones(B, Tq, Tk, dtype="int32")}, "score_bias"),
    "bias_that_does_not_broadcast": ({"score_bias": ones(B, Tq, Tk + 1)}, "score_bias"),
    "bias_of_rank_4": ({"score_bias": ones(B, 2, Tq, Tk)}, "score_bias"),
    "float_values_mask": ({"values_mask": ones(B, Tk)}, "values_mask"),
}


def build_arguments(case, overrides: dict) -> dict:
    sizes = {"queries": case.Dq, "keys": case.Dk}
    bad = {
        name: ones(*(size or sizes[name] for size in value)) if name in ("queries", "keys", "values") else value
        for name, value in overrides.items()
    }
    return case.inputs() | bad


CALLS = ("new", "built", "symbolic")  # eager calls of an unbuilt and a built layer, and a symbolic call


BAD_CALLS = {f"{kind}-{call}": (call, *bad) for kind, bad in BAD.items() for call in CALLS}


@parametrize_in_turn("bad", BAD_CALLS, num_slow_values=4)
def test_bad_input_is_refused(case, bad):
    call, overrides, name = bad
    layer, arguments = case.layer() if call == "built" else case.make(), build_arguments(case, overrides)
    if call == "symbolic":
        arguments = keras.tree.map_structure(
            lambda array: keras.Input(batch_shape=array.shape, dtype=array.dtype.name), arguments
        )
    with pytest.raises((TypeError, ValueError), match=build_error_pattern(name)):
        layer(**arguments)


@parametrize_in_turn("name", {"queries": "queries", "keys": "keys"}, num_slow_values=1)
def test_sizes_that_differ_from_build_are_refused(case, name):
    layer, inputs = case.layer(), case.inputs()
    if not layer.weights:
        with pytest.raises(ValueError, match=r"`queries` and `keys` must agree [^\n]*Received: "):
            call_layer(layer, inputs | {name: inputs[name][..., :-1]})
    elif not case.own_class:
        with pytest.raises(ValueError, match=build_error_pattern(name)):
            call_layer(layer, inputs | {name: inputs[name][..., :-1]})
    else:  # the message of a user's score is unknown, but the call must fail
        with pytest.raises(Exception, match=r"(?i)matri|dimension|size"):
            call_layer(layer, inputs | {name: inputs[name][..., :-1]})


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: AttentionPooling(dropout=1.0), "dropout"),
        (lambda: AttentionPooling(dropout="0.1"), "dropout"),
        (lambda: AttentionPooling(seed=0.5), "seed"),
        (lambda: AttentionPooling(normalizer="hardmax"), "normalizer"),
        (lambda: AdditiveAttention(0), "num_hiddens"),
        (lambda: AdditiveAttention(8.0), "num_hiddens"),
        (lambda: AdditiveAttention(8, normalize="yes"), "normalize"),
        (lambda: AdditiveAttention(8, query_block_size=0), "query_block_size"),
        (lambda: AdditiveAttention(8, query_block_size=2.0), "query_block_size"),
        (lambda: AdditiveAttention(8, query_block_size="Auto"), "query_block_size"),
        (lambda: DotProductAttention(scale="big"), "scale"),
        (lambda: DotProductAttention(scale=float("nan")), "scale"),
        (lambda: GaussianAttention(0), "bandwidth"),
        (lambda: GaussianAttention(float("nan")), "bandwidth"),
        (lambda: LocationSensitiveAttention(2, 0, 2), "filters"),
        (lambda: LocationSensitiveAttention(2, 2, 0), "kernel_size"),
    ],
)
def test_bad_options_are_refused(make, name):
    with pytest.raises((TypeError, ValueError), match=build_error_pattern(name)):
        make()


@every_case
def test_good_input_is_accepted(case):
    """The calls above without the bad argument: they fail because of the bad argument alone."""
    shapes = {"attention": (B, Tq, Tk), "queries": (B, Tq), "keys": (B, Tk), "values": (B, Tk)}
    masks = {f"{name}_mask": ones(*shape, dtype="bool") for name, shape in shapes.items()}
    segments = tuple(ones(*shapes[name], dtype="int32") for name in ("queries", "keys"))
    output = case.make()(**case.inputs(), valid_lens=ones(B, Tq, dtype="int32"), segment_ids=segments, **masks)
    assert tuple(output.shape) == (B, Tq, Dv)


def test_base_layer_names_the_missing_score():
    layer = AttentionPooling()
    with pytest.raises(NotImplementedError, match="`score"):
        layer(ones(B, Tq, 4), ones(B, Tk, 4), ones(B, Tk, Dv))
