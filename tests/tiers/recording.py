"""Records what each test takes, and with `RECORD_LINES` which lines it runs, where `RECORD` names a folder.

`conftest.py` imports this before the packages, so that the lines that an import runs are seen as well. Each process of
tests writes files of its own; `python -m tiers` merges them into the record. Coverage slows tests, so seconds are
recorded without it.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

FOLDER = os.environ.get("RECORD", "")
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")


def started_coverage() -> Any:
    """Coverage of the packages, by test; None where it was not asked for."""
    if not (FOLDER and os.environ.get("RECORD_LINES")):
        return None
    import coverage

    Path(FOLDER).mkdir(parents=True, exist_ok=True)
    file = str(Path(FOLDER) / f"lines.{WORKER}")
    found = coverage.Coverage(data_file=file, source=["keras_attn", "export"], config_file=False, messages=False)
    found.start()
    return found


COVERAGE = started_coverage()


def name_of(fixture: Any) -> str:
    """How a fixture that several tests share is called in the record."""
    return f"{fixture.baseid}::{fixture.argname}"


def shared_fixtures(item: Any) -> list[str]:
    """The fixtures that a test shares with others."""
    last = (definitions[-1] for definitions in item._fixtureinfo.name2fixturedefs.values())
    return sorted(name_of(each) for each in last if each.scope != "function")


class Recorder:
    """A plugin of pytest. What a shared fixture takes and runs counts for it, and not for the test that came first."""

    def __init__(self) -> None:
        self._tests: dict[str, float] = defaultdict(float)
        self._fixtures: dict[str, float] = defaultdict(float)
        self._users: dict[str, list[str]] = {}
        self._contexts = [""]
        self._failed: set[str] = set()

    @contextmanager
    def _within(self, context: str) -> Iterator[None]:
        switch = COVERAGE.switch_context if COVERAGE is not None else lambda _: None
        self._contexts.append(context)
        switch(context)
        try:
            yield
        finally:
            self._contexts.pop()
            switch(self._contexts[-1])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        with self._within(item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        name, start = name_of(fixturedef), time.perf_counter()
        try:
            with self._within(f"fixture {name}"):
                return (yield)
        finally:
            took = time.perf_counter() - start
            self._fixtures[name] += took
            outer = self._contexts[-1]
            if outer.startswith("fixture "):
                self._fixtures[outer.removeprefix("fixture ")] -= took
            else:
                self._tests[outer] -= took

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self._users |= {item.nodeid: shared_fixtures(item) for item in items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests[report.nodeid] += report.duration
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        if COVERAGE is not None:
            COVERAGE.stop()
            COVERAGE.save()
        tests = {nodeid: took for nodeid, took in self._tests.items() if nodeid not in self._failed}
        found = {"tests": tests, "fixtures": self._fixtures, "users": self._users}
        Path(FOLDER).mkdir(parents=True, exist_ok=True)
        (Path(FOLDER) / f"seconds.{WORKER}.json").write_text(json.dumps(found), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    runs_tests = hasattr(config, "workerinput") or not config.getoption("numprocesses", None)
    if FOLDER and runs_tests:
        config.pluginmanager.register(Recorder(), "recorder")
