"""Traversal of a graph node by node: the representations of values, the context of handlers, and the table of handlers."""
