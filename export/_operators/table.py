"""The operators of TensorFlow that tf2onnx 1.17 writes wrongly or not at all: what writes each instead, and why.

To add one, write a function that gets tf2onnx's graph and the node and edits the graph in place (`writing.py` has what
that takes), and give it a row. A node that its function leaves as it is, is refused as an op without mapping. Whether
it gives what TensorFlow does, `traced_functions.Converted` of the tests tells in a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from . import (
    angles,
    bands,
    buckets,
    code_points,
    colours,
    complex_parts,
    conditions,
    diagonals,
    einsum,
    elementwise,
    fourier,
    hashed,
    integers,
    list_tensors,
    losses,
    moves,
    near_zero,
    normal_forms,
    patches,
    quantized,
    ragged,
    refused,
    regular_expressions,
    resampling,
    resizing,
    running,
    scattered,
    selection,
    slices,
    spaces,
    special,
    tensor_lists,
    texts,
    transposed_convolutions,
    wider,
    word_pieces,
)


class Operator(NamedTuple):
    """A row of the table."""

    name: str
    write: Callable[[Any, Any], None]
    why: str


_COMPLEX = "ONNX has no complex tensors; `keras.ops.fft` and its kin"
_STITCHED = "as many rows as there are indices, of whatever size; of one axis alone"
_DIAGONALS = "fails on axes of 0, and with operators outside of ONNX"
_STEPS = "8 bits alone, rounded to even"
_ROUNDED = "rounds otherwise than TensorFlow at some sizes; wants floats, and rank 4"
_GAPS = "negative padding at unknown sizes where windows leave gaps; integers as float32"
_BELOW_STRIDE = "negative padding where a kernel is shorter than its stride; refuses some sizes"
_IN_PLACE = "what a loop writes into a `TensorArray` stands in the order of the steps, whatever the index"
_ARRAYS = "only for what a loop writes or reads; `keras.ops.scan` goes on with a `TensorArray`"
_SEGMENTS = "numbers of -1 are those of the last segment, and empty segments infinite"
_REPEATED = "of what is put into one row, one is kept and no sum made"

NUMBERS = (
    Operator("SelectV2", elementwise.select, "`mask * x + (1 - mask) * y` is NaN where what is not chosen is infinite"),
    Operator("Erfc", elementwise.erfc, "no mapping; the exact GELU"),
    Operator("Bitcast", elementwise.sign_bit, "no mapping; `keras.ops.argmax` reads a sign bit, to order -0.0 and 0.0"),
    Operator("Log1p", near_zero.log1p, "no mapping"),
    Operator("Expm1", near_zero.expm1, "no mapping"),
    Operator("Bucketize", buckets.bucketize, "no mapping; `keras.layers.Discretization`"),
    Operator("LowerBound", buckets.bound, "no mapping; `keras.ops.searchsorted`"),
    Operator("UpperBound", buckets.bound, "no mapping; `keras.ops.searchsorted`"),
    Operator("SparseSoftmaxCrossEntropyWithLogits", losses.of_class, "NaN where the logit of another class is -inf"),
    Operator("CTCGreedyDecoder", refused.leave_unmapped, "the last class is always taken for the blank"),
    Operator("FakeQuantWithMinMaxArgs", quantized.rounded, _STEPS),
    Operator("FakeQuantWithMinMaxVars", quantized.rounded, _STEPS),
    Operator("FakeQuantWithMinMaxVarsPerChannel", quantized.rounded, "no mapping"),
    Operator("AddN", elementwise.total, "floats alone"),
    *(Operator(name, elementwise.as_it_is, "no mapping") for name in ("Snapshot", "PreventGradient", "DeepCopy")),
    Operator("PlaceholderWithDefault", elementwise.as_it_is, "an input of the graph alone"),
    Operator("BiasAdd", elementwise.biased, "channels first, what is no constant is added along the last axis"),
    Operator("Select", elementwise.select, "as `SelectV2`; `tf.nn.sigmoid_cross_entropy_with_logits`"),
    Operator("ClipByValue", elementwise.clipped, "limits of one number alone"),
    Operator("Softplus", elementwise.softplus, "infinite in float16 from 12 on, and in float64"),
    Operator("Einsum", einsum.summed, "`A` and `a` are one axis; a product of matrices becomes fifteen operators"),
    Operator("Log", elementwise.known_to_onnx, "fails for float16, and float64 becomes float32"),
    Operator("Inv", elementwise.known_to_onnx, "no mapping"),
    *(Operator(name, elementwise.by_zero, "no mapping") for name in ("MulNoNan", "Xdivy", "Xlogy")),
    Operator("FloorDiv", integers.quotient, "`Div` rounds integers towards zero"),
    Operator("FloorMod", integers.remainder, "made of `Div`, which rounds integers towards zero"),
    Operator("TruncateMod", integers.truncated, "no mapping"),
    Operator("LeftShift", integers.shift, "integers of 64 bits and counts beyond the bits"),
    Operator("RightShift", integers.shift, "8, 16 and 64 bits shift in zeros where the sign belongs"),
    Operator("OneHot", selection.one_hot, "-1 is the last class; few dtypes"),
    *(Operator(name, selection.first, "onnxruntime has few dtypes") for name in ("ArgMax", "ArgMin")),
    Operator("TopKV2", selection.top_k, "integers become float32, which has not all of them"),
    Operator("InTopKV2", selection.in_top_k, "no mapping; `keras.ops.in_top_k`"),
    Operator("GatherV2", selection.gather, "negative `batch_dims` are taken as they are; rows of strings"),
    Operator("Cross", selection.cross, "no mapping; `keras.ops.cross`"),
    Operator("BroadcastArgs", selection.broadcast, "no mapping; `keras.ops.linspace` between tensors"),
    Operator("SparseToDense", scattered.dense, "places and sizes of int32"),
    Operator("ScatterNd", scattered.scatter, _REPEATED),
    *(Operator(f"TensorScatter{each}", scattered.scatter_into, "few dtypes") for each in ("Add", "Sub", "Max", "Min")),
    *(Operator(f"Segment{each}", scattered.segments, _SEGMENTS) for each in ("Sum", "Prod", "Max", "Min", "Mean")),
    *(Operator(f"UnsortedSegment{each}", scattered.segments, _SEGMENTS) for each in ("Sum", "Prod", "Max", "Min")),
    *(
        Operator(f"SparseSegment{each}{counted}", scattered.segments, _SEGMENTS)
        for each in ("Sum", "Mean", "SqrtN")
        for counted in ("", "WithNumSegments")
    ),
    Operator("Bincount", scattered.counts, "no weights"),
    Operator("DenseBincount", scattered.counts, "no weights"),
    Operator("Cumprod", running.product, "the last axis is refused"),
    Operator("BesselI0", special.bessel, "no mapping; `keras.ops.i0`"),
    Operator("TruncateDiv", integers.cut_quotient, "floats are not cut"),
    Operator("Div", integers.cut_quotient, "the least integer by -1 ends the process"),
    Operator("IsFinite", wider.is_finite, "of two operators, of which one takes no float16"),
    *(Operator(each, wider.widened, "few dtypes, or integers become float32") for each in wider.FORMS),
    *(Operator(each, wider.reduced, "few dtypes; the mean of nothing is 0") for each in wider.REDUCED),
)
PLACES = (
    Operator("XlaDynamicUpdateSlice", slices.update, "no mapping; `keras.ops.slice_update`"),
    Operator("InvertPermutation", moves.inverted, "int64 where it is int32"),
    Operator("Reshape", moves.reshape, "a size of 0 copies that of the input"),
    Operator("Roll", moves.rolled, "fails on an axis of 0"),
    Operator("ReverseSequence", moves.reversed_sequences, "onnxruntime takes the first two axes alone"),
    Operator("StridedSlice", moves.cut_out, "an end of 0 behind a negative begin is taken for none"),
    Operator("DynamicPartition", moves.partitioned, "numbers on one axis alone"),
    Operator("DynamicStitch", moves.stitched, _STITCHED),
    Operator("ParallelDynamicStitch", moves.stitched, _STITCHED),
    *(Operator(f"MatrixDiagPart{version}", diagonals.taken, _DIAGONALS) for version in ("", "V2", "V3")),
    *(Operator(f"MatrixDiag{version}", diagonals.made, _DIAGONALS) for version in ("", "V2", "V3")),
    *(Operator(f"MatrixSetDiag{version}", diagonals.replaced, _DIAGONALS) for version in ("", "V2", "V3")),
    Operator("SplitV", moves.split, "a size of -1 stays where the axis is not known"),
    Operator("Transpose", moves.transposed, "axes counted from the end"),
    Operator("PadV2", moves.padded, "fails for float16, booleans and small integers"),
    *(Operator(name, moves.in_blocks, "floats alone") for name in ("SpaceToBatchND", "BatchToSpaceND")),
    *(Operator(name, spaces.rearrange, "onnxruntime has floats alone") for name in ("DepthToSpace", "SpaceToDepth")),
    Operator("NonMaxSuppressionV5", refused.suppressed, "`soft_nms_sigma` was dropped"),
    Operator("CropAndResize", refused.cropped, "rounds otherwise than TensorFlow"),
    Operator("AsString", refused.as_text, "floats and booleans look otherwise"),
)
IMAGES = (
    Operator("ResizeNearestNeighbor", resizing.resize, _ROUNDED),
    Operator("ResizeBilinear", resizing.resize, _ROUNDED),
    Operator("ResizeBicubic", resizing.resize, "TensorFlow's weights are in steps of 1/1024"),
    Operator("ResizeArea", resizing.resize, "ONNX has no such mode; the nearest was taken"),
    Operator("ScaleAndTranslate", resampling.scale_and_translate, "no mapping; resizing with `antialias`, and Lanczos"),
    Operator("RGBToHSV", colours.to_hsv, "no mapping"),
    Operator("HSVToRGB", colours.to_rgb, "no mapping"),
    Operator("AdjustSaturation", colours.saturate, "the middle colour of three keeps its distance"),
    Operator("ExtractImagePatches", patches.extract, "wants sizes that are known; multiplies with zero"),
    Operator("ExtractVolumePatches", patches.extract, "no mapping"),
    Operator("Conv2D", patches.convolve, "onnxruntime has floats alone"),
    Operator("Conv3D", patches.convolve, "one group whatever the kernel says; onnxruntime has floats alone"),
    Operator("DepthwiseConv2dNative", patches.convolve_depthwise, _GAPS),
    *(Operator(name, patches.pool, _GAPS) for name in ("MaxPool", "MaxPoolV2", "MaxPool3D", "AvgPool", "AvgPool3D")),
    Operator("MaxPoolWithArgmax", patches.pool_with_places, _GAPS),
    *(
        Operator(f"FusedBatchNorm{version}", refused.normalized, "in training the moments have no form")
        for version in ("", "V2", "V3")
    ),
    Operator("Conv2DBackpropInput", transposed_convolutions.convolve_back, _BELOW_STRIDE),
    Operator("Conv3DBackpropInputV2", transposed_convolutions.convolve_back, _BELOW_STRIDE),
)
MATRICES = (
    *(
        Operator(f"BatchMatMul{version}", elementwise.multiplied, "fails for the adjoint of integers")
        for version in ("", "V2", "V3")
    ),
    Operator("MatrixBandPart", bands.band_part, "multiplies with a mask, where infinity becomes NaN"),
    Operator("MatrixDeterminant", refused.determinant, "onnxruntime has no `Det` of float64"),
)
SIGNALS = (
    Operator("Complex", fourier.joined, _COMPLEX),
    Operator("Real", fourier.part, _COMPLEX),
    Operator("Imag", fourier.part, _COMPLEX),
    Operator("ComplexAbs", fourier.magnitude, _COMPLEX),
    *(Operator(name, fourier.transform, _COMPLEX) for name in sorted(complex_parts.TRANSFORMS)),
    Operator("Atan2", angles.atan2, "zeros and infinities"),
)
_TEXTS = "an operator outside of ONNX"
TEXTS = (
    Operator("StringLower", texts.lower, _TEXTS),
    Operator("StringUpper", texts.upper, _TEXTS),
    Operator("StringStrip", texts.strip, "no mapping"),
    Operator("StringJoin", texts.join, _TEXTS),
    Operator("StaticRegexReplace", regular_expressions.replace, _TEXTS),
    Operator("StringSplitV2", texts.split, _TEXTS),
    Operator("UnicodeDecode", texts.split_characters, "no mapping; `tf.strings.unicode_split`"),
    Operator("UnicodeEncode", texts.texts_of_characters, "no mapping; `tf.strings.unicode_split`"),
    Operator("StringSplit", code_points.split_bytes, _TEXTS),
    Operator("DecodeRaw", code_points.raw, "no mapping; `keras_hub.tokenizers.ByteTokenizer`"),
    Operator("StringNGrams", ragged.ngrams, "no mapping"),
    Operator("RaggedTensorToTensor", ragged.to_tensor, _TEXTS),
    Operator("RaggedBincount", ragged.counts, "no mapping"),
    Operator("StringToHashBucketFast", hashed.fast, f"{_TEXTS}; `keras.layers.Hashing`"),
    Operator("StringToHashBucketStrong", hashed.strong, "no mapping; `keras.layers.Hashing` with a salt"),
    Operator("SparseCross", hashed.cross, "no mapping; `keras.layers.HashedCrossing`"),
    *(Operator(name, texts.same, "no strings") for name in ("Equal", "NotEqual")),
)
TOKENS = (  # of TensorFlow Text, which need not be there
    Operator("NormalizeUTF8", normal_forms.normalize, "no mapping; `tensorflow_text.normalize_utf8`"),
    Operator("CaseFoldUTF8", normal_forms.fold, "no mapping; `tensorflow_text.case_fold_utf8`"),
    Operator("RegexSplitWithOffsets", word_pieces.split, _TEXTS),
    Operator(
        "FastWordpieceTokenizeWithOffsets", word_pieces.pieces, "no mapping; `keras_hub.tokenizers.WordPieceTokenizer`"
    ),
)
LOOPS = (
    Operator("If", conditions.condition, "fails where a branch gives a tensor twice"),
    Operator("StatelessIf", conditions.condition, "fails where a branch gives a tensor twice"),
    Operator("While", tensor_lists.loop, _IN_PLACE),
    Operator("StatelessWhile", tensor_lists.loop, _IN_PLACE),
    Operator("TensorListFromTensor", list_tensors.from_tensor, _ARRAYS),
    Operator("TensorListSetItem", list_tensors.written, _ARRAYS),
    Operator("TensorListLength", list_tensors.length, _ARRAYS),
    Operator("TensorListGather", list_tensors.gathered, "no mapping"),
    Operator("TensorListConcatV2", list_tensors.concatenated, "no mapping"),
    Operator("TensorListStack", tensor_lists.stacked, "taken from the loop alone, not from what puts it in order"),
)
OPERATORS = (*NUMBERS, *PLACES, *IMAGES, *MATRICES, *SIGNALS, *TEXTS, *TOKENS, *LOOPS)


def handlers() -> dict[str, tuple[Any, list[Any]]]:
    """Return the table in tf2onnx's form, by the names of the operators."""

    def handler(operator: Operator) -> Any:
        return lambda graph, node, name, arguments: operator.write(graph, node)

    return {operator.name: (handler(operator), []) for operator in OPERATORS}
