// Clusters of four pass blocks around a ring through distributed shared memory; a reduction by shuffles and one shared word a warp.
#include <cooperative_groups.h>

namespace cg = cooperative_groups;

extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(64) around(const unsigned* in, unsigned* out) {
    __shared__ unsigned block[2][64];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned rank = cluster.block_rank(), value = in[blockIdx.x * 64 + threadIdx.x];
    unsigned* next = cluster.map_shared_rank(&block[0][0], (rank + 1) & 3);
    cluster.sync();
    for (int i = 0; i < 4; i++) {
        next[(i & 1) * 64 + threadIdx.x] = value + rank;
        cluster.sync();
        value = block[i & 1][threadIdx.x ^ 1];
    }
    out[blockIdx.x * 64 + threadIdx.x] = value;
}

extern "C" __global__ void __launch_bounds__(128) total(const unsigned* in, unsigned* out, int n) {
    __shared__ unsigned partial[4];
    unsigned sum = 0;
    for (int i = threadIdx.x; i < n; i += 128) sum += in[blockIdx.x * n + i];
    for (int k = 16; k; k >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, k);
    if ((threadIdx.x & 31) == 0) partial[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = partial[0] + partial[1] + partial[2] + partial[3];
}
