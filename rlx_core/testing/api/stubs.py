"""Stubs of `rlx_core` for type checkers and editors: a signature for every public function, printed from the ops themselves.

    python -m rlx_core.testing.api.stubs --update

writes `__init__.pyi` of `rlx_core` and of `rlx_core.ops`. A public name is imported when it is first used, so no checker could
follow it; and the function of an op takes whatever its class declares, which only running code knows. In a signature,
operands are `ArrayLike`, results are `Array`, and an attribute has the type that its field (or the field's converter)
takes. In `rlx_core.ops`, where rules are written, operands are traced values, and the functions are those of the modules.
A function that no rule of this project calls has the types of users itself, so its signature and docstring are not repeated;
for rules it has `Any`.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from attrs import field

import rlx_core
from rlx_core import ops
from rlx_core.ir.apply import OpFunction, apply
from rlx_core.ir.dims import Dim
from rlx_core.ir.dtypes import DType
from rlx_core.ir.graph import Builder, Value, as_results, building
from rlx_core.ir.op import Op
from rlx_core.ops.samples import Sample
from rlx_core.public import CORE, FUNCTIONS, PLUGIN_KIT, found_at, place_of
from rlx_core.system.records import define

_ROOT = Path(rlx_core.__file__).parent

_HEADER = (
    "# Printed by `python -m rlx_core.testing.api.stubs --update`; a test compares it with the functions. Edit those.\n"
)

_TYPES = """
from collections.abc import Sequence
from typing import Any, Literal, NoReturn

"""

_WIDTH = 120

_SAMPLES = 12
"""Maximum number of samples of an op that are tried to determine its number of results."""


@define
class Writer:
    """Annotations as text, and the imports that the text needs.

    Attributes:
        shadowed: Public names that hide a builtin type in the module the text is for.
    """

    shadowed: frozenset[str]
    imports: dict[str, str] = field(factory=dict)

    def text(self, hint: Any, any_is: str = "Any") -> str:
        """Return an annotation, with `Any` (and types that only a trace has) as `any_is`: an operand, or a result."""
        if hint in (Any, object, Value, np.ndarray):
            return self._array(any_is)
        if hint is None or hint is type(None):
            return "None"
        if hint is Ellipsis:
            return "..."
        if hint == Dim:
            return self._imported("rlx_core.ir.dims", "Dim")
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in (types.UnionType, typing.Union):
            return self._union(arguments, any_is)
        if origin is typing.Literal:
            return f"Literal[{', '.join(map(repr, arguments))}]"
        if origin is not None:
            name = self.text(origin) if origin in (tuple, list) or not issubclass(origin, Iterable) else "Sequence"
            return f"{name}[{', '.join(self.text(a, any_is) for a in arguments)}]"
        if isinstance(hint, type):
            if hint.__module__ == "builtins":
                return f"builtins.{hint.__name__}" if hint.__name__ in self.shadowed else hint.__name__
            return self._imported(hint.__module__, hint.__name__)
        return "NoReturn" if hint is typing.NoReturn else "Any"

    def _union(self, arguments: tuple[Any, ...], any_is: str) -> str:
        if DType in arguments and str in arguments:
            others = [a for a in arguments if a not in (DType, str) and typing.get_origin(a) is None]
            return " | ".join(
                [self._imported("rlx_core.typing", "DTypeLike"), *("None" for a in others if a is type(None))]
            )
        expression = set(typing.get_args(Dim))
        if expression <= set(arguments):
            arguments = (Dim, *(a for a in arguments if a not in expression))
        return " | ".join(dict.fromkeys(self.text(a, any_is) for a in arguments))

    def _array(self, name: str) -> str:
        return name if name == "Any" else self._imported("rlx_core.typing", name)

    def _imported(self, module: str, name: str) -> str:
        # A public name is imported as such already, from where everybody gets it.
        if name not in CORE:
            self.imports[name] = module
        return name


_NO_OPERANDS = {"device", "dtype", "from_", "kind", "to", "type"}
"""Parameters of the Array API that are `Any` and no array."""


def stubs() -> dict[Path, str]:
    """Return the contents of each stub by its file."""
    return {_ROOT / "__init__.pyi": _core(), _ROOT / "ops" / "__init__.pyi": _ops()}


def _ops() -> str:
    public = {n: p for n, p in {**FUNCTIONS, **PLUGIN_KIT}.items() if n in dir(ops)}
    members = {n: found_at(*place_of(public, n)) for n in public}
    of_users = [
        n for n, member in members.items() if _result_of(member).startswith(("Array", "tuple[Array", "list[Array"))
    ]
    imports = _imports(_member(*place_of(public, n), n) for n in public if n not in of_users)
    functions = (ops.family_names, ops.standard_ops)
    defined = [f"\ndef {f.__name__}() -> {inspect.signature(f).return_annotation}: ...\n" for f in functions]
    any_typed = [_of_any(n, members[n]) for n in sorted(of_users)]
    return "".join([_HEADER, "\nfrom typing import Any\n\n", imports, *defined, "\n", *any_typed])


def _of_any(name: str, function: Callable[..., Any]) -> str:
    """Return the line of a function for rules: its operands and results are traced values there."""
    parameters = inspect.signature(function).parameters.values()
    return f"def {name}({', '.join(_parameters((p, 'Any', _default(p.default)) for p in parameters))}) -> Any: ...\n"


def _member(module: str, attribute: str, name: str) -> tuple[str, str]:
    """Return the module that a public name is imported from, and how: a stub offers the names in the form `x as x`."""
    if not attribute:
        module, _, attribute = module.rpartition(".")
    return module, f"{attribute} as {name}"


def _imports(members: Iterable[tuple[str, str]]) -> str:
    """Return one statement for each module."""
    statements = []
    for module, group in itertools.groupby(sorted(set(members)), key=lambda member: member[0]):
        names = ", ".join(name for _, name in group)
        statement = f"from {module} import {names}\n"
        if len(statement) > _WIDTH:
            unbroken = names.replace(" as ", "\0as\0")  # no line ends inside of a name
            inside = textwrap.fill(unbroken, _WIDTH, initial_indent="    ", subsequent_indent="    ").replace("\0", " ")
            statement = f"from {module} import (\n{inside}\n)\n"
        statements.append(statement)
    return "".join(statements)


def _core() -> str:
    public = {**FUNCTIONS, **CORE}
    writer = Writer(frozenset(public) & {"bool", "int", "float", "complex", "str", "bytes", "list", "tuple"})
    imported, defined = [], []
    for name in sorted(public):
        module, attribute = place_of(public, name)
        member = found_at(module, attribute)
        if name not in CORE and (isinstance(member, OpFunction) or _is_for_rules(member)):
            defined.append(_function(writer, name, member))
        else:
            imported.append(_member(module, attribute, name))
    needed = [(module, name) for name, module in writer.imports.items()]
    head = "import builtins\n" if writer.shadowed else ""
    return _HEADER + _TYPES + head + _imports([*imported, *needed]) + "\n__version__: str\n\n" + "\n".join(defined)


def _is_for_rules(member: Any) -> bool:
    """Return whether a name is a function that rules call as well: its result is annotated `Any`."""
    return "Any" in _result_of(member)


def _result_of(member: Any) -> str:
    """Return the annotation of a function's result; nothing for another object."""
    return str(inspect.signature(member).return_annotation) if inspect.isfunction(member) else ""


def _function(writer: Writer, name: str, function: Any) -> str:
    is_op = isinstance(function, OpFunction)
    parameters, result = (_of_op if is_op else _of_function)(writer, function)
    doc = inspect.getdoc(function) or ""
    quoted = "\n".join(f"    {line}".rstrip() for line in doc.splitlines()).strip()
    prefix = "r" if "\\" in quoted else ""
    line = f"def {name}({', '.join(parameters)}) -> {result}:"
    if len(line) > _WIDTH:
        line = f"def {name}(\n    {', '.join(parameters)}\n) -> {result}:"
    if any(len(each) > _WIDTH for each in line.splitlines()):
        line = f"def {name}(\n{chr(10).join(f'    {p},' for p in parameters)}\n) -> {result}:"
    return f'{line}\n    {prefix}"""{quoted}"""\n'


def _of_function(writer: Writer, function: Callable[..., Any]) -> tuple[list[str], str]:
    hints = typing.get_type_hints(function, localns={"DTypeLike": DType | str})
    signature = inspect.signature(function)
    rows = []
    for parameter in signature.parameters.values():
        operand = "Any" if parameter.name in _NO_OPERANDS else "ArrayLike"
        text = writer.text(hints.get(parameter.name, Any), operand)
        text += " | None" * (parameter.default is None and "None" not in text)
        rows.append((parameter, text, _default(parameter.default)))
    return _parameters(rows), writer.text(hints.get("return", Any), "Array")


def _of_op(writer: Writer, function: OpFunction[Any]) -> tuple[list[str], str]:
    op = function.op
    hints = typing.get_type_hints(op)
    fields = {a.name: a for a in attrs.fields(op)}
    rows = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in fields:
            text = _attribute(writer, fields[parameter.name], hints[parameter.name])
        elif parameter.name == "name":
            text = "str | None"
        else:
            text = writer.text(Any, "ArrayLike") + " | None" * (parameter.default is None)
        rows.append((parameter, text, _default(parameter.default)))
    return _parameters(rows), _results(writer, op)


def _attribute(writer: Writer, attribute: attrs.Attribute[Any], hint: Any) -> str:
    """Return an attribute's type in a signature: its converter's argument, else its own type, with any sequence for a tuple."""
    converter: Any = attribute.converter
    if converter is None:
        return writer.text(hint)
    if inspect.isfunction(converter):
        hints = [h for name, h in typing.get_type_hints(converter).items() if name != "return" and h is not Any]
        if hints:
            return writer.text(hints[0])
    items = [a for a in typing.get_args(hint) if a is not Ellipsis]
    if typing.get_origin(hint) is tuple:
        return f"Sequence[{' | '.join(dict.fromkeys(map(writer.text, items)))}]"
    if DType in typing.get_args(hint):
        return writer.text(hint | str)
    return "Any" if any(inspect.isclass(a) and issubclass(a, Op) for a in items) else writer.text(hint)


def _results(writer: Writer, op: type[Op]) -> str:
    assert op.samples is not None
    samples = itertools.islice((s for s in op.samples() if isinstance(s, Sample)), _SAMPLES)
    counts = {_result_count(op, sample) for sample in samples}
    array = writer.text(Any, "Array")
    if counts == {1}:
        return array
    if len(counts) == 1:
        return f"tuple[{', '.join([array] * counts.pop())}]"
    return f"tuple[{array}, ...]" if 1 not in counts else "Any"


def _result_count(op: type[Op], sample: Sample) -> int:
    builder = Builder("sample")
    operands = [None if t is None else builder.input(f"x{i}", t) for i, t in enumerate(sample.types)]
    with building(builder):
        return len(as_results(apply(op(**sample.attributes), operands)))


def _default(value: Any) -> str | None:
    """Return a default as text: the value where it informs readers, `...` for any other, empty if the attribute is required."""
    if value is inspect.Parameter.empty:
        return None
    items = value if isinstance(value, tuple) else (value,)
    return repr(value) if all(type(v) in (bool, int, float, str, type(None)) for v in items) else "..."


def _parameters(rows: Iterable[tuple[inspect.Parameter, str, str | None]]) -> list[str]:
    """The text of each parameter, with the `/` and the `*` that their kinds need."""
    texts: list[str] = []
    kinds = inspect.Parameter
    last: Any = None
    for parameter, annotation, default in rows:
        if last is kinds.POSITIONAL_ONLY and parameter.kind is not last:
            texts.append("/")
        if parameter.kind is kinds.KEYWORD_ONLY and last not in (kinds.KEYWORD_ONLY, kinds.VAR_POSITIONAL):
            texts.append("*")
        star = "*" * (parameter.kind is kinds.VAR_POSITIONAL) + "**" * (parameter.kind is kinds.VAR_KEYWORD)
        texts.append(f"{star}{parameter.name}: {annotation}" + ("" if default is None else f" = {default}"))
        last = parameter.kind
    return [*texts, "/"] if last is kinds.POSITIONAL_ONLY else texts


def main(arguments: list[str]) -> int:
    """Write the stubs, or list the ones that do not match the functions."""
    parser = argparse.ArgumentParser(prog="python -m rlx_core.testing.api.stubs", description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="write the file")
    update = parser.parse_args(arguments).update
    stale = {path: text for path, text in stubs().items() if path.read_text(encoding="utf-8") != text}
    for path, text in stale.items():
        if update:
            path.write_text(text, encoding="utf-8")
        print(path, "was written" if update else "is not what the functions are; --update writes it", file=sys.stderr)
    return 1 if stale and not update else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
