"""`rlx.save("model.gguf", model)`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rlx_core.errors import Fact, FormatError
from rlx_models.checkpoints import Config
from rlx_models.gguf.contents import contents_of_parameters
from rlx_models.gguf.encoding import deferred, file_type, stored_type
from rlx_models.gguf.writing import write
from rlx_models.model import PretrainedModel


def export_file(path: Path, value: Any, host: object) -> None:
    """Write a model, in the form of an exporter: quantised weights remain as they are, and arrays of one axis become f32.

    Raises:
        FormatError: The value is no pretrained model.
        UnsupportedError: GGUF files cannot state the architecture, an option or the tokenizer.
        DtypeError: A weight is in a scheme that is no type of the format.
    """
    if not isinstance(value, PretrainedModel) or value.reader != "rlx":
        what = f"a model of reader={value.reader!r}" if isinstance(value, PretrainedModel) else type(value).__name__
        raise FormatError(
            f"gguf: the file holds a pretrained model of this package, not {what}",
            Fact("file", path),
            hint="rlx_models.gguf.write(path, tensors, metadata) writes arrays",
        )
    contents = contents_of_parameters(
        value.parameters,
        Config({**value.config, "model_type": value.name}),
        "save",
        folder=value.folder,
        generation_config=value.generation_config,
        metadata=value.metadata,
    )
    targets = {tensor.name: stored_type(tensor) for tensor in contents.tensors}
    tensors = {tensor.name: deferred(tensor, targets[tensor.name], None) for tensor in contents.tensors}
    write(path, tensors, {**contents.metadata, **file_type(contents.tensors, targets)})
