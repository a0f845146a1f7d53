"""Faults in the report page, and in what an export says for it."""

from .fault import fault

REPORT_FAULTS = (
    fault("names in a page are code", "        autoescape=True,\n", "        autoescape=False,\n", "test_page -k text"),
    fault(
        "JSON in a page may end its script",
        '.replace("<", "\\\\u003c")',
        '.replace("<", "<")',
        "test_page -k text",
    ),
    fault(
        "any script may run",
        "runs = f\"{_hash(script)} blob: 'wasm-unsafe-eval'\" if live else _hash(script)",
        "runs = \"'unsafe-inline'\"",
        "test_page -k hashed",
    ),
    fault(
        "a report replaces any file",
        "encode() in file.read(4096)\n",
        'encode() != b""\n',
        "test_page -k nothing_else",
    ),
    fault(
        "a small weight is called masked",
        "    codes[weights == 0] = EXACT_ZERO\n",
        "    codes[codes == 0] = EXACT_ZERO\n",
        "test_maps -k rounds",
    ),
    fault(
        "the entropy of a row is that of the part shown",
        "row_entropy(whole[: len(shown), : shown.shape[1], :queries])",
        "row_entropy(shown)",
        "test_maps -k cut",
    ),
    fault(
        "comparisons in the order they came",
        '    return sorted(rows, key=lambda row: (row["passed"], -row["share"]))\n',
        "    return rows\n",
        "test_page -k worst",
    ),
    fault(
        "an older runtime is taken along",
        "    if numbers < _numbers(lowest):\n",
        "    if numbers < ():\n",
        "test_page -k too_old",
    ),
    fault(
        "a caption shows padding",
        "            row = row[: max(0, int(case.inputs[length][example]))]\n",
        "            row = row[: len(row)]\n",
        "test_labels -k padding",
    ),
    fault(
        "labels of another axis",
        "        if ids.ndim == 2 and _shape_of(name, manifest)[1] == axis\n",
        "        if ids.ndim == 2\n",
        "test_labels -k along",
    ),
    fault(
        "any output of its shape is attention",
        "np.array_equal(same, array, equal_nan=True)",
        "same.shape",
        "test_attention_outputs -k every_kind",
    ),
    fault(
        "lengths count along the batch",
        "for name, axis in axes if axis != BATCH}",
        "for name, axis in axes if axis == BATCH}",
        "test_golden_cases -k length_counts",
    ),
)
