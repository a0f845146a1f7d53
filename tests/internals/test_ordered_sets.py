"""Sets that keep their order do what `set` does."""

import copy

import pytest

from keras_attn_export._internals.ordered_sets import OrderedSet

ONE, OTHER = ["d", "a", "c", "a", "b"], ["e", "c", "d"]


@pytest.mark.parametrize("name", ["__or__", "__and__", "__sub__", "__ior__", "union", "intersection", "difference"])
def test_operators_equal_those_of_set(name):
    found = getattr(OrderedSet(ONE), name)(OrderedSet(OTHER))
    assert {*found} == {*getattr(set(ONE), name)(set(OTHER))}
    assert list(found) == [each for each in ("d", "a", "c", "b", "e") if each in found]


def test_ordered_set_keeps_order_when_changed():
    found = OrderedSet(ONE)
    found.update("d", OTHER)
    assert list(copy.deepcopy(found)) == ["d", "a", "c", "b", "e"] == list(found.copy())
    assert (found.pop(), len(found), "a" in found, bool(OrderedSet())) == ("e", 4, True, False)
    found.remove("a")
    assert found == {"d", "c", "b"}
    with pytest.raises(KeyError):
        found.remove("a")
