// Asynchronous copies: mbarrier, bulk and tensor copies, multicast, reductions, proxies, tensor map edits, both by cuda::ptx and by hand.
#include <cuda.h>
#include <cuda/barrier>
#include <cuda/ptx>

namespace ptx = cuda::ptx;
using barrier = cuda::barrier<cuda::thread_scope_block>;

extern "C" __global__ void __cluster_dims__(2, 1, 1) load_tiles(const __grid_constant__ CUtensorMap map, float* out, int x, int y) {
    __shared__ alignas(128) float tile[32][32];
    __shared__ alignas(8) uint64_t bar;
    if (threadIdx.x == 0) {
        asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
        ptx::mbarrier_init(&bar, 1);
        ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster);
        ptx::fence_proxy_async(ptx::space_shared);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int32_t at[2] = {x, y};
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, sizeof(tile));
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &map, at, &bar);
        ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, tile, &map, at, &bar, (uint16_t)3);
    }
    while (!ptx::mbarrier_try_wait_parity(&bar, 0)) {
    }
    out[threadIdx.x] = tile[threadIdx.x >> 5][threadIdx.x & 31];
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        int32_t at[5] = {x, y, 1, 2, 3};
        ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, &map, at, tile);
        ptx::cp_reduce_async_bulk_tensor(ptx::space_global, ptx::space_shared, ptx::op_add, &map, at, tile);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
    }
}

extern "C" __global__ void bulk(const char* in, char* out, unsigned bytes) {
    __shared__ alignas(128) char buffer[4096];
    __shared__ barrier bar;
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(buffer, in, cuda::aligned_size_t<16>(4096), bar);
        token = cuda::device::barrier_arrive_tx(bar, 1, 4096);
    } else {
        token = bar.arrive();
    }
    bar.wait(std::move(token));
    buffer[threadIdx.x]++;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out, buffer, bytes);
        ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_min, (unsigned*)out, (unsigned*)buffer, bytes);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<1>());
    }
}

extern "C" __global__ void by_hand(const __grid_constant__ CUtensorMap map, char* global, unsigned long long policy, int c) {
    extern __shared__ __align__(1024) char smem[];
    unsigned at = (unsigned)__cvta_generic_to_shared(smem), bar = at + 8192, done;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(2));
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %2, %3}], [%4], {%5}, %6;"
                 ::"r"(at), "l"(&map), "r"(c), "r"(7), "r"(bar), "h"((short)1), "l"(policy) : "memory");
    asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(&map), "r"(c), "r"(0));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at + 64), "l"(global), "r"(c));
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar));
    asm volatile("{\n\t.reg .pred P1;\n\tWAIT:\n\tmbarrier.try_wait.parity.acquire.cta.shared::cta.b64 P1, [%1], %2, 0x989680;\n\t@P1 bra DONE;\n\tbra WAIT;\n\tDONE:\n\tselp.u32 %0, 1, 0, P1;\n\t}"
                 : "=r"(done) : "r"(bar), "r"(1));
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(at + 128), "l"(global));
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(at + 128), "r"(c));
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(global), "r"(at + 128));
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(global));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(done) : "r"(bar), "r"(c));
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(done));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(done), "r"(c), "r"(done), "r"(bar));
    asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];" ::"r"(done), "r"(c), "r"(bar));
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n barrier.cluster.wait.acquire.aligned;");
    asm volatile("griddepcontrol.wait;");
    asm volatile("griddepcontrol.launch_dependents;");
    asm volatile("{.reg .pred e; .reg .b32 who; elect.sync who|e, 0xffffffff; @e mbarrier.inval.shared.b64 [%0];}" ::"r"(bar));
}
