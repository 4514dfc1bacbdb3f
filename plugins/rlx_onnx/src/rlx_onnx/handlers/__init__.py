"""One function for each operation of ONNX, by family, on rlx's public functions.

A function takes its node and the node's operands: arrays, where everything is known, or traced values. Both are the same to it.
"""
