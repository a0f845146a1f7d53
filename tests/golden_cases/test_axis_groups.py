"""Groups of axes, found from whether a model runs and from what the library says if it does not."""

import itertools

import pytest

from keras_attn_export._golden_cases.axis_groups import choose_distinct_sizes, find_groups

TENSORFLOW = "{{{{function_node op_2_device:CPU:0}}}} Incompatible shapes: [3,{0},8] vs. [3,{1},8] [Op:AddV2] name:"
PRODUCT = "Matrix size-incompatible: In[0]: [3,8,{0}], In[1]: [3,{1},9] 0 0 [Op:BatchMatMulV2] name:"
SILENT = "it does not work"


class Model:
    """Runs where the axes of each group have one size, a multiple of its step and at most `limit`.

    `groups` holds the letters that stand for the axes; letters in `pinned` keep their size.
    """

    def __init__(self, *groups, base=6, said=TENSORFLOW, steps=None, pinned="", limit=10**6):
        self.groups, self.said, self.steps, self.pinned, self.limit = groups, said, steps or {}, pinned, limit
        self.base = {(letter, 1): base for letter in "".join(groups) + pinned}
        self.trials = 0

    def problem(self, changed):
        self.trials += 1
        sizes = {letter: size for (letter, _), size in {**self.base, **changed}.items()}
        if any(sizes[letter] != self.base[letter, 1] for letter in self.pinned):
            return SILENT
        for group in self.groups:
            for a, b in itertools.pairwise(group):
                if sizes[a] != sizes[b]:
                    return self.said.format(sizes[a], sizes[b])
            if sizes[group[0]] % self.steps.get(group, 1) or sizes[group[0]] > self.limit:
                return SILENT
        return None

    def found(self):
        return find_groups(sorted(self.base), self.base, self.problem)


def letters(groups):
    return sorted("".join(sorted(name for name, _ in group.axes)) for group in groups)


MANY = [("abcdefghij",), ("acegi", "bdfhj"), ("abcde", "f", "g", "hij"), tuple("abcdefghij")]
FEW = [("abcdefghij",), ("ab", "cde"), ("ab", "c", "d"), ("a", "b")]  # found without a hint
TRIALS = {(TENSORFLOW, 15): MANY, (PRODUCT, 25): MANY, (SILENT, 100): FEW}  # features of PRODUCT mislead


@pytest.mark.parametrize(
    ("groups", "said", "most_trials"), [(each, *of) for of, many in TRIALS.items() for each in many]
)
def test_groups_are_found_in_few_trials(groups, said, most_trials):
    model = Model(*groups, said=said)
    found = model.found()
    assert letters(found) == sorted(groups)
    assert [group.multiple for group in found] == [1] * len(groups)
    assert model.trials < most_trials


STEPS = {"base": 16, "steps": {"a": 8, "bc": 4}}


@pytest.mark.parametrize(
    ("model", "steps", "other"),
    [
        (Model("a", "bc", "d", **STEPS, said=TENSORFLOW), {"a": 8, "bc": 4, "d": 1}, None),
        (Model("a", "bc", "d", **STEPS, said=SILENT), {"a": 8, "bc": 4, "d": 1}, None),
        (Model("abc", "d", pinned="ez", said=TENSORFLOW), {"abc": 1, "d": 1, "e": None, "z": None}, None),
        (Model("abc", "d", pinned="ez", said=PRODUCT), {"abc": 1, "d": 1, "e": None, "z": None}, None),
        (Model("a", "bc", limit=6), {"a": 1, "bc": 1}, 5),  # a size at its limit goes down
    ],
)
def test_groups_have_their_step_and_fixed_axes_none(model, steps, other):
    found = model.found()
    assert {letters([group])[0]: group.multiple for group in found} == steps
    assert other is None or {group.other_size for group in found} == {other}


def test_misleading_sizes_in_a_message_join_no_axes():
    """Both sizes are mentioned, and have nothing to do with the failure: `a` must be a multiple of 3."""

    def problem(changed):
        sizes = {name: size for (name, _), size in {**base, **changed}.items()}
        return f"bad shapes ({mention[0]}) and ({mention[1]})" if sizes["a"] % 3 else None

    base = {("a", 1): 6, ("b", 1): 6}
    mention = sorted(choose_distinct_sizes([group for group in Model("a", "b").found()], base).values())
    assert letters(find_groups(sorted(base), base, problem)) == ["a", "b"]
