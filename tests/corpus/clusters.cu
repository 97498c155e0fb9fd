// Cooperative groups, clusters and distributed shared memory, launch attributes, cp.async pipelines, grid synchronisation.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/barrier>
#include <cuda_pipeline.h>

namespace cg = cooperative_groups;

extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(128) distributed(const int* in, int* out) {
    __shared__ int bins[128];
    cg::cluster_group cluster = cg::this_cluster();
    bins[threadIdx.x] = 0;
    cluster.sync();
    int* theirs = cluster.map_shared_rank(bins, in[threadIdx.x] & 3);
    atomicAdd(theirs + (in[threadIdx.x] >> 2 & 127), 1);
    cluster.barrier_arrive();
    cluster.barrier_wait();
    out[cluster.block_rank() * 128 + threadIdx.x] = bins[threadIdx.x] + cluster.query_shared_rank(theirs);
}

extern "C" __global__ void __launch_bounds__(256, 2) tiled(const float* in, float* out) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    cg::thread_block_tile<8> eight = cg::tiled_partition<8>(warp);
    float v = in[block.thread_rank()];
    v = cg::reduce(warp, v, cg::plus<float>()) + cg::inclusive_scan(eight, v);
    cg::coalesced_group active = cg::coalesced_threads();
    if (v > 0) v += cg::reduce(cg::coalesced_threads(), 1, cg::greater<int>()) + active.size();
    block.sync();
    out[block.thread_rank()] = v + warp.meta_group_rank() + eight.shfl_xor(v, 1) + warp.any(v > 3);
}

extern "C" __global__ void whole_grid(int* data) {
    cg::grid_group grid = cg::this_grid();
    data[grid.thread_rank()] += 1;
    grid.sync();
    data[grid.thread_rank()] += data[0] + grid.is_valid();
}

extern "C" __global__ void __maxnreg__(64) staged(const float4* in, float4* out, int n) {
    __shared__ float4 stage[2][128];
    __pipeline_memcpy_async(&stage[0][threadIdx.x], in + threadIdx.x, 16);
    __pipeline_commit();
    for (int i = 1; i < n; i++) {
        __pipeline_memcpy_async(&stage[i & 1][threadIdx.x], in + i * 128 + threadIdx.x, 16);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        out[(i - 1) * 128 + threadIdx.x] = stage[(i - 1) & 1][threadIdx.x ^ 1];
        __syncthreads();
    }
}

extern "C" __global__ void collective_copy(const int* in, int* out) {
    __shared__ __align__(16) int tile[256];
    cg::thread_block block = cg::this_thread_block();
    cg::memcpy_async(block, tile, in, cuda::aligned_size_t<16>(sizeof(tile)));
    cg::wait(block);
    out[threadIdx.x] = tile[255 - threadIdx.x];
}
