"""Faults in the examples, whose figures the documents cite."""

from .fault import fault

EXAMPLE_FAULTS = (
    fault(
        "blanks of spelled numbers stay as they come",
        '" ".join(num2words(number, lang=language).split())',
        "num2words(number, lang=language)",
        "test_spell_numbers -k cleaned",
    ),
    fault(
        "letters of spelled numbers are written in two ways",
        'unicodedata.normalize("NFC", " ".join(num2words(number, lang=language).split()))',
        '" ".join(num2words(number, lang=language).split())',
        "test_spell_numbers -k cleaned",
    ),
    fault(
        "odd numbers are spelled as even ones",
        "num2words(number, lang=language).split()",
        "num2words(number // 2 * 2, lang=language).split()",
        "test_spell_numbers -k writes_no_two",
    ),
    fault(
        "numbers that are held out are trained on",
        "sorted(numbers[held_out:])",
        "sorted(numbers)",
        "test_spell_numbers -k held_out",
    ),
    fault(
        "every seed holds the same numbers out",
        "random.Random(seed).sample",
        "random.Random(0).sample",
        "test_spell_numbers -k held_out",
    ),
    fault(
        "numbers are read where they should be spelled",
        "        Row(language, read, words, digits) for",
        "        Row(language, read, digits, words) for",
        "test_spell_numbers -k each_number_is_asked",
    ),
    fault(
        "a prompt's last token counts for nothing",
        "[0] * (len(prompt) - 1)",
        "[0] * len(prompt)",
        "test_spell_numbers -k joined",
    ),
    fault(
        "a language and a character share a token",
        "FIRST_LANGUAGE, FIRST_CHARACTER = 2, 2 + len(LANGUAGES)",
        "FIRST_LANGUAGE, FIRST_CHARACTER = 2, 1 + len(LANGUAGES)",
        "test_spell_numbers -k joined",
    ),
    fault(
        "each token is wanted after itself",
        "prompt[1:] + answer",
        "prompt + answer[:-1]",
        "test_spell_numbers -k joined",
    ),
    fault(
        "answers are decoded beyond their length",
        "rows = (row[:length] for",
        "rows = (row for",
        "test_spell_numbers -k decoded_as",
    ),
    fault(
        "a batch has rows of all lengths",
        'order = order[np.argsort(widths[order], kind="stable")]',
        "pass",
        "test_spell_numbers -k little_padding",
    ),
    fault(
        "short rows are trained on first",
        "        rng.shuffle(batches)\n        for chosen",
        "        for chosen",
        "test_spell_numbers -k little_padding",
    ),
    fault(
        "the last batch of a pass is left out",
        "range(0, len(order), BATCH_SIZE)]",
        "range(0, len(order) - BATCH_SIZE, BATCH_SIZE)]",
        "test_spell_numbers -k little_padding",
    ),
    fault(
        "prompts are learned and not the answers",
        "yield tokens, wanted, counted",
        "yield tokens, wanted, 1 - counted",
        "test_spell_numbers -k training_learns --pairs rest",
    ),
    fault(
        "prompts are learned beside the answers",
        "yield tokens, wanted, counted",
        "yield tokens, wanted, counted + 1",
        "test_spell_numbers -k training_learns --pairs rest",
    ),
    fault(
        "a speller sees what comes after",
        "use_causal_mask=True)), keys",
        "use_causal_mask=False)), keys",
        "test_spell_numbers -k one_pass_without",
    ),
    fault(
        "the first token of an answer leaves a place free",
        'outputs = {"length": length}',
        'outputs = {"length": length + 1}',
        "test_spell_numbers -k one_pass_without",
    ),
    fault(
        "each token of an answer takes the place of the one before",
        '"next_length": length + 1',
        '"next_length": length',
        "test_spell_numbers -k one_pass_without",
    ),
    fault(
        "padding of a prompt is a part of it",
        'ops.cast(places < ops.expand_dims(valid_lens, 1), "int32")',
        'ops.cast(places < 99, "int32")',
        "test_spell_numbers -k padding_of",
    ),
    fault(
        "a cache has room for two tokens",
        "[0, speller.longest_answer]",
        "[0, 2]",
        "test_spell_numbers -k one_pass_without",
    ),
    fault(
        "an answer begins after the end",
        "start=EQUALS",
        "start=END",
        "test_spell_numbers -k one_pass_without",
    ),
    fault(
        "tokens of an answer that differ from one pass do not count",
        "== wanted) | (counted == 0)",
        "== wanted) | (counted <= 1)",
        "test_spell_numbers -k wrong_token",
    ),
    fault(
        "a loop in Python runs all its steps",
        "running &= token != END",
        "pass",
        "test_spell_numbers -k loop_stops",
    ),
    fault(
        "a loop in Python writes on after an end",
        'np.where(running, out["logits"].argmax(-1), END)',
        'out["logits"].argmax(-1)',
        "test_spell_numbers -k loop_stops",
    ),
    fault(
        "a loop in Python begins after the end",
        'np.full(len(state["length"]), EQUALS',
        'np.full(len(state["length"]), END',
        "test_spell_numbers -k loop_in_python",
    ),
    fault(
        "directions of spelling are counted together",
        "(row.direction, row.language), [])",
        '("words to digits", row.language), [])',
        "test_spell_numbers -k counted_by",
    ),
)
