// Warpgroup matrix multiplication by inline assembly, warp specialisation with setmaxnreg, multimem, named barriers.
#include <cstdint>

template <int N>
__device__ void multiply(float (&d)[N / 2], uint64_t a, uint64_t b, int scale);

template <>
__device__ void multiply<16>(float (&d)[8], uint64_t a, uint64_t b, int scale) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %10, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, 1, -1, 0, 1;\n}\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
                 : "l"(a), "l"(b), "r"(scale));
}

extern "C" __global__ void __launch_bounds__(384, 1) specialised(uint64_t* descriptors, float* out, int k) {
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        asm volatile("barrier.sync 1, 256;");
        out[threadIdx.x] = k;
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float d[8];
    unsigned h[4];
    for (int i = 0; i < 8; i++) d[i] = 0;
    for (int i = 0; i < 4; i++) h[i] = k;
    asm volatile("bar.arrive 1, 256;");
    asm volatile("wgmma.fence.sync.aligned;");
    for (int i = 0; i < k; i++) multiply<16>(d, descriptors[i], descriptors[i + 1], i);
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f16.f16.f16 {%0, %1}, {%0, %1, %2, %3}, %4, 1, 1, 1, 0;"
                 : "+r"(h[0]), "+r"(h[1]) : "r"(h[2]), "r"(h[3]), "l"(descriptors[0]));
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8 {%0, %1, %2, %3}, %4, %5, 0;"
                 : "+r"(h[0]), "+r"(h[1]), "+r"(h[2]), "+r"(h[3]) : "l"(descriptors[1]), "l"(descriptors[2]));
    asm volatile("wgmma.commit_group.sync.aligned;");
    asm volatile("wgmma.wait_group.sync.aligned 0;");
    for (int i = 0; i < 8; i++) out[threadIdx.x * 8 + i] = d[i] + h[i & 3];
}

extern "C" __global__ void multicast(float4* to, unsigned* from) {
    float4 v;
    unsigned u;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(to));
    asm volatile("multimem.st.weak.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w));
    asm volatile("multimem.red.release.gpu.global.add.u32 [%0], %1;" ::"l"(from), "r"(3));
    asm volatile("{.reg .pred p, q; setp.eq.u32 q, %1, 7; lop3.or.b32 %0|p, %1, %2, %3, 0x3f, q; @!p not.b32 %0, %0;}" : "=r"(u) : "r"(1), "r"(2), "r"(3));
    from[9] = u;
}
