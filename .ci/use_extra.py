"""Uses what an environment with some extras alone can do, and reads what it says of the rest.

`use_extra.py write FOLDER` makes a model, a bundle and arrays with all that is installed; `use_extra.py EXTRAS FOLDER`
then uses them where only these extras are.
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


def command(line: str, *, fails: str = "") -> str:
    """Run `keras-attn`, which must do what is asked, or end with a line that says `fails`."""
    done = subprocess.run([shutil.which("keras-attn"), *line.split()], capture_output=True, text=True, check=False)
    last = ((done.stderr if fails else done.stdout).strip().splitlines() or [""])[-1]
    if done.returncode != bool(fails) or fails not in last:
        raise SystemExit(f"keras-attn {line} should have {expected(fails)}\n{done.stdout}{done.stderr}")
    print(f"keras-attn {line}: {done.returncode}: {last}")
    return done.stdout


def expected(fails: str) -> str:
    return f"failed with: {fails}" if fails else "worked"


def python(code: str, *, fails: str = "", **environment: str) -> None:
    """Run code in a process of its own, which must end well, or with `fails` in its last line."""
    run = [sys.executable, "-c", code]
    done = subprocess.run(run, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    last = (done.stderr.strip().splitlines() or [""])[-1]
    print(f"{code.splitlines()[-1]}: {done.returncode}: {last or done.stdout.strip()}")
    if bool(done.returncode) != bool(fails) or fails not in last:
        raise SystemExit(f"this should have {expected(fails)}\n{code}\n{done.stdout}{done.stderr}")


def use_base() -> None:
    """Layers, on a backend that the extras do not bring."""
    if find_spec("onnxruntime") or find_spec("tensorflow"):
        raise SystemExit("onnxruntime or TensorFlow is installed without being asked for")
    python("import keras_attn", fails='pip install "keras-attn[export]"')
    python("import keras_attn_export as e; e.load_bundle('bundle').session()", fails='"keras-attn[runtime]"')
    command("verify bundle", fails='pip install "keras-attn[runtime]"')
    command(
        "export model.keras new",
        fails='tensorflow, tf2onnx, onnx, onnxruntime. Install what is missing: pip install "keras-attn[export]"',
    )
    command("report bundle", fails='pip install "keras-attn[runtime]"')


def use_jax() -> None:
    """The layers where JAX alone is what Keras computes with."""
    if find_spec("tensorflow"):
        raise SystemExit("TensorFlow is installed without being asked for")
    x = f"x = {{name: rng.normal(size=size).astype('float32') for name, size in {SIZES}.items()}}"
    code = f"""import numpy as np, keras_attn
rng = np.random.default_rng(0)
{x}
layers = keras_attn.AdditiveAttention(4), keras_attn.MultiHeadAttention(keras_attn.DotProductAttention(), num_heads=2)
for layer in layers: assert (np.asarray(layer(**x, valid_lens=[2, 0]))[1] == 0).all()"""
    python(code, KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")


def use_runtime() -> None:
    """All that is done with a bundle, where neither TensorFlow is nor any backend of Keras's."""
    if find_spec("tensorflow"):
        raise SystemExit("TensorFlow is installed without being asked for")
    for line in (
        "verify bundle",
        "inspect bundle",
        "report bundle",
        "bench bundle --seconds 0.1",
        "predict bundle x.parquet rows",
    ):
        command(line)
    command("run bundle --inputs x.npz --outputs y.npz")
    python("import numpy as np, keras_attn_export\nkeras_attn_export.load_bundle('bundle').run(dict(np.load('x.npz')))")
    lacking = "export" if not find_spec("onnxruntime") else "convert"
    command(
        "export model.keras new",
        fails=f'tensorflow, tf2onnx. Install what is missing: pip install "keras-attn[{lacking}]"',
    )


def use_export() -> None:
    command("export model.keras new --report --json")
    command("verify new --samples x.npz --model model.keras")


def use_gpu() -> None:
    use_runtime()
    only_one_runtime("onnxruntime-gpu")
    no_device()


def no_device() -> None:
    if not shutil.which("nvidia-smi"):
        command("verify bundle --provider cuda", fails='pip install "onnxruntime-gpu[cuda,cudnn]"')


def use_openvino() -> None:
    shutil.rmtree("bundle")  # which needs a newer onnxruntime than OpenVINO's is
    Path("standard").rename("bundle")
    use_runtime()
    only_one_runtime("onnxruntime-openvino")
    command("verify bundle --provider openvino")


def only_one_runtime(name: str) -> None:
    found = {each.name for each in distributions() if each.name.startswith("onnxruntime")}
    if found != {name}:
        raise SystemExit(f"there should be {name} alone, and there is {found}")


def use_convert_gpu() -> None:
    use_export()
    only_one_runtime("onnxruntime-gpu")
    no_device()


def use_plot() -> None:
    python("import numpy as np, keras_attn\nkeras_attn.show_heatmaps(np.eye(3)[None, None]).savefig('map.png')")


def use_ray() -> None:
    command("predict bundle x.parquet rows --engine ray --workers 1")


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
        print(command("doctor"))
        USES[extras]()


if __name__ == "__main__":
    main(*sys.argv[1:])
