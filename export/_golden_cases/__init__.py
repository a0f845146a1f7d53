"""Golden cases: dynamic axes, generated inputs, and the coverage of both."""
