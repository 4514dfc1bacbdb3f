"""Forms of records: written and read by their annotations, and a typed error for everything else."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from attrs import field

from rlx_core.errors import FormatError
from rlx_core.ir.forms import NOT_STORED, PLAIN_FORMS, RecordForms, ValueForm, need
from rlx_core.ir.types import TensorType, spec
from rlx_core.system.records import frozen


@frozen
class Edge:
    source: str
    weight: int | None


@frozen
class Net:
    name: str
    edges: tuple[Edge, ...] = ()
    sizes: Mapping[str, int] = field(factory=dict)
    corners: tuple[tuple[int, bool], ...] = ()
    inner: Net | None = None
    label: Any = None
    process: object = field(default=None, metadata={NOT_STORED: True})


NET = Net("a", (Edge("b", 1), Edge("c", None)), {"n": 4}, ((1, True),), Net("inner"), [1, "x"])


def stored(forms: RecordForms) -> Any:
    return json.loads(json.dumps(forms.write(NET, Net)))


@pytest.mark.parametrize("forms", [PLAIN_FORMS, RecordForms(rows={Edge})], ids=["tables", "rows"])
def test_a_record_comes_back(forms: RecordForms) -> None:
    assert forms.read(stored(forms), Net, "a net") == NET


def test_a_record_is_a_dictionary_or_a_list() -> None:
    assert stored(PLAIN_FORMS)["edges"] == [{"source": "b", "weight": 1}, {"source": "c", "weight": None}]
    assert stored(RecordForms(rows={Edge}))["edges"] == [["b", 1], ["c", None]]
    assert "process" not in stored(PLAIN_FORMS)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"name": 3}, "Net: name must be str, not int"),
        ({"edges": {}}, "Net: edges must be list, not dict"),
        ({"edges": [{"source": "b"}, 3]}, "Net: edges must be dict, not int"),
        ({"edges": [{"weight": 3}]}, "Edge: source must be str, not NoneType"),
        ({"sizes": {"n": True}}, "Net: sizes must be int, not bool"),
        ({"corners": [[1, True, 2]]}, "Net: corners must be a list of 2, not [1, True, 2]"),
        ({"inner": {}}, "Net: name must be str, not NoneType"),
    ],
)
def test_another_form_is_an_error_that_names_the_field(change: dict[str, Any], says: str) -> None:
    with pytest.raises(FormatError, match=re.escape(says)):
        PLAIN_FORMS.read({**stored(PLAIN_FORMS), **change}, Net, "a net")


def test_a_row_of_another_length_is_refused() -> None:
    with pytest.raises(FormatError, match="Net: edges must be a list of 2"):
        RecordForms(rows={Edge}).read({**stored(PLAIN_FORMS), "edges": [["b"]]}, Net, "a net")


def test_records_nested_without_end_are_refused() -> None:
    form: Any = None
    for _ in range(5000):
        form = {**stored(PLAIN_FORMS), "inner": form}
    with pytest.raises(FormatError, match="a net is nested too deep"):
        PLAIN_FORMS.read(form, Net, "a net")


def test_an_annotation_with_a_form_of_its_own() -> None:
    forms = RecordForms({TensorType: ValueForm(repr, lambda form, what: spec(need(form, str, what)))})
    types = (spec("f32[2, n]"), spec("i64[]"))
    assert forms.write(types, tuple[TensorType, ...]) == ["f32[2, n]", "i64[]"]
    assert forms.read(["f32[2, n]", "i64[]"], tuple[TensorType, ...], "types") == types
