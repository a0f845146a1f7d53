"""Rows of layer_options.txt: layers of Keras, KerasHub and keras-attn with the options that change a graph."""

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template

OPTIONS = {  # common to several layers of the table, which names them with a dollar sign
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

REASONS = {  # of refusals, by their options
    "stateful": "the file would freeze the state that the layer has now",
    "sparse": "only dense tensors can be exported",
    "ragged": "only dense tensors can be exported",
}

# Rows under their kinds of input (layer_inputs.py); # is the digit in the name of the layer. A line is a call with the
# arguments of all rows of the layer, and after the colon the options of the single rows, separated by |. A row has
# several options if one needs the others; values in braces make a row for each of them. Refused rows are behind !.
TABLE = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Row:
    """A call of a constructor.

    Attributes:
        kind: The kind of input, a name of layer_inputs.KINDS.
        layer: The name of the layer, with its package if that is not Keras.
        base: The arguments of all rows of the layer, as they are written in Python.
        option: The further arguments.
        refused: The reason if the export refuses the layer with these arguments.
    """

    kind: str
    layer: str
    base: str
    option: str
    refused: str = ""

    @property
    def package(self) -> str:
        return self.layer.rpartition(".")[0]

    @property
    def title(self) -> str:
        return f"{self.layer}({', '.join(filter(None, [self.base, self.option]))})"


def alternatives(option: str) -> Iterator[str]:
    """Yield the option once for every combination of its values in braces."""
    (call,) = ast.parse(f"f({option})").body
    values = [keyword.value for keyword in call.value.keywords]
    choices = [value.elts if isinstance(value, ast.Set) else [value] for value in values]
    for chosen in itertools.product(*choices):
        pairs = zip(call.value.keywords, chosen, strict=True)
        yield ", ".join(f"{keyword.arg}={ast.unparse(value)}" for keyword, value in pairs)


def rows(table: str) -> Iterator[Row]:
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
            for option in filter(None, map(str.strip, text.split(" |"))):
                for written in alternatives(option.removeprefix("!")):
                    reasons = [reason for name, reason in REASONS.items() if f"{name}=True" in option]
                    yield replace(row, option=written, refused=reasons[0] if option.startswith("!") else "")


ROWS = [*rows(TABLE)]

DRAWN = r"Random(?!Crop)\w+|AugMix|CutMix|MixUp|RandAugment|Solarization"  # identities unless they train
NOT_VARIED = {  # options that no row varies, as Layer.option
    r".*\.(\w*(initializer|regularizer|constraint)|unit_forget_bias|weights|seed)": "used before or in a training",
    r".*\.(trainable|momentum|renorm_clipping|renorm_momentum|synchronized|l1|l2)": "used in a training",
    r".*\.(name|dtype|kwargs|quantization_config|gptq_unpacked_column_size)": "names, and policies of a whole model",
    r".*\.flash_attention": "not supported by Keras on TensorFlow, which runs the exported graph",
    r"Discretization\.(num_bins|epsilon)": "used by `adapt`",
    r"Resizing\.fill_mode": 'has only the value "constant"',
    r"IntegerLookup\.vocabulary_dtype": 'has only the value "int64"',
    r"keras_hub\.ImageConverter\.bounding_box_format": "of labels",
    rf"({DRAWN})\.\w+": "used in a training only",
}
NO_ROW = {  # layers
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
