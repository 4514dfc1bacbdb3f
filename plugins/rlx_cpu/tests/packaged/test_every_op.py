"""Every op with native code gives from a package what it gives when it is compiled."""

from __future__ import annotations

import json

import numpy as np
import pytest

import rlx_cpu.plugin
from rlx_core.errors import NoKernelError
from rlx_core.files.packages.container import BlobStore
from rlx_core.ir.dims import DimBinding
from rlx_core.ops import standard_ops
from rlx_core.pipeline.compile import compile_graph
from rlx_core.plugins import PluginHost
from rlx_core.run.memory import allocate
from rlx_core.runtime.executable import Executable
from rlx_core.testing.cases import programs
from rlx_cpu.native.llvm.isa import available, portable
from rlx_cpu.native.runtime.compiled import RunSettings
from rlx_cpu.packaged.form import PackedProgram
from rlx_cpu.packaged.image import image_from
from rlx_cpu.packaged.mapping import MappedCode
from rlx_cpu.packaged.opening import program_of
from rlx_cpu.packaged.writing import Writer

HOST = PluginHost([rlx_cpu.plugin])


class Kept(BlobStore):
    """Blobs that were never in a file."""

    def nbytes(self, number: int) -> int:
        return len(self.blobs[number])

    def arrays(self, numbers: list[int]) -> list[np.ndarray]:
        found = []
        for number in numbers:
            found.append(allocate(self.nbytes(number), 64))
            found[-1][:] = np.frombuffer(self.blobs[number], np.uint8)
        return found


@pytest.mark.slow
@pytest.mark.parametrize("isa", [isa.name for isa in available()])
def test_every_native_op_agrees(isa: str) -> None:
    store, writer, cases = Kept(), None, []
    for program in {case.op: case for case in programs(standard_ops()) if case.is_static}.values():
        config = {"use": "none", "options": {"cpu.isa": isa, "cpu.threads": 2}}
        compiled = compile_graph(program.graph, target="cpu", host=HOST, config=config)
        executable = Executable(compiled)
        writer = writer or Writer(portable(isa), compiled.target.kernels, store.add)
        if executable.params:
            continue
        try:
            form = writer.add(*executable.planned(DimBinding()))
        except NoKernelError:
            continue
        cases.append((program, executable, json.dumps(form)))
    assert writer is not None
    assert len(cases) > 200
    image = image_from(writer.code(), store)
    code = MappedCode(image)
    for program, executable, form in cases:
        given = program.draw()
        packed = PackedProgram.from_json(json.loads(form), store.nbytes, image.exports)
        found = program_of(packed, code, store, RunSettings(2, 100))
        wanted = executable.run(dict(zip(program.graph.input_types, given, strict=True)))
        entry = found.entry(program.graph.name)
        for results in (found.run(given), found.run(given), None if entry is None else entry(*given)):
            if results is None or results is NotImplemented:
                continue
            for one, other in zip(results, wanted, strict=True):
                assert (one.dtype, one.shape) == (other.dtype, other.shape), program
                if one.dtype.kind in "fcV" or one.dtype.name == "bfloat16":
                    wide = np.complex128 if one.dtype.kind == "c" else np.float64
                    one, other = (np.asarray(each).astype(wide) for each in (one, other))
                    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5, err_msg=str(program))
                else:
                    np.testing.assert_array_equal(one, other, err_msg=str(program))
