"""The manifest of a package: the signature of its function, and its code for each machine and combination of sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rlx_core.errors import FormatError
from rlx_core.ir.dims import DimBinding, free_symbols
from rlx_core.ir.forms import Json, RecordForms, ValueForm, need, quoted
from rlx_core.ir.types import TensorType, spec
from rlx_core.system.records import frozen


@frozen
class VariantCode:
    """Code for one variant of a target.

    Attributes:
        target, variant: Their names for users, `cpu:avx2`.
        summary: The machines that run it.
        form: The blob with the backend's data.
        nbytes: Bytes of the blobs that it uses, weights included.
    """

    target: str
    variant: str
    summary: str
    form: int
    nbytes: int

    def __str__(self) -> str:
        return f"{self.target}:{self.variant}"


@frozen(eq=False)
class Manifest:
    """A package's manifest.

    Attributes:
        name: The function's.
        rlx: The version that wrote it.
        call: The structure of arguments and results; see `runtime.signature`.
        inputs, outputs: Types by name, in order; sizes may be symbols.
        params: The bound parameters, by name.
        sizes: The combinations that all codes have programs for, in the order of these; an empty one where no size is open.
        guards: Conditions on sizes, as text: every program in the package satisfies them.
        codes: In the order in which they are tried.
        program: The blob with the program that the code was made from, or `None`.
    """

    name: str
    rlx: str
    call: Mapping[str, Json]
    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[tuple[str, TensorType], ...]
    params: tuple[str, ...]
    sizes: tuple[DimBinding, ...]
    guards: tuple[str, ...]
    codes: tuple[VariantCode, ...]
    program: int | None

    def to_json(self) -> dict[str, Json]:
        """The manifest as `from_json` reads it."""
        return _FORMS.write(self, Manifest)

    @classmethod
    def from_json(cls, form: Mapping[str, Json]) -> Manifest:
        """The manifest of a file.

        Raises:
            FormatError: A field is missing or malformed.
        """
        manifest: Manifest = _FORMS.read(form, cls, "the manifest")
        named = {symbol for _, type in manifest.inputs for symbol in free_symbols(*type.shape)}
        if not manifest.sizes or any(not named <= binding.sizes.keys() for binding in manifest.sizes):
            raise FormatError("package: its programs leave sizes of inputs open")
        return manifest


def sizes_json(binding: DimBinding) -> dict[str, int]:
    return {repr(symbol): size for symbol, size in sorted(binding.sizes.items())}


def _type(form: Json, what: str) -> TensorType:
    return quoted(spec, need(form, str, what))


def _binding(form: Json, what: str) -> DimBinding:
    sizes = need(form, dict, what)
    return quoted(lambda _: DimBinding.of(**sizes), "")


_FORMS: Final = RecordForms(
    {TensorType: ValueForm(repr, _type), DimBinding: ValueForm(sizes_json, _binding)},
    rows={VariantCode},
)
