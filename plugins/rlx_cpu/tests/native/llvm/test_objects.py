"""Native code kept between processes: what makes another key, what heals, and that a hit computes what a miss does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve

import rlx_core as rlx
from rlx_core.ir.graph import ops_inside
from rlx_core.ops.region import ElementwiseRegion
from rlx_core.pipeline.config_reading import load_config
from rlx_core.plugins import digest
from rlx_core.runtime import cache as caches
from rlx_core.system.disk import DiskCache
from rlx_cpu.native.llvm import jit, objects
from rlx_cpu.native.llvm.isa import available
from rlx_cpu.native.runtime import steps
from rlx_cpu.native.table import emitter_in, native

pytestmark = pytest.mark.usefixtures("without_poison")

X = np.linspace(-2, 2, 3 * 40, dtype=np.float32).reshape(3, 40)
W = np.linspace(-1, 1, 40 * 24, dtype=np.float32).reshape(40, 24)
TABLE = np.arange(30, dtype=np.float32).reshape(10, 3)


def model(w: Any, x: Any) -> Any:
    return rlx.softmax(rlx.exp(x @ w) + 1, axis=-1)


@pytest.fixture
def afresh(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forget what this process has in memory, as another one would not have it."""

    def forget() -> None:
        monkeypatch.setattr(caches, "_caches", {})

    forget()
    return forget


def compiled(directory: Path, w: np.ndarray = W, **options: Any) -> Any:
    config = {"cache.directory": str(directory), **{f"options.{k}": v for k, v in options.items()}}
    return rlx.compile(model, w, rlx.spec("f32[3, 40]"), target="cpu", config=config)


def run(directory: Path, **options: Any) -> tuple[np.ndarray, str, str | None]:
    """The result, where the plan came from, and where the code did."""
    made = compiled(directory, **options)
    result = made(X)
    return result, made.report.cache, made.report.code


def test_a_hit_computes_bit_for_bit_what_a_miss_does_and_says_so(tmp_path: Path, afresh: Callable[[], None]) -> None:
    missed = run(tmp_path)
    afresh()
    hit = run(tmp_path)

    assert missed[1:] == ("compiled", "compiled")
    assert hit[1:] == ("disk", "cached")
    assert missed[0].tobytes() == hit[0].tobytes()


def test_a_hit_needs_no_emitter(tmp_path: Path, afresh: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    run(tmp_path)
    afresh()
    monkeypatch.setattr(steps, "emit_function", None)
    monkeypatch.setattr(objects, "generate", None)
    monkeypatch.setattr(jit, "generate", None)

    assert run(tmp_path)[1:] == ("disk", "cached")


def test_packs_follow_new_parameters_after_a_hit(tmp_path: Path, afresh: Callable[[], None]) -> None:
    compiled(tmp_path)(X)
    afresh()
    made = compiled(tmp_path)
    first = made(X)
    made.rebind(w=-W)

    assert made.report.code == "cached"
    afresh()
    np.testing.assert_array_equal(made(X), compiled(tmp_path, w=-W)(X))
    assert not np.array_equal(first, made(X))


def test_a_fault_names_the_index_after_a_hit(tmp_path: Path, afresh: Callable[[], None]) -> None:
    def taken() -> str:
        config = {"cache.directory": str(tmp_path)}
        made = rlx.compile(lambda t, i: rlx.take(t, i, axis=0), TABLE, rlx.spec("i64[2]"), target="cpu", config=config)
        with pytest.raises(rlx.errors.IndexRangeError) as caught:
            made(np.array([1, 77]))
        return caught.value.message

    missed = taken()
    afresh()
    assert taken() == missed
    assert "77" in missed


def test_nothing_is_written_where_the_configuration_wants_no_files(
    tmp_path: Path, afresh: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLX_CACHE_DIR", str(tmp_path))
    made = rlx.compile(model, W, rlx.spec("f32[3, 40]"), target="cpu", config={"cache.disk": False})
    made(X)

    assert made.report.code == "compiled"
    assert not list(tmp_path.rglob("*.rlx"))


def test_code_is_kept_in_the_configured_directory(tmp_path: Path, afresh: Callable[[], None]) -> None:
    run(tmp_path / "chosen")

    assert list((tmp_path / "chosen" / "programs").glob("*.rlx"))
    assert list((tmp_path / "chosen" / "objects").glob("*.rlx"))


# ------------------------------------------------------------------------------------------------- keys


def functions() -> list[objects.Function]:
    made = compiled_in_memory()
    found, _ = steps.functions_of(made.executable.lir)
    return found


def compiled_in_memory() -> Any:
    return rlx.compile(model, W, rlx.spec("f32[3, 40]"), target="cpu", config={"cache.disk": False})


def test_everything_that_decides_code_makes_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    given = functions()
    isa = available()[0]
    first, *rest = given
    wider = evolve(first, layout=evolve(first.layout, results=(*first.layout.results, *first.layout.results)))
    bound = evolve(first.layout.operands[0], is_bound=not first.layout.operands[0].is_bound)
    keys = {
        "as it is": objects.key_of(given, isa),
        "another kernel": objects.key_of([evolve(first, kernel="native_other"), *rest], isa),
        "another layout": objects.key_of([wider, *rest], isa),
        "bound": objects.key_of(
            [evolve(first, layout=evolve(first.layout, operands=(bound, *first.layout.operands[1:]))), *rest], isa
        ),
        "fewer": objects.key_of(given[:1], isa),
        "another instruction set": objects.key_of(given, evolve(isa, name="other")),
    }
    monkeypatch.setattr(objects, "stamp_of", lambda packages: "edited emitters")
    keys["edited emitters"] = objects.key_of(given, isa)

    assert None not in keys.values()
    assert len(set(keys.values())) == len(keys)


def test_a_key_is_the_same_again() -> None:
    isa = available()[0]

    assert objects.key_of(functions(), isa) == objects.key_of(functions(), isa)


def test_every_instruction_set_has_code_of_its_own(tmp_path: Path, afresh: Callable[[], None]) -> None:
    for isa in available():
        assert run(tmp_path, **{"cpu.isa": isa.name})[1:] == ("compiled", "compiled")
    afresh()
    for isa in available():
        assert run(tmp_path, **{"cpu.isa": isa.name})[1:] == ("disk", "cached")


def test_an_op_of_no_package_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    given = functions()
    monkeypatch.setattr(digest, "package_stamp", lambda package: None)

    assert objects.key_of(given, available()[0]) is None


def test_the_ops_inside_a_region_have_a_say() -> None:
    found = rlx.compile(
        lambda x: rlx.tanh(x) * 2 + x, rlx.spec("f32[64]"), target="cpu", config={"cache.disk": False}
    ).executable.lir
    regions = [step.node.op for step in found.steps if isinstance(step.node.op, ElementwiseRegion)]

    assert regions
    assert all(len(list(ops_inside(op))) > 1 for op in regions)


# -------------------------------------------------------------------------------------------- healing


def entry_of(directory: Path) -> tuple[DiskCache, str]:
    store = DiskCache(directory / "objects")
    (key,) = [key for key in sorted(store.keys()) if (store.get(key) or b"")[8:12] == b'{"ke']
    return store, key


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "longer": lambda data: data + b"\0",
    "another head": lambda data: data[:8] + b"x" * (len(data) - 8),
    "a head beyond the end": lambda data: b"\xff" * 8 + data[8:],
    "another object": lambda data: (
        data[:-400] + b"x" * 400 if len(data) < 400 else data[:60] + b"\0" * (len(data) - 60)
    ),
    "renamed function": lambda data: data.replace(b'"function":"k0', b'"function":"q0'),
    "unknown pack": lambda data: data.replace(b'"form":"panels"', b'"mold":"panels"'),
}


@pytest.mark.parametrize("damage", DAMAGE, ids=str)
def test_an_entry_that_turns_out_to_be_something_else_is_made_again(
    tmp_path: Path, afresh: Callable[[], None], damage: str
) -> None:
    """The checksum is right in these: somebody else's entry, or an older rlx's."""
    expected = run(tmp_path)[0]
    store, key = entry_of(tmp_path)
    payload = store.get(key)
    assert payload is not None
    store.put(key, DAMAGE[damage](payload))
    afresh()
    found, _, code = run(tmp_path)

    assert code == "compiled"
    assert found.tobytes() == expected.tobytes()
    assert store.get(key) == payload, "the entry is what it was"
    afresh()
    assert run(tmp_path)[2] == "cached"


def test_an_entry_that_is_another_keys_is_made_again(tmp_path: Path, afresh: Callable[[], None]) -> None:
    """Whole, with the right checksum, and of as many functions: of other ones."""
    other = rlx.compile(lambda x: rlx.exp(x) + 1, rlx.spec("f32[3, 40]"), config={"cache.directory": str(tmp_path)})
    other(X)
    store, key = entry_of(tmp_path)
    foreign = store.get(key)
    store.clear()
    expected = run(tmp_path)[0]
    afresh()
    store, key = entry_of(tmp_path)
    assert foreign is not None
    store.put(key, foreign)
    found, _, code = run(tmp_path)

    assert code == "compiled"
    assert found.tobytes() == expected.tobytes()
    assert store.get(key) != foreign


def test_a_payload_cut_at_any_length_is_removed(tmp_path: Path, afresh: Callable[[], None]) -> None:
    """With the right checksum, so that only what an entry says of itself tells; code is never linked from such a one."""
    run(tmp_path)
    store, key = entry_of(tmp_path)
    payload = store.get(key)
    assert payload is not None
    isa = available()[0]
    said = json.loads(payload[8 : 8 + int.from_bytes(payload[:8], "little")])
    count, head = len(said["functions"]), len(payload) - sum(said["objects"])
    for length in (*range(head + 64), *range(head + 64, len(payload), 101), len(payload) - 1):
        held = Held(payload[:length])

        assert objects._read(held, key, count, isa) is None, length
        assert held.dropped == [key], length


class Held:
    """A store of one entry."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.dropped: list[str] = []

    def get(self, key: str) -> bytes | None:
        return self.payload

    def put(self, key: str, payload: bytes) -> bool:
        return False

    def drop(self, key: str, reason: str) -> None:
        self.dropped.append(key)


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["programs", "objects"])
def test_a_file_cut_or_flipped_anywhere_that_means_something_heals(
    tmp_path: Path, afresh: Callable[[], None], kind: str
) -> None:
    """In each word of the header, where the head and what follows it begin, and at the end."""
    expected = run(tmp_path)[0]
    (path, *_) = sorted((tmp_path / kind).glob("*.rlx"), key=lambda p: -p.stat().st_size)
    whole = path.read_bytes()
    places = sorted({*range(0, 96, 12), len(whole) // 3, len(whole) // 2, len(whole) - 1})
    flipped = [whole[:n] + bytes([whole[n] ^ 1 << n % 8]) + whole[n + 1 :] for n in places]
    for damaged in [*flipped, *(whole[:n] for n in places), whole + b"\0", b"\0" * len(whole)]:
        path.write_bytes(damaged)
        afresh()
        found, *sources = run(tmp_path)

        assert found.tobytes() == expected.tobytes()
        assert sources == (["compiled", "cached"] if kind == "programs" else ["disk", "compiled"])
        assert path.read_bytes() == whole, "healed"


def test_emitters_are_known_by_the_names_of_their_rows() -> None:
    for kernel in native:
        assert emitter_in(native, kernel.name) is not None


def test_settings_of_the_cache_share_one_store() -> None:
    settings = load_config(overrides={})

    assert caches.default_cache(settings) is caches.default_cache(settings)
