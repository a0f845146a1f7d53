"""Public API: names, signatures, docstrings, packages that an import loads, registered names, and the version."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name

import keras
import pytest
import yaml

import keras_attn
import keras_attn.callbacks
import keras_attn_export
from keras_attn._states import cache

ROOT = Path(__file__).resolve().parents[2]
KERAS_ATTN, EXPORT = ROOT / "keras_attn", ROOT / "export"

PUBLIC = {
    "keras_attn": """
        AdditiveAttention AttentionCell AttentionPooling AttentionRNN BilinearAttention CosineAttention
        DotProductAttention GaussianAttention LinearBias LocationSensitiveAttention MaskedSoftmax MultiHeadAttention
        RelativePositionBias RotaryEmbedding attention_entropy coverage masked_softmax show_heatmaps
    """,
    "keras_attn_export": """
        Bundle BundleError ExportError InputError ParityError ParityReport Predictions ProviderError
        UnsupportedModelError export_model load_bundle predict verify_bundle
    """,
}
NAMES = {package: names.split() for package, names in PUBLIC.items()}

SIGNATURES = """
keras_attn.masked_softmax(scores, valid_lens=None, *, mask=None)
keras_attn.show_heatmaps(matrices, xlabel='Keys', ylabel='Queries', titles=None, figsize=(2.5, 2.5), cmap='Reds')
keras_attn.MaskedSoftmax()
keras_attn.MaskedSoftmax.call(scores, valid_lens=None, *, attention_mask=None)
keras_attn.AttentionPooling(dropout=0.0, *, seed=None, normalizer='softmax')
keras_attn.AttentionPooling.score(queries, keys)
keras_attn.AdditiveAttention(num_hiddens, dropout=0.0, *, seed=None, normalize=False, query_block_size='auto',
    kernel_initializer='glorot_uniform', kernel_regularizer=None, kernel_constraint=None)
keras_attn.DotProductAttention(dropout=0.0, *, scale=None, seed=None)
keras_attn.BilinearAttention(dropout=0.0, *, seed=None, kernel_initializer='glorot_uniform', kernel_regularizer=None,
    kernel_constraint=None)
keras_attn.GaussianAttention(bandwidth=1.0, trainable=True, dropout=0.0, *, seed=None)
keras_attn.CosineAttention(temperature=1.0, trainable=True, dropout=0.0, *, seed=None)
keras_attn.MultiHeadAttention(attention, num_heads, key_dim=None, value_dim=None, output_dim=None, num_kv_heads=None,
    *, process_heads=None, use_bias=True, kernel_initializer='glorot_uniform', bias_initializer='zeros',
    kernel_regularizer=None, kernel_constraint=None)
keras_attn.RelativePositionBias(num_heads, num_buckets=32, max_distance=128, bidirectional=True, *,
    embeddings_initializer='uniform')
keras_attn.RelativePositionBias.call(queries, keys=None, offset=0)
keras_attn.LinearBias(num_heads)
keras_attn.LinearBias.call(queries, keys=None, offset=0)
keras_attn.RotaryEmbedding(base=10000.0, *, interleaved=False, size=None, scale=1.0)
keras_attn.RotaryEmbedding.call(heads, role='queries', offset=0)
keras_attn.AttentionPooling.precompute(keys, values=None, *, capacity=None)
keras_attn.AttentionPooling.append(state, keys, values)
keras_attn.callbacks.AttentionLogger(log_dir, inputs, *, layers=None, every='epoch', max_examples=4, max_heads=8,
    labels=None, format=None)
keras_attn.attention_entropy(weights, *, mask=None)
keras_attn.coverage(weights, *, mask=None)
keras_attn_export.export_model(model, path, *, sample_inputs=None, opset=None, lowering='adaptive',
    precision='float32', provider='cpu', tolerance=None, overwrite=False, progress=None, safe_mode=True, strict=False,
    static_axes=None, calibration=None, limit=None, report=False, target=None, saved_model=True)
keras_attn_export.predict(bundle, source, destination, *, engine='local', batch_size=None, workers=None, key=None,
    provider='cpu', outputs=None, limit_memory=None, resume=True, progress=None)
keras_attn_export.load_bundle(path)
keras_attn_export.verify_bundle(path, *, provider='cpu', samples=None, model=None, safe_mode=True)
keras_attn_export.Bundle.run(inputs, *, provider='cpu')
keras_attn_export.Bundle.session(provider='cpu', *, threads=None, config=None)
keras_attn_export.Bundle.write_report(path=None, *, inputs=None, live=False, labels=None, provider='cpu')
keras_attn_export.ParityReport.to_json()
"""  # without annotations, self and **kwargs; an indented line continues the signature
SIGNATURES = dict(re.findall(r"^(\S+?)(\(.*)$", re.sub(r"\n +", " ", SIGNATURES), flags=re.MULTILINE))
CALL = (
    "(queries, keys, values=None, valid_lens=None, *, score_bias=None, attention_mask=None, "
    "segment_ids=None, use_causal_mask=False, window=None, offset=None, return_attention_scores=False, training=None)"
)
SIGNATURES |= {
    f"keras_attn.{name}.call": CALL for name in NAMES["keras_attn"] if name.endswith(("Attention", "Pooling"))
}
SIGNATURES["keras_attn.LocationSensitiveAttention.call"] = CALL.replace("*, ", "*, previous_weights=None, ")
IMPLICIT = (
    *("queries_mask", "keys_mask", "values_mask"),
    *("_only_state", "_only_spec", "_skip_zeroing", "_previous_weights"),
)
"""Arguments of `call` after the public ones: Keras passes the first, and layers those with an underscore."""


def find_imported_packages(tree: ast.Module) -> set[str]:
    """Return the top-level packages of all absolute imports, also inside functions."""
    modules = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    modules += [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level == 0]
    return {module.split(".")[0] for module in modules}


@pytest.mark.parametrize("package", NAMES)
def test_public_names_equal_the_list_and_have_docstrings(package):
    module = importlib.import_module(package)
    assert module.__all__ == NAMES[package]
    names = [name for name in dir(module) if not name.startswith("_")]
    public = {name for name in names if not inspect.ismodule(getattr(module, name))}
    assert public - {"annotations"} == set(module.__all__)
    for name, value in ((name, getattr(module, name)) for name in module.__all__):
        assert len((value.__doc__ or "").strip()) > 20, name
        if inspect.isclass(value):
            assert all(value.__doc__ != base.__doc__ for base in value.__mro__[1:]), name
            assert issubclass(value, keras_attn_export.ExportError) or not issubclass(value, BaseException), name


def test_removed_name_raises_with_its_replacement():
    with pytest.raises(AttributeError, match=r"`convert_bundle` was removed: use Keras's own `model\.export\("):
        _ = keras_attn_export.convert_bundle


@pytest.mark.parametrize("path", SIGNATURES)
def test_signature_equals_the_list(path):
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(resolve_name(path)).parameters.values()
        if parameter.name not in ("self", *IMPLICIT) and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    assert str(inspect.Signature(parameters)) == SIGNATURES[path]


def test_modules_except_entry_points_are_private_and_packages_are_typed():
    for folder in (KERAS_ATTN, EXPORT):
        assert (folder / "py.typed").is_file()
        names = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py")} - {"__init__.py"}
        public = sorted(name.partition("/")[0] for name in names if "/_" not in f"/{name}".replace("__init__", ""))
        assert public == (["callbacks", "decoding", "migrate"] if folder is KERAS_ATTN else [])


# These files need TensorFlow: for loops of one step at a time or with rows that end early, which Keras does not offer,
# for the number of the replica, for the kind of tracing, and for TensorBoard.
TENSORFLOW_FILES = {f"decoding/_{name}.py" for name in ("ops", "tensorflow_loops")}
TENSORFLOW_FILES |= {
    "_maths/additive_query_blocks.py",
    "_keras/private_api.py",
    "_keras/replica_seeds.py",
    "callbacks/_image_writers.py",
}


@pytest.mark.slow
def test_layers_import_no_tensorflow_outside_the_listed_files():
    for folder in (KERAS_ATTN, EXPORT):
        for path in sorted(folder.rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            packages = find_imported_packages(tree)
            assert packages.isdisjoint({"keras_attn_export", "export"}), path
            if folder == KERAS_ATTN and path.relative_to(folder).as_posix() not in TENSORFLOW_FILES:
                names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
                assert (names | packages).isdisjoint({"tf", "tensorflow", "tf_keras"}), path


@pytest.mark.parametrize(
    ("statement", "loaded", "unloaded"),
    [  # None in `sys.modules`: as if the package were not installed
        pytest.param(
            "sys.modules['matplotlib'] = None; import keras_attn",
            "keras",
            "keras_attn_export tf2onnx onnx onnxruntime",
            marks=pytest.mark.slow,
        ),
        ("import keras_attn_export", "keras_attn_export", "numpy keras_attn"),
        ("import keras_attn_export._cli.main", "numpy", "tensorflow keras keras_attn tf2onnx"),
    ],
)
def test_import_loads_no_optional_package(statement, loaded, unloaded):
    script = f"import sys; {statement}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert loaded in run.stdout.split()
    assert {*run.stdout.split()}.isdisjoint(unloaded.split())


def test_layers_are_registered_under_the_package_name():
    for name in NAMES["keras_attn"]:
        value = getattr(keras_attn, name)
        if inspect.isclass(value):
            assert keras.saving.get_registered_name(value) == f"keras_attn>{name}"
    assert keras.saving.get_registered_object("keras_attn>ZerosLike") is cache.ZerosLike  # saved models contain it


def test_changelog_and_citation_name_the_version():
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    released = next(line for line in lines if re.match(r"## \[\d", line))
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == keras_attn.__version__
    assert released == f"## [{citation['version']}] - {citation.get('date-released', 'not released')}"
    assert {"cff-version", "message", "title", "authors", "license", "type"} <= set(citation)
