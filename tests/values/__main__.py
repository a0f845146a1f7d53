"""What comes of entries whose names hold a word, in all dtypes: `cd tests && python -m values WORD...`."""

import os
import sys

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from . import ENTRIES
from .running import outcomes

for outcome in outcomes([each for each in ENTRIES if all(word in each.name for word in sys.argv[1:])]):
    for kind, found in outcome.kinds.items():
        print(f"{outcome.name}, {kind}: {found or 'the same'}")
    if outcome.refused:
        print(f"{outcome.name}: {outcome.refused}")
