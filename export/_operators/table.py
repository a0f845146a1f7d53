"""Table of op handlers: TensorFlow operator, handler, and why tf2onnx's own is not used.

To add an operator, write a function that gets tf2onnx's graph and the node, and edits the graph in place with the
helpers in `graph_builder.py`; then add a row. A node that its function leaves unchanged is refused as an operator
without mapping. `traced_functions.Converted` in the tests compares the result with TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .._operators import partly_supported
from .control_flow import if_branches, tensor_array_loops, tensor_arrays
from .images import (
    convolution_pooling,
    depth_to_space,
    hsv,
    resize_images,
    scale_and_translate,
    transposed_convolutions,
)
from .images.depth_to_space import in_blocks
from .indexing import dynamic_update_slice, matrix_band_part, matrix_diag, scatter_segments, searchsorted, selection
from .indexing.data_movement import (
    cut_out,
    inverted,
    padded,
    partitioned,
    reshape,
    reversed_sequences,
    rolled,
    split,
    stitched,
    transposed,
)
from .numbers import (
    atan2,
    bessel,
    cumulative_product,
    einsum,
    elementwise,
    fake_quantization,
    integer_division,
    log1p_expm1,
    losses,
    wider_dtypes,
)
from .signals import fft, split_complex
from .text import (
    hash_buckets,
    ragged_tensors,
    regex_replace,
    string_ops,
    unicode_and_bytes,
    unicode_normalization,
    wordpiece,
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
    Operator("Log1p", log1p_expm1.log1p, "no mapping"),
    Operator("Expm1", log1p_expm1.expm1, "no mapping"),
    Operator("Bucketize", searchsorted.bucketize, "no mapping; `keras.layers.Discretization`"),
    Operator("LowerBound", searchsorted.bound, "no mapping; `keras.ops.searchsorted`"),
    Operator("UpperBound", searchsorted.bound, "no mapping; `keras.ops.searchsorted`"),
    Operator("SparseSoftmaxCrossEntropyWithLogits", losses.of_class, "NaN where the logit of another class is -inf"),
    Operator("CTCGreedyDecoder", partly_supported.leave_unmapped, "the last class is always taken for the blank"),
    Operator("FakeQuantWithMinMaxArgs", fake_quantization.rounded, _STEPS),
    Operator("FakeQuantWithMinMaxVars", fake_quantization.rounded, _STEPS),
    Operator("FakeQuantWithMinMaxVarsPerChannel", fake_quantization.rounded, "no mapping"),
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
    Operator("FloorDiv", integer_division.quotient, "`Div` rounds integers towards zero"),
    Operator("FloorMod", integer_division.remainder, "made of `Div`, which rounds integers towards zero"),
    Operator("TruncateMod", integer_division.truncated, "no mapping"),
    Operator("LeftShift", integer_division.shift, "integers of 64 bits and counts beyond the bits"),
    Operator("RightShift", integer_division.shift, "8, 16 and 64 bits shift in zeros where the sign belongs"),
    Operator("OneHot", selection.one_hot, "-1 is the last class; few dtypes"),
    *(Operator(name, selection.first, "onnxruntime has few dtypes") for name in ("ArgMax", "ArgMin")),
    Operator("TopKV2", selection.top_k, "integers become float32, which has not all of them"),
    Operator("InTopKV2", selection.in_top_k, "no mapping; `keras.ops.in_top_k`"),
    Operator("GatherV2", selection.gather, "negative `batch_dims` are taken as they are; rows of strings"),
    Operator("Cross", selection.cross, "no mapping; `keras.ops.cross`"),
    Operator("BroadcastArgs", selection.broadcast, "no mapping; `keras.ops.linspace` between tensors"),
    Operator("SparseToDense", scatter_segments.dense, "places and sizes of int32"),
    Operator("ScatterNd", scatter_segments.scatter, _REPEATED),
    *(
        Operator(f"TensorScatter{each}", scatter_segments.scatter_into, "few dtypes")
        for each in ("Add", "Sub", "Max", "Min")
    ),
    *(
        Operator(f"Segment{each}", scatter_segments.segments, _SEGMENTS)
        for each in ("Sum", "Prod", "Max", "Min", "Mean")
    ),
    *(
        Operator(f"UnsortedSegment{each}", scatter_segments.segments, _SEGMENTS)
        for each in ("Sum", "Prod", "Max", "Min")
    ),
    *(
        Operator(f"SparseSegment{each}{counted}", scatter_segments.segments, _SEGMENTS)
        for each in ("Sum", "Mean", "SqrtN")
        for counted in ("", "WithNumSegments")
    ),
    Operator("Bincount", scatter_segments.counts, "no weights"),
    Operator("DenseBincount", scatter_segments.counts, "no weights"),
    Operator("Cumprod", cumulative_product.product, "the last axis is refused"),
    Operator("BesselI0", bessel.bessel, "no mapping; `keras.ops.i0`"),
    Operator("TruncateDiv", integer_division.cut_quotient, "floats are not cut"),
    Operator("Div", integer_division.cut_quotient, "the least integer by -1 ends the process"),
    Operator("IsFinite", wider_dtypes.is_finite, "of two operators, of which one takes no float16"),
    *(Operator(each, wider_dtypes.widened, "few dtypes, or integers become float32") for each in wider_dtypes.FORMS),
    *(Operator(each, wider_dtypes.reduced, "few dtypes; the mean of nothing is 0") for each in wider_dtypes.REDUCED),
)
PLACES = (
    Operator("XlaDynamicUpdateSlice", dynamic_update_slice.update, "no mapping; `keras.ops.slice_update`"),
    Operator("InvertPermutation", inverted, "int64 where it is int32"),
    Operator("Reshape", reshape, "a size of 0 copies that of the input"),
    Operator("Roll", rolled, "fails on an axis of 0"),
    Operator("ReverseSequence", reversed_sequences, "onnxruntime takes the first two axes alone"),
    Operator("StridedSlice", cut_out, "an end of 0 behind a negative begin is taken for none"),
    Operator("DynamicPartition", partitioned, "numbers on one axis alone"),
    Operator("DynamicStitch", stitched, _STITCHED),
    Operator("ParallelDynamicStitch", stitched, _STITCHED),
    *(Operator(f"MatrixDiagPart{version}", matrix_diag.taken, _DIAGONALS) for version in ("", "V2", "V3")),
    *(Operator(f"MatrixDiag{version}", matrix_diag.made, _DIAGONALS) for version in ("", "V2", "V3")),
    *(Operator(f"MatrixSetDiag{version}", matrix_diag.replaced, _DIAGONALS) for version in ("", "V2", "V3")),
    Operator("SplitV", split, "a size of -1 stays where the axis is not known"),
    Operator("Transpose", transposed, "axes counted from the end"),
    Operator("PadV2", padded, "fails for float16, booleans and small integers"),
    *(Operator(name, in_blocks, "floats alone") for name in ("SpaceToBatchND", "BatchToSpaceND")),
    *(
        Operator(name, depth_to_space.rearrange, "onnxruntime has floats alone")
        for name in ("DepthToSpace", "SpaceToDepth")
    ),
    Operator("NonMaxSuppressionV5", partly_supported.suppressed, "`soft_nms_sigma` was dropped"),
    Operator("CropAndResize", partly_supported.cropped, "rounds otherwise than TensorFlow"),
    Operator("AsString", partly_supported.as_text, "floats and booleans look otherwise"),
)
IMAGES = (
    Operator("ResizeNearestNeighbor", resize_images.resize, _ROUNDED),
    Operator("ResizeBilinear", resize_images.resize, _ROUNDED),
    Operator("ResizeBicubic", resize_images.resize, "TensorFlow's weights are in steps of 1/1024"),
    Operator("ResizeArea", resize_images.resize, "ONNX has no such mode; the nearest was taken"),
    Operator(
        "ScaleAndTranslate",
        scale_and_translate.scale_and_translate,
        "no mapping; resizing with `antialias`, and Lanczos",
    ),
    Operator("RGBToHSV", hsv.to_hsv, "no mapping"),
    Operator("HSVToRGB", hsv.to_rgb, "no mapping"),
    Operator("AdjustSaturation", hsv.saturate, "the middle colour of three keeps its distance"),
    Operator("ExtractImagePatches", convolution_pooling.extract, "wants sizes that are known; multiplies with zero"),
    Operator("ExtractVolumePatches", convolution_pooling.extract, "no mapping"),
    Operator("Conv2D", convolution_pooling.convolve, "onnxruntime has floats alone"),
    Operator(
        "Conv3D", convolution_pooling.convolve, "one group whatever the kernel says; onnxruntime has floats alone"
    ),
    Operator("DepthwiseConv2dNative", convolution_pooling.convolve_depthwise, _GAPS),
    *(
        Operator(name, convolution_pooling.pool, _GAPS)
        for name in ("MaxPool", "MaxPoolV2", "MaxPool3D", "AvgPool", "AvgPool3D")
    ),
    Operator("MaxPoolWithArgmax", convolution_pooling.pool_with_places, _GAPS),
    *(
        Operator(f"FusedBatchNorm{version}", partly_supported.normalized, "in training the moments have no form")
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
    Operator("MatrixBandPart", matrix_band_part.band_part, "multiplies with a mask, where infinity becomes NaN"),
    Operator("MatrixDeterminant", partly_supported.determinant, "onnxruntime has no `Det` of float64"),
)
SIGNALS = (
    Operator("Complex", fft.joined, _COMPLEX),
    Operator("Real", fft.part, _COMPLEX),
    Operator("Imag", fft.part, _COMPLEX),
    Operator("ComplexAbs", fft.magnitude, _COMPLEX),
    *(Operator(name, fft.transform, _COMPLEX) for name in sorted(split_complex.TRANSFORMS)),
    Operator("Atan2", atan2.atan2, "zeros and infinities"),
)
_TEXTS = "an operator outside of ONNX"
TEXTS = (
    Operator("StringLower", string_ops.lower, _TEXTS),
    Operator("StringUpper", string_ops.upper, _TEXTS),
    Operator("StringStrip", string_ops.strip, "no mapping"),
    Operator("StringJoin", string_ops.join, _TEXTS),
    Operator("StaticRegexReplace", regex_replace.replace, _TEXTS),
    Operator("StringSplitV2", string_ops.split, _TEXTS),
    Operator("UnicodeDecode", string_ops.split_characters, "no mapping; `tf.strings.unicode_split`"),
    Operator("UnicodeEncode", string_ops.texts_of_characters, "no mapping; `tf.strings.unicode_split`"),
    Operator("StringSplit", unicode_and_bytes.split_bytes, _TEXTS),
    Operator("DecodeRaw", unicode_and_bytes.raw, "no mapping; `keras_hub.tokenizers.ByteTokenizer`"),
    Operator("StringNGrams", ragged_tensors.ngrams, "no mapping"),
    Operator("RaggedTensorToTensor", ragged_tensors.to_tensor, _TEXTS),
    Operator("RaggedBincount", ragged_tensors.counts, "no mapping"),
    Operator("StringToHashBucketFast", hash_buckets.fast, f"{_TEXTS}; `keras.layers.Hashing`"),
    Operator("StringToHashBucketStrong", hash_buckets.strong, "no mapping; `keras.layers.Hashing` with a salt"),
    Operator("SparseCross", hash_buckets.cross, "no mapping; `keras.layers.HashedCrossing`"),
    *(Operator(name, string_ops.same, "no strings") for name in ("Equal", "NotEqual")),
)
TOKENS = (  # of TensorFlow Text, which need not be there
    Operator("NormalizeUTF8", unicode_normalization.normalize, "no mapping; `tensorflow_text.normalize_utf8`"),
    Operator("CaseFoldUTF8", unicode_normalization.fold, "no mapping; `tensorflow_text.case_fold_utf8`"),
    Operator("RegexSplitWithOffsets", wordpiece.split, _TEXTS),
    Operator(
        "FastWordpieceTokenizeWithOffsets", wordpiece.pieces, "no mapping; `keras_hub.tokenizers.WordPieceTokenizer`"
    ),
)
LOOPS = (
    Operator("If", if_branches.condition, "fails where a branch gives a tensor twice"),
    Operator("StatelessIf", if_branches.condition, "fails where a branch gives a tensor twice"),
    Operator("While", tensor_array_loops.loop, _IN_PLACE),
    Operator("StatelessWhile", tensor_array_loops.loop, _IN_PLACE),
    Operator("TensorListFromTensor", tensor_arrays.from_tensor, _ARRAYS),
    Operator("TensorListSetItem", tensor_arrays.written, _ARRAYS),
    Operator("TensorListLength", tensor_arrays.length, _ARRAYS),
    Operator("TensorListGather", tensor_arrays.gathered, "no mapping"),
    Operator("TensorListConcatV2", tensor_arrays.concatenated, "no mapping"),
    Operator(
        "TensorListStack", tensor_array_loops.stacked, "taken from the loop alone, not from what puts it in order"
    ),
)
OPERATORS = (*NUMBERS, *PLACES, *IMAGES, *MATRICES, *SIGNALS, *TEXTS, *TOKENS, *LOOPS)


def handlers() -> dict[str, tuple[Any, list[Any]]]:
    """Return the table in tf2onnx's form, by the names of the operators."""

    def handler(operator: Operator) -> Any:
        return lambda graph, node, name, arguments: operator.write(graph, node)

    return {operator.name: (handler(operator), []) for operator in OPERATORS}
