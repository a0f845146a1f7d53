"""Check many SavedModels in one process without Keras: reads (SavedModel, cases, results) as JSON lines, answers each.

The tests' stand-in for a fresh process a model, most of whose time is the import of TensorFlow.
"""

import json
import runpy
import sys

run = runpy.run_path(sys.argv[1])["main"]
for line in sys.stdin:
    try:
        run(*json.loads(line))
        answer = ""
    except Exception as error:  # noqa: BLE001 - it is the answer
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer), flush=True)
