"""`from_torch`: a torch module, or a program of `torch.export`, as an `rlx.Model`. Torch is imported when it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlx_core.errors import PluginError

if TYPE_CHECKING:
    import torch

    from rlx_torch.exported import TorchModel


def from_torch(
    module: torch.nn.Module | torch.export.ExportedProgram,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    name: str | None = None,
) -> TorchModel:
    """An `rlx.Model` of a torch module: compiled, differentiated, batched and saved like any function of one's own.

    The module is read by `torch.export` once, in the mode that it is in (`module.eval()` for inference). Parameters are those of
    the module, in its memory, under their torch names; buffers that it does not write are constants, the written ones are
    the input `state` (see `TorchModel`). A module that draws random numbers, as dropout does in training, has a last input `key`.

    Args:
        module: The module, or an exported program.
        args: Example inputs; their dtypes and sizes are the model's. Not for an exported program.
        kwargs: Example inputs by name.
        dynamic_shapes: Symbolic sizes, as `torch.export` takes them; `torch.export.Dim("batch")` becomes `batch`.
        name: Name in reports and errors; by default the module's class.

    Raises:
        UnsupportedError: Operations have no counterpart; all of them are named, with the lines that use them.
        ConfigError: The inputs are missing, or given to an exported program.
        PluginError: PyTorch is not installed.

    >>> import torch, rlx_core as rlx
    >>> model = from_torch(torch.nn.Linear(3, 2), (torch.ones(4, 3),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    >>> model.inputs, sorted(model.parameters)
    ({'input': f32[batch, 3]}, ['bias', 'weight'])
    """
    try:
        from rlx_torch.reading import read
    except ModuleNotFoundError as problem:
        if problem.name != "torch":
            raise
        hint = "python -m pip install 'rlx-torch[torch]'"
        raise PluginError("from_torch: PyTorch is not installed", hint=hint) from problem
    return read(module, args, kwargs, dynamic_shapes, name)
