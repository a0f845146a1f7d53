"""Rows of layer_options.txt: layers of Keras, KerasHub and keras-attn with the options that change a graph."""

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template

OPTIONS = {  # options that several layers share; the table refers to them as $NAME
    "ACTIVATIONS": '{"relu", "softmax", "gelu"}',
    "CONVOLUTION": """strides=2 | padding="same" | padding="same", strides=2 | data_format="channels_first" |
 use_bias=False | dilation_rate=2 | dilation_rate=2, padding="same" | activation=$ACTIVATIONS""",
    "POOLING": """pool_size=3 | strides={1, 3} | padding="same" | data_format="channels_first" |
 padding="same", strides=1""",
    "WHOLE": 'keepdims=True | data_format="channels_first" | keepdims=True, data_format="channels_first"',
    "CELL": 'activation="relu" | use_bias=False | dropout=0.2 | recurrent_dropout=0.2',
    "RECURRENT": """return_sequences=True | return_state=True | return_sequences=True, return_state=True |
 go_backwards=True | go_backwards=True, return_sequences=True | !stateful=True""",
    "CONVOLUTIONAL": """strides=2 | padding="same" | data_format="channels_first" | dilation_rate=2 | $CELL |
 recurrent_activation="hard_sigmoid" | $RECURRENT""",
    "HEADS": "dropout=0.2 | use_bias=False | sliding_window=2 | use_gate=True",
    "BLOCK": 'dropout=0.2 | activation="gelu" | layer_norm_epsilon=0.1 | normalize_first=True',
    "LOOKUP": """num_oov_indices=2 | output_mode={"one_hot", "multi_hot", "count"} |
 max_tokens=9, pad_to_max_tokens=True, output_mode="multi_hot" | !output_mode="multi_hot", sparse=True |
 output_mode="tf_idf", idf_weights=[0.5, 0.2, 0.1, 0.7]""",
    "NORM": "epsilon=0.1 | center=False | scale=False | center=False, scale=False",
}

REFUSAL_REASONS = {  # by the refused option
    "stateful": "the file would freeze the state that the layer has now",
    "sparse": "only dense tensors can be exported",
    "ragged": "only dense tensors can be exported",
}

# A heading ## names a kind of input (layer_inputs.py), in which # stands for the digit of the layer's name. A line is a
# layer's constructor with the arguments that all its rows have, a colon, and the options of the rows, separated by |. A
# row has several options if one requires another. Values in braces expand to one row per value. Rows that the
# export refuses begin with !.
TABLE = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Row:
    """A call of a layer's constructor.

    Attributes:
        kind: The kind of input, a key of layer_inputs.INPUT_KINDS.
        layer: The name of the layer, with its package if that is not Keras.
        base: The arguments of all rows of the layer, as Python code.
        option: The arguments of this row, as Python code.
        refusal_reason: The reason if the export refuses the layer with these arguments, empty if not.
    """

    kind: str
    layer: str
    base: str
    option: str
    refusal_reason: str = ""

    @property
    def package(self) -> str:
        return self.layer.rpartition(".")[0]

    @property
    def title(self) -> str:
        return f"{self.layer}({', '.join(filter(None, [self.base, self.option]))})"


def expand_choices(option: str) -> Iterator[str]:
    """Yield the option for every combination of its values in braces."""
    (call,) = ast.parse(f"f({option})").body
    values = [keyword.value for keyword in call.value.keywords]
    choices = [value.elts if isinstance(value, ast.Set) else [value] for value in values]
    for combination in itertools.product(*choices):
        pairs = zip(call.value.keywords, combination, strict=True)
        yield ", ".join(f"{keyword.arg}={ast.unparse(value)}" for keyword, value in pairs)


def parse_rows(table: str) -> Iterator[Row]:
    """Yield the rows of a table."""
    while "$" in table:
        table = Template(table).substitute(OPTIONS)
    for line in table.strip().replace("\n ", " ").splitlines():
        if line.startswith("## "):
            kind = line[3:]
            continue
        names, base, text = re.fullmatch(r"((?:{[^}]*}|[\w.])+)\((.*?)\):(.*)", line).groups()
        for layer in map("".join, itertools.product(*(part.split(",") for part in re.split("[{}]", names)))):
            row = Row(re.sub("#", "".join(re.findall("[123](?=D)", layer)), kind), layer, base, "")
            yield row
            for options in filter(None, map(str.strip, text.split(" |"))):
                for option in expand_choices(options.removeprefix("!")):
                    reasons = [reason for name, reason in REFUSAL_REASONS.items() if f"{name}=True" in options]
                    yield replace(row, option=option, refusal_reason=reasons[0] if options.startswith("!") else "")


ROWS = [*parse_rows(TABLE)]

RANDOM_LAYERS = r"Random(?!Crop)\w+|AugMix|CutMix|MixUp|RandAugment|Solarization"  # identities at inference
UNVARIED_OPTIONS = {  # patterns of options that no row varies, as Layer.option, with the reason
    r".*\.(\w*(initializer|regularizer|constraint)|unit_forget_bias|weights|seed)": "used before or in a training",
    r".*\.(trainable|momentum|renorm_clipping|renorm_momentum|synchronized|l1|l2)": "used in a training",
    r".*\.(name|dtype|kwargs|quantization_config|gptq_unpacked_column_size)": "names, and policies of a whole model",
    r".*\.flash_attention": "not supported by Keras on TensorFlow, which runs the exported graph",
    r"Discretization\.(num_bins|epsilon)": "used by `adapt`",
    r"Resizing\.fill_mode": 'has only the value "constant"',
    r"IntegerLookup\.vocabulary_dtype": 'has only the value "int64"',
    r"keras_hub\.ImageConverter\.bounding_box_format": "of labels",
    rf"({RANDOM_LAYERS})\.\w+": "used in a training only",
}
LAYERS_WITHOUT_ROW = {  # layers without a row, with the reason
    "Layer Wrapper keras_attn.AttentionPooling keras_hub.AudioConverter": "base classes",
    "InputLayer": "an input of the model",
    "FlaxLayer JaxLayer TFSMLayer TorchModuleWrapper": "code of other frameworks, or a SavedModel",
    "MaxNumBoundingBoxes": "changes labels",
    "Equalization": "Keras 3.15 cannot build a functional model with it: its output is its input",
    "keras_hub.NonMaxSuppression keras_hub.Qwen3_5*Converter": "not in functional models, since sizes must be known",
    "keras_hub.MaskedLMMaskGenerator keras_hub.RandomDeletion keras_hub.RandomSwap": "random changes of training data",
    "keras_hub.MultiSegmentPacker keras_hub.StartEndPacker": "pad ragged tensors, before a model",
    "keras_hub.Gemma3nAudioConverter keras_hub.Gemma4VideoConverter": "computed by NumPy, before a model",
    "keras_hub.SAM*": "exported in [models](models.md#kerashub)",
}
