"""`keras-attn inspect`: what a bundle is, in a few lines or as JSON."""

import json
import re

import pytest
from bundles import alter_manifest, assert_one_line, names, read_manifest, reseal

pytest_plugins = ("bundle_fixtures", "command_fixtures")


def test_inspect(exported, call):
    code, out, err = call("inspect", exported)
    assert (code, err) == (0, "")
    manifest = read_manifest(exported)
    for line in (
        rf"bundle +{exported}",
        r"size +\d+\.\d [kM]B: ONNX \d+\.\d kB, SavedModel \d+\.\d kB",
        "model +small",
        r"inputs +queries: float32 \[batch, queries_length, 4\]",
        r" +valid_lens: int32 \[batch\]",
        r" +weights: float32 \[batch, queries_length, keys_length\]",
        "axes +batch, queries_length, keys_length",
        r"attention +attention \(AdditiveAttention\): adaptive, float32: plain operators",
        rf"opset +18, needs onnxruntime {manifest['lowest_onnxruntime']} or newer",
        rf"made with +keras-attn {manifest['versions']['keras-attn']}, tensorflow .*",
        r"parity +all \d+ comparisons match over \d+ cases",
        r" +largest difference .* absolute, .* relative, .* of its",
        r" +allowed: what rounding does, on cpu",
        r"verify\.py +the one of the installed keras-attn",
    ):
        assert re.search(f"^{line}$", out, flags=re.MULTILINE), f"{line} is not in {out}"


def test_inspect_shows_multiples(bundle, call):
    alter_manifest(bundle, multiples={"keys_length": 8})
    code, out, _ = call("inspect", bundle)
    assert code == 0
    assert re.search(r"^axes +batch, queries_length, keys_length \(multiples of 8\)$", out, flags=re.MULTILINE)


def test_inspect_json(exported, call):
    code, out, err = call("inspect", exported, "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert content["bundle"] == str(exported)
    assert content["manifest"] == read_manifest(exported)
    assert content["report"]["passed"] is True


@pytest.mark.parametrize(
    "entries",
    [
        {"layers": ...},
        {"layers": [7]},
        {"model": ...},
        {"versions": ["keras"]},
        {"static": ["batch"]},
        {"precision": 7},
        {"parity": {"tolerance": {"relative": "little", "absolute": 0}}},
        {"parity": {"tolerance": 0.1}},
    ],
    ids=str,
)
def test_a_manifest_that_was_sealed_with_other_entries(bundle, call, entries):
    alter_manifest(bundle, **entries)
    code, out, err = call("inspect", bundle)
    assert (code, out) == (1, "")
    assert_one_line(err, f"error: {bundle / 'manifest.json'}, or the report, lacks what is to be shown or has it in")
    content = json.loads(call("inspect", bundle, "--json")[1])
    assert content["manifest"] == read_manifest(bundle)


def test_the_code_in_a_bundle_is_not_run_and_told_from_ours(bundle, samples, tmp_path, call):
    """Each command works on a bundle whose `verify.py` is someone's own, as on any other."""
    (bundle / "verify.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    reseal(bundle, "verify.py")
    for command in (["verify"], ["run", "--inputs", samples, "--outputs", tmp_path / "out.npz"], ["inspect"]):
        code, out, err = call(*command, bundle)
        assert (code, err) == (0, "")
    assert re.search(r"^verify\.py +not the one of the installed keras-attn", out, flags=re.MULTILINE)
    assert names(tmp_path) == ["bundle", "out.npz", "samples.npz"]
