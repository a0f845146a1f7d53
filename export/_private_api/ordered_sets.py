"""Insertion-ordered set, patched into tf2onnx to make conversion deterministic."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, MutableSet
from typing import Any


class OrderedSet(MutableSet[Any]):
    """Set that iterates in insertion order, with the methods of `set` that tf2onnx calls."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        """Insert `items` in their order."""
        self._items = dict.fromkeys(items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, value: Any) -> None:
        """Append an item if it is missing."""
        self._items[value] = None

    def discard(self, value: Any) -> None:
        """Remove an item if it is present."""
        self._items.pop(value, None)

    def pop(self) -> Any:
        """Remove and return the last item."""
        # Not the first: a dict searches it behind the gaps of all items that were removed before.
        return self._items.popitem()[0]

    def update(self, *iterables: Iterable[Any]) -> None:
        """Append the missing items of `iterables`."""
        for iterable in iterables:
            self._items.update(dict.fromkeys(iterable))

    def issubset(self, other: Iterable[Any]) -> bool:
        """Return True if `other` contains all items of this set."""
        return self <= OrderedSet(other)

    def union(self, *iterables: Iterable[Any]) -> OrderedSet:
        """Return the items of this set and of `iterables`."""
        result = OrderedSet(self)
        result.update(*iterables)
        return result

    def intersection(self, other: Iterable[Any]) -> OrderedSet:
        """Return the items that `other` contains too."""
        other_items = OrderedSet(other)
        return OrderedSet(item for item in self if item in other_items)

    def __and__(self, other: Iterable[Any]) -> OrderedSet:
        return self.intersection(other)

    def difference(self, other: Iterable[Any]) -> OrderedSet:
        """Return the items that `other` does not contain."""
        other_items = OrderedSet(other)
        return OrderedSet(item for item in self if item not in other_items)

    copy = __copy__ = union


def patch_set_in(package: str) -> None:
    """Patch the imported modules of a package so that `set(...)` creates an `OrderedSet`."""
    # The order of a set of strings depends on the hash seed, and the order of a set of objects on their addresses.
    # tf2onnx iterates over sets when it sorts and merges nodes, so that without this patch files differ between runs.
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{package}."):
            module.set = OrderedSet  # type: ignore[attr-defined]
