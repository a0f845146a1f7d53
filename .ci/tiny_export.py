"""Export and verify a tiny model with the installed `keras-attn` command, as a user of the wheel would."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import keras

import keras_attn
import keras_attn_export

COMMAND = Path(sys.executable).with_name("keras-attn")
CHECKOUT = Path(__file__).resolve().parent.parent


def run_command(*arguments: str | Path, cwd: Path, code: int = 0) -> str:
    """Run the console script, require an exit code, and return its standard output."""
    process = subprocess.run([COMMAND, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    if process.returncode != code:
        raise SystemExit(
            f"keras-attn {arguments[0]}: exit code {process.returncode}, not {code}\n{process.stdout}{process.stderr}"
        )
    return process.stdout


def save_model(path: Path) -> None:
    keras.utils.set_random_seed(20141)
    queries = keras.Input((None, 3), name="queries")
    keys = keras.Input((None, 5), name="keys")
    values = keras.Input((None, 4), name="values")
    valid_lens = keras.Input((), dtype="int32", name="valid_lens")
    output = keras_attn.AdditiveAttention(num_hiddens=8, name="context")(queries, keys, values, valid_lens)
    keras.Model([queries, keys, values, valid_lens], output).save(path)


def main() -> None:
    for package in (keras_attn, keras_attn_export):
        if Path(package.__file__).is_relative_to(CHECKOUT):
            raise SystemExit(
                f"{package.__name__} was imported from the checkout, not from the wheel: {package.__file__}"
            )
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        save_model(work / "tiny.keras")
        json.loads(run_command("export", "tiny.keras", "bundle", "--json", cwd=work))
        run_command("verify", "bundle", cwd=work)
        run_command("report", "bundle", cwd=work)  # reads files of the package that are not Python
        run_command("verify", "missing", cwd=work, code=1)
        run_command("no-such-command", cwd=work, code=2)
    print("tiny export: exported, verified and reported; wrong arguments were refused")


if __name__ == "__main__":
    main()
