"""Statuses of CUDA and HIP as typed errors: only those after which nothing works are lost devices."""

from __future__ import annotations

import pytest

from rlx_core.errors import DeviceCallError, DeviceLostError, OutOfMemoryError, RlxError
from rlx_gpu.cupy.failures import driver_error

STATUSES: list[tuple[int, type[RlxError], str]] = [
    (1, DeviceCallError, "an argument of a call is invalid"),
    (2, OutOfMemoryError, "no memory left"),
    (9, DeviceCallError, "a group or a grid"),
    (98, DeviceCallError, "no such kernel"),
    (200, DeviceCallError, "binary"),
    (209, DeviceCallError, "another device"),
    (214, DeviceLostError, "does not answer"),
    (400, DeviceCallError, "does not exist any more"),
    (700, DeviceLostError, "does not answer"),
    (701, DeviceCallError, "more registers or shared memory"),
    (702, DeviceLostError, "does not answer"),
    (716, DeviceLostError, "does not answer"),
    (719, DeviceLostError, "does not answer"),
    (801, DeviceCallError, "does not support"),
    (900, DeviceCallError, "recorded as a graph"),
    (901, DeviceCallError, "recorded as a graph"),
    (12345, DeviceCallError, "a call of the driver failed"),
]


@pytest.mark.parametrize(("status", "kind", "words"), STATUSES, ids=str)
def test_a_status_is_an_error_with_the_driver_s_words(status: int, kind: type[RlxError], words: str) -> None:
    error = driver_error("cuda:1", status, f"status {status}")
    assert type(error) is kind
    assert error.message.startswith("cuda:1: ")
    assert words in error.message
    assert f"status {status}" in str(error)
    assert kind is OutOfMemoryError or error.hint
    assert ("started again" in str(error)) == (kind is DeviceLostError)
