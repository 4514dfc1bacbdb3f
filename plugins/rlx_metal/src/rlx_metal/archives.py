"""Serialisation of compiled pipelines: Metal binary archives as bytes that other processes can load.

Metal compiles a pipeline in two steps: from source to intermediate code, and from that to GPU code. An archive contains the
result of the second step. Metal stores archives in files; these are in a temporary folder that only the user can access and that
is deleted with the driver.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

import Foundation
import Metal
import objc
from attrs import define, field

from rlx_core.errors import Fact, KernelBuildError
from rlx_core.system.logs import log_event


class _RefusedError(Exception):
    """Metal cannot create an archive; the message is Metal's."""


@define(eq=False)
class Archives:
    """The archives of one device.

    Attributes:
        device: The `MTLDevice`.
        place: The device's name, for errors.
    """

    device: Any
    place: str
    _folder: str = field(factory=lambda: tempfile.mkdtemp(prefix="rlx-metal-"), init=False)

    def __attrs_post_init__(self) -> None:
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def read(self, binary: bytes) -> Any:
        """Return the archive of bytes from `written`.

        Raises:
            KernelBuildError: Metal rejects the archive: it is from another system or GPU, or is not an archive.
        """
        try:
            path = self._path()
            path.write_bytes(binary)  # kept: Metal reads parts of the file when pipelines are created
        except OSError as failure:
            raise KernelBuildError(f"{self.place}: no file for an archive", Fact("system", failure)) from None
        archive, error = self._opened(path)
        if archive is None:
            path.unlink()
            raise KernelBuildError(f"{self.place}: a stale archive", Fact("driver", _said(error)))
        return archive

    def written(self, library: Any) -> tuple[Any, bytes] | None:
        """Return an archive of all functions of a library, and its bytes; on failure, log the reason and return `None`."""
        try:
            return self._written(library, self._path())
        except (OSError, _RefusedError) as error:
            log_event("binary-refused", {"device": self.place, "reason": f"no archive is kept: {error}"})
            return None

    def _written(self, library: Any, path: Path) -> tuple[Any, bytes]:
        with objc.autorelease_pool():
            archive, error = self._opened(None)
            if archive is None:
                raise _RefusedError(_said(error))
            for name in library.functionNames():
                descriptor = _descriptor(library.newFunctionWithName_(name), None)
                is_added, error = archive.addComputePipelineFunctionsWithDescriptor_error_(descriptor, None)
                if not is_added:
                    raise _RefusedError(_said(error))
            is_there, error = archive.serializeToURL_error_(_url(path), None)
            if not is_there:
                raise _RefusedError(_said(error))
        binary = path.read_bytes()
        path.unlink()
        return archive, binary

    def _path(self) -> Path:
        """Return the path of a new file in a unique folder."""
        return Path(tempfile.mkdtemp(dir=self._folder), "pipelines.metallib")

    def _opened(self, path: Path | None) -> tuple[Any, Any]:
        """Return an archive, empty if `path` is `None`, and Metal's error if it fails."""
        descriptor = Metal.MTLBinaryArchiveDescriptor.alloc().init()
        if path is not None:
            descriptor.setUrl_(_url(path))
        archive, error = self.device.newBinaryArchiveWithDescriptor_error_(descriptor, None)
        return archive, error


def pipeline_of(device: Any, function: Any, archive: Any | None) -> tuple[Any, Any]:
    """Return a pipeline, loaded from an archive if that contains it, or `None`; and Metal's error."""
    descriptor = _descriptor(function, archive)
    pipeline, error = device.newComputePipelineStateWithDescriptor_options_reflection_error_(descriptor, 0, None, None)
    return pipeline, error


def _descriptor(function: Any, archive: Any | None) -> Any:
    descriptor = Metal.MTLComputePipelineDescriptor.alloc().init()
    descriptor.setComputeFunction_(function)
    if archive is not None:
        descriptor.setBinaryArchives_([archive])
    return descriptor


def _url(path: Path) -> Any:
    return Foundation.NSURL.fileURLWithPath_(str(path))


def _said(error: Any) -> str:
    return str(error.localizedDescription())[:2000]
