// Variables: every space, initialisers of every type, nested aggregates, addresses of other variables, alignment, linkage.
__device__ int scalar = -3;
__device__ float pi = 3.14159274f;
__device__ double e = 2.718281828459045;
__device__ char text[] = "a string\twith \"quotes\"";
__device__ const char* pointer_to_text = "another";
__device__ const char* words[] = {"alpha", "beta", nullptr, "gamma"};
__device__ unsigned long long big[] = {0xFFFFFFFFFFFFFFFFull, 1, 0x8000000000000000ull};
__device__ short matrix[2][3][2] = {{{1, 2}, {3, 4}, {5, 6}}, {{-1, -2}, {-3, -4}, {-5, -6}}};
__device__ unsigned char sparse[100] = {1, 2, 3};
__device__ int zeroed[1000];
__device__ bool flags[5] = {true, false, true};
__constant__ double table[4] = {0.1, 0.2, 1e300, -1e-300};
__constant__ int* where = &zeroed[10];
__device__ int* into_matrix = (int*)&matrix[1][0][0];
__device__ __align__(256) float aligned[4];
__managed__ int managed_counter = 5;
__managed__ float managed_array[16];
static __device__ int internal = 9;
__shared__ int shared_at_module;

struct __attribute__((packed)) Packed {
    char tag;
    int* p;
    short s;
    const char* q;
};
__device__ Packed packed[2] = {{'x', &scalar, 7, "packed text"}, {'y', zeroed + 3, -7, text + 2}};

struct Node {
    Node* next;
    int value;
    float weights[2];
};
extern __device__ Node second;
__device__ Node first = {&second, 1, {0.5f, 0.25f}};
__device__ Node second = {nullptr, 2, {-0.5f, -0.25f}};

union Word {
    float f;
    int i;
};
__device__ Word word = {1.5f};
__constant__ struct {
    long long a;
    Word w[2];
    char c[3];
} mixed = {-5, {{1.0f}, {2.0f}}, {'a', 'b', 'c'}};

extern __shared__ __align__(128) unsigned char dynamic[];

extern "C" __global__ void touch(int* out, int i) {
    __shared__ float tile[32][33];
    __shared__ __align__(128) char bytes[100];
    __shared__ double d;
    static __device__ int calls = 0;
    tile[threadIdx.y][threadIdx.x] = pi * (float)e;
    bytes[i] = text[i] + *pointer_to_text + words[i & 3][0];
    shared_at_module = i;
    if (threadIdx.x == 0) d = table[i & 3] + big[i % 3] + mixed.a + mixed.c[i] + word.f;
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x][threadIdx.y] + bytes[i + 1] + d + scalar + matrix[i][1][0] + sparse[i] + zeroed[i] + flags[i];
    out[threadIdx.x] += *where + *into_matrix + aligned[i & 3] + managed_counter + managed_array[i] + internal++ + calls++;
    out[threadIdx.x] += packed[i & 1].p[0] + packed[i & 1].q[1] + first.next->value + second.weights[i & 1] + mixed.w[i & 1].i;
    ((float4*)dynamic)[threadIdx.x] = make_float4(1, 2, 3, 4);
    out[threadIdx.x + 1] = dynamic[i] + shared_at_module;
}
