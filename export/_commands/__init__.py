"""The subcommands of `keras-attn`, one module each: what it does as a plain function, its parser, its main."""

from . import bench, export, inspect, run, verify

COMMANDS = (export, verify, run, inspect, bench)
