"""Models of Keras's own attention layers, and inputs of them."""

import keras
import numpy as np
from keras import ops

SIZE, HEADS = 6, 4


@keras.saving.register_keras_serializable("tests")
class Marked(keras.layers.Layer):
    """Gives its first input the second as its mask."""

    def call(self, inputs):
        return inputs[0] + 0.0

    def compute_mask(self, inputs, mask=None):
        return inputs[1]


class Inputs:
    """Sequences with and without masks, and masks of pairs."""

    def __init__(self):
        self.queries, self.keys = (keras.Input((None, SIZE), name=name) for name in ("queries", "keys"))
        self.queries_mask, self.keys_mask, self.pairs = (
            keras.Input(shape, dtype="bool", name=name)
            for name, shape in (("queries_mask", (None,)), ("keys_mask", (None,)), ("pairs", (None, None)))
        )
        self.heads = keras.Input((HEADS, None, None), dtype="bool", name="heads")
        self.all = [self.queries, self.keys, self.queries_mask, self.keys_mask, self.pairs, self.heads]

    @property
    def marked_queries(self):  # anew for each call: `MultiHeadAttention` takes the mask off
        return Marked()([self.queries, self.queries_mask])

    @property
    def marked_keys(self):
        return Marked()([self.keys, self.keys_mask])


def with_every_mask(layer, *, scores=False):
    """A model that calls a layer with heads under every kind of mask, with an output, or two, for each."""
    inputs = Inputs()
    plain = (inputs.queries, inputs.keys)
    kinds = {
        "none": (*plain, {}),
        "of_keys": (inputs.queries, inputs.marked_keys, {}),
        "of_queries": (inputs.marked_queries, inputs.keys, {}),
        "of_both": (inputs.marked_queries, inputs.marked_keys, {}),
        "causal": (*plain, {"use_causal_mask": True}),
        "causal_of_keys": (inputs.queries, inputs.marked_keys, {"use_causal_mask": True}),
        "causal_of_both": (inputs.marked_queries, inputs.marked_keys, {"use_causal_mask": True}),
        "of_pairs": (*plain, {"attention_mask": inputs.pairs}),
        "of_pairs_and_more": (
            inputs.marked_queries,
            inputs.marked_keys,
            {"attention_mask": inputs.pairs, "use_causal_mask": True},
        ),
        "of_rows": (*plain, {"attention_mask": inputs.pairs[:, :1]}),
        "of_rows_and_both": (inputs.marked_queries, inputs.marked_keys, {"attention_mask": inputs.pairs[:, :1]}),
        "of_rows_and_order": (*plain, {"attention_mask": inputs.pairs[:, :1], "use_causal_mask": True}),
        "shared": (*plain, {"attention_mask": inputs.pairs[0]}),
        "of_heads": (*plain, {"attention_mask": inputs.heads}),
        "of_heads_and_order": (*plain, {"attention_mask": inputs.heads, "use_causal_mask": True}),
        "of_numbers": (*plain, {"attention_mask": ops.where(inputs.pairs, 1.0, 0.3)}),
    }
    outputs = {}
    for kind, (queries, keys, options) in kinds.items():
        found = layer(queries, keys, return_attention_scores=scores, **options)
        outputs |= {kind: found[0], f"{kind}_scores": found[1]} if scores else {kind: found}
    return keras.Model(inputs.all, outputs)


def with_masks_of_keys(layer, *, scores=False):
    """A model that calls a layer without heads under every kind of mask that it takes."""
    inputs = Inputs()
    outputs = {}
    for causal in (False, True):
        for kind, sequences in {
            "none": [inputs.queries, inputs.keys],
            "of_keys": [inputs.queries, inputs.marked_keys],
            "of_queries": [inputs.marked_queries, inputs.keys],
            "of_both": [inputs.marked_queries, inputs.marked_keys, inputs.keys],
        }.items():
            found = layer(sequences, use_causal_mask=causal, return_attention_scores=scores)
            kind = f"causal_{kind}" if causal else kind
            outputs |= {kind: found[0], f"{kind}_scores": found[1]} if scores else {kind: found}
    return keras.Model(inputs.all, outputs)


def some_inputs(model, num_queries, num_keys, *, magnitude=1.0, seed=0):
    """Inputs of four examples: one without keys, one whose first keys are masked, one without masks at all."""
    rng = np.random.default_rng(seed)
    arrays = {
        name: rng.standard_normal((4, length, SIZE)) for name, length in (("queries", num_queries), ("keys", num_keys))
    }
    arrays = {name: (magnitude * array).astype("float32") for name, array in arrays.items()}
    for name, shape in {
        "queries_mask": (num_queries,),
        "keys_mask": (num_keys,),
        "pairs": (num_queries, num_keys),
        "heads": (HEADS, num_queries, num_keys),
    }.items():
        mask = rng.random((4, *shape)) < 0.6
        mask[1], mask[3] = False, True
        mask[2, ..., :2] = False
        arrays[name] = mask
    return {each.name: arrays[each.name] for each in model.inputs}
