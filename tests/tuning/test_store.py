"""Choices on disk: they come back, also from other processes; other files and other lines have none."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest
from attrs import asdict, evolve

from rlx_core.tuning.store import ChoiceStore, StoredChoice, default_store

CHOICE = StoredChoice("product [8] @ [8]", "a machine", "products 1", "items=8", "model", 1.5, 0.25, 2.5, 0.5, 15)


@pytest.fixture
def store(tmp_path: Path) -> ChoiceStore:
    return ChoiceStore(tmp_path / "tuning" / "choices.jsonl")


def again(store: ChoiceStore) -> ChoiceStore:
    """The store as another process reads it."""
    return ChoiceStore(store.path)


def test_a_choice_comes_back(store: ChoiceStore) -> None:
    assert store.get(*CHOICE.key) is None
    store.put(CHOICE)
    for each in (store, again(store)):
        assert each.get(*CHOICE.key) == CHOICE
        assert each.choices() == [CHOICE]


def test_the_file_is_one_readable_line_for_each_choice(store: ChoiceStore) -> None:
    store.put(CHOICE)
    store.put(evolve(CHOICE, machine="another machine"))
    lines = store.path.read_text().splitlines()
    assert len(lines) == 2
    assert json.loads(lines[0]) == asdict(CHOICE)


@pytest.mark.parametrize("field", ["problem", "machine", "version"])
def test_another_problem_machine_or_version_has_no_choice(store: ChoiceStore, field: str) -> None:
    store.put(CHOICE)
    assert store.get(*evolve(CHOICE, **{field: "another"}).key) is None


def test_a_new_choice_replaces_the_former_one(store: ChoiceStore) -> None:
    store.put(CHOICE)
    store.put(evolve(CHOICE, candidate="items=16"))
    assert [each.candidate for each in again(store).choices()] == ["items=16"]


def test_choices_of_other_processes_are_kept_and_not_used(store: ChoiceStore) -> None:
    """A process reads the file once, so that its programs do not depend on when others measure."""
    assert store.choices() == []
    other = evolve(CHOICE, problem="another")
    again(store).put(other)
    assert store.get(*other.key) is None
    store.put(CHOICE)
    assert store.choices() == [CHOICE]
    assert again(store).choices() == sorted((CHOICE, other), key=lambda each: each.problem)


def put_many(path: Path, process: int) -> None:
    store = ChoiceStore(path)
    for number in range(20):
        store.put(evolve(CHOICE, problem=f"problem {process}.{number}"))


@pytest.mark.medium
@pytest.mark.skipif(os.name != "posix", reason="elsewhere files have no such locks")
def test_two_processes_lose_no_choice_of_each_other(store: ChoiceStore) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=put_many, args=(store.path, number)) for number in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert len(store.choices()) == 40


@pytest.mark.parametrize("text", ["", "{", "\x00\xff", '{"problem": "p"}\n', '["format 0"]\n'])
def test_a_file_of_another_form_has_no_choices_and_is_replaced(store: ChoiceStore, text: str) -> None:
    store.put(CHOICE)
    store.path.write_bytes(text.encode("latin-1"))
    assert again(store).choices() == []
    fresh = again(store)
    fresh.put(CHOICE)
    assert again(store).choices() == [CHOICE]


def test_lines_of_a_former_form_are_ignored(store: ChoiceStore) -> None:
    store.put(CHOICE)
    former = {name: value for name, value in asdict(CHOICE).items() if name != "rounds"}
    store.path.write_text(json.dumps(former) + "\n" + store.path.read_text())
    assert again(store).choices() == [CHOICE]


@pytest.mark.skipif(os.name != "posix", reason="files have modes there")
def test_a_file_that_others_can_write_has_no_choices(store: ChoiceStore) -> None:
    store.put(CHOICE)
    store.path.chmod(0o666)
    assert again(store).choices() == []


@pytest.mark.skipif(os.name != "posix", reason="directories have modes there")
def test_a_directory_that_is_open_to_others_is_reported_and_the_choice_serves_this_process(store: ChoiceStore) -> None:
    store.path.parent.mkdir(mode=0o700)
    store.path.parent.chmod(0o777)
    with pytest.warns(RuntimeWarning, match=r"tuned choices are not kept on disk: .* is open to others"):
        store.put(CHOICE)
    assert store.get(*CHOICE.key) == CHOICE
    assert not store.path.exists()


def test_a_cleared_store_is_empty_for_all_processes(store: ChoiceStore) -> None:
    assert store.clear() == 0
    assert not store.path.parent.exists()
    store.put(CHOICE)
    assert store.clear() == 1
    assert store.choices() == again(store).choices() == []


def test_the_digest_is_of_the_choices_for_one_machine(store: ChoiceStore) -> None:
    empty = store.digest("a machine")
    store.put(CHOICE)
    one = store.digest("a machine")
    assert one != empty
    assert store.digest("another machine") == empty
    assert again(store).digest("a machine") == one
    store.put(evolve(CHOICE, median_us=9.0))
    assert store.digest("a machine") == one  # times do not affect programs
    store.put(evolve(CHOICE, candidate="items=16"))
    assert store.digest("a machine") != one


def test_the_default_store_is_in_the_cache_directory_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path / "cache"))
    assert default_store().path == tmp_path / "cache" / "tuning" / "choices.jsonl"
    assert default_store() is default_store()
