"""Script: run SavedModels in one process, with a task (SavedModel, cases, results) and an error message per line."""

import json
import runpy
import sys

script = runpy.run_path(sys.argv[1])
script["isolate"]()
for line in sys.stdin:
    try:
        script["main"](*json.loads(line))
        answer = ""
    except Exception as error:  # noqa: BLE001 - the error is the answer
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer), flush=True)
