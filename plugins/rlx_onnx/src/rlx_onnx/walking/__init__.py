"""Going through a graph node by node: what a value may be on the way, what a handler sees, and the table of handlers."""
