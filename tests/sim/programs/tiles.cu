// One warp, one 16 x 16 x 16 product by wmma, in two layouts and types.
#include <mma.h>
using namespace nvcuda::wmma;

extern "C" __global__ void half_tile(const half *a, const half *b, const float *c, float *d) {
    fragment<matrix_a, 16, 16, 16, half, row_major> x;
    fragment<matrix_b, 16, 16, 16, half, col_major> y;
    fragment<accumulator, 16, 16, 16, float> z;
    load_matrix_sync(x, a, 16);
    load_matrix_sync(y, b, 24);
    load_matrix_sync(z, c, 16, mem_row_major);
    mma_sync(z, x, y, z);
    for (int i = 0; i < z.num_elements; i++) z.x[i] *= 2;
    store_matrix_sync(d, z, 16, mem_col_major);
}

extern "C" __global__ void byte_tile(const signed char *a, const signed char *b, int *d) {
    __shared__ __align__(32) signed char staged[256];
    for (int i = threadIdx.x; i < 256; i += 32) staged[i] = a[i];
    __syncwarp();
    fragment<matrix_a, 8, 32, 16, signed char, row_major> x;
    fragment<matrix_b, 8, 32, 16, signed char, row_major> y;
    fragment<accumulator, 8, 32, 16, int> z;
    fill_fragment(z, 3);
    load_matrix_sync(x, staged, 32);
    load_matrix_sync(y, b, 32);
    mma_sync(z, x, y, z);
    store_matrix_sync(d, z, 32, mem_row_major);
}
