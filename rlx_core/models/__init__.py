"""Descriptions of whole models: variants at several sizes, inputs and outputs, and the layout of weights.

This layer reads modules and graphs; nothing that compiles or runs them needs it.
"""
