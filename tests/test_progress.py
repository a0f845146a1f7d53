"""Progress: a function of the caller's, a spinner on a terminal, or nothing. The spinner: test_native_messages.py."""

import pytest

from keras_attn_export._progress import shown_progress


def test_a_function_of_the_callers():
    steps = []
    with shown_progress(steps.append) as step:
        step("one")
        step("two")
    assert steps == ["one", "two"]


@pytest.mark.parametrize("progress", [None, True, False])
def test_nothing_where_there_is_no_terminal(progress, capfd):
    with shown_progress(progress) as step:
        step("one")
    assert capfd.readouterr() == ("", "")
