"""Tests in separate environments: `.venv/bin/nox --list`. Arguments after `--` are passed to pytest."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import nox

TESTS = Path("tests")
SUPPORT = "tests:" + ":".join(f"tests/support/{folder}" for folder in ("models", "oracles", "files", "processes"))
EXTRAS = nox.project.load_toml("pyproject.toml")["project"]["optional-dependencies"]

nox.needs_version = ">=2026.10"
nox.options.default_venv_backend = "uv"
nox.options.reuse_venv = "yes"
nox.options.sessions = []
nox.options.error_on_missing_interpreters = False  # such a session is skipped with a message


def read_output(*command: str) -> str:
    """Run a command and return its standard output."""
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return process.stdout.strip()


# uv does not ask pip for its index.
PIP_INDEX = (sys.executable, "-m", "pip", "config", "get", "global.index-url")
if index := os.environ.get("PIP_INDEX_URL") or read_output(*PIP_INDEX):
    os.environ.setdefault("UV_DEFAULT_INDEX", index)
# Interpreters of pyenv are in the path only if they are activated.
if shutil.which("pyenv"):
    names = [read_output("pyenv", "version-name"), *read_output("pyenv", "versions", "--bare").split()]
    os.environ.setdefault("PYENV_VERSION", ":".join(dict.fromkeys(names)))


def install(session: nox.Session, *extras: str, options: Sequence[str] = ()) -> None:
    """Install the checkout with the extra `test` and further extras."""
    session.install("--quiet", *options, "--editable", f".[{','.join(('test', *extras))}]")


def run_tests(session: nox.Session, *arguments: str, **environment: str) -> None:
    """Run pytest; with arguments of the user, after `--`, no test may be left."""
    command = ("python", "-m", "pytest", "-n", "2", "--dist", "worksteal")
    cache = {"PYTHONDONTWRITEBYTECODE": ""}  # without bytecode, each process compiles TensorFlow for seconds
    codes = [0, 5] if session.posargs else [0]
    has_path = any(argument.startswith("tests") for argument in (*arguments, *session.posargs))
    tests = () if has_path else ("tests",)  # a path selects slow tests as well
    session.run(*command, *tests, *arguments, *session.posargs, env=cache | environment, success_codes=codes)


def find_tests(*names: str) -> list[str]:
    """Return the test files with these names, or patterns of names, in any folder; each must match a file."""
    matches = {name: sorted(map(str, TESTS.rglob(f"test_{name}.py"))) for name in names}
    if missing := [name for name, paths in matches.items() if not paths]:
        raise FileNotFoundError(f"No file in tests/ is called {' or '.join(f'test_{name}.py' for name in missing)}.")
    return [path for paths in matches.values() for path in paths]


# Other backends of Keras.


def install_backends(session: nox.Session) -> None:
    """Install JAX, torch and other frameworks in addition to TensorFlow."""
    (torch,) = (requirement for requirement in EXTRAS["backends"] if requirement.startswith("torch"))
    session.install("--quiet", "pip")
    # pip prefers a CPU build of a configured index; uv would install PyPI's build with 3 GB of CUDA.
    session.run_install("python", "-m", "pip", "install", "-qq", "--no-compile", torch)
    install(session, "backends")


def run_on_backend(session: nox.Session, backend: str, *arguments: str) -> None:
    """Run tests on a backend of Keras."""
    install_backends(session)
    with tempfile.TemporaryDirectory() as cache:
        # JAX spends most time on compiling each operation for each size. So LLVM optimizes less, and both workers share
        # a cache. Rewrites by XLA are not affected.
        run_tests(
            session,
            *arguments,
            KERAS_BACKEND=backend,
            JAX_PLATFORMS="cpu",
            XLA_FLAGS="--xla_backend_optimization_level=0",
            JAX_COMPILATION_CACHE_DIR=cache,
            JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
            JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1",
        )


@nox.session
def jax(session: nox.Session) -> None:
    """Run the layer tests on JAX."""
    run_on_backend(session, "jax")


@nox.session
def torch(session: nox.Session) -> None:
    """Run the layer tests on torch."""
    run_on_backend(session, "torch")


@nox.session
def interop(session: nox.Session) -> None:
    """Test weights from other frameworks, and exports of models on JAX or torch."""
    run_on_backend(session, "tensorflow", *find_tests("migrate*", "jax_and_torch"))


# Other versions.


@nox.session(python="3.11")
def lowest(session: nox.Session) -> None:
    """Test the contract, bundles and verification, and parts of export, with the lowest supported versions."""
    install(session, options=("--upgrade", "--resolution", "lowest-direct"))
    newer_runtime = Path(session.virtualenv.location, "fused")  # `fused` needs a newer onnxruntime
    code = "from keras_attn_export._onnxruntime_releases import LOWEST_FOR_LOWERING as lowest; print(lowest['fused'])"
    if fused := session.run_install("python", "-c", code, silent=True):
        session.install("--quiet", "--no-deps", "--target", str(newer_runtime), f"onnxruntime=={fused.split()[-1]}.0")

    export, command, lower = find_tests("export_model", "export_command", "lower_model")
    lowering = f"{lower}::test_layer_is_written_in_its_lowering_with_equal_outputs"
    # Opset 24 is too new for the lowest onnxruntime. `fused` needs a newer one. XLA runs on one layer only, because it
    # compiles for minutes. The selected tests of the contract depend most on the libraries.
    run_tests(
        session,
        *find_tests("contract", "contract_paths", "contract_precision", "contract_saving", "options", "bundle"),
        *find_tests("interruptible_session", "verify_script", "untrusted_input", "integrity", "parity_report"),
        *find_tests("convert_precision", "lowering_choice"),
        f"{export}::test_bundle_has_its_files_and_manifest",
        f"{command}::test_export_with_options_prints_json_only",
        f"{export}::test_tolerance_decides_and_mismatch_leaves_nothing",
        *(f"{lowering}[{name}]" for name in ("two calls", "arguments that are constants")),
        *("-k", "(not fused or refused or confused) and not 24 and (not xla or dot_product)"),
    )
    run_tests(
        session,
        *find_tests("lowering_choice"),
        *(f"{lowering}[{name}]" for name in ("at the lowest opset", "by an operator", "each its own")),
        f"{lower}::test_old_onnxruntime_refuses_fused",
        PYTHONPATH=str(newer_runtime.resolve()),
    )


@nox.session(python=["3.12", "3.13"])
def python(session: nox.Session) -> None:
    """Run a few tests of every part on another Python, with the newest versions of packages."""
    install(session)
    expression = "dot_product or public_api or bundle_has_its_files or prints_json_only or wrong_usage or help"
    tests = find_tests("contract*", "public_api", "export_model", "export_command", "main")
    run_tests(session, *tests, "-k", expression)


USED = ["none", "jax", "runtime", "export", "gpu", "convert,gpu", "openvino"]
USED += ["export,plot", "runtime,ray"]
PREPARED: list[str] = []  # folder with the model and the bundle that all sessions of `extras` use


@nox.session(python=["3.11", "3.13"])
@nox.parametrize("used", USED, ids=USED)
def extras(session: nox.Session, used: str) -> None:
    """Test the package with only some extras: their functions, and messages about missing packages."""
    script = str(Path(".ci/use_extra.py").resolve())
    if not PREPARED:
        PREPARED.append(str(session.cache_dir.resolve() / "prepared"))
        shutil.rmtree(PREPARED[0], ignore_errors=True)
        session.run("scripts/setup", external=True)
        session.run(".venv/bin/python", script, "write", PREPARED[0], external=True)
    requirements = [".", "jax"] if used == "jax" else ["." if used == "none" else f".[{used}]"]
    session.install("--quiet", "--reinstall-package", "keras-attn", *requirements)
    # The script runs in another folder, so that only the installed package can be imported.
    session.run("python", script, used, PREPARED[0])


@nox.session(python="3.11")  # onnxruntime 1.15.1 has no wheels for a newer Python
def runtimes(session: nox.Session) -> None:
    """Test OpenVINO's provider and older onnxruntimes, each in a folder (0.4 GB); the tests run in .venv."""
    session.run_install("scripts/setup", external=True)
    session.install("--quiet", "numpy<2")
    folder = Path(session.virtualenv.location).resolve()
    for version in ("1.15.1", "1.17.3", "1.19.2"):
        into = ("--target", str(folder / f"onnxruntime-{version}"))
        session.install("--quiet", "--no-deps", *into, f"onnxruntime=={version}")
    openvino, python = str(folder / "openvino"), str(Path(".venv/bin/python").absolute())
    quantizer = ("sympy", "mpmath")  # imported by the quantizer
    into = ("--python", python, "--target", openvino)
    session.install("--quiet", "--no-deps", *into, "onnxruntime-openvino==1.24.1", *quantizer)
    lowerings = (*find_tests("lowering_choice"), "--provider", "openvino", "-k", "portable18 and not cuda")
    for tests in (("tests/runtimes", *session.posargs), lowerings):
        session.run("scripts/test", *tests, external=True, env={"PYTHONPATH": openvino})


# Other programs that use a bundle.


@nox.session
def serving(session: nox.Session) -> None:
    """Test the example service, in an environment without TensorFlow; the tests run in .venv."""
    session.install("--quiet", "--requirement", "tests/serving/requirements.txt")
    session.run("scripts/test", "tests/serving", *session.posargs, external=True)


@nox.session
def web(session: nox.Session) -> None:
    """Test pages in a browser, and JavaScript in Node; the npm packages take 440 MB."""
    for setup in (".ci/web-setup", ".ci/browser-setup"):
        if subprocess.run([setup], check=False).returncode:
            session.skip("Node.js or Chromium is missing")
    install(session, "web")
    run_tests(session, "tests/report")


# Architectures.


@nox.session
def zoo(session: nox.Session) -> None:
    """Export and verify the architectures of docs/models.md."""
    install(session, "zoo")
    run_tests(session, "tests/zoo", "--dist", "load")


@nox.session(name="operators-page")
def operators_page(session: nox.Session) -> None:
    """Write docs/operators.md, which compares all operators with Keras's exporter; takes half an hour."""
    install(session)
    session.run("python", "-m", "values", *session.posargs, env={"PYTHONPATH": SUPPORT})


@nox.session(name="zoo-page")
def zoo_page(session: nox.Session) -> None:
    """Write docs/models.md, which compares the zoo with Keras's exporter; takes hours, and resumes."""
    install(session, "zoo")
    session.run("python", "-m", "zoo", *session.posargs, env={"PYTHONPATH": SUPPORT})


@nox.session(name="mutate-graphs", venv_backend="none")
def mutate_graphs(session: nox.Session) -> None:
    """Mutate exported ONNX files; fail if a mutant with other outputs passes the parity check."""
    session.run("scripts/setup", "dev", external=True)
    environment = {"PYTHONPATH": SUPPORT, "TF_CPP_MIN_LOG_LEVEL": "3", "TF2ONNX_CATCH_ERRORS": "FALSE"}
    session.run(".venv/bin/python", "-m", "mutations.mutate_graphs", *session.posargs, env=environment, external=True)
