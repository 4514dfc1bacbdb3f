"""cuBLASLt's functions over the fake CuPy's memory: what the header says of them is asserted, and products are NumPy's."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np

DTYPES = {0: np.dtype(np.float32), 1: np.dtype(np.float64), 2: np.dtype(np.float16), 14: np.dtype(ml_dtypes.bfloat16)}

SIZES = {
    "MatmulDesc": {3: 4, 4: 4, 7: 4, 8: 8, 11: 8, 12: 8, 13: 8},
    "MatrixLayout": {5: 4, 6: 8},
    "MatmulPreference": {1: 8, 3: 4, 5: 4, 6: 4, 7: 4, 8: 4},
}
"""Bytes of each attribute, by its number in cublasLt.h."""

TRANSA, TRANSB, EPILOGUE, BIAS, AUX, AUX_LD, AUX_STRIDE = 3, 4, 7, 8, 11, 12, 13
BATCH, STRIDE = 5, 6
EPILOGUES = {1, 2, 4, 6, 32, 36, 160, 164, 192, 208, 256, 512}
BGRAD, BGRADA, BGRADB = 16, 256, 512
FAST_TF32 = 77


class Descriptor:
    """A layout, an operation or a preference."""

    def __init__(self, what: str, *given: int) -> None:
        self.what, self.given, self.is_alive = what, given, True
        self.attributes: dict[int, int] = {}

    def __getitem__(self, attribute: int) -> int:
        return self.attributes.get(attribute, {BATCH: 1}.get(attribute, 0) if self.what == "MatrixLayout" else 0)


class FakeCublasLt:
    """The library, as ctypes would give it.

    Args:
        cuda: The fake `cupy.cuda`.
        has_algorithms: Whether the heuristic finds any.
    """

    def __init__(self, cuda: Any, *, has_algorithms: bool = True) -> None:
        self.cuda, self.has_algorithms = cuda, has_algorithms
        self.known: dict[int, Descriptor] = {}
        self.algorithms: dict[int, tuple[Any, ...]] = {}
        self.asked: list[tuple[int, int]] = []
        """The epilogue and the number of products of each call."""
        self._names = itertools.count(1 << 12)

    def cublasLtGetStatusName(self, status: Any) -> bytes:
        return f"CUBLAS_STATUS_{status.value}".encode()

    def cublasLtCreate(self, made: Any) -> int:
        made._obj.value = 1
        return 0

    def __getattr__(self, name: str) -> Any:
        """`…Create`, `…SetAttribute` and `…Destroy` of each kind of descriptor."""
        for what in SIZES:
            for verb in ("Create", "SetAttribute", "Destroy"):
                if name == f"cublasLt{what}{verb}":
                    return lambda *given: getattr(self, f"_{verb}")(what, *given)
        raise AttributeError(name)

    def _Create(self, what: str, made: Any, *given: Any) -> int:
        made._obj.value = next(self._names)
        self.known[made._obj.value] = Descriptor(what, *(each.value for each in given))
        return 0

    def _SetAttribute(self, what: str, descriptor: Any, attribute: Any, value: Any, size: Any) -> int:
        found = self._of(what, descriptor)
        assert SIZES[what].get(attribute.value) == size.value, (
            f"{what}: attribute {attribute.value} of {size.value} bytes"
        )
        found.attributes[attribute.value] = value._obj.value or 0
        return 0

    def _Destroy(self, what: str, descriptor: Any) -> int:
        self._of(what, descriptor).is_alive = False
        return 0

    def _of(self, what: str, descriptor: Any) -> Descriptor:
        found = self.known[descriptor.value]
        assert found.what == what
        assert found.is_alive, "a descriptor is used after it was destroyed"
        return found

    # ------------------------------------------------------------------------------------------- products

    def cublasLtMatmulAlgoGetHeuristic(
        self,
        handle: Any,
        operation: Any,
        a: Any,
        b: Any,
        c: Any,
        d: Any,
        preference: Any,
        count: Any,
        found: Any,
        got: Any,
    ) -> int:
        assert handle.value == 1
        assert count.value == 1
        op, wanted = self._of("MatmulDesc", operation), self._of("MatmulPreference", preference)
        layouts = [self._of("MatrixLayout", each) for each in (a, b, c, d)]
        self._expect_sizes(op, *layouts)
        assert wanted[3] == 2, "partial sums are added in the dtype of sums"
        got._obj.value = int(self.has_algorithms)
        number = len(self.algorithms) + 1
        alignments = tuple(wanted[5 + k] for k in range(4))
        self.algorithms[number] = (operation.value, alignments, wanted[1], op[BIAS] % 16, op[AUX] % 16)
        found._obj.algorithm[0] = number
        return 0

    def _expect_sizes(self, op: Descriptor, a: Descriptor, b: Descriptor, c: Descriptor, d: Descriptor) -> None:
        (compute, scale), epilogue = op.given, op[EPILOGUE]
        assert epilogue in EPILOGUES
        dtypes = [DTYPES[each.given[0]] for each in (a, b, c, d)]
        is_wide = dtypes[0] == np.float64
        assert (compute, scale) in (((70, 1),) if is_wide else ((68, 0), (FAST_TF32, 0)))
        assert dtypes[0] == dtypes[1]
        assert dtypes[2] == dtypes[3]
        assert dtypes[3] in (dtypes[0], np.float32)
        assert not (is_wide and epilogue != 1), "f64 has no epilogues"
        rows_a, depth_a = a.given[1:3][:: -1 if op[TRANSA] else 1]
        depth_b, columns_b = b.given[1:3][:: -1 if op[TRANSB] else 1]
        assert d.given[1:3] == c.given[1:3] == (rows_a, columns_b)
        assert depth_a == depth_b > 0
        assert len({each[BATCH] for each in (a, b, c, d)}) == 1
        for each in (a, b, c, d):
            assert each.given[3] >= each.given[1], "columns overlap"
        if epilogue & (4 | BGRAD | BGRADA | BGRADB):
            assert op[BIAS]
        if epilogue & (BGRAD | BGRADA | BGRADB):
            assert d[BATCH] == 1
            assert dtypes[0] == dtypes[3], "a bias' gradient has the result's dtype"
        if epilogue & 128:
            assert op[AUX] % 16 == 0 != op[AUX]
            assert op[AUX_LD] % 8 == 0
            assert op[AUX_LD] >= rows_a
            assert op[AUX_STRIDE] % 8 == 0

    def cublasLtMatmul(
        self, handle: Any, operation: Any, one: Any, at_a: Any, a: Any, at_b: Any, b: Any, added: Any, at_c: Any, c: Any,
        at_d: Any, d: Any, algorithm: Any, workspace: Any, nbytes: Any, stream: Any,
    ) -> int:  # fmt: skip
        op = self._of("MatmulDesc", operation)
        layouts = [self._of("MatrixLayout", each) for each in (a, b, c, d)]
        pointers = [each.value for each in (at_a, at_b, at_c, at_d)]
        chosen, alignments, room, *shifts = self.algorithms[algorithm._obj.algorithm[0]]
        assert chosen == operation.value, "an algorithm is for what it was chosen for"
        assert all(at % alignment == 0 for at, alignment in zip(pointers, alignments, strict=True))
        assert [op[BIAS] % 16, op[AUX] % 16] == shifts
        assert nbytes.value >= room
        assert one._obj.value == 1
        pointed = op[BIAS], op[AUX]  # as they are now: the next call may change them
        self.asked.append((op[EPILOGUE], layouts[3][BATCH]))

        def work() -> None:
            self.cuda.world.at(workspace.value, nbytes.value)[: nbytes.value] = 0xFF
            for number in range(layouts[3][BATCH]):
                seen = [self._matrix(at, layout, number) for at, layout in zip(pointers, layouts, strict=True)]
                self._multiply(op, *seen, bool(added._obj.value), pointed, number)

        self.cuda.world.records.append(("library", "cublasLtMatmul"))
        self.cuda.stream_of(stream.value or 0).ask(work)
        return 0

    def _matrix(self, at: int, layout: Descriptor, number: int) -> np.ndarray:
        """The library's matrix of a number: column by column."""
        dtype, rows, columns, ld = layout.given
        return self._columns(at, DTYPES[dtype], rows, columns, ld, number * layout[STRIDE])

    def _columns(self, at: int, of: np.dtype, rows: int, columns: int, ld: int, first: int) -> np.ndarray:
        begin, size = at + first * of.itemsize, of.itemsize
        raw = self.cuda.world.at(begin, size * (ld * (columns - 1) + rows))
        return np.ndarray((rows, columns), of, raw, 0, (size, ld * size))

    def _multiply(
        self,
        op: Descriptor,
        a: np.ndarray,
        b: np.ndarray,
        c: np.ndarray,
        d: np.ndarray,
        added: bool,
        pointed: Any,
        number: int,
    ) -> None:
        epilogue, wide = op[EPILOGUE], np.float64 if a.dtype == np.float64 else np.float32
        left, right = (x.T if op[t] else x for x, t in ((a, TRANSA), (b, TRANSB)))
        left, right = left.astype(wide), right.astype(wide)
        if op.given[0] == FAST_TF32:
            left, right = tf32(left), tf32(right)
        sums = left @ right + (c.astype(wide) if added else 0)
        if epilogue & 4:
            sums = sums + self._columns(pointed[0], d.dtype, len(d), 1, len(d), 0).astype(wide)
        if epilogue & 128:
            kept = self._columns(pointed[1], d.dtype, *d.shape, op[AUX_LD], number * op[AUX_STRIDE])
            if epilogue & 64:
                sums = sums * slope(kept.astype(wide))
            else:
                kept[...] = sums
        if epilogue & (BGRADA | BGRADB):
            total = left.sum(1) if epilogue & BGRADA else right.sum(0)
            self._columns(pointed[0], d.dtype, len(total), 1, len(total), 0)[:, 0] = total
        sums = np.maximum(sums, 0) if epilogue & 2 else gelu(sums) if epilogue & 32 else sums
        if epilogue & BGRAD:
            self._columns(pointed[0], d.dtype, len(d), 1, len(d), 0)[:, 0] = sums.sum(1)
        d[...] = sums


def tf32(x: np.ndarray) -> np.ndarray:
    """Rounded to ten bits of mantissa, ties away from zero."""
    return ((x.astype(np.float32).view(np.uint32) + 0x1000) & 0xFFFFE000).view(np.float32)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def slope(x: np.ndarray) -> np.ndarray:
    t = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * np.sqrt(2 / np.pi) * (1 + 0.134145 * x * x)
