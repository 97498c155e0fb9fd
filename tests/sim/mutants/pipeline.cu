// Bulk copies through two stages: an mbarrier each way in, a bulk group each way out. One block of 128 threads.
#include <cuda/ptx>

namespace ptx = cuda::ptx;
constexpr int WORDS = 512;

extern "C" __global__ void __launch_bounds__(128) add_one(const unsigned* in, unsigned* out, int rounds) {
    __shared__ alignas(128) unsigned stage[2][WORDS];
    __shared__ alignas(8) uint64_t full[2];
    if (threadIdx.x == 0) {
        for (int s = 0; s < 2; s++) ptx::mbarrier_init(&full[s], 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[0], sizeof(stage[0]));
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, stage[0], in, sizeof(stage[0]), &full[0]);
    }
    for (int i = 0; i < rounds; i++) {
        int s = i & 1;
        if (threadIdx.x == 0 && i + 1 < rounds) {
            ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
            ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &full[s ^ 1], sizeof(stage[0]));
            ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, stage[s ^ 1], in + (i + 1) * WORDS, sizeof(stage[0]), &full[s ^ 1]);
        }
        while (!ptx::mbarrier_try_wait_parity(&full[s], i >> 1 & 1)) {
        }
        for (int j = threadIdx.x; j < WORDS; j += 128) stage[s][j] += 1;
        ptx::fence_proxy_async(ptx::space_shared);
        __syncthreads();
        if (threadIdx.x == 0) {
            ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + i * WORDS, stage[s], sizeof(stage[0]));
            ptx::cp_async_bulk_commit_group();
        }
    }
    if (threadIdx.x == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
}
