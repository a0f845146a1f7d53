"""`python -m keras_attn_export`: the same as the `keras-attn` command."""

import sys

from ._command import main

sys.exit(main())
