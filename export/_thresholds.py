"""Sizes from which the `adaptive` lowering uses its large form.

A call has a small form, which computes all scores at once, and a large form, which computes blocks of queries, keeps
no matrix of all scores and skips masked keys. The exported file selects the large form by the sizes of a request if

    (Tq - queries) * Tk >= pairs    and    Tk >= keys

A call of the large form has a fixed cost, and a cost for each key regardless of masks, equal to the cost of some more
queries: hence the subtraction. `benchmarks/thresholds.py` times both forms over sizes and masks, and chooses for each
kind of call the pair (queries, pairs) with the smallest worst loss, the time of the selected form over the time of the
faster one (docs/performance.md). One table serves all machines, because a file runs on machines other than its writer.
The rule "distance" bounds memory, and that script did not time it: `pairs` is the size that golden cases reach, so that
they test the large form, which is faster from some 1,000 positions on.
"""

from __future__ import annotations

import math
from typing import NamedTuple

# Keys that a block of queries read in the timed windows. If a block reads k keys, a pair counts (MEASURED_WINDOW_KEYS
# / k) ** 2 times, so that the smallest length for the large form is proportional to k.
MEASURED_WINDOW_KEYS = 256
NEVER = 2**62  # pairs, more than any request has


class SizeThreshold(NamedTuple):
    """Rule that selects the large form: `(Tq - ignored_queries) * Tk >= min_pairs` and `Tk >= min_keys`.

    A pair of query and key counts once for each hidden unit in additive scores.

    Attributes:
        ignored_queries: Number of queries subtracted from Tq before the product.
        min_pairs: Lowest product.
        min_keys: Lowest number of keys; blocks of queries with a window read this many even if the axis is shorter.
    """

    ignored_queries: int
    min_pairs: int
    min_keys: int = 0

    def scale_pairs(self, times: float) -> SizeThreshold:
        """Return the rule for calls in which each pair counts `times` times."""
        return self if self.min_pairs == NEVER else self._replace(min_pairs=math.ceil(self.min_pairs / times))

    def applies_to(self, queries: int, keys: int) -> bool:
        """Return True if the rule selects the large form for a number of queries and keys."""
        return (queries - self.ignored_queries) * keys >= self.min_pairs and keys >= self.min_keys

    def find_min_length(self) -> int:
        """Return the smallest length with Tq = Tk that selects the large form; 0 if none does."""
        if self.min_pairs == NEVER:
            return 0
        min_size = math.isqrt(self.min_pairs)
        return next(
            size for size in range(min_size, min_size + self.ignored_queries + 2) if self.applies_to(size, size)
        )


LARGE_THRESHOLDS = {
    "flash": SizeThreshold(64, 16384),
    "examples": SizeThreshold(0, 23170),
    "causal": SizeThreshold(0, 92682),
    "window": SizeThreshold(0, 92682),
    "query lengths": SizeThreshold(64, 16384),
    "pairs": SizeThreshold(0, NEVER),
    "weights": SizeThreshold(32, 185364),
    "additive": SizeThreshold(8, 262144),
    "distance": SizeThreshold(0, 185364),
}


class UnblockedLimits(NamedTuple):
    """Largest numbers of elements that a GPU computes unblocked, over all examples and heads; see docs/gpu.md.

    An element takes 4 bytes, so that a tensor of 2**26 elements takes 256 MB. A negative limit disables the small form.

    Attributes:
        additive: Elements (B, Tq, Tk, U) of additive scores with tanh.
        additive_few_queries: The same with few queries.
        additive_quotients: Elements in one block of additive scores without tanh.
        one_operator: Scores of a call that an operator of onnxruntime computes without storing scores.
        blocks: Scores of any other call.
        queries: Queries of calls with one head, over all examples. A kernel of these operators runs a block of threads
            for 64 queries, and a GPU has over a hundred multiprocessors to occupy.
    """

    additive: int = 2**26
    additive_few_queries: int = 2**28
    additive_quotients: int = 2**26
    one_operator: int = 2**22
    blocks: int = 2**24
    queries: int = 2**12
