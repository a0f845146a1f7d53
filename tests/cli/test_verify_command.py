"""`keras-attn verify`: what it prints, and how it ends."""

import json
import re

import pytest
from bundles import alter_golden_outputs, assert_one_line, read_manifest, reseal

from keras_attn_export import ParityReport
from keras_attn_export._cli.main import main

pytest_plugins = ("bundle_fixtures", "command_fixtures")


def test_verify_prints_a_table(exported, call):
    code, out, err = call("verify", exported)
    assert (code, err) == (0, "")
    header, *rows, last, largest = out.splitlines()
    assert header.split()[:2] == ["case", "output"]
    count = 2 * read_manifest(exported)["parity"]["cases"]
    assert len(rows) == count
    assert all(row.endswith(" ok") for row in rows)
    assert last == f"all {count} comparisons match over {count // 2} cases on CPUExecutionProvider"
    assert largest.startswith("largest difference ")


def test_verify_json(exported, call):
    code, out, err = call("verify", exported, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["passed"] is True
    assert ParityReport.from_json(out).passed


def test_warnings_are_shown(bundle, call):
    file = bundle / "parity" / "report.json"
    report = json.loads(file.read_text())
    file.write_text(json.dumps(report | {"coverage": report["coverage"] | {"axes": {"queries_length": [6]}}}))
    reseal(bundle, "parity/report.json")
    said = "Axis `queries_length` is called dynamic, but only size 6 was compared."
    code, out, err = call("verify", bundle)
    assert (code, err) == (0, "")
    assert out.endswith(f"\nwarning: {said}\n")
    assert json.loads(call("verify", bundle, "--json")[1])["warnings"] == [said]
    assert re.search(r"^warning +Axis `queries_length` is called", call("inspect", bundle)[1], flags=re.MULTILINE)


def verify_rows(call, bundle):
    return json.loads(call("verify", bundle, "--json")[1])["rows"]


def test_verify_shows_a_mismatch(bundle, call):
    alter_golden_outputs(bundle)
    code, out, err = call("verify", bundle)
    assert code == 1
    (case,) = (row["case"] for row in verify_rows(call, bundle) if not row["passed"])
    said = f"`context` in case `{case}` is outside the tolerance. Add --trace to see where it begins."
    assert re.fullmatch(rf"error: 1 of \d+ outputs differ from Keras's: {re.escape(said)}\n", err)
    assert [line.split()[-5:] for line in out.splitlines() if "FAILED:" in line] == [
        ["FAILED:", "is", "outside", "the", "tolerance"]
    ]
    code, out, err = call("verify", bundle, "--json")
    assert code == 1
    assert_one_line(err)
    assert json.loads(out)["passed"] is False


@pytest.mark.parametrize("option", [["--import", "own_layers"], ["--unsafe"]], ids=" ".join)
def test_what_is_for_a_model_needs_one(exported, samples, call, option):
    for more in ([], ["--samples", samples]):
        code, out, err = call("verify", exported, *option, *more)
        assert (code, out) == (1, "")
        assert_one_line(err, f"error: `{option[0]}` needs `--model`: ")


def test_help_says_that_a_trace_runs_code(capsys):
    with pytest.raises(SystemExit):
        main(["verify", "--help"])
    assert "which is code of whoever made it" in " ".join(capsys.readouterr().out.split())
