"""Sizes from which the `adaptive` lowering uses its large form.

One table for all machines, since a file runs on others than the one that wrote it. The rule of distances is not from
there: blocks bound their memory, from as many pairs on as golden cases have, and are the faster form from some
1,000 positions on.
"""

from __future__ import annotations

import math
from typing import NamedTuple

WINDOW_KEYS = (
    256  # that a block of queries read where windows were measured; with others the positions grow as these do
)
NEVER = 2**62  # pairs: more than any request has


class From(NamedTuple):
    """The form for large sizes is taken where `(Tq - queries) * Tk >= pairs` and `Tk >= keys`.

    Of additive scores a pair counts as often as it has units, and of a window as the square of `WINDOW_KEYS` over the
    keys that a block of queries reads.

    Beside what a pair of query and key costs it costs more than the other form for a call, and for each key, as much as
    some further queries would. All keys take part in that, whatever the masks, which are not looked at before.

    Attributes:
        queries: So many queries do not count.
        pairs: The fewest pairs of the others and the keys.
        keys: The fewest keys, whatever the queries. Blocks of queries with a window read as many where there are few.
    """

    queries: int
    pairs: int
    keys: int = 0

    def each(self, times: float) -> From:
        """Return the rule where each pair counts so many times."""
        return self if self.pairs == NEVER else self._replace(pairs=math.ceil(self.pairs / times))

    def is_met(self, queries: int, keys: int) -> bool:
        """Tell whether the form is taken for so many queries and keys."""
        return (queries - self.queries) * keys >= self.pairs and keys >= self.keys

    def positions(self) -> int:
        """Return from how many positions on it is taken where there are as many queries as keys; 0 for never."""
        if self.pairs == NEVER:
            return 0
        min_size = math.isqrt(self.pairs)
        return next(size for size in range(min_size, min_size + self.queries + 2) if self.is_met(size, size))


LARGE = {
    "flash": From(64, 16384),
    "examples": From(0, 23170),
    "causal": From(0, 92682),
    "window": From(0, 92682),
    "query lengths": From(64, 16384),
    "pairs": From(0, NEVER),
    "weights": From(32, 185364),
    "additive": From(8, 262144),
    "distance": From(0, 185364),
}


class UnblockedLimits(NamedTuple):
    """Sizes up to which a GPU computes all pairs at once, over all examples and heads. See docs/gpu.md.

    Each takes tensors of 4 bytes a number, such as 256 MB for 2**26; a negative limit is never met.

    Attributes:
        additive: Features of additive scores.
        additive_few_queries: The same with few queries.
        additive_quotients: Quotients of additive scores without tanh, in one block.
        one_operator: Scores of a call that onnxruntime's own operator computes without keeping scores.
        blocks: Scores of any other call.
        rows: Queries of calls of one head, over all examples. A kernel of the operators has a block of threads for 64
            of them, and a GPU over a hundred.
    """

    additive: int = 2**26
    additive_few_queries: int = 2**28
    additive_quotients: int = 2**26
    one_operator: int = 2**22
    blocks: int = 2**24
    rows: int = 2**12
