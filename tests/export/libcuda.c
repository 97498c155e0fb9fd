/* A libcuda for tests: each function calls what `stub_set` has put in its place. */

#include <stddef.h>
#include <stdint.h>

static void *places[16];

void stub_set(int place, void *function) { places[place] = function; }

#define STUB(place, name, types, values) int name types { return ((int (*) types)places[place]) values; }

STUB(0, cuInit, (unsigned a), (a))
STUB(1, cuDriverGetVersion, (int *a), (a))
STUB(2, cuGetErrorName, (int a, const char **b), (a, b))
STUB(3, cuGetErrorString, (int a, const char **b), (a, b))
STUB(4, cuCtxGetDevice, (int *a), (a))
STUB(5, cuDeviceGetAttribute, (int *a, int b, int c), (a, b, c))
STUB(6, cuLibraryLoadData, (void **a, const void *b, void *c, void *d, unsigned e, void *f, void *g, unsigned h), (a, b, c, d, e, f, g, h))
STUB(7, cuLibraryGetKernel, (void **a, void *b, const char *c), (a, b, c))
STUB(8, cuKernelSetAttribute, (int a, int b, void *c, int d), (a, b, c, d))
STUB(9, cuLaunchKernelEx, (const void *a, void *b, void **c, void **d), (a, b, c, d))
STUB(10, cuTensorMapEncodeTiled, (void *a, int b, uint32_t c, void *d, const uint64_t *e, const uint64_t *f, const uint32_t *g,
                                  const uint32_t *h, int i, int j, int k, int l), (a, b, c, d, e, f, g, h, i, j, k, l))
STUB(11, cuOccupancyMaxActiveClusters, (int *a, void *b, const void *c), (a, b, c))
STUB(12, cuMemsetD8Async, (uint64_t a, unsigned char b, size_t c, void *d), (a, b, c, d))
STUB(13, cuTensorMapReplaceAddress, (void *a, void *b), (a, b))
STUB(14, cuMemAlloc_v2, (uint64_t *a, size_t b), (a, b))
STUB(15, cuMemcpyHtoD_v2, (uint64_t a, const void *b, size_t c), (a, b, c))
