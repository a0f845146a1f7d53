"""Table of the layers of Keras, KerasHub and keras-attn with the options of their constructors that change a graph."""

import ast
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
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
    "HEADS": "dropout=0.2 | use_bias=False | sliding_window=2 | flash_attention=False | use_gate=True",
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
TABLE = """
## recurrent
SimpleRNN(3): $CELL | $RECURRENT
LSTM(3): $CELL | recurrent_activation="hard_sigmoid" | use_cudnn=False | $RECURRENT
GRU(3): $CELL | recurrent_activation="hard_sigmoid" | use_cudnn=False | reset_after=False |
 reset_after=False, return_sequences=True | $RECURRENT
RNN(LSTMCell(3)): cell=[GRUCell(3), SimpleRNNCell(2)] | zero_output_for_mask=True, return_sequences=True | $RECURRENT
Bidirectional(LSTM(3, return_sequences=True)): merge_mode={"sum", "mul", "ave", None} | layer=GRU(3) |
 backward_layer=LSTM(3, return_sequences=True, go_backwards=True, activation="relu") |
 layer=LSTM(3, return_sequences=True, return_state=True) | layer=SimpleRNN(2), merge_mode="mul" |
 !layer=GRU(3, stateful=True)
## steps
Adaptive{Max,Average}Pooling1D(2): data_format="channels_first"
PReLU(): shared_axes={[1], [2]}
Permute((2, 1)): dims=(1, 2)
Reshape((10, 2)): target_shape={(-1,), (2, -1, 2)}
Flatten(): data_format="channels_first"
{SimpleRNN,LSTM,GRU}(3, unroll=True): return_sequences=True | go_backwards=True
RNN(GRUCell(3), unroll=True): zero_output_for_mask=True, return_sequences=True
LayerNormalization(): axis={1, (1, 2)}
RMSNormalization(): axis=(1, 2)
GroupNormalization(groups=2): axis=1, groups=5
BatchNormalization(): axis=1
TimeDistributed(Reshape((2, 2))): layer={RepeatVector(3), BatchNormalization()}
## features
Softmax(): axis=1 | axis=(1, 2)
keras_attn.MaskedSoftmax():
## vector
RepeatVector(3): n=2
Normalization(mean=0.5, variance=2.0): invert=True | axis=None |
 mean=[0.1, 0.2, 0.3, 0.4], variance=[1.0, 2.0, 3.0, 4.0]
Discretization(bin_boundaries=[-1.0, 0.0, 1.0]): output_mode={"one_hot", "multi_hot", "count"} |
 !output_mode="multi_hot", sparse=True
## cell
SimpleRNNCell(3): $CELL
GRUCell(3): $CELL | recurrent_activation="hard_sigmoid" | reset_after=False
LSTMCell(3): $CELL | recurrent_activation="hard_sigmoid"
StackedRNNCells([SimpleRNNCell(3), GRUCell(3)]): cells=[GRUCell(3)]
## 1D
Dense(3): activation=$ACTIVATIONS | use_bias=False | lora_rank=2 | lora_rank=2, lora_alpha=3.0
EinsumDense("...x,xy->...y", 3): activation=$ACTIVATIONS | bias_axes="y" | lora_rank=2 | lora_rank=2, lora_alpha=3.0 |
 equation="abc,cd->abd", output_shape=(None, 3) | equation="abc,cde->abde", output_shape=(None, 3, 2), bias_axes="de"
TimeDistributed(Dense(3)): layer=Dense(2, activation="softmax")
LayerNormalization(): $NORM
GroupNormalization(groups=2): groups=-1 | $NORM
BatchNormalization(): $NORM | renorm=True
RMSNormalization(): epsilon=0.1
UnitNormalization(): axis=1 | axis=(1, 2)
SpectralNormalization(Dense(3)): layer=Conv1D(3, 2) | power_iterations=2
Activation("relu"): activation={"celu", "elu", "exponential", "gelu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu",
 "hard_tanh", "leaky_relu", "linear", "log_sigmoid", "log_softmax", "mish", "relu6", "selu", "sigmoid", "silu",
 "soft_shrink", "softmax", "softplus", "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax", "squareplus", "tanh",
 "tanh_shrink"}
ELU(): alpha=0.5
LeakyReLU(): negative_slope=0.1
PReLU(shared_axes=[1]):
ReLU(): max_value=1.0 | negative_slope=0.1 | threshold=0.5 | max_value=1.0, negative_slope=0.1, threshold=0.5
Masking(): mask_value=1.0
Identity():
Rescaling(2.0): offset=1.0 | scale=[1.0, 2.0, 3.0, 4.0]
Lambda(lambda x: x * 2): arguments=dict(y=3.0), function=lambda x, y: x * y | mask=lambda x, mask: mask |
 output_shape=(None, 4)
ActivityRegularization():
{Dropout,AlphaDropout}(0.2): noise_shape=(None, 1, 4)
{GaussianDropout,GaussianNoise}(0.2):
Pipeline([Rescaling(2.0), Dense(3)]): layers=[Dense(3), Dropout(0.2)]
keras_hub.TransformerEncoder(5, 2): $BLOCK
keras_hub.FNetEncoder(5): activation="gelu" | dropout=0.2 | layer_norm_epsilon=0.1
keras_hub.PositionEmbedding(40):
keras_hub.SinePositionEncoding(): max_wavelength=100
keras_hub.RMSNormalization(4):
keras_hub.RotaryEmbedding(): max_wavelength=100 | scaling_factor=2.0 |
 rope_type="yarn", scaling_factor=2.0, beta_fast=16.0, beta_slow=2.0, original_max_position_embeddings=8 |
 rope_type="yarn", truncate=False | denominator_dim=8
## #D
Conv{1,2,3}D(4, 2): groups=2 | $CONVOLUTION
Conv1D(4, 2): padding="causal" | padding="causal", dilation_rate=2
Conv{1,2,3}DTranspose(4, 3): output_padding=1, strides=2 | $CONVOLUTION
SeparableConv{1,2}D(4, 2): depth_multiplier=2 | $CONVOLUTION
DepthwiseConv{1,2}D(2): depth_multiplier=2 | $CONVOLUTION
{Max,Average}Pooling{1,2,3}D(2): $POOLING
Global{Max,Average}Pooling{1,2,3}D(): $WHOLE
SpatialDropout1D(0.2):
SpatialDropout{2,3}D(0.2): data_format="channels_first"
Cropping1D(): cropping={2, (0, 1)}
Cropping2D(1): cropping=((1, 0), (0, 1)) | data_format="channels_first"
Cropping3D(): cropping=((1, 0), (0, 1), (1, 1)) | data_format="channels_first"
ZeroPadding1D(): padding={2, (0, 1)} | data_format="channels_first"
ZeroPadding2D(): padding=((1, 0), (0, 2)) | data_format="channels_first"
ZeroPadding3D(): padding=((1, 0), (0, 1), (1, 2)) | data_format="channels_first"
UpSampling1D(): size=3
UpSampling2D(): size=(1, 3) | data_format="channels_first"
UpSampling3D(): size=(1, 3, 2) | data_format="channels_first"
## 3D
Adaptive{Max,Average}Pooling3D(2): data_format="channels_first"
## pixels
AutoContrast(): value_range=(0, 100)
CenterCrop(5, 4): height=30 | data_format="channels_first"
Resizing(7, 5): interpolation={"nearest", "bicubic", "lanczos3", "lanczos5", "area"} | crop_to_aspect_ratio=True |
 pad_to_aspect_ratio=True | pad_to_aspect_ratio=True, fill_value=3.0 | antialias=True |
 antialias=True, interpolation="bicubic" | data_format="channels_first"
Random{Brightness,Contrast,ColorDegeneration,Hue,Rotation,Saturation,Sharpness,Zoom}(0.2):
Random{ColorJitter,ElasticTransform,Erasing,Flip,GaussianBlur,Grayscale,Invert,Perspective,Shear}():
RandomPosterization(4):
RandomTranslation(0.1, 0.1):
{AugMix,CutMix,MixUp,RandAugment,Solarization}():
keras_hub.ImageConverter(): image_size=(6, 5) | scale=0.5 | offset=[1.0, 2.0, 3.0] |
 image_size=(6, 5), crop_to_aspect_ratio=False | image_size=(6, 5), interpolation="nearest" |
 image_size=(6, 5), antialias=True | image_size=(6, 5), crop_to_aspect_ratio=False, pad_to_aspect_ratio=True |
 image_size=(6, 5), data_format="channels_first"
## photo
keras_hub.RotaryEmbedding(feature_axis=1, sequence_axis=2):
RandomCrop(5, 4): data_format="channels_first"
ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 2)): clip_limit=1.0 | value_range=(0, 300) |
 tile_grid_size=(3, 1) | data_format="channels_first"
UpSampling2D(): interpolation={"bilinear", "bicubic"}
Adaptive{Max,Average}Pooling2D(2): data_format="channels_first"
keras_hub.BLIP2ImageConverter((6, 5)): crop_to_aspect_ratio=True | interpolation="bilinear" | antialias=False
keras_hub.{Gemma3,Gemma3n,T5Gemma2}ImageConverter(image_size=(6, 6)):
keras_hub.Gemma4ImageConverter(patch_size=2, max_soft_tokens=9, pooling_kernel_size=1): patch_size=4 |
 max_soft_tokens=6 | pooling_kernel_size=2
keras_hub.AnchorGenerator("yxyx", 1, 2, 1, [1.0], 2.0): bounding_box_format="xywh" | num_scales=2 | max_level=3
## clip
keras_hub.VideoConverter(): image_size=(6, 5) | scale=0.5 | offset=[1.0, 2.0, 3.0]
## frames of #D
ConvLSTM{1,2,3}D(3, 2): $CONVOLUTIONAL
## frames of 2D
TimeDistributed(Conv2D(3, 2)): layer=GlobalAveragePooling2D()
## tokens
Embedding(7, 3): mask_zero=True | lora_rank=2 | lora_rank=2, lora_alpha=3.0
keras_hub.TokenAndPositionEmbedding(7, 40, 3): tie_weights=False | mask_zero=True
## ids
CategoryEncoding(7): output_mode={"one_hot", "count"} | !sparse=True
IntegerLookup(vocabulary=[1, 3, 4, 5]): mask_token=0 | $LOOKUP |
 oov_method="farmhash", num_oov_indices=2 | oov_method="farmhash", num_oov_indices=2, salt=3 |
 oov_token=-2, invert=True | num_oov_indices=0, vocabulary=[0, 1, 2, 3, 4, 5]
Hashing(5): mask_value=0 | salt={7, [3, 4]} | output_mode={"one_hot", "multi_hot", "count"} |
 !output_mode="multi_hot", sparse=True
StringLookup(vocabulary=["a", "b", "c", "é"], invert=True): oov_token="?" | mask_token=""
## reversed
ReversibleEmbedding(7, 3): tie_weights=False | mask_zero=True | logit_soft_cap=2.0 | reverse_dtype="float32"
## pair of ids
HashedCrossing(5): output_mode="one_hot" | !output_mode="one_hot", sparse=True
## pair of words
HashedCrossing(5): output_mode="one_hot"
## words
StringLookup(vocabulary=["a", "b", "c", "é"]): mask_token="" | $LOOKUP | encoding="latin-1" |
 salt=3, num_oov_indices=2 | num_oov_indices=0, vocabulary=["a", "b", "c", "a b", "B, c!", "", "d é"]
Hashing(5): mask_value="a" | salt={7, [3, 4]}
## texts
TextVectorization(vocabulary=["a", "b", "c", "é"]): standardize={"lower", "strip_punctuation", None} |
 split={"character", None} | ngrams={2, (1, 3)} | output_mode={"multi_hot", "count"} | output_sequence_length=3 |
 output_mode="tf_idf", idf_weights=[0.5, 0.2, 0.1, 0.7] | max_tokens=9, pad_to_max_tokens=True, output_mode="count" |
 encoding="latin-1" | !ragged=True | !output_mode="multi_hot", sparse=True
## sound
MelSpectrogram(64, 32, sampling_rate=800, num_mel_bins=10): fft_length=128 | sequence_stride=16 | sequence_length=48 |
 window={"hamming", None} | sampling_rate=1000 | num_mel_bins=6 | min_freq=50 | max_freq=300 | power_to_db=False |
 top_db=10 | mag_exp=1.0 | min_power=0.1 | ref_power=2.0
## sounds
keras_hub.WhisperAudioConverter(8, 64, 32, 800, 1): num_mels=6 | num_fft_bins=128 | stride=16 | sampling_rate=1000 |
 max_audio_length=2
keras_hub.MoonshineAudioConverter(): do_normalize=True | padding_value=1.0 | sampling_rate=8000
keras_hub.Gemma4AudioConverter(8, 64, 32, 800, 1, max_frequency=300.0): num_mels=6 | mel_floor=0.1 |
 min_frequency=20.0 | frame_length=48 | per_bin_mean=[1.0] * 8 | per_bin_stddev=[2.0] * 8
## signal
STFTSpectrogram(frame_length=16): mode={"magnitude", "psd", "real", "imag", "angle", "stft"} | frame_length=8 |
 frame_step=5 | fft_length=32 | window={"hamming", None} | periodic=True | scaling={"spectrum", None} | padding="same" |
 expand_dims=True | data_format="channels_first"
## pair
{Add,Average,Maximum,Minimum,Multiply,Subtract}():
Concatenate(): axis=1
Dot(2): axes={1, (2, 2)} | normalize=True
Attention(): use_scale=True | score_mode="concat" | score_mode="concat", use_scale=True | dropout=0.2
AdditiveAttention(): use_scale=False | dropout=0.2
## query
MultiHeadAttention(2, 3): $HEADS | value_dim=2 | output_shape=5 | attention_axes=1
GroupQueryAttention(3, 4, 2): $HEADS
keras_hub.CachedMultiHeadAttention(2, 3): $HEADS | value_dim=2 | output_shape=5 | attention_axes=1
keras_hub.TransformerDecoder(5, 2): $BLOCK
## attention
keras_attn.AdditiveAttention(3): normalize=True | dropout=0.2 | query_block_size=2 | normalizer="sparsemax"
keras_attn.BilinearAttention(): dropout=0.2
keras_attn.CosineAttention(): dropout=0.2 | temperature=0.5
keras_attn.DotProductAttention(): dropout=0.2 | scale=0.3 | normalizer="sigmoid"
keras_attn.GaussianAttention(): dropout=0.2 | bandwidth=2.0
keras_attn.LocationSensitiveAttention(3, filters=2, kernel_size=3): filters=4 | kernel_size=5 | cumulative=True |
 dropout=0.2
keras_attn.MultiHeadAttention(keras_attn.DotProductAttention(), 2): key_dim=3 | value_dim=3 | output_dim=5 |
 num_kv_heads=1 | process_heads=keras_attn.RotaryEmbedding() | use_bias=False
## positions
keras_attn.LinearBias(2):
keras_attn.RelativePositionBias(2): num_buckets=8 | num_buckets=8, max_distance=6 | bidirectional=False
## heads
keras_attn.RotaryEmbedding(): base=100.0 | interleaved=True | size=2 | scale=2.0
## decoder
keras_attn.AttentionCell(GRUCell(4), keras_attn.DotProductAttention()): when="after" | attention_size=3 |
 when="after", attention_size=3, activation="relu" | input_feeding=True, when="after" |
 attention=keras_attn.AdditiveAttention(3)
## decoders
keras_attn.AttentionRNN(keras_attn.AttentionCell(LSTMCell(4), keras_attn.DotProductAttention())):
 return_sequences=False | return_state=True
## scores
keras_hub.AlibiBias(): alibi_bias_max=4
## masked words
keras_hub.MaskedLMHead(7): activation="softmax" | intermediate_activation="gelu" | layer_norm_epsilon=0.1 |
 vocabulary_size=None, token_embedding=keras_hub.ReversibleEmbedding(7, 4)
## matrix
keras_hub.BoxMatcher([0.2, 0.6], [-1, 0, 1]): force_match_for_each_col=True
"""


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
    "keras_hub.SAMMaskDecoder keras_hub.SAMPromptEncoder": "exported in [a model](models.md#kerashub-images)",
    "keras_hub.SAM3*": "parts of one large model, not tried",
}
