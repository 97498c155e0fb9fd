// C[64, 64] = A[64, K] B[64, K]^T in bf16: a producer warp, a consumer warpgroup, a ring of two stages, 128-byte swizzle.
#include <cuda.h>
#include <cuda/ptx>

namespace ptx = cuda::ptx;
constexpr int STAGES = 2, TILE = 64 * 64 * 2;

__device__ inline uint64_t descriptor(unsigned at) {
    return (at >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ inline void multiply(float (&d)[32], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
          "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]),
          "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
          "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
        : "l"(a), "l"(b));
}

extern "C" __global__ void __launch_bounds__(256) matmul(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* c,
                                                         int rounds) {
    __shared__ alignas(1024) char tiles[STAGES][2][TILE];
    __shared__ alignas(8) uint64_t full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            ptx::mbarrier_init(&full[s], 1);
            ptx::mbarrier_init(&empty[s], 128);
        }
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    int s = 0, parity = 0;
    if (threadIdx.x < 128) {
        if (threadIdx.x == 0) {
            for (int i = 0; i < rounds; i++) {
                while (!ptx::mbarrier_try_wait_parity(&empty[s], parity ^ 1)) {
                }
                ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[s], 2 * TILE);
                int32_t at[2] = {i * 64, 0};
                ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tiles[s][0], &a, at, &full[s]);
                ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tiles[s][1], &b, at, &full[s]);
                if (++s == STAGES) s = 0, parity ^= 1;
            }
        }
        return;
    }
    float d[32];
    for (int i = 0; i < 32; i++) d[i] = 0;
    for (int i = 0; i < rounds; i++) {
        while (!ptx::mbarrier_try_wait_parity(&full[s], parity)) {
        }
        unsigned left = (unsigned)__cvta_generic_to_shared(tiles[s][0]), right = (unsigned)__cvta_generic_to_shared(tiles[s][1]);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int k = 0; k < 128; k += 32) multiply(d, descriptor(left + k), descriptor(right + k));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        ptx::mbarrier_arrive(&empty[s]);
        if (++s == STAGES) s = 0, parity ^= 1;
    }
    int thread = threadIdx.x - 128, row = thread / 32 * 16 + (thread & 31) / 4, column = (thread & 3) * 2;
    for (int j = 0; j < 8; j++) {
        *(float2*)&c[row * 64 + 8 * j + column] = make_float2(d[4 * j], d[4 * j + 1]);
        *(float2*)&c[(row + 8) * 64 + 8 * j + column] = make_float2(d[4 * j + 2], d[4 * j + 3]);
    }
}
