// Integer, single and double arithmetic, conversions, intrinsics, the math library, loops and select chains.
#include <cstdint>

__constant__ float coefficients[8] = {1.0f, -0.5f, 0.25f, -0.125f, 3.0e-4f, 1e30f, -0.0f, 7.0f};

extern "C" __global__ void saxpy(int n, float a, const float* __restrict__ x, float* __restrict__ y) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = a * x[i] + y[i];
}

extern "C" __global__ void polynomial(const float* x, float* y) {
    float v = x[threadIdx.x], s = 0.0f;
    for (int i = 7; i >= 0; i--) s = fmaf(s, v, coefficients[i]);
    y[threadIdx.x] = s;
}

extern "C" __global__ void integers(const int* in, int* out, unsigned shift) {
    int a = in[threadIdx.x], b = in[threadIdx.x + 32];
    unsigned u = a, v = b;
    long long w = (long long)a * b;
    unsigned long long x = (unsigned long long)u * v;
    int r = 0;
    r += a / (b | 1) + a % 7 + (int)(u / 10) + (int)(v % 1000);
    r += (int)(w >> 32) + (int)(x >> shift) + (int)(w / 12345) + (int)(x % (v | 1ull));
    r += __popc(u) + __clz(a) + __ffs(b) + __brev(u) + __byte_perm(u, v, 0x3210 + shift);
    r += __mul24(a, b) + __mulhi(a, b) + __umulhi(u, v) + __sad(a, b, u) + __rhadd(a, b) + __hadd(a, b);
    r += __funnelshift_l(u, v, shift) + __funnelshift_rc(u, v, shift) + __dp4a(a, b, r) + __dp2a_lo(a, b, r);
    r += __popcll(x) + __clzll(w) + __brevll(x) + __fns(u, 3, 2) + min(a, b) + max(u, v) + abs(a) + (a < b ? 17 : -3);
    r ^= (a & b) | (~a & 0xff00ff) | (u << (v & 31)) | (a >> 3);
    out[threadIdx.x] = r;
}

extern "C" __global__ void floats(const float* in, float* out) {
    float a = in[threadIdx.x], b = in[threadIdx.x + 32];
    float r = sinf(a) + cosf(b) + expf(a) + logf(fabsf(b) + 1.0f) + powf(a, 1.5f) + rsqrtf(b) + sqrtf(a) + a / b;
    r += __sinf(a) + __expf(b) + __fdividef(a, b) + __saturatef(a) + __frcp_rz(b) + __fmaf_ru(a, b, r) + __fadd_rd(a, b);
    r += floorf(a) + ceilf(b) + rintf(a) + truncf(b) + fminf(a, b) + fmaxf(a, b) + copysignf(a, b) + fmodf(a, b) + erff(a) + tanhf(b);
    r += isnan(a) ? 1.0f : isinf(b) ? 2.0f : 0.0f;
    out[threadIdx.x] = r;
}

extern "C" __global__ void doubles(const double* in, double* out, float* low) {
    double a = in[threadIdx.x], b = in[threadIdx.x + 32];
    double r = a * b + a / b + sqrt(a) + sin(a) + exp(b) + fma(a, b, 3.25) + __dadd_ru(a, b) + cbrt(a) + lgamma(b);
    out[threadIdx.x] = r;
    low[threadIdx.x] = (float)r + __double2float_rd(a) + __double2hiint(b) + (float)__double_as_longlong(a);
}

extern "C" __global__ void conversions(const void* in, void* out) {
    const int8_t* s8 = (const int8_t*)in;
    const uint16_t* u16 = (const uint16_t*)in;
    const int64_t* s64 = (const int64_t*)in;
    const float* f = (const float*)in;
    ((int16_t*)out)[0] = s8[threadIdx.x] * 3;
    ((float*)out)[1] = (float)u16[2] + (float)s64[3] + (float)(uint64_t)s64[4];
    ((int64_t*)out)[2] = (int64_t)f[5] + __float2ll_ru(f[6]) + (int64_t)(double)f[7];
    ((uint8_t*)out)[32] = (uint8_t)__float2uint_rz(f[8]);
    ((int*)out)[9] = __float_as_int(f[9]) + __float2int_rn(f[10]);
}

extern "C" __global__ void wide(float4* v, double2* d, uchar4* c, int3* t) {
    float4 a = v[threadIdx.x];
    v[threadIdx.x + 1] = make_float4(a.w, a.z, a.y, a.x);
    double2 b = d[threadIdx.x];
    d[threadIdx.x + 1] = make_double2(b.y, b.x);
    uchar4 e = c[threadIdx.x];
    c[threadIdx.x + 1] = make_uchar4(e.y, e.x, e.w, e.z);
    t[threadIdx.x].z = t[threadIdx.x + 1].x + __ldg(&t[threadIdx.x].y);
}

extern "C" __global__ void carry(const unsigned __int128* in, unsigned __int128* out) {
    unsigned __int128 a = in[0], b = in[1];
    out[0] = a + b;
    out[1] = a - b;
    out[2] = a * b;
    out[3] = a >> (unsigned)b;
}
