"""Records are shown, compared and hashed as those of attrs are, though no class has functions of its own for it."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest
from attrs import field

import rlx_core
from rlx_core.system.records import define, evolve, frozen, spelt


def both(make: str, **options: object) -> tuple[type, type]:
    """A class of each maker: an inherited field, one that is not compared, one not shown, one with a key, one made late."""

    def classes(maker: object) -> type:
        class Base:
            first: float = 0.5

        class Record(maker(Base)):  # type: ignore[misc]
            name: str = "a"
            note: object = field(default=None, eq=False)
            hidden: int = field(default=3, repr=False)
            folded: str = field(default="X", eq=str.lower, repr=lambda s: f"<{s}>")
            unhashed: object = field(default=(), hash=False)
            late: object = field(init=False)

        return maker(Record, **options)

    return classes(getattr(attrs, make)), classes({"frozen": frozen, "define": define}[make])


@pytest.mark.parametrize("make", ["frozen", "define"])
def test_a_record_is_shown_as_attrs_shows_it(make: str) -> None:
    theirs, ours = both(make)

    assert repr(ours(name="b")) == repr(theirs(name="b"))
    assert ours.__repr__ is spelt
    assert theirs.__repr__ is not spelt


def test_frozen_records_are_equal_and_hashed_where_those_of_attrs_are() -> None:
    one, other = both("frozen")
    different = [{}, {"first": 1.0}, {"name": "b"}, {"note": 1}, {"hidden": 4}, {"folded": "x"}, {"folded": "y"}]

    def made(kind: type, given: dict[str, object]) -> object:
        record = kind(**given)
        object.__setattr__(record, "late", 7)
        return record

    for a in different:
        for b in different:
            assert (made(one, a) == made(one, b)) == (made(other, a) == made(other, b)), (a, b)
            if made(other, a) == made(other, b):
                assert hash(made(other, a)) == hash(made(other, b))
    assert made(other, {}) != made(one, {})
    assert hash(made(other, {"unhashed": []})) == hash(made(other, {}))


def test_a_record_without_fields_and_one_with_a_single_one_are_compared() -> None:
    @frozen
    class Nothing:
        pass

    @frozen
    class Single:
        value: object

    assert Nothing() == Nothing()
    assert hash(Nothing()) == hash(Nothing())
    assert Single(1) == Single(1.0)
    assert Single(1) != Single(2)
    assert Single(1) != 1
    nan = float("nan")
    assert Single(nan) == Single(nan)


def test_what_a_class_says_itself_stays() -> None:
    @frozen
    class Own:
        x: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

    @frozen(eq=False, repr=False)
    class Plain:
        x: int

    assert (repr(Own(1)), Own(1) == Own(2), hash(Own(1))) == ("own", True, 1)
    assert Plain(1) != Plain(1)
    assert repr(Plain(1)).startswith("<")


def test_mutable_records_are_equal_and_have_no_hash() -> None:
    @define
    class Mutable:
        x: list[int]

    assert Mutable([1]) == Mutable([1])
    with pytest.raises(TypeError, match="unhashable"):
        hash(Mutable([1]))


def test_one_that_holds_itself_can_be_shown() -> None:
    @define
    class Loop:
        inside: object = None

    loop = Loop()
    loop.inside = loop

    assert repr(loop).endswith("Loop(inside=...)")


@pytest.mark.medium
def test_records_of_the_core_and_of_the_cpu_are_made_this_way() -> None:
    core = Path(rlx_core.__file__).parent
    folders = [core, core.parent / "plugins" / "rlx_cpu" / "src", core.parent / "plugins" / "rlx_onnx" / "src"]
    by_attrs = re.compile(r"^from attrs import (\([^)]*|[^(\n]*)\b(frozen|define)\b", re.MULTILINE)

    assert [str(p) for folder in folders for p in folder.rglob("*.py") if by_attrs.search(p.read_text())] == []


@pytest.mark.parametrize("make", ["frozen", "define"])
def test_an_evolved_record_is_that_of_attrs(make: str) -> None:
    """A private field is changed by its own name, one that the initialiser does not take stays out."""

    @{"frozen": frozen, "define": define}[make](kw_only=True)
    class Record:
        name: str = "a"
        _hidden: int = field(default=3, converter=int)
        late: object = field(init=False, default=None)

    @frozen
    class One:
        only: object

    record = Record(name="b", hidden="4")

    assert evolve(record) == record
    assert evolve(record, name="c") == attrs.evolve(record, name="c")
    assert evolve(record, _hidden="5") == Record(name="b", hidden=5)
    assert evolve(One((1, 2)), only=(3,)) == One((3,))
    with pytest.raises(TypeError, match="nme"):
        evolve(record, nme="d")
