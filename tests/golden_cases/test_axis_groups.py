"""Search for groups of tied axes: number of trials, multiples, static axes, and hints in error messages."""

import itertools

import pytest

from keras_attn_export._golden_cases.axis_groups import choose_distinct_sizes, find_groups

TENSORFLOW = "{{{{function_node op_2_device:CPU:0}}}} Incompatible shapes: [3,{0},8] vs. [3,{1},8] [Op:AddV2] name:"
PRODUCT = "Matrix size-incompatible: In[0]: [3,8,{0}], In[1]: [3,{1},9] 0 0 [Op:BatchMatMulV2] name:"
SILENT = "it does not work"  # names no sizes


class Model:
    """Model that runs if the axes of each group have one size, a multiple of its step and at most `limit`.

    Letters name the axes. A letter in `pinned` is an axis of one size; `message` has a field for each of two sizes.
    """

    def __init__(self, *groups, base=6, message=TENSORFLOW, steps=None, pinned="", limit=10**6):
        self.groups, self.message, self.steps, self.pinned, self.limit = groups, message, steps or {}, pinned, limit
        self.base = {(letter, 1): base for letter in "".join(groups) + pinned}
        self.num_trials = 0

    def check_sizes(self, new_sizes):
        self.num_trials += 1
        sizes = {letter: size for (letter, _), size in {**self.base, **new_sizes}.items()}
        if any(sizes[letter] != self.base[letter, 1] for letter in self.pinned):
            return SILENT
        for group in self.groups:
            for a, b in itertools.pairwise(group):
                if sizes[a] != sizes[b]:
                    return self.message.format(sizes[a], sizes[b])
            if sizes[group[0]] % self.steps.get(group, 1) or sizes[group[0]] > self.limit:
                return SILENT
        return None

    def find_groups(self):
        return find_groups(sorted(self.base), self.base, self.check_sizes)


def join_letters(groups):
    """Return the letters of every group as one string, sorted."""
    return sorted("".join(sorted(name for name, _ in group.axes)) for group in groups)


MANY_AXES = [("abcdefghij",), ("acegi", "bdfhj"), ("abcde", "f", "g", "hij"), tuple("abcdefghij")]
FEW_AXES = [("abcdefghij",), ("ab", "cde"), ("ab", "c", "d"), ("a", "b")]
# A product names the sizes of features too, which are wrong hints. Without hints, few axes need many trials.
MAX_TRIALS = {(TENSORFLOW, 15): MANY_AXES, (PRODUCT, 25): MANY_AXES, (SILENT, 100): FEW_AXES}


@pytest.mark.parametrize(
    ("groups", "message", "max_trials"), [(groups, *key) for key, models in MAX_TRIALS.items() for groups in models]
)
def test_search_finds_groups_in_few_trials(groups, message, max_trials):
    model = Model(*groups, message=message)
    result = model.find_groups()
    assert join_letters(result) == sorted(groups)
    assert [group.multiple for group in result] == [1] * len(groups)
    assert model.num_trials < max_trials


STEPS = {"base": 16, "steps": {"a": 8, "bc": 4}}


@pytest.mark.parametrize(
    ("model", "steps", "other_size"),
    [
        (Model("a", "bc", "d", **STEPS, message=TENSORFLOW), {"a": 8, "bc": 4, "d": 1}, None),
        (Model("a", "bc", "d", **STEPS, message=SILENT), {"a": 8, "bc": 4, "d": 1}, None),
        (Model("abc", "d", pinned="ez", message=TENSORFLOW), {"abc": 1, "d": 1, "e": None, "z": None}, None),
        (Model("abc", "d", pinned="ez", message=PRODUCT), {"abc": 1, "d": 1, "e": None, "z": None}, None),
        (Model("a", "bc", limit=6), {"a": 1, "bc": 1}, 5),  # above the base size 6 no size works
    ],
)
def test_groups_have_multiples_and_axes_of_one_size_have_none(model, steps, other_size):
    groups = model.find_groups()
    assert {join_letters([group])[0]: group.multiple for group in groups} == steps
    assert other_size is None or {group.other_size for group in groups} == {other_size}


def test_misleading_sizes_in_a_message_join_no_axes():
    """The message names the sizes of `a` and `b`, but the model fails because `a` must be a multiple of 3."""

    def check_sizes(new_sizes):
        sizes = {name: size for (name, _), size in {**base, **new_sizes}.items()}
        return f"bad shapes ({named_sizes[0]}) and ({named_sizes[1]})" if sizes["a"] % 3 else None

    base = {("a", 1): 6, ("b", 1): 6}
    named_sizes = sorted(choose_distinct_sizes(Model("a", "b").find_groups(), base).values())
    assert join_letters(find_groups(sorted(base), base, check_sizes)) == ["a", "b"]
