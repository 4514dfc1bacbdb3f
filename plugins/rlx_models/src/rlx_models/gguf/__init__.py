"""GGUF files: tensors in blocks of few bits, with metadata, in one file or several.

`read(path)` maps a file and checks all of its header; tensors are decoded on request. `write(path, tensors, metadata)` writes a
file. `rlx.load("model.gguf")` returns a model.
"""

from rlx_models.gguf.reading import GgufFile, GgufTensor, read
from rlx_models.gguf.writing import write

__all__ = ["GgufFile", "GgufTensor", "read", "write"]
