"""Entry point of `python -m keras_attn_export`, equal to the `keras-attn` command."""

import sys

from ._entry_point import main

sys.exit(main())
