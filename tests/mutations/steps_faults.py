"""Faults in decoders in steps: their loop, and their folder."""

from .fault import fault

_LOOP = (
    fault(
        "the last of equal logits is taken",
        "token = logits.argmax(-1)  # the first of equal ones",
        "token = logits.shape[-1] - 1 - logits[:, ::-1].argmax(-1)",
        "test_generate -k equal",
    ),
    fault(
        "a decoder in steps runs all its steps",
        "            if not left:\n                break\n",
        "",
        "test_generate -k last_row",
    ),
    fault(
        "rows that have ended are computed on",
        "if self._may_leave and 2 * left < len(rows):",
        "if False:",
        "test_generate -k last_row",
    ),
    fault(
        "rows leave though the file takes one batch",
        "if self._may_leave and 2 * left < len(rows):",
        "if 2 * left < len(rows):",
        "test_generate -k one_batch",
    ),
    fault(
        "what the encoder gave stays when rows leave",
        "values = {name: self._only(value, running) for name, value in values.items()}",
        "values = {name: self._only(value, running) if name in self._from_step else value[:left] "
        "for name, value in values.items()}",
        "test_generate -k ends_by_itself",
    ),
    fault(
        "the position is that of the next step",
        "else np.full(len(token), number, self._dtypes[name])",
        "else np.full(len(token), number + 1, self._dtypes[name])",
        "test_generate -k ends_by_itself",
    ),
    fault(
        "the end is not counted",
        "        self._lengths[at] += 1\n",
        "        self._lengths[at] += found['tokens'][running] != 1\n",
        "test_generate -k ends_by_itself",
    ),
    fault(
        "what is collected goes on after an end",
        "        at = rows if whole else rows[running]\n",
        "        whole = True\n        at = rows\n",
        "test_generate -k follows_an_end",
    ),
    fault(
        "scores are logits",
        "np.exp(wide - wide.max(axis=-1, keepdims=True)).sum(axis=-1))",
        "np.exp(wide - wide.max(axis=-1, keepdims=True)).sum(axis=-1)) + wide.max(axis=-1)",
        "test_generate -k ends_by_itself",
    ),
    fault(
        "an empty cache holds a step",
        'self._runner.put(np.zeros((count, *first["shape"]), self._dtypes[name]))',
        'self._runner.put(np.zeros((count, max(1, first["shape"][0]), *first["shape"][1:]), self._dtypes[name]))',
        "test_generate -k ends_by_itself",
    ),
    fault(
        "a token keeps the dtype of its source",
        "token.astype(self._dtypes[name]) if",
        "token if",
        "test_generate -k ends_by_itself",
    ),
    fault(
        "values are copied on their way",
        "            values |= {name: out[source] for name, source in self._from_step.items()}\n",
        "            values |= {name: out[source].copy() for name, source in self._from_step.items()}\n",
        "test_generate -k not_copied",
    ),
    fault(
        "a device's values are not bound anew",
        '            binding.bind_output(name, "cpu" if name in read else self._device)\n',
        '            binding.bind_output(name, "cpu") if name in read else None\n',
        "test_generate -k on_a_device",
    ),
    fault(
        "an empty axis is not named",
        "        if not empty:\n            raise\n",
        "        raise\n",
        "test_generate -k empty_axis",
    ),
    fault(
        "any bundle generates",
        "    if not set(ANSWER) <= set(outputs):\n",
        "    if not outputs:\n",
        "test_generate -k no_decoder",
    ),
)

_FOLDER = (
    fault(
        "a part's files are not those that are listed",
        "        if listed != {n: v for n, v in hashes.items()",
        "        if False and listed != {n: v for n, v in hashes.items()",
        "test_generate -k lists_other_files",
    ),
    fault(
        "the manifests of the parts are not hashed",
        "[name for name in hashes if name in inner or not name.startswith(of_parts)]",
        "[name for name in hashes if not name.startswith(of_parts)]",
        "test_generate -k another_decoder",
    ),
    fault(
        "the cases of whole answers are not hashed",
        "[name for name in hashes if name in inner or not name.startswith(of_parts)]",
        "[name for name in hashes if name in inner]",
        "test_generate -k every_file",
    ),
    fault(
        "files may be added to a decoder in steps",
        "    verify.check_names(folder, hashes)\n    inner",
        "    inner",
        "test_generate -k more_or_less",
    ),
    fault(
        "an input of the step may be fed by nothing",
        'if sorted(str(feed.get("input")) for feed in feeds) != sorted(inputs):',
        'if not {str(feed.get("input")) for feed in feeds} <= set(inputs):',
        "test_generate -k cannot_be",
    ),
    fault(
        "anything may feed a state first",
        'FIRST[then["from"]])',
        "sum(FIRST.values(), ()))",
        "test_generate -k cannot_be",
    ),
    fault(
        "a token of any size ends an answer",
        "return type(value) is int and -(2**31) <= value < 2**31",
        "return type(value) is int",
        "test_generate -k cannot_be",
    ),
    fault(
        "outputs of a decoder may be any",
        'if sorted([*ANSWER, *collected]) != sorted(_names(manifest, "outputs")):',
        "if False:",
        "test_generate -k cannot_be",
    ),
    fault(
        "a source of any name feeds",
        'return source["from"] not in NAMED or source.get("name") in there[source["from"]]',
        'return source["from"] not in NAMED or isinstance(source.get("name"), str)',
        "test_generate -k cannot_be",
    ),
    fault(
        "a size below 0 is one",
        "isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)",
        "isinstance(shape, list) and all(type(size) is int for size in shape)",
        "test_generate -k cannot_be",
    ),
    fault(
        "memory may change after the first step",
        'if then["from"] in (ENCODER_INPUT, ENCODER_OUTPUT) and then != feed["first"]:',
        "if False:",
        "test_generate -k cannot_be",
    ),
    fault(
        "whole answers are not replayed",
        "    return (*chain(*of_parts), *of_answers(bundle, provider))\n",
        "    return (*chain(*of_parts),)\n",
        "test_generate -k verify",
    ),
    fault(
        "the parts are not replayed",
        "    return (*chain(*of_parts), *of_answers(bundle, provider))\n",
        "    return of_answers(bundle, provider)\n",
        "test_generate -k verify",
    ),
    fault(
        "a copy of a decoder has no parts",
        "return Bundle, (self.path, self.manifest, self.parts)",
        "return Bundle, (self.path, self.manifest)",
        "test_generate -k a_copy_opens",
    ),
    fault(
        "a decoder in steps is no bundle to replace",
        "(_ALWAYS_THERE, _IN_STEPS))",
        "(_ALWAYS_THERE,))",
        "test_generate -k replaced",
    ),
    fault(
        "commands take two files for one",
        "    if is_in_steps(manifest):\n        raise BundleError(",
        "    if False:\n        raise BundleError(",
        "test_generate -k names_the_two",
        "test_in_steps_commands -k names_the_two",
    ),
)

STEPS_FAULTS = (*_LOOP, *_FOLDER)
