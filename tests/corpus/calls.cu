// Calls: recursion, function pointers, varargs, printf, assert, malloc, pointers to functions in tables, noreturn.
#include <cassert>
#include <cstdio>

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__device__ __noinline__ float twice(float x) { return x * 2; }
__device__ __noinline__ float thrice(float x) { return x * 3; }
__device__ __noinline__ float half_of(float x) { return x * 0.5f; }

typedef float (*Function)(float);
__device__ Function table[3] = {twice, thrice, half_of};
__constant__ Function fixed_table[2] = {half_of, twice};

extern "C" __global__ void indirect(float* out, int which) {
    float v = table[which](out[threadIdx.x]);
    out[threadIdx.x] = fixed_table[which & 1](v);
}

extern "C" __global__ void recursive(int* out) { out[threadIdx.x] = fibonacci(out[threadIdx.x]); }

extern "C" __global__ void say(const int* in, double d) {
    printf("thread %d has %d and %f, \"%s\"\n", threadIdx.x, in[threadIdx.x], d, "a string");
    if (in[0] == 7) printf("seven\n");
}

extern "C" __global__ void checked(int* in, int n) {
    assert(n > 0 && "n is positive");
    assert(in[threadIdx.x] < n);
    in[threadIdx.x] = n / in[threadIdx.x];
}

extern "C" __global__ void heap(int** out, int n) {
    int* p = (int*)malloc(n * sizeof(int));
    if (!p) return;
    for (int i = 0; i < n; i++) p[i] = i;
    out[threadIdx.x] = p;
    if (n == 3) free(p);
}

struct Small {
    char c;
    short s;
    int i;
};
__device__ __noinline__ Small shuffle(Small v, char c, short s, bool b, long long l, double d, void* p) {
    return {(char)(v.c + c), (short)(v.s - s), b ? v.i + (int)l : (int)d + (p != nullptr)};
}
extern "C" __global__ void many_arguments(Small* v, char c, short s, bool b, long long l, double d) {
    v[threadIdx.x] = shuffle(v[threadIdx.x], c, s, b, l, d, v);
}

extern "C" __device__ int visible_function(int a, unsigned char b) { return a + b; }

__device__ __noinline__ void give_up(int* where) {
    *where = 1;
    __trap();
}
extern "C" __global__ void may_give_up(int* p) {
    if (p[threadIdx.x]) give_up(p);
}

__device__ int local_pointer(int* p, int n) { return n ? local_pointer(p + 1, n - 1) + *p : 0; }
extern "C" __global__ void stack_pointer(int* out) {
    int a[8];
    for (int i = 0; i < 8; i++) a[i] = out[i];
    out[threadIdx.x] = local_pointer(a, out[8] & 7);
}

extern "C" __global__ void dynamic_stack(int* out, int n) {
    int* p = (int*)alloca(n * sizeof(int));
    for (int i = 0; i < n; i++) p[i] = out[i];
    out[threadIdx.x] = p[out[n] % n];
}
