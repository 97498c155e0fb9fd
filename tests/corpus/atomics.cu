// Atomics of every type and scope, reductions, fences, warp votes, shuffles, matches, cache operators.
#include <cuda/atomic>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void atomics(int* i, unsigned* u, unsigned long long* l, float* f, double* d, unsigned short* h) {
    int r = atomicAdd(i, 1) + atomicSub(i + 1, 2) + atomicExch(i + 2, 3) + atomicMin(i + 3, 4) + atomicMax(i + 4, 5);
    r += atomicInc(u, 17) + atomicDec(u + 1, 18) + atomicCAS(u + 2, 1u, 2u) + atomicAnd(u + 3, 3u) + atomicOr(u + 4, 4u) + atomicXor(u + 5, 5u);
    r += (int)(atomicAdd(l, 1ull) + atomicCAS(l + 1, 2ull, 3ull) + atomicMax((long long*)l + 2, -1ll) + atomicExch(l + 3, 9ull));
    r += (int)(atomicAdd(f, 1.0f) + atomicAdd(d, 2.0) + atomicCAS(h, (unsigned short)1, (unsigned short)2));
    atomicAdd_block(i + 6, 1);
    atomicAdd_system(i + 7, r);
    atomicAdd((__half2*)(f + 4), __half2{1, 2});
    atomicAdd((__nv_bfloat162*)(f + 5), __nv_bfloat162{1, 2});
    atomicAdd((float4*)(f + 8), make_float4(1, 2, 3, 4));
    __shared__ int s[4];
    atomicAdd(&s[threadIdx.x & 3], r);
    atomicMin((unsigned*)&s[1], 7u);
}

extern "C" __global__ void ordered(int* data, int* flag) {
    cuda::atomic_ref<int, cuda::thread_scope_device> a(*flag);
    cuda::atomic_ref<int, cuda::thread_scope_block> b(data[1]);
    cuda::atomic_ref<int, cuda::thread_scope_system> c(data[2]);
    a.store(1, cuda::memory_order_release);
    while (a.load(cuda::memory_order_acquire) == 0) __nanosleep(20);
    b.fetch_add(3, cuda::memory_order_relaxed);
    int expected = 4;
    c.compare_exchange_strong(expected, 5, cuda::memory_order_acq_rel);
    cuda::atomic_thread_fence(cuda::memory_order_seq_cst, cuda::thread_scope_device);
    data[3] = expected + a.exchange(7);
}

extern "C" __global__ void warps(int* v) {
    int x = v[threadIdx.x];
    unsigned mask = __activemask();
    x += __shfl_sync(mask, x, 3) + __shfl_up_sync(mask, x, 1) + __shfl_down_sync(mask, x, 2, 16) + __shfl_xor_sync(mask, x, 4);
    x += __ballot_sync(mask, x > 3) + __match_any_sync(mask, x);
    int all;
    x += __match_all_sync(mask, x, &all) + all;
    x += __reduce_add_sync(mask, x) + __reduce_max_sync(mask, x) + __reduce_xor_sync(mask, (unsigned)x);
    double d = __shfl_xor_sync(mask, (double)x, 8);
    __syncwarp(mask);
    v[threadIdx.x] = x + (int)d + __syncthreads_count(x) + __syncthreads_or(x > 1) + __syncthreads_and(x < 9);
}

extern "C" __global__ void caches(const float* in, float* out, volatile int* v) {
    float a = __ldg(in) + __ldcg(in + 1) + __ldca(in + 2) + __ldcs(in + 3) + __ldlu(in + 4) + __ldcv(in + 5);
    float4 b = __ldcs((const float4*)in + 2);
    __stcg(out, a);
    __stcs(out + 1, b.x);
    __stwt(out + 2, b.y);
    __stwb(out + 3, b.z);
    v[0] = v[1] + 1;
    __threadfence_block();
    __threadfence_system();
    asm volatile("prefetch.global.L2 [%0];" ::"l"(in + 64));
    asm volatile("discard.global.L2 [%0], 128;" ::"l"(out + 128));
    out[7] = clock() + clock64() + (float)__isGlobal(in) + (float)__isShared(in) + (float)__cvta_generic_to_global(in);
}

extern "C" __global__ void special(unsigned* out) {
    unsigned r, s = 0;
    unsigned long long t;
#define READ(name) asm volatile("mov.u32 %0, %%" name ";" : "=r"(r)); s ^= r;
    READ("laneid") READ("warpid") READ("nwarpid") READ("smid") READ("nsmid") READ("lanemask_lt") READ("lanemask_ge") READ("clock_hi")
    READ("clusterid.x") READ("nclusterid.y") READ("cluster_ctaid.x") READ("cluster_nctaid.z") READ("cluster_ctarank")
    READ("dynamic_smem_size") READ("total_smem_size") READ("pm0") READ("envreg3") READ("globaltimer_lo")
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    asm volatile("mov.u64 %0, %%gridid;" : "=l"(t));
    out[0] = s + (unsigned)t + warpSize + blockDim.z + gridDim.y;
}
