"""A stand-in for a fresh process a SavedModel: reads (SavedModel, cases, results) as JSON lines, and answers each."""

import json
import runpy
import sys

script = runpy.run_path(sys.argv[1])
script["isolate"]()
for line in sys.stdin:
    try:
        script["main"](*json.loads(line))
        answer = ""
    except Exception as error:  # noqa: BLE001 - it is the answer
        answer = f"{type(error).__name__}: {error}"
    print(json.dumps(answer), flush=True)
