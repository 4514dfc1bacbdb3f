"""Tensors of a checkpoint folder: views of its memory-mapped safetensors files, checked against an architecture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from rlx_core.errors import Fact, FileError, FormatError
from rlx_core.files.safetensors import load_safetensors
from rlx_core.ir.dtypes import dtype as dtype_of
from rlx_core.quantization import QuantizedArray
from rlx_models.checkpoints.folder import read_json

Shapes = Mapping[str, tuple[int, ...]]
"""Shapes of the tensors of an architecture by name."""


class CheckpointTensor(Protocol):
    """What the check of a tensor reads."""

    @property
    def shape(self) -> tuple[int, ...]: ...


T = TypeVar("T", bound=CheckpointTensor)

PICKLE_HINT: Final = (
    "a pickle runs code when it is read; safetensors.torch.save_file(torch.load(file, weights_only=True), "
    '"model.safetensors") converts it'
)

INDEX: Final = "model.safetensors.index.json"
SINGLE_FILE: Final = "model.safetensors"

MAX_FACTS: Final = 12
"""Maximum number of tensors that an error lists."""


def read_tensors(folder: Path) -> dict[str, Any]:
    """Return the tensors of all files by name, as views of the mapped files; matrices of F8 are quantised arrays.

    Raises:
        FileError: A file is missing.
        FormatError: A file is damaged, has a path outside of the folder, or lacks a tensor of the index.
        UnsupportedError: A tensor has a type that is unknown here.
    """
    if not (folder / INDEX).exists():
        return _load_file(folder, SINGLE_FILE)
    weight_map = read_json(folder, INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise FormatError("index: weight_map does not map tensors to files", Fact("file", folder / INDEX))
    invalid = sorted(
        {file for file in weight_map.values() if Path(file).name != file or file in ("", ".", "..") or "\0" in file}
    )
    if invalid:
        raise FormatError(f"index: {invalid[0]!r} is not a file of the folder", Fact("file", folder / INDEX))
    files = {file: _load_file(folder, file) for file in sorted(set(weight_map.values()))}
    missing = sorted(name for name, file in weight_map.items() if name not in files[file])
    if missing:
        raise FormatError(f"index: {weight_map[missing[0]]} does not have {missing[0]}", Fact("file", folder / INDEX))
    return {name: files[file][name] for name, file in weight_map.items()}


def _load_file(folder: Path, name: str) -> dict[str, Any]:
    try:
        arrays = load_safetensors(folder / name)
    except OSError as error:
        pickles = sorted(file.name for file in folder.glob("*.bin"))
        raise FileError(
            f"from_pretrained: {name} cannot be read: {error.strerror}",
            Fact("folder", folder),
            *([Fact("not read", ", ".join(pickles[:5]))] if pickles else []),
            hint=PICKLE_HINT if pickles else None,
        ) from None
    # Layers read quantised matrices; other parameters are arrays.
    return {
        name: np.asarray(each.dequantize()) if isinstance(each, QuantizedArray) and len(each.shape) != 2 else each
        for name, each in arrays.items()
    }


def element_type(tensor: Any) -> Any:
    """Return the dtype of the values of a tensor."""
    return dtype_of("f32") if isinstance(tensor, QuantizedArray) else dtype_of(tensor.dtype)


def check_tensors(
    model_type: str,
    tensors: Mapping[str, T],
    shapes: Shapes,
    prefix: str,
    unused: tuple[str, ...],
    optional: tuple[str, ...] = (),
    *,
    caller: str = "from_pretrained",
) -> dict[str, T]:
    """Return the tensors of an architecture by its own names.

    Args:
        tensors: Tensors of the checkpoint, with a shape and a dtype each.
        shapes: Expected tensors.
        prefix: Removed from the names of the checkpoint that begin with it.
        unused: Prefixes and suffixes of other permitted names: heads and buffers that the architecture does not read.
        optional: Names that may be missing.
        caller: The function that messages begin with.

    Raises:
        FormatError: Tensors are missing, misshapen, not floating-point or unknown; the error lists them.
    """
    by_name = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    present = {name: shape for name, shape in shapes.items() if name in by_name}
    unknown = [n for n in by_name if n not in shapes and not n.startswith(unused) and not n.endswith(unused)]
    facts = [
        *(
            Fact(name, f"is missing, {list(shape)}")
            for name, shape in shapes.items()
            if name not in present and name not in optional
        ),
        *(
            Fact(name, f"is {list(by_name[name].shape)}, and the configuration says {list(shape)}")
            for name, shape in present.items()
            if by_name[name].shape != shape
        ),
        *(
            Fact(name, f"is of {element_type(by_name[name])}, and must be of floats")
            for name in present
            if not element_type(by_name[name]).is_float
        ),
        *(Fact(name, "is unknown") for name in unknown),
    ]
    if facts:
        raise mismatch_error(f"the architecture {model_type}", facts, caller)
    return {name: by_name[name] for name in present}


def mismatch_error(what: str, facts: list[Fact], caller: str = "from_pretrained") -> FormatError:
    """Return the error of tensors that do not fit an architecture or a module."""
    count = f"{len(facts)} tensors do" if len(facts) > 1 else "a tensor does"
    more = [Fact("more", len(facts) - MAX_FACTS)] if len(facts) > MAX_FACTS else []
    return FormatError(f"{caller}: {count} not fit {what}", *facts[:MAX_FACTS], *more)
