"""The manifest of a package: the signature of its function, and its code for each machine and combination of sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from rlx_core.errors import FormatError
from rlx_core.ir.dims import DimBinding, free_symbols
from rlx_core.ir.forms import Json, items, need, optional, quoted
from rlx_core.ir.types import TensorType, spec
from rlx_core.system.records import frozen

T = TypeVar("T")


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
        """The manifest as `manifest_from` reads it."""
        return {
            "name": self.name,
            "rlx": self.rlx,
            "call": dict(self.call),
            "inputs": [[name, repr(type)] for name, type in self.inputs],
            "outputs": [[name, repr(type)] for name, type in self.outputs],
            "params": list(self.params),
            "sizes": [sizes_json(binding) for binding in self.sizes],
            "guards": list(self.guards),
            "codes": [[c.target, c.variant, c.summary, c.form, c.nbytes] for c in self.codes],
            "program": self.program,
        }

    @classmethod
    def from_json(cls, form: Mapping[str, Json]) -> Manifest:
        """The manifest of a file.

        Raises:
            FormatError: A field is missing or malformed.
        """
        manifest = cls(
            name=need(form.get("name"), str, "a name"),
            rlx=need(form.get("rlx"), str, "a version"),
            call=need(form.get("call"), dict, "the call"),
            inputs=_all(form.get("inputs"), _typed),
            outputs=_all(form.get("outputs"), _typed),
            params=_all(form.get("params"), lambda each: str(need(each, str, "a name"))),
            sizes=_all(form.get("sizes"), _binding),
            guards=_all(form.get("guards"), lambda each: str(need(each, str, "a guard"))),
            codes=_all(form.get("codes"), _code),
            program=optional(form.get("program"), int, "the program"),
        )
        named = {symbol for _, type in manifest.inputs for symbol in free_symbols(*type.shape)}
        if not manifest.sizes or any(not named <= binding.sizes.keys() for binding in manifest.sizes):
            raise FormatError("package: its programs leave sizes of inputs open")
        return manifest


def sizes_json(binding: DimBinding) -> dict[str, int]:
    return {repr(symbol): size for symbol, size in sorted(binding.sizes.items())}


def _all(form: Json, read: Callable[[Json], T]) -> tuple[T, ...]:
    return tuple(read(each) for each in need(form, list, "a part of the manifest"))


def _typed(form: Json) -> tuple[str, TensorType]:
    name, type = items(form, 2, "an input or output")
    return need(name, str, "a name"), quoted(spec, need(type, str, "a type"))


def _binding(form: Json) -> DimBinding:
    sizes = need(form, dict, "sizes")
    binding: DimBinding = quoted(lambda _: DimBinding.of(**sizes), "")
    return binding


def _code(form: Json) -> VariantCode:
    target, variant, summary, blob, nbytes = items(form, 5, "code")
    for word in (target, variant, summary):
        need(word, str, "a word about code")
    return VariantCode(target, variant, summary, need(blob, int, "a blob"), need(nbytes, int, "a length"))
