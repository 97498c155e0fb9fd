// Compiled with -lineinfo: inlined calls, several to one line, a loop, a printf.
#include <cstdio>

__device__ __forceinline__ float square(float x) { return x * x; }

__device__ __forceinline__ float norm(const float* v, int n) {
    float s = 0;
    for (int i = 0; i < n; i++) s += square(v[i]);
    return sqrtf(s);
}

__device__ __noinline__ float apart(float x) { return square(x) + 1; }

extern "C" __global__ void lines(const float* a, const float* b, float* out, int n) {
    float x = norm(a + threadIdx.x * n, n), y = norm(b + threadIdx.x * n, n);
    if (x > y) printf("%f\n", x);
    out[threadIdx.x] = apart(x) * square(y) + norm(b, 3);
}
