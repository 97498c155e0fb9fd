// Compiled with -G: debug sections, unoptimised code, locals in memory, one file.
enum Colour { RED, GREEN = 5 };

struct Point {
    float x, y;
    Colour colour;
    const char* label;
};

__constant__ Point origin = {0.0f, 0.0f, GREEN, "origin"};
__device__ int counter;

__device__ float distance2(const Point& a, const Point& b) {
    float dx = a.x - b.x, dy = a.y - b.y;
    return dx * dx + dy * dy;
}

template <int N>
__device__ int sum(const int (&v)[N]) {
    int s = 0;
    for (int i = 0; i < N; i++) s += v[i];
    return s;
}

extern "C" __global__ void debug(Point* points, float* out, unsigned long long n) {
    __shared__ float best[32];
    int local[4] = {1, 2, 3, (int)n};
    if (threadIdx.x < n) {
        best[threadIdx.x & 31] = distance2(points[threadIdx.x], origin);
        __syncthreads();
        atomicAdd(&counter, sum(local));
        out[threadIdx.x] = points[threadIdx.x].colour == RED ? best[0] : (float)counter;
    }
}
