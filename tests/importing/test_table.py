"""Handlers are registered once for each operation, and the modules that register them are imported on first access."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlx_core.errors import ConfigError
from rlx_core.importing.table import Handler, HandlerTable


def test_a_handler_serves_all_operations_of_its_decorator() -> None:
    table = HandlerTable(Handler, registration="{}")

    @table.register("add", "plus")
    def add(x: int, y: int) -> int:
        return x + y

    assert table.names() == ["add", "plus"]
    assert table["plus"].function is add
    assert add(1, 2) == 3


def test_a_second_handler_of_an_operation_is_an_error_that_names_both() -> None:
    table = HandlerTable(Handler, registration="{}")
    table.register("len")(len)

    with pytest.raises(ConfigError, match="operation len has two handlers") as caught:
        table.register("len")(sorted)
    assert [str(fact.value) for fact in caught.value.facts] == ["builtins.len", "builtins.sorted"]
    assert table["len"].function is len


def test_an_unknown_property_of_a_handler_is_an_error() -> None:
    with pytest.raises(TypeError, match="is_pure"):
        HandlerTable(Handler, registration="{}").register("len", is_pure=True)(len)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package of handlers with a folder; `TABLE` is in a module of its own."""
    folder = tmp_path / "toy_handlers"
    (folder / "inner").mkdir(parents=True)
    table = "from rlx_core.importing.table import Handler, HandlerTable\n"
    table += "TABLE = HandlerTable(Handler, registration='{}', package='toy_handlers')\n"
    (folder / "__init__.py").write_text("")
    (folder / "inner" / "__init__.py").write_text("")
    (folder / "table.py").write_text(table)
    for path, name in (("first.py", "b"), ("inner/second.py", "a")):
        (folder / path).write_text(f"from toy_handlers.table import TABLE\nTABLE.register({name!r})(len)\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in [each for each in sys.modules if each.startswith("toy_handlers")]:
        monkeypatch.delitem(sys.modules, name)
    return "toy_handlers"


def test_modules_of_handlers_are_imported_on_first_access(package: str) -> None:
    from toy_handlers.table import TABLE  # type: ignore[import-not-found]

    assert f"{package}.first" not in sys.modules
    assert TABLE.names() == ["a", "b"]
    assert "a" in TABLE
    assert len(TABLE) == 2
    assert {f"{package}.first", f"{package}.inner.second"} <= sys.modules.keys()
