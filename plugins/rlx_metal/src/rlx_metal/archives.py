"""What Metal's compiler made of a module's functions for this GPU, as bytes that another process reads.

Metal makes a pipeline in two steps: of the source its intermediate code, and of that a GPU's. An archive has what the second
made. To Metal it is a file; those here lie in a folder that only this user may enter, and that is gone with the driver.
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

__all__ = ["Archives", "pipeline_of"]


class _RefusedError(Exception):
    """Metal makes no archive, for the reason that it says."""


@define(eq=False)
class Archives:
    """The archives of one device.

    Attributes:
        device: Metal's own.
        place: Its name, for errors.
    """

    device: Any
    place: str
    _folder: str = field(factory=lambda: tempfile.mkdtemp(prefix="rlx-metal-"), init=False)

    def __attrs_post_init__(self) -> None:
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def read(self, binary: bytes) -> Any:
        """The archive of which `written` gave the bytes.

        Raises:
            KernelBuildError: Metal refuses it: another system or GPU wrote it, or nobody.
        """
        try:
            path = self._path()
            path.write_bytes(binary)  # stays: Metal reads parts of it when pipelines are made
        except OSError as failure:
            raise KernelBuildError(f"{self.place}: no file for an archive", Fact("system", failure)) from None
        archive, error = self._opened(path)
        if archive is None:
            path.unlink()
            raise KernelBuildError(f"{self.place}: a stale archive", Fact("driver", _said(error)))
        return archive

    def written(self, library: Any) -> tuple[Any, bytes] | None:
        """An archive of all functions of a library, and its bytes; none where there can be none, which is logged."""
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
        """A file that nobody has."""
        return Path(tempfile.mkdtemp(dir=self._folder), "pipelines.metallib")

    def _opened(self, path: Path | None) -> tuple[Any, Any]:
        """An archive, empty if there is no file, and what Metal says if it refuses."""
        descriptor = Metal.MTLBinaryArchiveDescriptor.alloc().init()
        if path is not None:
            descriptor.setUrl_(_url(path))
        archive, error = self.device.newBinaryArchiveWithDescriptor_error_(descriptor, None)
        return archive, error


def pipeline_of(device: Any, function: Any, archive: Any | None) -> tuple[Any, Any]:
    """A pipeline, taken from an archive if that has it; or none, and what Metal says."""
    descriptor = _descriptor(function, archive)
    made, error = device.newComputePipelineStateWithDescriptor_options_reflection_error_(descriptor, 0, None, None)
    return made, error


def _descriptor(function: Any, archive: Any | None) -> Any:
    made = Metal.MTLComputePipelineDescriptor.alloc().init()
    made.setComputeFunction_(function)
    if archive is not None:
        made.setBinaryArchives_([archive])
    return made


def _url(path: Path) -> Any:
    return Foundation.NSURL.fileURLWithPath_(str(path))


def _said(error: Any) -> str:
    return str(error.localizedDescription())[:2000]
