"""Every test starts from the same seed and from float32, and leaves no global policy behind.

On a backend other than TensorFlow only the layer tests run. Not each layer runs with each mask, unless `--pairs` says
so: see layer_tests.py.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # for the processes that tests start as well
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect
# tf2onnx then copies no graph before each of its optimizers, to go back to where one fails: here that fails the test.
os.environ.setdefault("TF2ONNX_CATCH_ERRORS", "FALSE")

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import keras
import pytest
from backends import BACKEND, all_64_bits
from layer_tests import is_layer_test, pairs_in_turn

SEED = 20141
# On TensorFlow the rest runs too, in its own time; JAX compiles each operation for each size.
IN_A_HURRY = BACKEND in ("tensorflow", "jax")
pytest_plugins = ("cheap_exports",) if BACKEND == "tensorflow" else ()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if BACKEND != "tensorflow" and collection_path.suffix == ".py" and not is_layer_test(collection_path):
        return True
    return None


@pytest.hookimpl(tryfirst=True)  # before a test is chosen by its name
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    pairs, share = config.getoption("--pairs"), config.getoption("--share")
    if pairs != "every":
        out_of_turn = those_out_of_turn(items)
        leave_out(config, items, out_of_turn if pairs == "in-turn" else {*items} - out_of_turn)
    if share is not None:
        which, of = share
        # on another backend too: TensorFlow has run all of them
        shares = pairs == "rest" or BACKEND != "tensorflow"
        many = [item for item in items if shares or item.get_closest_marker("zoo")]
        leave_out(config, items, {item for number, item in enumerate(many) if number % of != which - 1})


def those_out_of_turn(items: list[pytest.Item]) -> set[pytest.Item]:
    """What only runs with `--pairs rest` or `every`."""
    out_of_turn = {item for item in items if item.get_closest_marker("out_of_turn")}
    tests: dict[str, list[tuple[pytest.Item, tuple[str, str]]]] = {}
    for item in items:
        parameters = {**item.callspec.params} if hasattr(item, "callspec") else {}
        if len(parameters) > 1 and hasattr(parameters.get("case"), "name"):
            pair = parameters.pop("case").name, str(parameters)
            tests.setdefault(item.nodeid.split("[")[0], []).append((item, pair))
    for test in tests.values():
        runs = pairs_in_turn([pair for _, pair in test], for_each=1 if IN_A_HURRY else 2)
        out_of_turn |= {item for (item, _), run in zip(test, runs, strict=True) if not run}
    out_of_turn |= every_other_layer(items)
    return out_of_turn | compiled_again([item for item in items if item not in out_of_turn])


def leave_out(config: pytest.Config, items: list[pytest.Item], left: set[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[*left])
    items[:] = [item for item in items if item not in left]


def compiled_again(items: list[pytest.Item]) -> set[pytest.Item]:
    """Of each test the items that go through XLA or ONNX, which take seconds each, but for the first."""
    found: set[pytest.Item] = set()
    begun: set[tuple[str, str]] = set()
    for item in items:
        test, _, parameters = item.nodeid.partition("[")
        for way in {"xla", "onnx"}.intersection(parameters.rstrip("]").split("-")):
            if (test, way) in begun:
                found.add(item)
            begun.add((test, way))
    return found if BACKEND == "tensorflow" else set()


def every_other_layer(items: list[pytest.Item]) -> set[pytest.Item]:
    """Of tests that are marked so, with a layer each, every other: one begins with the first, one with the next."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("every_other_layer"):
            tests.setdefault(item.nodeid.split("[")[0], []).append(item)
    found = {item for start, test in enumerate(tests.values()) for item in test[1 - start % 2 :: 2]}
    return found if IN_A_HURRY else set()


def which_of(text: str) -> tuple[int, int]:
    which, of = map(int, text.split("/"))
    if not 1 <= which <= of:
        raise ValueError
    return which, of


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--pairs",
        choices=("in-turn", "every", "rest"),
        default="in-turn",
        help="of the tests that put every layer with every mask, dtype or path: some a layer, in turn (default); "
        "every one; or the rest, which in-turn leaves out",
    )
    group = parser.getgroup("how much of what is drawn at random")
    group.addoption("--fuzz", type=int, default=320, metavar="N", help="models to draw, export and compare")
    group.addoption("--flips", type=int, default=2000, metavar="N", help="bytes to change in a bundle")
    group.addoption("--kills", type=int, default=20, metavar="N", help="exports to kill, and 10 times as many renames")
    group.addoption("--requests", type=int, default=600, metavar="N", help="requests to a server from 16 clients")
    group.addoption(
        "--share",
        type=which_of,
        metavar="K/N",
        help="of the zoo, or with `--pairs rest` or another backend of all, every Nth from the Kth",
    )
    group.addoption("--random-seed", type=int, default=SEED, metavar="N", help="what they are all drawn from")


def pytest_report_header(config: pytest.Config) -> str:
    return f"backend: {BACKEND}; what is drawn at random: --random-seed {config.getoption('--random-seed')}"


@pytest.fixture(scope="session")
def random_seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of what is drawn at random; a test that uses it says so when it fails."""
    seed = request.config.getoption("--random-seed")
    print(f"--random-seed {seed}")
    assert isinstance(seed, int)
    return seed


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> None:
    """What several tests share is made before the test's own seed: its weights must not hang on who came before."""
    if fixturedef.scope != "function":
        keras.utils.set_random_seed(SEED)


@pytest.fixture(autouse=True)
def _fresh_keras_state(request: pytest.FixtureRequest) -> Iterator[None]:
    keras.utils.set_random_seed(SEED)
    with all_64_bits() if request.node.get_closest_marker("in_64_bits") else nullcontext():
        yield
    keras.config.set_dtype_policy("float32")
    keras.config.set_floatx("float32")
