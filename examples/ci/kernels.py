"""Two small kernels of a project whose CI needs no GPU."""

from ptxkit import Ptr, Reg, if_, kernel, smem, tid
from ptxkit.ptx import add, bar, ld, mov, st
from ptxkit.types import f32, u32

THREADS = 128


@kernel(target="sm_90a", block=THREADS)
def reverse(source: Ptr[f32], target: Ptr[f32]) -> None:
    """target[i] = source[127 - i], through shared memory."""
    words = smem.array(f32, THREADS, name="words")
    thread = mov.u32(tid.x)
    st.shared.f32(words.at(thread), ld.global_.f32(source.at(thread)))
    bar.sync(0)
    st.global_.f32(target.at(thread), ld.shared.f32(words.at(thread ^ (THREADS - 1))))


@kernel(target="sm_90a", block=THREADS)
def total(source: Ptr[f32], target: Ptr[f32], count: Reg[u32]) -> None:
    """target[0] = the sum of the first `count` numbers (at most 128): halves are added in a fixed order."""
    words = smem.array(f32, THREADS, name="words")
    thread = mov.u32(tid.x)
    mine = mov.f32(0.0)
    with if_(thread < count):
        ld.global_.f32(mine, source.at(thread))
    st.shared.f32(words.at(thread), mine)
    half = THREADS // 2
    while half:                                          # runs in Python: seven steps are written
        bar.sync(0)
        with if_(thread < half):
            other = ld.shared.f32(words.at(thread + half))
            st.shared.f32(words.at(thread), add.rn.f32(ld.shared.f32(words.at(thread)), other))
        half //= 2
    with if_(thread == 0):
        st.global_.f32(target, ld.shared.f32(words.at(thread)))
