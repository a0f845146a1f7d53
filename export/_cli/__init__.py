"""The command line: `keras-attn` and its subcommands."""
