"""Models with string inputs and outputs: texts, vocabulary words and class names."""

import keras

WORDS = ["the", "cat", "sat", "grün", "dont", "ÄÖÜ", "mat", "世界"]
COLOURS = ["red", "blue", "grün"]
NAMES = ["good", "bad", "schön"]


def build_text_model():
    """Build a model of a text, a colour and two numbers; outputs are scores and the name of the best class."""
    text = keras.Input((), dtype="string", name="text")
    colour = keras.Input((1,), dtype="string", name="colour")
    numbers = keras.Input((2,), name="numbers")
    ids = keras.layers.TextVectorization(vocabulary=WORDS, output_sequence_length=6, name="ids")(text)
    encoded_text = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(10, 4)(ids))
    encoded_colour = keras.layers.StringLookup(vocabulary=COLOURS, output_mode="one_hot", name="known")(colour)
    scores = keras.layers.Dense(3, name="scores")(keras.layers.Concatenate()([encoded_text, encoded_colour, numbers]))
    name_lookup = keras.layers.StringLookup(vocabulary=NAMES, num_oov_indices=0, invert=True, name="name")
    outputs = {"scores": scores, "name": name_lookup(keras.ops.argmax(scores, -1))}
    return keras.Model([text, colour, numbers], outputs, name="texts")


def build_lookup_model(**options):
    """Build a model that looks up words in the vocabulary `COLOURS`."""
    word = keras.Input((3,), dtype="string", name="word")
    lookup = keras.layers.StringLookup(vocabulary=COLOURS, **options)
    return keras.Model(word, {"found": lookup(word)})
