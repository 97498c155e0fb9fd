// f16, bf16, fp8, tf32: arithmetic, conversions, tensor cores through wmma and mma.sync, ldmatrix.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <mma.h>

extern "C" __global__ void halves(const __half* a, const __half2* b, __half* out) {
    __half x = a[threadIdx.x], y = a[threadIdx.x + 1];
    __half2 p = b[threadIdx.x], q = b[threadIdx.x + 1];
    __half r = __hfma(x, y, x) + hsqrt(y) + hexp(x) + __hmax(x, y) + __float2half_rn(3.5f) + __hneg(x) + htanh(x);
    __half2 s = __hfma2_relu(p, q, p) + h2sin(q) + __hmul2_sat(p, q) + __hmin2(p, q);
    out[threadIdx.x] = r + __low2half(s) + __high2half(s) + (__half)(__hlt(x, y) ? 1 : 0) + __hadd(x, __ushort_as_half(0x3c00));
}

extern "C" __global__ void bfloats(const __nv_bfloat16* a, const __nv_bfloat162* b, float* out) {
    __nv_bfloat16 x = a[threadIdx.x];
    __nv_bfloat162 p = b[threadIdx.x];
    float2 f = __bfloat1622float2(__hfma2(p, p, __float2bfloat162_rn(2.0f)));
    out[threadIdx.x] = __bfloat162float(x * x) + f.x + f.y + __bfloat162float(__float2bfloat16_rz(f.x)) + __bfloat162int_rn(x);
}

extern "C" __global__ void eights(const float* in, __nv_fp8_e4m3* e4, __nv_fp8_e5m2* e5, __nv_fp8x4_e4m3* packed, float* out) {
    e4[threadIdx.x] = __nv_fp8_e4m3(in[threadIdx.x]);
    e5[threadIdx.x] = __nv_fp8_e5m2(in[threadIdx.x] * 2);
    packed[threadIdx.x] = __nv_fp8x4_e4m3(((const float4*)in)[threadIdx.x]);
    out[threadIdx.x] = float(e4[threadIdx.x + 1]) + float(e5[threadIdx.x + 1]) + float4(packed[threadIdx.x + 1]).z;
}

extern "C" __global__ void wmma_f16(const __half* a, const __half* b, float* c) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, __half, col_major> fb;
    fragment<accumulator, 16, 16, 16, float> fc;
    fill_fragment(fc, 0.0f);
    load_matrix_sync(fa, a, 16);
    load_matrix_sync(fb, b, 16);
    mma_sync(fc, fa, fb, fc);
    store_matrix_sync(c, fc, 16, mem_row_major);
}

extern "C" __global__ void wmma_tf32(const float* a, const float* b, float* c) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 8, precision::tf32, row_major> fa;
    fragment<matrix_b, 16, 16, 8, precision::tf32, row_major> fb;
    fragment<accumulator, 16, 16, 8, float> fc;
    load_matrix_sync(fa, a, 8);
    load_matrix_sync(fb, b, 16);
    load_matrix_sync(fc, c, 16, mem_col_major);
    for (int i = 0; i < fa.num_elements; i++) fa.x[i] = __float_to_tf32(fa.x[i]);
    mma_sync(fc, fa, fb, fc);
    store_matrix_sync(c, fc, 16, mem_col_major);
}

extern "C" __global__ void mma_sync(const unsigned* in, float* out) {
    __shared__ __align__(16) unsigned tile[256];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    unsigned a[4], b[2], at = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x * 4 & 255]);
    float d[4] = {0, 0, 0, 0};
    int n[4] = {0, 0, 0, 0};
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]) : "r"(at));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2+128];" : "=r"(b[0]), "=r"(b[1]) : "r"(at));
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    asm volatile("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(n[0]), "+r"(n[1]), "+r"(n[2]), "+r"(n[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[0]), "r"(b[1]), "r"(in[7]));
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(a[0]), "r"(a[1]));
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(b[0]) : "r"(b[1]));
    for (int i = 0; i < 4; i++) out[threadIdx.x * 4 + i] = d[i] + n[i] + b[0];
}
