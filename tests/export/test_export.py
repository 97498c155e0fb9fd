"""`ptxkit export`: the C code launches as ptxkit does, compiles strictly, and says in a sentence what it cannot do."""

from __future__ import annotations

import ctypes
import json
import re
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import pytest

from examples.cluster_multicast import broadcast
from examples.tile_gemm import tile_gemm
from examples.tma_copy import tma_copy
from examples.vector_add import vector_add
from ptxkit import Kernel, Ptr, Reg, TensorMap, kernel, smem
from ptxkit.cli.main import main
from ptxkit.dsl.raw import Param
from ptxkit.errors import PtxkitError
from ptxkit.export.exported import ExportError
from ptxkit.export.names import identifier, renamed
from ptxkit.export.text import INCLUDES
from ptxkit.gemm.export.choices import Layer
from ptxkit.gemm.export.export import pack, product
from ptxkit.gemm.tools.bench import stub
from ptxkit.ptx import griddepcontrol, st
from ptxkit.runtime import cache
from ptxkit.runtime.compiled import Compiled
from ptxkit.runtime.toolchain import assemble
from ptxkit.types import b32, bf16, e4m3, f16, f32, f64, s16, s32, s64, u8, u32, u64

from .recorder import CC, CXX, STRICT, Launched, Recorder, attach, compiled, digest, driver_library, loaded, said

pytestmark = [pytest.mark.ptxas, pytest.mark.skipif(CC is None, reason="there is no C compiler `cc`"), pytest.mark.timeout(120)]
STREAM = 0x5000


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return driver_library(tmp_path_factory.mktemp("driver"))


@kernel(block=(32, 4), target="sm_90")
def scalars(a: Reg[u8], b: Reg[s16], c: Reg[f16], d: Reg[bf16], e: Reg[f32], f: Reg[f64], g: Reg[b32], h: Reg[s64], i: Reg[u64],
            j: Reg[s32], out: Ptr[u64], byte: Ptr[u8]) -> None:
    """Every scalar type that C passes."""
    st.global_.u64(out, i)
    griddepcontrol.wait()


@kernel(block=128, cluster=(16, 1, 1), smem="dynamic")
def wide(a: TensorMap, register: TensorMap, stream: Reg[u32], a_shape: Ptr[f32], *, ROWS: int = 64) -> None:
    """A cluster that is not portable, 200 KB of shared memory, names that C does not take, and boxes of three kinds."""
    from ptxkit import if_, tid
    from ptxkit.ptx import cp, mbarrier

    first, second = smem.tile(e4m3, (ROWS, 128)), smem.tile(bf16, (ROWS, 32), swizzle=64)
    smem.array(u8, 190_000)
    full = smem.mbarrier(1)
    load = cp.async_.bulk.tensor_2d.shared__cluster.global_.tile.mbarrier__complete_tx__bytes
    with if_(tid.x == 0):
        mbarrier.init.shared__cta.b64(full[0], 1)
        load(first[0], a, (0, 0), full[0])
        load(second[0], register, (0, 0), full[0])
    st.global_.u32(a_shape.at(0), stream)


@kernel(block=32)
def nothing() -> None:
    """No parameters."""
    griddepcontrol.launch_dependents()


def longs(*values: int) -> Any:
    return (ctypes.c_uint64 * len(values))(*values)


def pointer(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.pointer)


def grid_of(x: int, y: int = 1, z: int = 1) -> list[ctypes.c_uint32]:
    return [ctypes.c_uint32(each) for each in (x, y, z)]


def both(folder: Path, driver: Path, made: Kernel[...], c_arguments: Any, grid: tuple[int, ...], *, pdl: bool | None = None,
         **config: Any) -> tuple[Recorder, list[Launched]]:
    """The same launch by ptxkit and by the export. `c_arguments` makes ptxkit's arguments and those of C."""
    recorder = Recorder()
    with recorder.under_python():
        python, c = c_arguments()
        Compiled(made.trace(**config))(grid, *python, stream=STREAM, pdl=bool(pdl))
    allowed, recorder.allowed = recorder.allowed, []
    exported = made.export(folder, **config)
    library = loaded(exported.files[2], driver, recorder)
    overlap = [] if pdl is None else [ctypes.c_int(pdl)]
    status = getattr(library, f"{exported.name}_launch")(*c, *grid_of(*grid), *overlap, ctypes.c_void_p(STREAM))
    assert status == 0, said(library, exported.name)
    assert recorder.allowed == allowed
    return recorder, recorder.launches


def test_a_plain_kernel_is_launched_as_ptxkit_does(tmp_path: Path, driver: Path) -> None:
    def arguments() -> tuple[Any, Any]:
        a, b, c = (stub.array("f32", 1000) for _ in range(3))
        return (a, b, c, 1000), (pointer(a), pointer(b), pointer(c), ctypes.c_uint32(1000))

    _, (python, c) = both(tmp_path, driver, vector_add, arguments, (4,))
    assert c == python
    assert (c.grid, c.block, c.stream, c.attributes) == ((4, 1, 1), (256, 1, 1), STREAM, ())
    assert digest((tmp_path / "vector_add.cubin").read_bytes()) == digest(vector_add.assemble().cubin)


def test_tensor_maps_are_encoded_from_what_the_caller_gives(tmp_path: Path, driver: Path) -> None:
    def arguments() -> tuple[Any, Any]:
        source, target = stub.array("f32", 300, 48), stub.array("f32", 200, 36)
        source.shape, source.strides = (290, 40), (48, 1)
        return (source, target), (pointer(source), longs(290, 40), longs(48, 1), pointer(target), longs(200, 36), None)

    _, (python, c) = both(tmp_path, driver, tma_copy, arguments, (2, 5))
    assert c == python
    assert [len(parameter) for parameter in c.parameters] == [128, 128]
    assert struct.unpack_from("<2Q", c.parameters[0], 16) == (40, 290)


def test_clusters_and_large_shared_memory_are_asked_for(tmp_path: Path, driver: Path) -> None:
    def arguments() -> tuple[Any, Any]:
        a, b, c = stub.array("e4m3", 64, 256), stub.array("bf16", 64, 32), stub.array("f32", 4)
        return (a, b, 7, c), (pointer(a), longs(64, 256), None, pointer(b), longs(64, 32), None, ctypes.c_uint32(7), pointer(c))

    recorder, (python, c) = both(tmp_path, driver, wide, arguments, (32,), ROWS=32)
    assert c == python
    assert [kind for _, kind, _ in recorder.allowed] == [8, 14]
    assert c.attributes[0][1][:12] == struct.pack("<3I", 16, 1, 1)
    assert c.shared > 190_000
    assert (c.parameters[0][0], c.parameters[1][0]) == (0, 9)
    head = (tmp_path / "wide.h").read_text()
    assert "void *register_, const uint64_t register__shape[2]" in " ".join(head.split())
    assert "uint32_t stream_, void *a_shape_" in " ".join(head.split())


def test_multicast_and_wgmma_kernels_too(tmp_path: Path, driver: Path) -> None:
    def blocks() -> tuple[Any, Any]:
        source, target = stub.array("u32", 4096), stub.array("u32", 4096)
        return (source, target), (pointer(source), pointer(target))

    def tiles() -> tuple[Any, Any]:
        a, b, c = stub.array("bf16", 64, 128), stub.array("bf16", 256, 128), stub.array("f32", 64, 256)
        return (a, b, c, 2), (pointer(a), longs(64, 128), None, pointer(b), longs(256, 128), None, pointer(c), ctypes.c_uint32(2))

    for made, arguments, grid in ((broadcast, blocks, (16,)), (tile_gemm, tiles, (1,))):
        _, (python, c) = both(tmp_path, driver, made, arguments, grid)
        assert c == python


@pytest.mark.parametrize("pdl", [False, True])
def test_scalars_have_their_types_and_overlap_is_asked_for(tmp_path: Path, driver: Path, pdl: bool) -> None:
    def arguments() -> tuple[Any, Any]:
        out, byte = stub.array("u64", 1), stub.array("u8", 1)
        python = (200, -3, 1.5, 0x3F80, 2.5, -0.125, 0xFFFF_FFFF, -(1 << 40), 1 << 63, -1, out, byte)
        return python, (ctypes.c_uint8(200), ctypes.c_int16(-3), ctypes.c_uint16(0x3E00), ctypes.c_uint16(0x3F80), ctypes.c_float(2.5),
                        ctypes.c_double(-0.125), ctypes.c_uint32(0xFFFF_FFFF), ctypes.c_int64(-(1 << 40)), ctypes.c_uint64(1 << 63),
                        ctypes.c_int32(-1), pointer(out), pointer(byte))

    _, (python, c) = both(tmp_path, driver, scalars, arguments, (3, 2, 1), pdl=pdl)
    assert c == python
    assert [kind for kind, _ in c.attributes] == [6] * pdl


def test_a_kernel_without_parameters(tmp_path: Path, driver: Path) -> None:
    _, (python, c) = both(tmp_path, driver, nothing, lambda: ((), ()), (1,), pdl=False)
    assert c == python


# ------------------------------------------------------------------------------------------------ what C refuses


@pytest.fixture(scope="module")
def copying(tmp_path_factory: pytest.TempPathFactory, driver: Path) -> ctypes.CDLL:
    """An export with tensor maps."""
    return loaded(tma_copy.export(tmp_path_factory.mktemp("copy")).files[2], driver, Recorder())


@pytest.fixture
def copy(copying: ctypes.CDLL, driver: Path) -> tuple[Recorder, ctypes.CDLL]:
    """The export under a recorder of the test's own."""
    recorder = Recorder()
    attach(recorder, driver)
    return recorder, copying


GOOD: tuple[Any, ...] = (0x1000, (64, 32), (32, 1), (1, 1, 1))


@pytest.mark.parametrize(("address", "shape", "strides", "grid", "sentence"), [
    (0x1008, *GOOD[1:], "source is at the address 0x1008, which is not a multiple of 16 bytes"),
    (0x1000, (0, 32), None, (1, 1, 1), "source_shape[0] is 0: an extent is between 1 and 2^32"),
    (0x1000, (64, (1 << 32) + 4), None, (1, 1, 1), "source_shape[1] is 4294967300: an extent is between 1 and 2^32"),
    (0x1000, (64, 33), None, (1, 1, 1), "source: the stride of dimension 0 is 33 elements of 4 bytes: it must be a multiple of 16 bytes "
                                        "below 2^40 (pad the rows to 16 bytes)"),
    (0x1000, (64, 32), (1 << 38, 1), (1, 1, 1), "source: the stride of dimension 0 is 274877906944 elements of 4 bytes: it must be a "
                                                "multiple of 16 bytes below 2^40 (pad the rows to 16 bytes)"),
    (0x1000, (64, 32), (1, 64), (1, 1, 1), "source_strides[1] is 64: a tensor map needs the last dimension contiguous, a stride of 1"),
    (0x1000, None, None, (1, 1, 1), "source_shape is NULL: it has the 2 extents of the array"),
    (*GOOD[:3], (0, 1, 1), "grid_x is 0: it counts CTAs, from 1 to 2147483647, and must be a multiple of the cluster's 1"),
    (*GOOD[:3], (1, 65536, 1), "grid_y is 65536: it counts CTAs, from 1 to 65535, and must be a multiple of the cluster's 1"),
])
def test_wrong_arguments_are_a_sentence(copy: tuple[Recorder, ctypes.CDLL], address: int, shape: Any, strides: Any, grid: Any,
                                        sentence: str) -> None:
    recorder, library = copy
    before = len(recorder.launches)
    status = library.tma_copy_launch(ctypes.c_void_p(address), longs(*shape) if shape else None, longs(*strides) if strides else None,
                                     ctypes.c_void_p(0x2000), longs(64, 32), None, *grid_of(*grid), None)
    assert (status, said(library, "tma_copy")) == (5, sentence)
    assert len(recorder.launches) == before


def test_a_misaligned_pointer_and_a_part_of_a_cluster_are_a_sentence(tmp_path: Path, driver: Path) -> None:
    library = loaded(broadcast.export(tmp_path).files[2], driver, Recorder())
    assert library.broadcast_launch(ctypes.c_void_p(0x1002), ctypes.c_void_p(0x1000), *grid_of(4), None) == 5
    assert said(library, "broadcast") == "source is at the address 0x1002, which is not a multiple of 4 bytes"
    assert library.broadcast_launch(ctypes.c_void_p(0x1000), ctypes.c_void_p(0x1000), *grid_of(6), None) == 5
    assert said(library, "broadcast").endswith("must be a multiple of the cluster's 4")


def test_threads_load_once_and_have_sentences_of_their_own(tmp_path: Path, driver: Path) -> None:
    recorder = Recorder()
    library = loaded(vector_add.export(tmp_path).files[2], driver, recorder)

    def launch(number: int) -> str:
        """Thread `number` gives an address that is wrong by `number` bytes."""
        address = ctypes.c_void_p(0x1000 + number)
        for _ in range(20):
            status = library.vector_add_launch(address, address, address, ctypes.c_uint32(1), *grid_of(1), None)
            assert status == (5 if number else 0)
        return said(library, "vector_add")

    with ThreadPoolExecutor(4, initializer=time.sleep, initargs=(0.01,)) as threads:
        sentences = list(threads.map(launch, range(4)))
    assert sentences == ["", *(f"a is at the address {0x1000 + number:#x}, which is not a multiple of 4 bytes" for number in (1, 2, 3))]
    assert len(recorder.launches) == 20
    assert recorder.loads == 1


@pytest.mark.parametrize(("change", "status", "sentence"), [
    ({"version": 11080}, 2, "the driver is too old: it is for CUDA 11.8, this code needs one for CUDA 12.0 or later"),
    ({"capability": (10, 0)}, 4, "another architecture: vector_add is code for sm_90a, which needs compute capability exactly 9.0; "
                                 "device 0 has 10.0"),
    ({"capability": (8, 0)}, 4, "another architecture: vector_add is code for sm_90a, which needs compute capability exactly 9.0; "
                                "device 0 has 8.0"),
    ({"version": 12040, "fails": {"cuLibraryLoadData": 222}}, 2, "the driver is too old: it is for CUDA 12.4 and refuses the code of "
                                                                  "vector_add, which ptxas VERSION made: CUDA_ERROR_222 (words of 222)"),
    ({"fails": {"cuLibraryLoadData": 200}, "version": 99000}, 6,
     "the driver refuses the code of vector_add: CUDA_ERROR_200 (words of 200)"),
    ({"fails": {"cuInit": 100}}, 1, "the driver does not start: CUDA_ERROR_100 (words of 100); nvidia-smi tells more, and "
                                    "CUDA_VISIBLE_DEVICES may hide every GPU"),
    ({"fails": {"cuCtxGetDevice": 201}}, 3, "no context is current in this thread (CUDA_ERROR_201 (words of 201)): call cudaSetDevice or "
                                            "cuCtxSetCurrent first"),
    ({"fails": {"cuLaunchKernelEx": 700}}, 6, "vector_add was not launched: CUDA_ERROR_700 (words of 700); the fault may be of an earlier "
                                              "kernel, since launches do not wait"),
    ({"fails": {"cuDriverGetVersion": 3}}, 1, "no driver: LIBRARY is not a driver of NVIDIA"),
])
def test_what_the_driver_cannot_do_is_a_sentence(tmp_path: Path, driver: Path, change: dict[str, Any], status: int,
                                                 sentence: str) -> None:
    recorder = Recorder()
    library = loaded(vector_add.export(tmp_path).files[2], driver, recorder)
    vars(recorder).update(change)
    given = (*(ctypes.c_void_p(0x1000) for _ in range(3)), ctypes.c_uint32(1), *grid_of(1), None)
    assert library.vector_add_launch(*given) == status
    tool = vector_add.assemble().tool.version
    assert said(library, "vector_add") == sentence.replace("VERSION", tool).replace("LIBRARY", str(driver))
    recorder.fails, recorder.version, recorder.capability = {}, 99000, (9, 0)
    assert library.vector_add_launch(*given) == 0, said(library, "vector_add")     # what was not there may come later


def test_without_a_driver_a_program_links_starts_and_says_so(tmp_path: Path) -> None:
    """The main of docs/export.md, with a libcuda that does not load, as C and as C++."""
    exported = vector_add.export(tmp_path)
    program = tmp_path / "main.c"
    program.write_text('#include <stdio.h>\n#include "vector_add.h"\n\nint main(void)\n{\n    int status = vector_add_load();\n'
                       '    if (status != VECTOR_ADD_OK)\n        fprintf(stderr, "%s\\n", vector_add_error());\n    return status;\n}\n')
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    builds = [(CC, STRICT), *([(CXX, ("-xc++", "-std=c++11", *STRICT[1:]))] if CXX else [])]
    for compiler, flags in builds:
        made = compiled([program, exported.files[2]], tmp_path / "main", *flags, compiler=compiler)
        done = subprocess.run([made], env={"LD_LIBRARY_PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith("no driver: libcuda.so.1 does not load (")
        assert done.stderr.endswith("install the NVIDIA driver, or pass the GPU to the container\n")
        assert done.stderr.count("\n") == 1
    needed = subprocess.run(["readelf", "-d", made], capture_output=True, text=True, check=False).stdout
    assert "libcuda" not in needed


@pytest.mark.skipif(CXX is None, reason="there is no C++ compiler `c++`")
def test_exports_stand_beside_each_other_in_a_program(tmp_path: Path) -> None:
    """Kernels, one with other parameters, a product twice and two packs: headers in any order and twice, C and C++."""
    files = [vector_add.export(tmp_path).files, wide.export(tmp_path).files, wide.export(tmp_path, name="wide_32", ROWS=32).files]
    sources = [each[2] for each in files]
    layer = Layer("bf16", 4096, 7168)
    sources += [product(16, layer, tmp_path).files[1], product(16, layer, tmp_path, name="other").files[1],
                pack("gpt-2", tmp_path).files[1], pack("gpt-2", tmp_path, rows=(3,), name="pack").files[1]]
    names = [source.stem for source in sources]
    headers = "".join(f'#include "{name}.h"\n' for name in (*names, *reversed(names)))
    calls = "".join(f"    if ({name}_load() != {name.upper()}_NO_DRIVER)\n        return 1;\n    puts({name}_error());\n" for name in names)
    program = tmp_path / "main.c"
    program.write_text(f"{headers}#include <stdio.h>\n\nint main(void)\n{{\n{calls}    return 0;\n}}\n")
    absent = f'-DPTXKIT_LIBCUDA="{tmp_path / "none.so"}"'
    for compiler, flags in ((CC, STRICT), (CXX, ("-xc++", "-std=c++11", *STRICT[1:]))):
        made = compiled([program, *sources], tmp_path / "main", *flags, absent, "-ldl", "-lpthread", compiler=compiler)
        done = subprocess.run([made], capture_output=True, text=True, check=False)
        assert done.returncode == 0
        assert done.stdout.count("\n") == done.stdout.count("no driver: ") == len(names)


@pytest.mark.skipif(CC is None, reason="no C compiler")
def test_names_that_differ_in_case_alone_stand_beside_each_other(tmp_path: Path) -> None:
    names = ("copy", "Copy", "COPY", "pack", "Pack")
    for name in names[:3]:
        nothing.export(tmp_path, name=name)
    for name in names[3:]:
        pack("gpt-2", tmp_path, rows=(3,), name=name)
    calls = " || ".join(f"{name}_load() == {name.upper()}_OK" for name in names) + " || PACK_F16"
    program = tmp_path / "program.c"
    program.write_text("".join(f'#include "{name}.h"\n' for name in names) + f"int main(void) {{ return {calls}; }}\n")
    subprocess.run([CC, *STRICT, "-c", str(program), "-o", str(tmp_path / "program.o"), f"-I{tmp_path}"], check=True)


def test_an_export_depends_on_its_kernel_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cubin in the cache may have the line table of an earlier state of the sources, or none. An export has its own."""
    traced = vector_add.trace()
    text, target = traced.ptx(locs=True), traced.module.target[0]
    for state, before in (("one", text), ("two", re.sub(r"(\.loc\s+\d+\s+)\d+", r"\g<1>7", text)), ("three", traced.ptx())):
        monkeypatch.setattr(cache, "cache", lambda folder=tmp_path / f"cache-{state}": cache.Cache(folder))
        kept = assemble(before, target).cubin
        made = vector_add.export(tmp_path / state).files[0].read_bytes()
        assert digest(made) == digest(kept)
        assert (made == kept) == (before == text)
    for name in ("vector_add.c", "vector_add.cubin"):
        assert len({(tmp_path / state / name).read_bytes() for state in ("one", "two", "three")}) == 1


# ------------------------------------------------------------------------------------------------ what Python refuses


@kernel(block=128)
def boxless(a: TensorMap) -> None:
    """A tensor map that nothing is copied through."""


@kernel(block=128)
def member(box: Annotated[Param[u32], ".align 8 .b8 box[24]"]) -> None:
    """A parameter of bytes."""


@kernel()
def shapeless(a: Ptr[f32]) -> None:
    """No block."""


@pytest.mark.parametrize(("made", "words"), [
    (boxless, "kernel `boxless` copies no tile through `a`, so its box is unknown: an export cannot encode this tensor map"),
    (member, "parameter `box` of kernel `member` is a block of bytes: an export passes numbers, pointers and tensor maps"),
    (shapeless, "kernel `shapeless` has no block size: give @kernel(block=...)"),
])
def test_what_c_cannot_pass_is_refused_and_nothing_written(tmp_path: Path, made: Kernel[...], words: str) -> None:
    with pytest.raises(PtxkitError) as caught:
        made.export(tmp_path / "out")
    assert str(caught.value).startswith(words)
    assert list(tmp_path.iterdir()) == []


def test_files_are_not_overwritten_unless_asked(tmp_path: Path) -> None:
    (tmp_path / "vector_add.h").write_text("mine")
    with pytest.raises(ExportError, match=r"vector_add.h exists: name another folder, or overwrite it with force \(--force\)"):
        vector_add.export(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["vector_add.h"]
    assert (tmp_path / "vector_add.h").read_text() == "mine"
    assert len(vector_add.export(tmp_path, name="other").files) == 3
    assert vector_add.export(tmp_path, force=True).files[1].read_text() != "mine"
    kinds = ("c", "cubin", "h")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{name}.{kind}" for name in ("other", "vector_add") for kind in kinds]
    with pytest.raises(ExportError, match="is a file: name a folder"):
        vector_add.export(tmp_path / "other.c")
    (tmp_path / "locked.c").mkdir()
    with pytest.raises(ExportError, match=r"cannot write .*locked.c: "):
        vector_add.export(tmp_path, name="locked", force=True)


def test_names_of_c() -> None:
    every = ("good", "Also_9", "pxs", "int", "9a", "a-b", "a__b", "_a", "template", "é", "px", "PX", "Px_a", "px_group", "pxg")
    assert [name for name in every if identifier(name)] == ["good", "Also_9", "pxs"]
    assert renamed(["int", "x", "x_", "new", "a$b", "_p", "stream", "px_said", "PTXKIT_k_H"], ["stream", "x"]) == (
        "int_", "x_", "x_2", "new_", "a_b", "p_p", "stream_", "a_px_said", "a_PTXKIT_k_H")
    with pytest.raises(ExportError, match="'while' cannot begin the names of C functions"):
        vector_add.export("nowhere", name="while")


@pytest.mark.skipif(CC is None, reason="no C compiler")
def test_no_parameter_is_a_macro_or_a_type_of_the_headers(tmp_path: Path) -> None:
    source = tmp_path / "headers.c"
    source.write_text("".join(f"#include <{name}>\n" for name in INCLUDES))
    assert CC is not None
    defined = subprocess.run([CC, "-dM", "-E", "-D_GNU_SOURCE", str(source)], check=True, capture_output=True, text=True).stdout
    objects = [found.groups() for found in re.finditer(r"^#define ([A-Za-z]\w*) (.*)$", defined, re.MULTILINE)]
    macros = [name for name, value in objects if not re.fullmatch("[A-Za-z_]+", value)]     # another word, as stdin is, is another name
    assert {"EOF", "SIZE_MAX"} < set(macros)
    taken = [*macros, "uint32_t", "uint64_t", "size_t"]
    assert not {*renamed(taken)} & {*taken}
    assert renamed(["M", "K2", "EOF", "Tile"]) == ("M", "K2", "EOF_", "Tile")


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        status = main(arguments)
    except SystemExit as error:
        status = int(error.code or 0)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, source = str(tmp_path / "out"), "examples/vector_add.py:vector_add"
    status, out, _ = command(capsys, "export", source, "-o", folder, "--name", "add")
    assert status == 0
    assert "int add_launch(void *a, void *b, void *c, uint32_t n," in out
    status, out, _ = command(capsys, "export", source, "-o", folder, "--json")
    found = json.loads(out)
    assert [Path(file).name for file in found["files"]] == ["vector_add.cubin", "vector_add.h", "vector_add.c"]
    assert found["block"] == [256, 1, 1]
    assert command(capsys, "export", source, "-o", folder)[0] == 1
    assert command(capsys, "export", source)[0] == 2
    status, _, err = command(capsys, "export", "examples/vector_add.py:nope", "-o", folder)
    assert (status, err) == (2, "ptxkit: examples/vector_add.py has no kernel 'nope'; it has vector_add\n")
    (tmp_path / "text.ptx").write_text(vector_add.ptx())
    status, _, err = command(capsys, "export", str(tmp_path / "text.ptx"), "-o", folder)
    assert status == 2
    assert "an export takes module:kernel" in err
    assert err.count("\n") == 1
