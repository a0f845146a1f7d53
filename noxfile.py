"""The tests in environments of their own: `.venv/bin/nox --list`. What follows `--` goes to pytest."""

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
nox.options.error_on_missing_interpreters = False  # said, and no failure


def output(*command: str) -> str:
    """What a command prints."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.strip()


# uv does not ask pip for its index.
if index := os.environ.get("PIP_INDEX_URL") or output(sys.executable, "-m", "pip", "config", "get", "global.index-url"):
    os.environ.setdefault("UV_DEFAULT_INDEX", index)
# A Python of pyenv is found only while it is switched on.
if shutil.which("pyenv"):
    names = [output("pyenv", "version-name"), *output("pyenv", "versions", "--bare").split()]
    os.environ.setdefault("PYENV_VERSION", ":".join(dict.fromkeys(names)))


def install(session: nox.Session, *extras: str, options: Sequence[str] = ()) -> None:
    """Installs the checkout with what its tests need, and with further extras."""
    session.install("--quiet", *options, "--editable", f".[{','.join(('test', *extras))}]")


def run_tests(session: nox.Session, *arguments: str, **environment: str) -> None:
    """Runs pytest; the caller's arguments, after `--`, may leave no test of these."""
    command = ("python", "-m", "pytest", "-n", "2", "--dist", "worksteal")
    keep = {"PYTHONDONTWRITEBYTECODE": ""}  # or each process compiles TensorFlow anew, for seconds
    codes = [0, 5] if session.posargs else [0]
    has_path = any(argument.startswith("tests") for argument in (*arguments, *session.posargs))
    tests = () if has_path else ("tests",)  # a path selects slow tests as well
    session.run(*command, *tests, *arguments, *session.posargs, env=keep | environment, success_codes=codes)


def files(*names: str) -> list[str]:
    """Files of tests by their names, wherever they lie; each pattern must find some."""
    found = [sorted(map(str, TESTS.rglob(f"test_{name}.py"))) for name in names]
    if missing := [name for name, each in zip(names, found, strict=True) if not each]:
        raise FileNotFoundError(f"No file in tests/ is called {' or '.join(f'test_{name}.py' for name in missing)}.")
    return [file for each in found for file in each]


# Other backends of Keras.


def install_backends(session: nox.Session) -> None:
    """Installs JAX, torch and other frameworks beside TensorFlow."""
    (torch,) = (each for each in EXTRAS["backends"] if each.startswith("torch"))
    session.install("--quiet", "pip")
    # pip takes a CPU build where it is shown one; uv would take that of PyPI, with 3 GB of CUDA.
    session.run_install("python", "-m", "pip", "install", "-qq", "--no-compile", torch)
    install(session, "backends")


def on_backend(session: nox.Session, backend: str, *arguments: str) -> None:
    """Runs tests on a backend of Keras."""
    install_backends(session)
    with tempfile.TemporaryDirectory() as cache:
        # Nearly all the time on JAX goes into compiling each operation for each size: less of LLVM, and each only once
        # for both workers. What XLA itself rewrites stays as it is.
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
    """The layer tests on JAX."""
    on_backend(session, "jax")


@nox.session
def torch(session: nox.Session) -> None:
    """The layer tests on torch."""
    on_backend(session, "torch")


@nox.session
def interop(session: nox.Session) -> None:
    """Weights that come from other frameworks, and models that live on JAX or torch."""
    on_backend(session, "tensorflow", *files("migrate*", "jax_and_torch"))


# Other versions.


@nox.session(python="3.11")
def lowest(session: nox.Session) -> None:
    """The contract, bundles and verify, and some of export and lowering, on the lowest versions that are allowed."""
    install(session, options=("--upgrade", "--resolution", "lowest-direct"))
    apart = Path(session.virtualenv.location, "fused")  # `fused` needs a newer onnxruntime
    code = "from keras_attn_export._onnxruntime_releases import LOWEST_FOR_LOWERING as lowest; print(lowest['fused'])"
    if fused := session.run_install("python", "-c", code, silent=True):
        session.install("--quiet", "--no-deps", "--target", str(apart), f"onnxruntime=={fused.split()[-1]}.0")

    (export,), (command,), (lower,) = files("export_model"), files("export_command"), files("lower_model")
    written = f"{lower}::test_layer_is_written_in_its_lowering_with_equal_outputs"
    # Opset 24 is too new for the lowest onnxruntime, and `fused` needs it. XLA is tried on one layer: compiling takes
    # minutes. Of the contract what asks the libraries for most; the rest is arithmetic.
    run_tests(
        session,
        *files("contract", "contract_paths", "contract_precision", "contract_saving", "options", "bundle"),
        *files("interruptible_session", "verify_script", "untrusted_input", "integrity", "parity_report"),
        *files("convert_precision", "lowering_choice"),
        f"{export}::test_bundle_has_its_files_and_manifest",
        f"{command}::test_export_with_options_prints_json_only",
        f"{export}::test_tolerance_decides_and_mismatch_leaves_nothing",
        *(f"{written}[{name}]" for name in ("two calls", "arguments that are constants")),
        *("-k", "(not fused or refused or confused) and not 24 and (not xla or dot_product)"),
    )
    run_tests(
        session,
        *files("lowering_choice"),
        *(f"{written}[{name}]" for name in ("at the lowest opset", "by an operator", "each its own")),
        f"{lower}::test_old_onnxruntime_refuses_fused",
        PYTHONPATH=str(apart.resolve()),
    )


@nox.session(python=["3.12", "3.13"])
def python(session: nox.Session) -> None:
    """A few tests of everything on another Python, with the newest versions it can have."""
    install(session)
    chosen = "dot_product or public_api or bundle_has_its_files or prints_json_only or wrong_usage or help"
    run_tests(session, *files("contract*", "public_api", "export_model", "export_command", "main"), "-k", chosen)


USED = ["none", "jax", "runtime", "export", "gpu", "convert,gpu", "openvino"]
USED += ["export,plot", "runtime,ray"]
GIVEN: list[str] = []  # where this run has written what they use


@nox.session(python=["3.11", "3.13"])
@nox.parametrize("used", USED, ids=USED)
def extras(session: nox.Session, used: str) -> None:
    """The package with some of its extras alone: what it does, and what it says of the rest."""
    script = str(Path(".ci/use_extra.py").resolve())
    if not GIVEN:
        GIVEN.append(str(session.cache_dir.resolve() / "given"))
        shutil.rmtree(GIVEN[0], ignore_errors=True)
        session.run("scripts/setup", external=True)
        session.run(".venv/bin/python", script, "write", GIVEN[0], external=True)
    brought = [".", "jax"] if used == "jax" else ["." if used == "none" else f".[{used}]"]
    session.install("--quiet", "--reinstall-package", "keras-attn", *brought)
    session.run("python", script, used, GIVEN[0])  # away from the checkout: only what is installed can be imported


@nox.session(python="3.11")  # for which the first of them were built
def runtimes(session: nox.Session) -> None:
    """OpenVINO's provider, and onnxruntimes of before, which have a folder each (0.4 GB); the tests run in .venv."""
    session.run_install("scripts/setup", external=True)
    session.install("--quiet", "numpy<2")
    folder = Path(session.virtualenv.location).resolve()
    for version in ("1.15.1", "1.17.3", "1.19.2"):
        into = ("--target", str(folder / f"onnxruntime-{version}"))
        session.install("--quiet", "--no-deps", *into, f"onnxruntime=={version}")
    openvino, python = str(folder / "openvino"), str(Path(".venv/bin/python").absolute())
    quantizer = ("sympy", "mpmath")  # which it imports
    into = ("--python", python, "--target", openvino)
    session.install("--quiet", "--no-deps", *into, "onnxruntime-openvino==1.24.1", *quantizer)
    bodies = (*files("lowering_choice"), "--provider", "openvino", "-k", "portable18 and not cuda")
    for tests in (("tests/runtimes", *session.posargs), bodies):
        session.run("scripts/test", *tests, external=True, env={"PYTHONPATH": openvino})


# What other programs do with a bundle.


@nox.session
def serving(session: nox.Session) -> None:
    """The example service, which has an environment without TensorFlow; the tests run in .venv."""
    session.install("--quiet", "--requirement", "tests/serving/requirements.txt")
    session.run("scripts/test", "tests/serving", *session.posargs, external=True)


@nox.session
def web(session: nox.Session) -> None:
    """Pages in a browser, and JavaScript in Node: npm's packages take 440 MB."""
    for setup in (".ci/web-setup", ".ci/browser-setup"):
        if subprocess.run([setup], check=False).returncode:
            session.skip("what it needs is missing")
    install(session, "web")
    run_tests(session, "tests/report")


# Architectures.


@nox.session
def zoo(session: nox.Session) -> None:
    """The architectures of docs/models.md, exported and proven."""
    install(session, "zoo")
    run_tests(session, "tests/zoo", "--dist", "load")


@nox.session(name="operators-page")
def operators_page(session: nox.Session) -> None:
    """Writes docs/operators.md: every operator beside Keras's own exporter, in half an hour."""
    install(session)
    session.run("python", "-m", "values", *session.posargs, env={"PYTHONPATH": SUPPORT})


@nox.session(name="zoo-page")
def zoo_page(session: nox.Session) -> None:
    """Writes docs/models.md: the zoo beside Keras's own exporter, in hours; goes on where it was."""
    install(session, "zoo")
    session.run("python", "-m", "zoo", *session.posargs, env={"PYTHONPATH": SUPPORT})


@nox.session(name="mutate-graphs", venv_backend="none")
def mutate_graphs(session: nox.Session) -> None:
    """Puts faults into exported ONNX files, and fails when one that changes an answer is verified as a match."""
    session.run("scripts/setup", "dev", external=True)
    environment = {"PYTHONPATH": SUPPORT, "TF_CPP_MIN_LOG_LEVEL": "3", "TF2ONNX_CATCH_ERRORS": "FALSE"}
    session.run(".venv/bin/python", "-m", "mutations.mutate_graphs", *session.posargs, env=environment, external=True)
