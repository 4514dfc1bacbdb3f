"""Dims are polynomials in canonical form: equal sizes are equal objects, and text is exact."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlx_core.errors import BindingError, GuardError, ShapeError
from rlx_core.ir.dims import (
    BATCH,
    PAST_SEQ,
    ROWS,
    SEQ,
    DimBinding,
    SizeGuard,
    batch_past_seq,
    batch_seq,
    collecting_guards,
    exact_quotient,
    free_symbols,
    holds,
    parse_dim,
    parse_dims,
    product,
    require,
    smaller,
    symbol,
)
from rlx_core.ir.dims.atoms import MOST_NESTED
from rlx_core.ir.dims.binding import substitute

N, M, K = symbol("n"), symbol("m"), symbol("k")
leaves = st.one_of(st.integers(-3, 9), st.sampled_from([N, M, K, BATCH]))
dims = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] * p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
    ),
    max_leaves=6,
)
bindings = st.fixed_dictionaries({name: st.integers(0, 7) for name in ("n", "m", "k", "BATCH")})


@given(dims, dims, dims)
def test_sums_and_products_are_a_commutative_ring(a, b, c):
    assert a + b == b + a
    assert a * b == b * a
    assert (a + b) + c == a + (b + c)
    assert (a * b) * c == a * (b * c)
    assert a * (b + c) == a * b + a * c
    assert a - a == 0
    assert hash(a * (b + c)) == hash(a * b + a * c)


@given(dims, dims, bindings)
def test_binding_commutes_with_arithmetic(a, b, sizes):
    binding = DimBinding.of(**sizes)
    assert binding.bind(a * b + a) == binding.bind(a) * binding.bind(b) + binding.bind(a)


@given(dims)
def test_a_printed_dim_parses_back(a):
    assert parse_dim(str(a)) == a


@pytest.mark.medium
@given(dims, dims)
def test_a_product_divides_exactly(a, b):
    if a != 0 and b != 0:
        with collecting_guards() as guards:
            assert exact_quotient(a * b, b) == a
        assert guards == []


rounded = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] - 2 * p[1]),
        st.tuples(inner, st.integers(1, 4)).map(lambda p: p[0] // p[1]),
        st.tuples(inner, st.integers(1, 4)).map(lambda p: p[0] % p[1]),
        st.tuples(inner, inner).map(lambda p: smaller(*p)),
    ),
    max_leaves=6,
)


@pytest.mark.medium
@given(rounded, rounded, st.integers(1, 4), bindings)
def test_quotients_and_minima_of_bound_sizes_are_python_s(a, b, divisor, sizes):
    bind = DimBinding.of(**sizes).bind
    assert bind(a // divisor) == bind(a) // divisor
    assert bind(a % divisor) == bind(a) % divisor
    assert bind(a // -divisor) == bind(a) // -divisor
    assert bind(smaller(a, b)) == min(bind(a), bind(b))
    assert smaller(a, b) == smaller(b, a)


@given(rounded, rounded, st.sampled_from([">", ">=", "=="]), bindings)
def test_what_is_decided_without_the_sizes_is_so_at_every_size(a, b, relation, sizes):
    bind = DimBinding.of(**sizes).bind
    known = holds(relation, a, b)
    if known is not None:
        assert holds(relation, bind(a), bind(b)) is known


@given(rounded)
def test_rounded_sizes_print_and_parse_back(a):
    assert parse_dim(str(a)) == a
    assert parse_dims(f"{a}, 7") == [a, 7]


def test_bounds_of_quotients_and_minima_are_known():
    assert holds(">=", N, smaller(N, 4))
    assert holds(">=", N - smaller(N, 4), 0)
    assert holds(">=", 4, smaller(N, 4))
    assert holds(">=", N, 2 * (N // 2))
    assert holds(">", 3, N % 3)
    assert holds(">=", N + 1, 2 * ((N + 1) // 2))
    assert holds(">=", smaller(N, 4), 1) is None
    assert holds(">=", exact_quotient(N - 5, 2), 0) is None  # a quotient of what may be negative may be negative


def test_sizes_of_slices_of_slices_stay_flat():
    cut, halved = N, N
    for _ in range(40):
        cut, halved = cut - smaller(1, cut), (halved + 1) // 2
    assert str(cut) == "n - min(40, n)"
    assert str(halved) == f"(n + {2**40 - 1})//({2**40})"
    assert str(smaller(4, smaller(N, 8))) == "min(4, n)"
    assert str(smaller(8, smaller(N, 4))) == "min(4, n)"


def test_a_divisor_that_is_not_known_is_above_zero_under_a_guard():
    with collecting_guards() as guards:
        assert str(M // N) == "(m)//(n)"
        assert (N * M) // N == M
        assert 0 // N == 0
    assert {str(g) for g in guards} == {"n > 0"}
    with pytest.raises(BindingError, match="m = 3 is not divisible by 0"):
        DimBinding.of(n=0, m=3).bind(M // N)
    with pytest.raises(ShapeError, match="n is divided by 0"):
        N % 0


def test_zero_divides_by_any_size_that_is_not_zero():
    with collecting_guards() as guards:
        assert exact_quotient(0, N) == 0
    assert [str(g) for g in guards] == ["n > 0"]
    with pytest.raises(ShapeError, match="n is not a multiple of 0"):
        exact_quotient(N, 0)


QUOTIENTS = [
    exact_quotient(N * M, 4),
    2 * exact_quotient(N * M, 4),
    exact_quotient(N, 4) * exact_quotient(M, 3) * K,
    exact_quotient(N, 4) * exact_quotient(N, 4) - 1,
    -exact_quotient(N, 2) + M,
    exact_quotient(exact_quotient(N, 2) + M, K + 1),
]


@pytest.mark.parametrize("size", QUOTIENTS, ids=str)
def test_quotients_parse_back_in_any_company(size):
    assert parse_dim(str(size)) == size


def test_quotients_nest_to_a_stated_depth_and_parse_back_from_it():
    size = N
    for _ in range(MOST_NESTED):
        size = 3 * exact_quotient(size + 1, 2) * M  # printed in two pairs of brackets
    assert parse_dim(str(size)) == size
    assert substitute(size, {}) == size

    with pytest.raises(ShapeError, match=f"nests more than {MOST_NESTED} quotients"):
        exact_quotient(size + 1, 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 +",
        "n m",
        "(n",
        "n)",
        "2^",
        "n^n",
        "n^99",
        "9" * 30,
        "(" * 100 + "n" + ")" * 100,
        "n///2",
        "min(n)",
        "min(n, 2",
        "n, 2",
        "é*",
        "--",
    ],
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ShapeError):
        parse_dim(text)


def test_the_same_name_is_the_same_symbol_in_every_thread():
    found = []
    threads = [threading.Thread(target=lambda: found.append(symbol("made_in_threads"))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1


def test_well_known_symbols_have_their_ids():
    assert [next(iter(free_symbols(d))).id for d in (BATCH, SEQ, ROWS, PAST_SEQ)] == [0, 1, 2, 3]
    assert next(iter(free_symbols(symbol("any_other")))).id >= 16


def test_standard_bindings():
    assert batch_seq(2, 3) == DimBinding.of(BATCH=2, SEQ=3, ROWS=6)
    assert batch_past_seq(2, 9) == DimBinding.of(BATCH=2, PAST_SEQ=9)
    assert batch_seq(2, 3).bind(BATCH * SEQ + N) == 6 + N


@pytest.mark.parametrize("size", [-1, True, 1.0, "3"], ids=repr)
def test_a_size_is_a_whole_number_of_at_least_zero(size):
    with pytest.raises(BindingError, match="integer of at least 0"):
        DimBinding.of(n=size)


def test_a_quotient_that_is_not_exact_when_bound_is_an_error():
    half = exact_quotient(N, 2)
    assert DimBinding.of(n=6).bind(half) == 3
    with pytest.raises(BindingError, match="n = 5 is not a multiple of 2"):
        DimBinding.of(n=5).bind(half)


DECIDED = [
    ("==", N, N, True),
    ("==", 3, 4, False),
    (">", N + 3, 2, True),
    (">=", N * 2, 0, True),
    (">", 0, 0, False),
    ("divides", 3, 6, True),
    ("divides", 4, 6, False),
    ("divides", 0, 6, False),
]


@pytest.mark.parametrize(("relation", "left", "right", "holds"), DECIDED, ids=str)
def test_what_can_be_decided_is_decided_without_a_guard(relation, left, right, holds):
    with collecting_guards() as guards:
        assert require(relation, left, right) is holds
    assert guards == []


def test_what_cannot_be_decided_is_assumed_and_recorded_once():
    with collecting_guards() as guards:
        assert require("==", N, M)
        assert require("==", N, M)
        assert require(">", N, 0)
    assert [str(g) for g in guards] == ["n == m", "n > 0"]


GUARDS = [("==", N, M, "n == m"), (">", N, 3, "n > 3"), (">=", N, M, "n >= m"), ("divides", 4, N, "n % 4 == 0")]


@pytest.mark.parametrize(("relation", "left", "right", "text"), GUARDS, ids=str)
def test_a_guard_holds_fails_or_stays_open(relation, left, right, text):
    guard = SizeGuard(relation, left, right, "%1 = rlx.reshape", "model.py:3")
    assert str(guard) == text
    assert guard.check(DimBinding.of(n=8, m=8)) is None
    assert str(guard.check(DimBinding.of(k=1))) == text
    with pytest.raises(GuardError) as error:
        guard.check(DimBinding.of(n=2, m=9))
    assert "model.py:3" in str(error.value)


def test_the_product_of_nothing_is_one():
    assert product([]) == 1
    assert product([N, 2, M]) == 2 * M * N


def test_an_unknown_size_is_no_index():
    with pytest.raises(ShapeError, match="n is not known yet"):
        range(N)
