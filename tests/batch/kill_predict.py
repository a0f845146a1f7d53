"""Kill `keras-attn predict` before every rename and removal of a file, and let the next run end: a script.

`python kill_predict.py BUNDLE SOURCE FOLDER [BROKEN]` prints the number of kills and the problems as JSON. It is a
process of its own since it forks. `FOLDER/whole` is the destination of a run that is not killed; all others must become
equal to it. With BROKEN, every run is the second one: the first one met BROKEN in place of the first part.
"""

import itertools
import json
import os
import shutil
import signal
import sys
from pathlib import Path

import onnxruntime  # noqa: F401 - in the parent once, not in every child
import pyarrow.compute
import pyarrow.parquet  # noqa: F401 - as above
from batch_tables import files_of, leftovers
from killing import command, ended

from keras_attn_export._batch.destination import OWN
from keras_attn_export._cli import main  # noqa: F401 - as above

FIRST = "part-0.parquet"


def killed_before(number, run):
    """Run in a process that is killed before its nth rename or removal of a file; return whether there were so many."""
    calls = itertools.count(1)

    def watched(call):
        def counted(*arguments, **options):
            if next(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return counted

    def child():
        Path.replace, Path.unlink = watched(Path.replace), watched(Path.unlink)
        run()

    return ended(child) == -signal.SIGKILL


def contents(target):
    return {name: (target / name).read_bytes() for name in [*files_of(target), f"{OWN}/errors.parquet"]}


def kill_everywhere(bundle, source, folder, broken=None):
    def predicting(target):
        return command("predict", bundle, source, target, "--json", "--batch-size", 4, "--key", "id")

    assert ended(predicting(folder / "whole")) == 1  # since rows fail
    good, target, problems = (source / FIRST).read_bytes(), folder / "out", []
    for number in range(1, 1000):
        shutil.rmtree(target, ignore_errors=True)
        if broken is not None:
            shutil.copy(broken, source / FIRST)
            ended(predicting(target))
            assert b"cannot be read" in (target / OWN / "errors.parquet").read_bytes()
            (source / FIRST).write_bytes(good)
        if not killed_before(number, predicting(target)):
            break
        before = files_of(target)
        code = ended(predicting(target))
        again = [name for name, file in files_of(target).items() if before.get(name, file) != file and broken is None]
        if code != 1 or contents(target) != contents(folder / "whole") or leftovers(target) or again:
            problems.append(f"call {number}: exit code {code}, {leftovers(target)} left, {again} made again")
    return {"kills": number - 1, "problems": problems}


if __name__ == "__main__":
    print(json.dumps(kill_everywhere(*map(Path, sys.argv[1:]))))
