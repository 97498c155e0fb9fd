// Relocatable device code: extern functions and variables, weak ones, an unused parameter, calls across translation units.
extern __device__ float elsewhere(float x, const int* p);
extern __device__ int external_array[];
extern __constant__ float external_constant;
extern "C" __device__ void callback(int (*f)(int), int v);
__device__ int exported_counter = 1;
template <typename T>
__device__ T weak_function(T v) { return v * v; }
template <typename T>
__device__ T weak_variable = 3;

__device__ __noinline__ int helper(int x) { return x ^ exported_counter; }

__global__ void uses_all(float* out, int unused) {
    out[threadIdx.x] = elsewhere(out[0], external_array) * external_constant + weak_function<float>(out[1]) + weak_variable<int>;
    callback(helper, 3);
}
