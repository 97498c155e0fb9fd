// Compiled with -G: variables in registers and in memory, recursion, templates, calls through pointers, surfaces, shared memory.
#include <cstdio>

template <class T, int N>
struct Vec {
    T v[N];
    __device__ T& operator[](int i) { return v[i]; }
    __device__ T sum() const {
        T s{};
        for (int i = 0; i < N; i++) s += v[i];
        return s;
    }
};

template <class T>
__device__ __noinline__ T gcd(T a, T b) {
    while (b) {
        T t = a % b;
        a = b;
        b = t;
    }
    return a;
}

__device__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__device__ int twice(int n) { return 2 * n; }

typedef int (*Unary)(int);
__device__ Unary table[2] = {fib, twice};
__constant__ char format[] = "%s %d %f\n";
extern __shared__ float dynamic[];

template <class T, int N>
__global__ void windows(const T* in, T* out, int n) {
    Vec<T, N> v;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = 0; k < N; k++) v[k] = i + k < n ? in[i + k] : T(k);
    if (i < n) out[i] = v.sum();
}
template __global__ void windows<float, 4>(const float*, float*, int);
template __global__ void windows<unsigned char, 7>(const unsigned char*, unsigned char*, int);

__global__ void sum(const float* x, float* y, int n) {
    __shared__ float s[256];
    int t = threadIdx.x;
    float a = 0;
    for (int i = blockIdx.x * blockDim.x + t; i < n; i += gridDim.x * blockDim.x) a += x[i];
    s[t] = a;
    dynamic[t] = -a;
    __syncthreads();
    for (int k = blockDim.x / 2; k > 0; k >>= 1) {
        if (t < k) s[t] += s[t + k];
        __syncthreads();
    }
    if (t == 0) y[blockIdx.x] = s[0] + dynamic[1];
}

__global__ void calls(int* out, unsigned* u, int which) {
    out[threadIdx.x] = table[which](out[0]) + fib(which);
    u[threadIdx.x] = gcd(u[threadIdx.x], 12u);
    switch (out[1]) {
        case 0: out[2] = 1; break;
        case 1: out[2] = 5; break;
        case 2: out[3] = 7; break;
        case 3: out[4] = 9; break;
        default: printf(format, "other", out[1], 0.5);
    }
    atomicAdd(out, __shfl_xor_sync(~0u, out[5], 1));
}

__global__ void surfaces(cudaSurfaceObject_t s, float* out) {
    float v;
    surf3Dread(&v, s, threadIdx.x * 4, 1, 2);
    surf1Dwrite(v, s, threadIdx.x * 4);
    out[threadIdx.x] = v;
}
