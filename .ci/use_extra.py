"""Test an environment that has only some extras: available functions, and messages about missing packages.

`use_extra.py write FOLDER` writes a model, a bundle and arrays in a complete environment; `use_extra.py EXTRAS FOLDER`
uses these files in an environment with only EXTRAS.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
SIZES = {"queries": (2, 3, 8), "keys": (2, 5, 8), "values": (2, 5, 4)}


def write(folder: Path) -> None:
    import keras
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from keras_attn import DotProductAttention
    from keras_attn_export import export_model

    inputs = {name: keras.Input((None, size[-1]), name=name) for name, size in SIZES.items()}
    inputs["valid_lens"] = keras.Input((), dtype="int32", name="valid_lens")
    model = keras.Model(inputs, DotProductAttention(name="context")(**inputs))
    folder.mkdir(parents=True)
    model.save(folder / "model.keras")
    rng = np.random.default_rng(0)
    arrays = {name: rng.normal(size=size).astype("float32") for name, size in SIZES.items()}
    np.savez(folder / "x.npz", **arrays, valid_lens=np.array([2, 5], "int32"))
    nested = pa.list_(pa.list_(pa.float32()))
    columns = {name: pa.array([list(map(list, row)) for row in array], nested) for name, array in arrays.items()}
    pq.write_table(pa.table({**columns, "valid_lens": pa.array([2, 5], pa.int32())}), folder / "x.parquet")
    export_model(model, folder / "bundle", progress=False)
    export_model(model, folder / "standard", target="standard", progress=False)


def run_command(line: str, *, fails: str = "") -> str:
    """Run `keras-attn` and return its output; the command must succeed, or fail with `fails` in its last line."""
    process = subprocess.run([shutil.which("keras-attn"), *line.split()], capture_output=True, text=True, check=False)
    last = ((process.stderr if fails else process.stdout).strip().splitlines() or [""])[-1]
    if process.returncode != bool(fails) or fails not in last:
        raise SystemExit(f"keras-attn {line} should have {describe_expected(fails)}\n{process.stdout}{process.stderr}")
    print(f"keras-attn {line}: {process.returncode}: {last}")
    return process.stdout


def describe_expected(fails: str) -> str:
    return f"failed with: {fails}" if fails else "worked"


def run_python(code: str, *, fails: str = "", **environment: str) -> None:
    """Run code in a new process, which must succeed, or fail with `fails` in its last line."""
    arguments = [sys.executable, "-c", code]
    process = subprocess.run(arguments, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    last = (process.stderr.strip().splitlines() or [""])[-1]
    print(f"{code.splitlines()[-1]}: {process.returncode}: {last or process.stdout.strip()}")
    if bool(process.returncode) != bool(fails) or fails not in last:
        raise SystemExit(f"this should have {describe_expected(fails)}\n{code}\n{process.stdout}{process.stderr}")


def use_base() -> None:
    """Test messages about missing packages without any extra."""
    if find_spec("onnxruntime") or find_spec("tensorflow"):
        raise SystemExit("onnxruntime or TensorFlow is installed without being asked for")
    run_python("import keras_attn", fails='pip install "keras-attn[export]"')
    run_python("import keras_attn_export as e; e.load_bundle('bundle').session()", fails='"keras-attn[runtime]"')
    run_command("verify bundle", fails='pip install "keras-attn[runtime]"')
    run_command(
        "export model.keras new",
        fails='tensorflow, tf2onnx, onnx, onnxruntime. Install what is missing: pip install "keras-attn[export]"',
    )
    run_command("report bundle", fails='pip install "keras-attn[runtime]"')


def use_jax() -> None:
    """Test the layers with JAX as the only backend."""
    if find_spec("tensorflow"):
        raise SystemExit("TensorFlow is installed without being asked for")
    x = f"x = {{name: rng.normal(size=size).astype('float32') for name, size in {SIZES}.items()}}"
    code = f"""import numpy as np, keras_attn
rng = np.random.default_rng(0)
{x}
layers = keras_attn.AdditiveAttention(4), keras_attn.MultiHeadAttention(keras_attn.DotProductAttention(), num_heads=2)
for layer in layers: assert (np.asarray(layer(**x, valid_lens=[2, 0]))[1] == 0).all()"""
    run_python(code, KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")


def use_runtime() -> None:
    """Test all functions of bundles, without a backend of Keras."""
    if find_spec("tensorflow"):
        raise SystemExit("TensorFlow is installed without being asked for")
    for line in (
        "verify bundle",
        "inspect bundle",
        "report bundle",
        "bench bundle --seconds 0.1",
        "predict bundle x.parquet rows",
    ):
        run_command(line)
    run_command("run bundle --inputs x.npz --outputs y.npz")
    run_python(
        "import numpy as np, keras_attn_export\nkeras_attn_export.load_bundle('bundle').run(dict(np.load('x.npz')))"
    )
    extra = "export" if not find_spec("onnxruntime") else "convert"
    run_command(
        "export model.keras new",
        fails=f'tensorflow, tf2onnx. Install what is missing: pip install "keras-attn[{extra}]"',
    )


def use_export() -> None:
    run_command("export model.keras new --report --json")
    run_command("verify new --samples x.npz --model model.keras")


def use_gpu() -> None:
    use_runtime()
    require_runtime("onnxruntime-gpu")
    check_missing_device()


def check_missing_device() -> None:
    if not shutil.which("nvidia-smi"):
        run_command("verify bundle --provider cuda", fails='pip install "onnxruntime-gpu[cuda,cudnn]"')


def use_openvino() -> None:
    shutil.rmtree("bundle")  # needs a newer onnxruntime than onnxruntime-openvino
    Path("standard").rename("bundle")
    use_runtime()
    require_runtime("onnxruntime-openvino")
    run_command("verify bundle --provider openvino")


def require_runtime(name: str) -> None:
    names = {distribution.name for distribution in distributions() if distribution.name.startswith("onnxruntime")}
    if names != {name}:
        raise SystemExit(f"{name} should be the only onnxruntime. Installed: {names}")


def use_convert_gpu() -> None:
    use_export()
    require_runtime("onnxruntime-gpu")
    check_missing_device()


def use_plot() -> None:
    run_python("import numpy as np, keras_attn\nkeras_attn.show_heatmaps(np.eye(3)[None, None]).savefig('map.png')")


def use_ray() -> None:
    run_command("predict bundle x.parquet rows --engine ray --workers 1")


USES = {
    "none": use_base,
    "jax": use_jax,
    "runtime": use_runtime,
    "export": use_export,
    "gpu": use_gpu,
    "convert,gpu": use_convert_gpu,
    "openvino": use_openvino,
    "export,plot": use_plot,
    "runtime,ray": use_ray,
}


def main(extras: str, folder: str) -> None:
    if extras == "write":
        write(Path(folder))
        return
    with tempfile.TemporaryDirectory() as work:
        shutil.copytree(folder, work, dirs_exist_ok=True)
        os.chdir(work)
        print(run_command("doctor"))
        USES[extras]()


if __name__ == "__main__":
    main(*sys.argv[1:])
