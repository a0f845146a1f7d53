"""Which tests try a fault: those that run its line, the cheapest first."""

import ast
from bisect import bisect
from pathlib import Path

from tiers import plan, records
from tiers.measured import Measured, lines_of_functions

FILE = 0.3  # seconds that a further file of tests takes


def cheapest(measured: Measured, source: Path, line: int, budget: float) -> list[str]:
    """As many as a budget of seconds allows; of a line that an import runs, first those named like its file."""
    statements = [each for each in ast.walk(ast.parse(source.read_text())) if isinstance(each, ast.stmt)]
    around = [range(each.lineno, each.end_lineno + 1) for each in reversed(statements)]  # the innermost first
    places, ran, named = [lines for lines in around if line in lines], measured.tests_of(source), set()
    if line in lines_of_functions(source):
        places = places[:1]
    else:
        places.append(ran)
        named = {test for test in measured.tests if f"/test_{source.stem.lstrip('_')}.py::" in test}
    found = ({test for each in lines if each in ran for test in ran[each]} for lines in places)
    tests = named.union(next(filter(None, found), ()))
    # A file is shared by its tests, as a fixture is.
    items = [plan.Item(test, (*measured.shares[test], test.partition("::")[0])) for test in tests]
    durations = records.load("tensorflow")
    durations.fixtures |= {item.file: FILE for item in items}
    items.sort(key=lambda item: (item.nodeid not in named, plan.cost([item], durations), item.nodeid))
    fitting = bisect(range(1, len(items) + 1), budget, key=lambda count: plan.cost(items[:count], durations))
    files = [item.file for item in items]  # the tests of each together, or what they share is made again
    return [item.nodeid for item in sorted(items[: max(fitting, 1)], key=lambda item: files.index(item.file))]
