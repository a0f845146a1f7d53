"""Models that take strings: texts to read, words to look up, and names of classes to give."""

import keras

WORDS = ["the", "cat", "sat", "grün", "dont", "ÄÖÜ", "mat", "世界"]
COLOURS = ["red", "blue", "grün"]
NAMES = ["good", "bad", "schön"]


def build_text_model():
    """A text, a colour and two numbers; scores, and the name of the largest."""
    text = keras.Input((), dtype="string", name="text")
    colour = keras.Input((1,), dtype="string", name="colour")
    numbers = keras.Input((2,), name="numbers")
    ids = keras.layers.TextVectorization(vocabulary=WORDS, output_sequence_length=6, name="ids")(text)
    read = keras.layers.GlobalAveragePooling1D()(keras.layers.Embedding(10, 4)(ids))
    known = keras.layers.StringLookup(vocabulary=COLOURS, output_mode="one_hot", name="known")(colour)
    scores = keras.layers.Dense(3, name="scores")(keras.layers.Concatenate()([read, known, numbers]))
    naming = keras.layers.StringLookup(vocabulary=NAMES, num_oov_indices=0, invert=True, name="name")
    outputs = {"scores": scores, "name": naming(keras.ops.argmax(scores, -1))}
    return keras.Model([text, colour, numbers], outputs, name="texts")


def build_lookup_model(**options):
    """Words of a vocabulary that has all there are, and what stands for each."""
    word = keras.Input((3,), dtype="string", name="word")
    lookup = keras.layers.StringLookup(vocabulary=COLOURS, **options)
    return keras.Model(word, {"found": lookup(word)})
