// Reductions, scans, softmax, transposes, conversions: what they give is known exactly or within a bound.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

extern "C" __global__ void sum(const int *x, int *out, int n) {
    __shared__ int part[8];
    int total = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) total += x[i];
    for (int d = 16; d; d >>= 1) total += __shfl_down_sync(~0u, total, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x < 8) {
        total = part[threadIdx.x];
        for (int d = 4; d; d >>= 1) total += __shfl_xor_sync(0xffu, total, d);
        if (threadIdx.x == 0) atomicAdd(out, total);
    }
}

extern "C" __global__ void scan(const unsigned *x, unsigned *y) {
    __shared__ unsigned totals[32];
    unsigned v = x[threadIdx.x], lane = threadIdx.x & 31;
    for (unsigned d = 1; d < 32; d <<= 1) {
        unsigned other = __shfl_up_sync(~0u, v, d);
        if (lane >= d) v += other;
    }
    if (lane == 31) totals[threadIdx.x >> 5] = v;
    __syncthreads();
    for (unsigned w = 0; w < threadIdx.x >> 5; w++) v += totals[w];
    y[threadIdx.x] = v;
}

extern "C" __global__ void softmax(const float *x, float *y, int columns) {
    const float *row = x + blockIdx.x * columns;
    float top = -INFINITY, total = 0;
    for (int i = threadIdx.x; i < columns; i += 32) top = fmaxf(top, row[i]);
    for (int d = 16; d; d >>= 1) top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
    for (int i = threadIdx.x; i < columns; i += 32) total += __expf(row[i] - top);
    for (int d = 16; d; d >>= 1) total += __shfl_xor_sync(~0u, total, d);
    for (int i = threadIdx.x; i < columns; i += 32) y[blockIdx.x * columns + i] = __expf(row[i] - top) / total;
}

extern "C" __global__ void transpose(const float *x, float *y, int rows, int columns) {
    __shared__ float tile[32][33];
    int i = blockIdx.y * 32 + threadIdx.y, j = blockIdx.x * 32 + threadIdx.x;
    for (int r = 0; r < 32; r += blockDim.y)
        if (i + r < rows && j < columns) tile[threadIdx.y + r][threadIdx.x] = x[(i + r) * columns + j];
    __syncthreads();
    i = blockIdx.x * 32 + threadIdx.y, j = blockIdx.y * 32 + threadIdx.x;
    for (int r = 0; r < 32; r += blockDim.y)
        if (i + r < columns && j < rows) y[(i + r) * rows + j] = tile[threadIdx.x][threadIdx.y + r];
}

extern "C" __global__ void conversions(const float *x, __half *h, __nv_bfloat16 *b, unsigned char *e4, unsigned char *e5, int *n, double *d) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    h[i] = __float2half_rn(x[i]);
    b[i] = __float2bfloat16_rn(x[i]);
    e4[i] = __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, __NV_E4M3);
    e5[i] = __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, __NV_E5M2);
    n[i] = (int)x[i];
    d[i] = fma((double)x[i], 3.0, 1e-17) / 7.0 + sqrt(fabs((double)x[i]));
}

extern "C" __global__ void integers(const int *a, const int *b, int *q, unsigned *r, long long *p, unsigned *c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    q[i] = b[i] ? a[i] / (b[i] | 1) : 0;
    r[i] = (unsigned)a[i] % 1000003u + (unsigned)b[i] / 7u;
    p[i] = (long long)a[i] * b[i] / 12345 + __mul64hi((long long)a[i] << 30, (long long)b[i] << 30);
    c[i] = __popc(a[i]) + 100 * __clz(b[i]) + 10000 * __ffs(a[i]) + __byte_perm(a[i], b[i], 0x2750) + __brev(b[i]) + __dp4a(a[i], b[i], 5);
}

extern "C" __global__ void histogram(const unsigned *x, unsigned *bins, float *total, unsigned *top, unsigned long long *old, int n) {
    __shared__ unsigned mine[16];
    if (threadIdx.x < 16) mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicAdd(&mine[x[i] & 15], 1);
        atomicAdd(total, (float)(x[i] & 15));
        atomicMax(top, x[i]);
        unsigned long long seen = *old, wanted;
        do wanted = seen, seen = atomicCAS(old, wanted, wanted + (x[i] & 3));
        while (seen != wanted);
    }
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}

extern "C" __global__ void votes(const int *x, unsigned *y) {
    int v = x[threadIdx.x];
    unsigned even = __ballot_sync(~0u, v % 2 == 0), same = __match_any_sync(~0u, v % 5);
    int all = __all_sync(~0u, v < 1000), any = __any_sync(~0u, v == 7);
    y[threadIdx.x] = even ^ same * 3 + all * 5 + any * 9 + __reduce_add_sync(~0u, v) + __reduce_max_sync(~0u, v) * 17 +
                     __reduce_xor_sync(~0u, (unsigned)v);
}

extern "C" __global__ void halves(const __half2 *x, const __half2 *y, __half2 *z, const __nv_bfloat162 *b, __nv_bfloat162 *c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    z[i] = __hfma2(x[i], y[i], __hadd2(x[i], __hmul2(y[i], y[i])));
    c[i] = __hmax2(__hfma2(b[i], b[i], b[i]), __hneg2(b[i]));
}
