"""The folder that is written and read: its arrays, its parity report, and how it appears whole or not at all."""
