"""Signatures of compiled functions: the structure of arguments and results, and the values that were fixed at compilation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import optree

from rlx_core.errors import ConfigError, Fact, FormatError, WrongInputCountError
from rlx_core.ir.attributes import Decoder, Encoder
from rlx_core.ir.forms import Json, items, need
from rlx_core.ir.op import exact
from rlx_core.system.records import frozen
from rlx_core.transforms.trace import Leaf, Trace, is_static_leaf
from rlx_core.trees.flatten import Tree, flatten, flatten_arguments, same_structure, single
from rlx_core.trees.form import class_name, named_tuples, tree_form, tree_from


@frozen(eq=False)
class Signature:
    """The signature of a compiled function.

    Attributes:
        arguments: The structure of each argument, a tree over the tuple of it alone, in the order of the function's.
        free: The arguments that are passed on each call; the others were bound.
        statics: Leaves that are constants of the program, and their values.
        results: The structure of the function's result.
    """

    arguments: Mapping[str, Tree]
    free: tuple[str, ...]
    statics: Mapping[str, Any]
    results: Tree

    @classmethod
    def of(cls, arguments: Mapping[str, Any], free: Iterable[str], traced: Trace) -> Signature:
        """The signature of a function that was traced on `arguments`."""
        trees = {name: flatten_arguments({name: argument})[1] for name, argument in arguments.items()}
        statics = {leaf.name: leaf.static for leaf in traced.leaves if leaf.role == "static"}
        return cls(trees, tuple(free), statics, traced.results)

    @property
    def bound(self) -> dict[str, Tree]:
        """The structure of each bound argument."""
        return {name: tree for name, tree in self.arguments.items() if name not in self.free}

    @cached_property
    def wanted(self) -> Tree:
        """The structure of the arguments of a call."""
        trees = [self.arguments[name] for name in self.free]
        names = tuple(name for tree in trees for name in tree.names)
        return Tree(optree.treespec_tuple(list(map(single, trees))), names)

    @cached_property
    def leaves(self) -> list[Leaf]:
        """The leaves of a call."""
        return [
            Leaf(name, "static", static=self.statics[name]) if name in self.statics else Leaf(name, "input")
            for name in self.wanted.names
        ]

    @property
    def classes(self) -> tuple[type[Any], ...]:
        """The named tuples among arguments and results."""
        return named_tuples(tree.structure for tree in (*self.arguments.values(), self.results))

    # ------------------------------------------------------------------------------------- calling

    def inputs(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """The arrays of a call of the function `name`, in the order of the program's inputs.

        Raises:
            WrongInputCountError: An argument is missing, unknown or given twice.
            ShapeError: One has another structure.
            ConfigError: A constant is another.
        """
        leaves, tree = flatten_arguments(self._named(name, args, kwargs))
        same_structure(name, self.wanted, tree)
        arrays = []
        for leaf, value in zip(self.leaves, leaves, strict=True):
            if leaf.role == "input":
                arrays.append(value)
            elif not is_static_leaf(value) or exact(value) != exact(leaf.static):
                raise ConfigError(
                    f"{name}: {leaf.name} was compiled as {leaf.static!r}, not {value!r}",
                    hint="compile again, or declare it with rlx.spec and pass an array",
                )
        return arrays

    def _named(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        free = self.free
        twice = [n for n in free[: len(args)] if n in kwargs]
        named = dict(zip(free, args, strict=False)) | dict(kwargs)
        if twice or len(args) > len(free) or set(named) != set(free):
            missing = [n for n in free if n not in named]
            unknown = [n for n in kwargs if n not in free]
            problems = {"missing": missing, "unknown": unknown, "given twice": twice, "bound": list(self.bound)}
            raise WrongInputCountError(
                f"{name}: takes ({', '.join(free)}), not {len(args) + len(kwargs)} arguments",
                *(Fact(label, ", ".join(names)) for label, names in problems.items() if names),
            )
        return {n: named[n] for n in free}

    # ---------------------------------------------------------------------------------- storing it

    def form(self) -> dict[str, Json]:
        """The signature in canonical form.

        Raises:
            FormatError: A container among arguments or results is of a kind that a file cannot hold.
            ConfigError: Two named tuples among them have one name.
        """
        _by_name(self.classes)
        encode = Encoder().value
        arguments = [[name, name in self.free, tree_form(single(tree))] for name, tree in self.arguments.items()]
        statics = {name: encode(value) for name, value in self.statics.items()}
        return {"arguments": arguments, "statics": statics, "results": tree_form(self.results.structure)}

    @classmethod
    def read(
        cls,
        form: Mapping[str, Json],
        inputs: Sequence[str],
        params: Sequence[str],
        outputs: int,
        classes: Iterable[type[Any]] = (),
    ) -> Signature:
        """Return the signature that was stored with a program.

        Args:
            form: The value of `Signature.form`.
            inputs, params, outputs: The program's, by name, and how many outputs it has.
            classes: The named tuples that may occur.

        Raises:
            FormatError: The form is another, or does not fit the program.
            ConfigError: One of `classes` is no named tuple.
        """
        known = _by_name(classes)
        trees: dict[str, Tree] = {}
        free = []
        for row in need(form.get("arguments"), list, "arguments"):
            name, is_free, structure = items(row, 3, "an argument")
            if need(name, str, "a name") in trees:
                raise FormatError(f"call: there are two arguments {name}")
            trees[name] = _named(name, tree_from(structure, known))
            free += [name] if need(is_free, bool, "whether an argument is free") else []
        decode = Decoder({}).value
        statics = {name: decode(value) for name, value in need(form.get("statics"), dict, "statics").items()}
        results = _numbered(tree_from(form.get("results"), known))
        signature = cls(trees, tuple(free), statics, flatten(results, "result")[1])
        signature._expect_fits(inputs, params, outputs)
        return signature

    def _expect_fits(self, inputs: Sequence[str], params: Sequence[str], outputs: int) -> None:
        names = [name for tree in self.arguments.values() for name in tree.names]
        if not all(is_static_leaf(value) for value in self.statics.values()) or not set(names) >= self.statics.keys():
            raise FormatError(
                f"call: constants {', '.join(self.statics)} are no leaves of the arguments, or no scalars"
            )
        dynamic_names = [name for name in self.wanted.names if name not in self.statics]
        bound = [name for tree in self.bound.values() for name in tree.names if name not in self.statics]
        for what, declared, has in (("inputs", dynamic_names, list(inputs)), ("params", bound, list(params))):
            if sorted(declared) != sorted(has) or (what == "inputs" and declared != has):
                raise FormatError(
                    f"call: the {what} are {', '.join(declared)}, and those of the graph {', '.join(has)}"
                )
        if len(self.results.names) != outputs:
            raise FormatError(f"call: {len(self.results.names)} results, and the graph has {outputs}")


def _by_name(classes: Iterable[type[Any]]) -> dict[str, type[Any]]:
    """Named tuples by the names that files call them.

    Raises:
        ConfigError: A class is not a named tuple, or two have one name.
    """
    result: dict[str, type[Any]] = {}
    for each in classes:
        if not (isinstance(each, type) and optree.is_namedtuple_class(each)):
            raise ConfigError(f"load: classes takes named tuples, not {each!r}")
        if result.setdefault(class_name(each), each) is not each:
            raise ConfigError(f"load: two named tuples are called {class_name(each)}", hint="rename one of them")
    return result


def _numbered(structure: optree.PyTreeSpec) -> Any:
    return optree.tree_unflatten(structure, range(structure.num_leaves))


def _named(name: str, structure: optree.PyTreeSpec) -> Tree:
    return flatten_arguments({name: _numbered(structure)})[1]
