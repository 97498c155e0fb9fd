/* A libcuda whose functions succeed and do nothing but write what they return: a device of 132 SMs, compute capability 9.0. */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

int cuInit(unsigned flags) { return (int)(flags & 0); }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuGetErrorName(int result, const char **name) { (void)result; *name = "CUDA_ERROR"; return 0; }
int cuGetErrorString(int result, const char **words) { (void)result; *words = "an error"; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuDeviceGetAttribute(int *value, int kind, int device)
{
    *value = kind == 75 ? 9 : kind == 76 ? 0 : kind == 16 ? 132 : 232448;
    return device;
}
int cuLibraryLoadData(void **library, const void *code, void *a, void *b, unsigned c, void *d, void *e, unsigned f)
{
    (void)code, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
    *library = (void *)1;
    return 0;
}
int cuLibraryGetKernel(void **kernel, void *library, const char *name) { (void)library; *kernel = (void *)1; return name[0] == 0; }
int cuKernelSetAttribute(int kind, int value, void *kernel, int device) { (void)kind, (void)value, (void)kernel; return device; }
int cuLaunchKernelEx(const void *config, void *kernel, void **arguments, void **extra)
{
    (void)kernel, (void)extra;
    return *(const uint32_t *)config == 0 || arguments[0] == NULL;
}
int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *address, const uint64_t *dims, const uint64_t *strides,
                           const uint32_t *box, const uint32_t *steps, int a, int b, int c, int d)
{
    uint32_t i;
    (void)type, (void)address, (void)a, (void)b, (void)c, (void)d;
    memset(map, 0, 128);
    for (i = 0; i < rank; ++i)
        if (!dims[i] || !box[i] || !steps[i] || (i && strides[i - 1] % 16))
            return 1;
    return (uintptr_t)map % 64 != 0;
}
int cuOccupancyMaxActiveClusters(int *count, void *kernel, const void *config) { (void)kernel, (void)config; *count = 66; return 0; }
int cuMemsetD8Async(uint64_t at, unsigned char byte, size_t count, void *stream) { (void)at, (void)byte, (void)count, (void)stream; return 0; }
int cuTensorMapReplaceAddress(void *map, void *address) { (void)map, (void)address; return 0; }
int cuMemAlloc_v2(uint64_t *at, size_t count) { (void)count; *at = 0x30000000000u; return 0; }
int cuMemcpyHtoD_v2(uint64_t at, const void *from, size_t count) { (void)at; return ((const unsigned char *)from)[count - 1] == 0 && count == 0; }
