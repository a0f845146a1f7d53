"""`keras-attn verify`: table, JSON, warnings, and errors."""

import json
import re

import pytest
from small_bundle import alter_golden_outputs, read_manifest, refresh_checksum

from keras_attn_export import ParityReport


def test_verify_prints_a_table_or_json(exported, succeeds):
    header, *rows, summary, largest_difference = succeeds("verify", exported).partition("\nwarning: ")[0].splitlines()
    assert header.split()[:2] == ["case", "output"]
    count = 2 * read_manifest(exported)["parity"]["cases"]
    assert len(rows) == count
    assert all(row.endswith(" ok") for row in rows)
    assert summary == f"all {count} outputs match over {count // 2} cases on CPUExecutionProvider"
    assert largest_difference.startswith("largest difference ")
    assert ParityReport.from_json(succeeds("verify", exported, "--json")).passed


def test_verify_and_inspect_show_warnings(bundle, succeeds):
    file = bundle / "parity" / "report.json"
    report = json.loads(file.read_text())
    file.write_text(
        json.dumps(report | {"coverage": report["coverage"] | {"axes": {"queries_length": [6]}, "inputs": {}}})
    )
    refresh_checksum(bundle, "parity/report.json")
    message = "Axis `queries_length` is dynamic, but only size 6 was compared."
    assert succeeds("verify", bundle).endswith(f"\nwarning: {message}\n")
    assert json.loads(succeeds("verify", bundle, "--json"))["warnings"] == [message]
    assert re.search(r"^warning +Axis `queries_length` is dynamic", succeeds("inspect", bundle), flags=re.MULTILINE)


def test_verify_shows_a_mismatch(bundle, call):
    alter_golden_outputs(bundle)
    code, out, err = call("verify", bundle, "--json")
    assert code == 1
    (case,) = (row["case"] for row in json.loads(out)["rows"] if not row["passed"])
    message = f"`context` in case `{case}` is outside the tolerance. Add --trace to find where it begins."
    assert re.fullmatch(rf"error: 1 of \d+ outputs differ from Keras's: {re.escape(message)}\n", err)
    code, out, second_err = call("verify", bundle)
    assert (code, second_err) == (1, err)
    assert [line.partition("FAILED: ")[2] for line in out.splitlines() if "FAILED:" in line] == [
        "is outside the tolerance"
    ]


@pytest.mark.parametrize("option", [["--import", "own_layers"], ["--unsafe"]], ids=" ".join)
def test_verify_refuses_options_of_a_model_without_model(exported, samples, fails, option):
    for options in ([], ["--samples", samples]):
        fails("verify", exported, *option, *options, message=f"error: `{option[0]}` needs `--model`: ")
