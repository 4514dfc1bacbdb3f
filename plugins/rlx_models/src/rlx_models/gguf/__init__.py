"""GGUF files: tensors in blocks of few bits, with metadata, in one file or several.

`read(path)` maps a file and checks all of its header; tensors are decoded on request. `write(path, tensors, metadata)` writes a
file. `rlx.load("model.gguf")` returns a model, and `rlx.save("model.gguf", model)` writes one.
"""

from rlx_models.gguf.reading import GgufFile, GgufTensor, read
from rlx_models.gguf.writing import DeferredTensor, write

__all__ = ["DeferredTensor", "GgufFile", "GgufTensor", "read", "write"]
