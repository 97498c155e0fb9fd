/* ---- the driver: found when it is first needed, so that this file links where there is none ---- */

#ifndef PTXKIT_LIBCUDA
#define PTXKIT_LIBCUDA "libcuda.so.1"
#endif

#if defined(__cplusplus) && __cplusplus >= 201103L
#define PX_THREAD thread_local
#else
#define PX_THREAD __thread
#endif

enum { PX_OK, PX_NO_DRIVER, PX_OLD_DRIVER, PX_NO_CONTEXT, PX_WRONG_DEVICE, PX_WRONG_ARGUMENT, PX_REFUSED };

enum { PX_NEEDED_DRIVER = 12000 };                          /* kernels that belong to no context, and tensor maps */
enum { PX_CAPABILITY_MAJOR = 75, PX_CAPABILITY_MINOR = 76, PX_SHARED_OPTIN = 97 };              /* CUdevice_attribute */
enum { PX_MAX_DYNAMIC_SHARED = 8, PX_NON_PORTABLE_CLUSTER = 14 };                               /* CUfunction_attribute */
enum { PX_CLUSTER_DIMENSION = 4, PX_PROGRAMMATIC_SERIALIZATION = 6 };                           /* CUlaunchAttributeID */

typedef struct { uint32_t id, padding, value[16]; } px_attribute;                               /* CUlaunchAttribute */

typedef struct {                                                                                /* CUlaunchConfig */
    uint32_t grid[3], block[3], shared;
    void *stream;
    px_attribute *attributes;
    uint32_t count;
} px_config;

typedef struct {
    const char *entry, *target, *tool;      /* name in the cubin, "sm_90a", version of ptxas */
    const uint64_t *cubin;
    int major, minor, exact, tool_major;    /* exact: runs on that compute capability only */
    uint32_t block[3], cluster[3], shared, static_shared;
    void *kernel;                           /* CUkernel, once it is loaded */
    uint64_t devices;                       /* bit i: its attributes are set on device i */
} px_kernel;

static struct {
    int (*init)(unsigned);
    int (*version)(int *);
    int (*error_name)(int, const char **);
    int (*error_string)(int, const char **);
    int (*current_device)(int *);
    int (*device_attribute)(int *, int, int);
    int (*load)(void **, const void *, void *, void *, unsigned, void *, void *, unsigned);
    int (*get_kernel)(void **, void *, const char *);
    int (*set_attribute)(int, int, void *, int);
    int (*launch)(const px_config *, void *, void **, void **);
    int (*encode)(void *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *, int, int, int,
                  int);
    int (*max_clusters)(int *, void *, const px_config *);
    int (*clear)(uint64_t, unsigned char, size_t, void *);
    int (*allocate)(uint64_t *, size_t);
    int (*copy)(uint64_t, const void *, size_t);
} px_driver;

static pthread_mutex_t px_lock = PTHREAD_MUTEX_INITIALIZER;
static PX_THREAD char px_said[512];

static int px_fail(int status, const char *format, ...)
{
    va_list given;
    va_start(given, format);
    vsnprintf(px_said, sizeof px_said, format, given);
    va_end(given);
    return status;
}

/* The words for a CUresult. */
static const char *px_words(int result)
{
    static PX_THREAD char words[256];
    const char *name = NULL, *sentence = NULL;
    if (px_driver.error_name == NULL || px_driver.error_name(result, &name) || name == NULL) {
        snprintf(words, sizeof words, "CUresult %d", result);
        return words;
    }
    if (px_driver.error_string(result, &sentence) || sentence == NULL)
        sentence = "no description";
    snprintf(words, sizeof words, "%s (%s)", name, sentence);
    return words;
}

static int px_symbol(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);                 /* ISO C has no cast from an object's address to a function's */
    return found != NULL;
}

/* Finds the driver and starts it. The caller holds the lock. */
static int px_start(void)
{
    static int started = 0;
    static void *library = NULL;
    static const struct { const char *name; void *place; } needed[] = {
        {"cuInit", &px_driver.init}, {"cuGetErrorName", &px_driver.error_name}, {"cuGetErrorString", &px_driver.error_string},
        {"cuCtxGetDevice", &px_driver.current_device}, {"cuDeviceGetAttribute", &px_driver.device_attribute},
        {"cuLibraryLoadData", &px_driver.load}, {"cuLibraryGetKernel", &px_driver.get_kernel},
        {"cuKernelSetAttribute", &px_driver.set_attribute}, {"cuLaunchKernelEx", &px_driver.launch},
        {"cuTensorMapEncodeTiled", &px_driver.encode}, {"cuOccupancyMaxActiveClusters", &px_driver.max_clusters},
        {"cuMemsetD8Async", &px_driver.clear}, {"cuMemAlloc_v2", &px_driver.allocate}, {"cuMemcpyHtoD_v2", &px_driver.copy}};
    int version = 0, result;
    size_t i;
    if (started)
        return PX_OK;
    if (library == NULL)
        library = dlopen(PTXKIT_LIBCUDA, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        const char *why = dlerror();
        return px_fail(PX_NO_DRIVER, "no driver: %s does not load (%s); install the NVIDIA driver, or pass the GPU to the container",
                       PTXKIT_LIBCUDA, why ? why : "no reason given");
    }
    if (!px_symbol(library, "cuDriverGetVersion", &px_driver.version) || px_driver.version(&version))
        return px_fail(PX_NO_DRIVER, "no driver: %s is not a driver of NVIDIA", PTXKIT_LIBCUDA);
    if (version < PX_NEEDED_DRIVER)
        return px_fail(PX_OLD_DRIVER, "the driver is too old: it is for CUDA %d.%d, this code needs one for CUDA %d.%d or later",
                       version / 1000, version % 1000 / 10, PX_NEEDED_DRIVER / 1000, PX_NEEDED_DRIVER % 1000 / 10);
    for (i = 0; i < sizeof needed / sizeof *needed; ++i)
        if (!px_symbol(library, needed[i].name, needed[i].place))
            return px_fail(PX_OLD_DRIVER, "the driver is too old: it has no %s", needed[i].name);
    result = px_driver.init(0);
    if (result)
        return px_fail(PX_NO_DRIVER, "the driver does not start: %s; nvidia-smi tells more, and CUDA_VISIBLE_DEVICES may hide every GPU",
                       px_words(result));
    started = 1;
    return PX_OK;
}

/* Loads the kernel's cubin. The caller holds the lock. */
static int px_load(px_kernel *kernel)
{
    void *library = NULL;
    int version = 0, result = px_driver.load(&library, kernel->cubin, NULL, NULL, 0, NULL, NULL, 0);
    if (!result)
        result = px_driver.get_kernel(&kernel->kernel, library, kernel->entry);
    if (!result)
        return PX_OK;
    kernel->kernel = NULL;
    px_driver.version(&version);
    if (version / 1000 < kernel->tool_major)
        return px_fail(PX_OLD_DRIVER, "the driver is too old: it is for CUDA %d.%d and refuses the code of %s, which ptxas %s made: %s",
                       version / 1000, version % 1000 / 10, kernel->entry, kernel->tool, px_words(result));
    return px_fail(PX_REFUSED, "the driver refuses the code of %s: %s", kernel->entry, px_words(result));
}

/* Checks that the kernel runs on the device, and allows its shared memory and its cluster there. The caller holds the lock. */
static int px_allow(px_kernel *kernel, int device)
{
    int major = 0, minor = 0, room = 0, result;
    uint32_t size = kernel->cluster[0] * kernel->cluster[1] * kernel->cluster[2], shared = kernel->shared + kernel->static_shared;
    result = px_driver.device_attribute(&major, PX_CAPABILITY_MAJOR, device);
    if (!result)
        result = px_driver.device_attribute(&minor, PX_CAPABILITY_MINOR, device);
    if (!result)
        result = px_driver.device_attribute(&room, PX_SHARED_OPTIN, device);
    if (result)
        return px_fail(PX_REFUSED, "device %d does not say what it is: %s", device, px_words(result));
    if (major != kernel->major || minor < kernel->minor || (kernel->exact && minor != kernel->minor))
        return px_fail(PX_WRONG_DEVICE, "another architecture: %s is code for %s, which needs compute capability %s%d.%d; device %d has "
                       "%d.%d", kernel->entry, kernel->target, kernel->exact ? "exactly " : "", kernel->major, kernel->minor, device,
                       major, minor);
    if (shared > (uint32_t)room)
        return px_fail(PX_WRONG_DEVICE, "%s asks for %u bytes of shared memory a CTA; device %d gives at most %d", kernel->entry,
                       (unsigned)shared, device, room);
    if (kernel->kernel == NULL && (result = px_load(kernel)) != PX_OK)
        return result;
    result = 0;
    if (shared > 48 << 10)
        result = px_driver.set_attribute(PX_MAX_DYNAMIC_SHARED, (int)kernel->shared, kernel->kernel, device);
    if (!result && size > 8)
        result = px_driver.set_attribute(PX_NON_PORTABLE_CLUSTER, 1, kernel->kernel, device);
    if (result)
        return px_fail(PX_REFUSED, "the driver does not allow the shared memory or the cluster of %s: %s", kernel->entry,
                       px_words(result));
    if (device < 64)
        kernel->devices |= (uint64_t)1 << device;
    return PX_OK;
}

/* Makes the kernel ready on the device of the thread's current context, and says which that is. */
static int px_ready_on(px_kernel *kernel, int *device)
{
    int status, result;
    pthread_mutex_lock(&px_lock);
    status = px_start();
    if (status == PX_OK) {
        result = px_driver.current_device(device);
        if (result)
            status = px_fail(PX_NO_CONTEXT, "no context is current in this thread (%s): call cudaSetDevice or cuCtxSetCurrent first",
                             px_words(result));
        else if (*device >= 64 || !(kernel->devices >> *device & 1))
            status = px_allow(kernel, *device);
    }
    pthread_mutex_unlock(&px_lock);
    return status;
}

static int px_ready(px_kernel *kernel)
{
    int device = -1;
    return px_ready_on(kernel, &device);
}

static px_config px_configured(const px_kernel *kernel, const uint32_t *grid, int pdl, void *stream, px_attribute *attributes)
{
    px_config config;
    uint32_t size = kernel->cluster[0] * kernel->cluster[1] * kernel->cluster[2];
    memset(&config, 0, sizeof config);
    memset(attributes, 0, 2 * sizeof *attributes);
    memcpy(config.grid, grid, sizeof config.grid);
    memcpy(config.block, kernel->block, sizeof config.block);
    config.shared = kernel->shared;
    config.stream = stream;
    config.attributes = attributes;
    if (size > 1) {
        attributes[config.count].id = PX_CLUSTER_DIMENSION;
        memcpy(attributes[config.count++].value, kernel->cluster, sizeof kernel->cluster);
    }
    if (pdl) {
        attributes[config.count].id = PX_PROGRAMMATIC_SERIALIZATION;
        attributes[config.count++].value[0] = 1;
    }
    return config;
}

/* Launches a kernel that is ready. */
static int px_launch(const px_kernel *kernel, const uint32_t *grid, void **arguments, int pdl, void *stream)
{
    px_attribute attributes[2];
    px_config config;
    int i, result;
    for (i = 0; i < 3; ++i) {
        uint32_t most = i ? 65535u : 2147483647u;
        if (grid[i] < 1 || grid[i] > most || grid[i] % kernel->cluster[i])
            return px_fail(PX_WRONG_ARGUMENT, "grid_%c is %u: it counts CTAs, from 1 to %u, and must be a multiple of the cluster's %u",
                           "xyz"[i], (unsigned)grid[i], (unsigned)most, (unsigned)kernel->cluster[i]);
    }
    config = px_configured(kernel, grid, pdl, stream, attributes);
    result = px_driver.launch(&config, kernel->kernel, arguments, NULL);
    if (result)
        return px_fail(PX_REFUSED, "%s was not launched: %s%s", kernel->entry, px_words(result),
                       result >= 700 && result < 720 ? "; the fault may be of an earlier kernel, since launches do not wait" : "");
    return PX_OK;
}
