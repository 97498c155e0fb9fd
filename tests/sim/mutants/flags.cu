// CTAs that pass data through global memory: the last block sums what all have left; split-K with flags; tiles by a counter.
// One CTA: a ring of cp.async, ldmatrix and mma.sync; cp.async that arrives on mbarriers; a grid that waits for the one before it.
#include <cuda/ptx>
#include <cuda_bf16.h>
#include <cuda_pipeline.h>

namespace ptx = cuda::ptx;

__device__ inline unsigned shared(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

extern "C" __global__ void __launch_bounds__(128) last_block(const float* in, float* partial, unsigned* count, float* out, int n) {
    __shared__ float sums[4];
    __shared__ bool last;
    float sum = 0;
    for (int i = blockIdx.x * 128 + threadIdx.x; i < n; i += gridDim.x * 128) sum += in[i];
    for (int k = 16; k; k >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, k);
    if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sums[0] + sums[1] + sums[2] + sums[3];
        __threadfence();
        last = atomicInc(count, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    if (threadIdx.x == 0) {
        __threadfence();
        float total = 0;
        for (int i = 0; i < gridDim.x; i++) total += partial[i];
        *out = total;
    }
}

// CTAs 2t and 2t + 1 have the halves of tile t: the odd one leaves its half in the workspace and raises the tile's flag.
extern "C" __global__ void __launch_bounds__(64) split(const unsigned* in, unsigned* workspace, unsigned* flags, unsigned* out) {
    int tile = blockIdx.x >> 1, i = tile * 64 + threadIdx.x;
    unsigned value = in[(blockIdx.x & 1) * (gridDim.x >> 1) * 64 + i] * 3;
    if (blockIdx.x & 1) {
        workspace[i] = value;
        __syncthreads();
        if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(&flags[tile]) : "memory");
    } else {
        if (threadIdx.x == 0) {
            unsigned seen;
            do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(&flags[tile]) : "memory");
            while (seen == 0);
        }
        __syncthreads();
        out[i] = value + workspace[i ^ 1];
    }
}

extern "C" __global__ void __launch_bounds__(64) tickets(const unsigned* in, unsigned* counter, unsigned* out, unsigned tiles) {
    __shared__ unsigned next;
    for (;;) {
        if (threadIdx.x == 0) next = atomicAdd(counter, 1);
        __syncthreads();
        unsigned tile = next;
        __syncthreads();
        if (tile >= tiles) return;
        out[tile * 64 + threadIdx.x] = in[tile * 64 + threadIdx.x] + tile;
    }
}

// C[64, 64] = A[64, K] B[64, K]^T in bf16: rows of 32 elements, 16-byte chunks swizzled by the row, three stages.
constexpr int STAGES = 3, ROW = 32;
extern "C" __global__ void __launch_bounds__(128) multistage(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int rounds) {
    __shared__ alignas(128) __nv_bfloat16 tiles[STAGES][2][64][ROW];
    int thread = threadIdx.x, warp = thread >> 5, lane = thread & 31, width = rounds * ROW;
    auto issue = [&](int k) {
        if (k < rounds)
            for (int half = 0; half < 2; half++)
                for (int i = 0; i < 2; i++) {
                    int row = thread / 4 + 32 * i, chunk = thread & 3;
                    const __nv_bfloat16* from = (half ? b : a) + row * width + k * ROW + chunk * 8;
                    __pipeline_memcpy_async(&tiles[k % STAGES][half][row][(chunk ^ row >> 1 & 3) * 8], from, 16);
                }
        __pipeline_commit();
    };
    float d[8][4] = {};
    issue(0);
    issue(1);
    for (int k = 0; k < rounds; k++) {
        __pipeline_wait_prior(1);
        __syncthreads();
        issue(k + 2);
        auto& stage = tiles[k % STAGES];
        for (int kk = 0; kk < 2; kk++) {
            unsigned x[4];
            int row = warp * 16 + (lane & 15), chunk = kk * 2 + (lane >> 4);
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                         : "r"(shared(&stage[0][row][(chunk ^ row >> 1 & 3) * 8])));
            for (int n = 0; n < 8; n++) {
                unsigned y[2];
                int line = n * 8 + (lane & 7), part = kk * 2 + (lane >> 3 & 1);
                asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                             : "=r"(y[0]), "=r"(y[1]) : "r"(shared(&stage[1][line][(part ^ line >> 1 & 3) * 8])));
                asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                             : "+f"(d[n][0]), "+f"(d[n][1]), "+f"(d[n][2]), "+f"(d[n][3])
                             : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
            }
        }
    }
    for (int n = 0; n < 8; n++)
        for (int half = 0; half < 2; half++)
            *(float2*)&c[(warp * 16 + lane / 4 + 8 * half) * 64 + n * 8 + (lane & 3) * 2] = make_float2(d[n][2 * half], d[n][2 * half + 1]);
}

// Warp 0 copies 16 bytes a lane; its copies arrive on full. Warp 1 reads what the other lanes have copied, and arrives on empty.
extern "C" __global__ void __launch_bounds__(64) handoff(const uint4* in, uint4* out, int rounds) {
    __shared__ alignas(128) uint4 buffer[2][32];
    __shared__ alignas(8) uint64_t full[2], empty[2];
    int lane = threadIdx.x & 31;
    if (threadIdx.x == 0)
        for (int s = 0; s < 2; s++) {
            ptx::mbarrier_init(&full[s], 32);
            ptx::mbarrier_init(&empty[s], 32);
        }
    __syncthreads();
    for (int i = 0; i < rounds; i++) {
        int s = i & 1, parity = i >> 1 & 1;
        if (threadIdx.x < 32) {
            while (!ptx::mbarrier_try_wait_parity(&empty[s], parity ^ 1)) {
            }
            __pipeline_memcpy_async(&buffer[s][lane], &in[i * 32 + lane], 16);
            asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared(&full[s])) : "memory");
        } else {
            while (!ptx::mbarrier_try_wait_parity(&full[s], parity)) {
            }
            uint4 value = buffer[s][lane ^ 5];
            ptx::mbarrier_arrive(&empty[s]);
            out[i * 32 + lane] = value;
        }
    }
}

extern "C" __global__ void __launch_bounds__(64) after(const unsigned* in, unsigned* out) {
    int i = blockIdx.x * 64 + threadIdx.x;
    asm volatile("griddepcontrol.wait;" ::: "memory");
    unsigned value = in[i] * 2;
    asm volatile("griddepcontrol.launch_dependents;");
    out[i] = value;
}
