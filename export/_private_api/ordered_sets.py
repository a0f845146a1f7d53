"""Insertion-ordered set, patched into tf2onnx to make conversion deterministic."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, MutableSet
from typing import Any


class OrderedSet(MutableSet[Any]):
    """What `set` is asked for in tf2onnx, in the order in which things came."""

    def __init__(self, items: Iterable[Any] = ()) -> None:
        """Hold these."""
        self._items = dict.fromkeys(items)

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def add(self, value: Any) -> None:
        """Put it last, unless it is there."""
        self._items[value] = None

    def discard(self, value: Any) -> None:
        """Take it out, if it is there."""
        self._items.pop(value, None)

    def pop(self) -> Any:
        """Take out the last: the first would be searched for behind all that were taken out."""
        return self._items.popitem()[0]

    def update(self, *others: Iterable[Any]) -> None:
        """Put in all that others hold."""
        for other in others:
            self._items.update(dict.fromkeys(other))

    def issubset(self, other: Iterable[Any]) -> bool:
        """Tell whether another holds all that this one does."""
        return self <= OrderedSet(other)

    def union(self, *others: Iterable[Any]) -> OrderedSet:
        """Return what is in any."""
        union = OrderedSet(self)
        union.update(*others)
        return union

    def intersection(self, other: Iterable[Any]) -> OrderedSet:
        """Return what is in both."""
        other_items = OrderedSet(other)
        return OrderedSet(item for item in self if item in other_items)

    def __and__(self, other: Iterable[Any]) -> OrderedSet:
        return self.intersection(other)

    def difference(self, other: Iterable[Any]) -> OrderedSet:
        """Return what is in this one alone."""
        other_items = OrderedSet(other)
        return OrderedSet(item for item in self if item not in other_items)

    copy = __copy__ = union


def patch_set_in(package: str) -> None:
    """Let the modules of a package that are imported make such sets where they say `set(...)`.

    A set of texts has another order with each hash seed, and one of objects with each address.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{package}."):
            module.set = OrderedSet  # type: ignore[attr-defined]
