"""`keras-attn inspect`: the description of a bundle, as text or JSON."""

import json
import re

from small_bundle import alter_manifest, list_names, read_manifest, refresh_checksum


def test_inspect_describes_a_bundle(exported, succeeds):
    out, manifest = succeeds("inspect", exported), read_manifest(exported)
    for line in (
        r"inputs +queries: float32 \[batch, queries_length, 4\]",
        r" +valid_lens: int32 \[batch\]",
        "axes +batch, queries_length, keys_length",
        r"attention +attention \(AdditiveAttention\): adaptive, float32: plain operators",
        rf"opset +18, needs onnxruntime {manifest['lowest_onnxruntime']} or newer",
        rf"made with +keras-attn {manifest['versions']['keras-attn']}, tensorflow .*",
        r"parity +all \d+ outputs match over \d+ cases",
        r"verify\.py +the script of the installed keras-attn",
    ):
        assert re.search(f"^{line}$", out, flags=re.MULTILINE), f"{line} is not in {out}"
    content = json.loads(succeeds("inspect", exported, "--json"))
    assert (content["bundle"], content["manifest"]) == (str(exported), manifest)
    assert content["report"]["passed"] is True


def test_inspect_shows_multiples(bundle, succeeds):
    alter_manifest(bundle, multiples={"keys_length": 8})
    line = r"^axes +batch, queries_length, keys_length \(multiples of 8\)$"
    assert re.search(line, succeeds("inspect", bundle), flags=re.MULTILINE)


def test_commands_never_run_the_script_of_a_bundle(bundle, samples, tmp_path, succeeds):
    """Each command accepts a bundle with a foreign `verify.py`."""
    (bundle / "verify.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    refresh_checksum(bundle, "verify.py")
    for command in (["verify"], ["run", "--inputs", samples, "--outputs", tmp_path / "out.npz"], ["inspect"]):
        out = succeeds(*command, bundle)
    assert re.search(r"^verify\.py +not the script of the installed keras-attn", out, flags=re.MULTILINE)
    assert list_names(tmp_path) == ["bundle", "out.npz", "samples.npz"]


def test_inspect_separates_the_longest_title_from_its_text(bundle, succeeds):
    file = bundle / "parity" / "report.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"refused": {"every text": "it is too short"}}))
    refresh_checksum(bundle, "parity/report.json")
    assert "\nnot compared  case every text, which Keras cannot run: it is too short\n" in succeeds("inspect", bundle)
