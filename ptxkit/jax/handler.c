/* What XLA calls for a product of ptxkit.jax, by the C API of its foreign functions.

   A call site has an attribute "call": the product in words, which name its buffers in order. On a GPU the first call of a product is
   answered by Python with a plan, the launches of the product with the places where addresses of buffers go; from then on nothing but the
   driver is called. On the CPU each call is run by Python, on the CPU device. */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

enum { MOST_BUFFERS = 16, MOST_ARGUMENTS = 96, MOST_MAPS = 8, MAP_BYTES = 128, MAP_UNIT = 64, BUCKETS = 1024, MESSAGE_BYTES = 2048 };
enum { NUMBER, ADDRESS, MAP, FIXED_MAP };

typedef struct {            /* an argument of a kernel */
    int32_t kind, buffer;   /* the buffer that an address or a map belongs to */
    uint64_t value;         /* the bits of a number; bytes after the buffer's start */
    const void *map;        /* the tensor map of an array at any address */
} jx_argument;

typedef struct {            /* CUlaunchConfig */
    uint32_t grid[3], block[3], shared;
    void *stream, *attributes;
    uint32_t count;
} jx_config;

typedef struct {
    const jx_config *config;            /* NULL: lines of a buffer are cleared */
    void *kernel;
    const jx_argument *arguments;
    int32_t count, buffer;
    uint64_t offset, pitch, width, height;
} jx_step;

typedef struct {
    const jx_step *steps;
    int32_t count, buffers;             /* the last buffer is the workspace, if there is one */
    uint64_t workspace_bytes;
    int (*launch)(const jx_config *, void *, void **, void **);
    int (*replace)(void *, void *);
    int (*fill)(void *, size_t, unsigned char, size_t, size_t, void *);
} jx_plan;

/* Python's answers. They return 0, or another number and a message. `apart`: the address of each buffer modulo 16. */
typedef int jx_prepare(const char *call, uint64_t length, int32_t device, const uint8_t *apart, const jx_plan **plan, char *message);
typedef int jx_simulate(const char *call, uint64_t length, void *const *buffers, char *message);

static jx_prepare *prepare;
static jx_simulate *simulate;
static int asking, closed;              /* calls of Python that have not returned; whether there are to be no more */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t answered = PTHREAD_COND_INITIALIZER;

void ptxkit_jax_connect(jx_prepare *to_prepare, jx_simulate *to_simulate)
{
    prepare = to_prepare;
    simulate = to_simulate;
}

/* Python ends: waits for its answers, and asks no more. XLA may still run what nobody waits for. */
void ptxkit_jax_close(void)
{
    pthread_mutex_lock(&gate);
    closed = 1;
    while (asking)
        pthread_cond_wait(&answered, &gate);
    pthread_mutex_unlock(&gate);
}

static int enter(char *message)
{
    int open;
    pthread_mutex_lock(&gate);
    open = !closed;
    asking += open;
    pthread_mutex_unlock(&gate);
    if (!open)
        strcpy(message, "Python has ended, and a product of ptxkit.jax asks it");
    return open;
}

static int leave(int status)
{
    pthread_mutex_lock(&gate);
    if (!--asking)
        pthread_cond_broadcast(&answered);
    pthread_mutex_unlock(&gate);
    return status;
}

/* ---- plans that are known, by call, device and alignment ---- */

typedef struct entry {
    struct entry *next;
    uint64_t hash, length;
    int32_t device;
    uint8_t apart[MOST_BUFFERS];
    const jx_plan *plan;
    char call[];
} entry;

static entry *buckets[BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t hashed(const char *text, uint64_t length)
{
    uint64_t found = 14695981039346656037u;
    for (; length; --length, ++text)
        found = (found ^ (unsigned char)*text) * 1099511628211u;
    return found;
}

static const jx_plan *known(const XLA_FFI_ByteSpan *call, uint64_t hash, int32_t device, const uint8_t *apart)
{
    const entry *each;
    const jx_plan *plan = NULL;
    pthread_mutex_lock(&lock);
    for (each = buckets[hash % BUCKETS]; each && !plan; each = each->next)
        if (each->hash == hash && each->length == call->len && each->device == device && !memcmp(each->apart, apart, MOST_BUFFERS)
            && !memcmp(each->call, call->ptr, call->len))
            plan = each->plan;
    pthread_mutex_unlock(&lock);
    return plan;
}

static void keep(const XLA_FFI_ByteSpan *call, uint64_t hash, int32_t device, const uint8_t *apart, const jx_plan *plan)
{
    entry *made = (entry *)malloc(sizeof *made + call->len);
    if (made == NULL)
        return;                                             /* the next call asks again */
    made->hash = hash;
    made->length = call->len;
    made->device = device;
    made->plan = plan;
    memcpy(made->apart, apart, MOST_BUFFERS);
    memcpy(made->call, call->ptr, call->len);
    pthread_mutex_lock(&lock);
    made->next = buckets[hash % BUCKETS];
    buckets[hash % BUCKETS] = made;
    pthread_mutex_unlock(&lock);
}

/* ---- a call ---- */

typedef struct {
    XLA_FFI_ByteSpan call;
    void *data[MOST_BUFFERS];
    uint8_t apart[MOST_BUFFERS];
    int32_t count;
    uint64_t last_bytes;                                    /* extents of the last buffer, multiplied */
} jx_call;

static XLA_FFI_Error *failed(const XLA_FFI_Api *api, XLA_FFI_Error_Code code, const char *message)
{
    XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, message, code};
    return api->XLA_FFI_Error_Create(&args);
}

static int taken(const XLA_FFI_CallFrame *frame, jx_call *call)
{
    int64_t i, j;
    memset(call, 0, sizeof *call);
    for (i = 0; i < frame->args.size + frame->rets.size && i < MOST_BUFFERS; ++i) {
        const XLA_FFI_Buffer *buffer = (const XLA_FFI_Buffer *)(i < frame->args.size ? frame->args.args[i]
                                                                                     : frame->rets.rets[i - frame->args.size]);
        call->data[i] = buffer->data;
        call->apart[i] = (uint8_t)((uintptr_t)buffer->data % 16);
        call->last_bytes = 1;
        for (j = 0; j < buffer->rank; ++j)
            call->last_bytes *= (uint64_t)buffer->dims[j];
    }
    call->count = (int32_t)i;
    for (i = 0; i < frame->attrs.size; ++i)
        if (frame->attrs.types[i] == XLA_FFI_AttrType_STRING && frame->attrs.names[i]->len == 4
            && !memcmp(frame->attrs.names[i]->ptr, "call", 4))
            call->call = *(const XLA_FFI_ByteSpan *)frame->attrs.attrs[i];
    return call->call.ptr != NULL && frame->args.size + frame->rets.size <= MOST_BUFFERS;
}

/* Whether the frame only asks what this handler is. */
static int asked(const XLA_FFI_CallFrame *frame, XLA_FFI_Handler_Traits traits)
{
    if (frame->extension_start == NULL || frame->extension_start->type != XLA_FFI_Extension_Metadata)
        return 0;
    XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    metadata->traits = traits;
    return 1;
}

/* Calls the driver for every step, with these buffers. Returns 0, or the driver's status and the number of the step. */
int ptxkit_jax_launch(const jx_plan *plan, void *const *buffers, void *stream, int32_t *at)
{
    int status = 0;
    for (*at = 0; *at < plan->count && !status; ++*at) {
        const jx_step *step = &plan->steps[*at];
        uint64_t room[MOST_MAPS * (MAP_BYTES + MAP_UNIT) / 8], values[MOST_ARGUMENTS];
        void *pointers[MOST_ARGUMENTS];
        char *place = (char *)(((uintptr_t)room + MAP_UNIT - 1) / MAP_UNIT * MAP_UNIT);
        jx_config config;
        int32_t i;
        if (step->config == NULL) {
            status = plan->fill((char *)buffers[step->buffer] + step->offset, step->pitch, 0, step->width, step->height, stream);
            continue;
        }
        for (i = 0; i < step->count && !status; ++i) {
            const jx_argument *argument = &step->arguments[i];
            values[i] = argument->kind == NUMBER ? argument->value : (uintptr_t)buffers[argument->buffer] + argument->value;
            pointers[i] = &values[i];                       /* little-endian: the first bytes are the narrower value */
            if (argument->kind == MAP || argument->kind == FIXED_MAP) {
                memcpy(place, argument->map, MAP_BYTES);
                if (argument->kind == MAP)
                    status = plan->replace(place, (void *)(uintptr_t)values[i]);
                pointers[i] = place;
                place += MAP_BYTES;
            }
        }
        config = *step->config;
        config.stream = stream;
        status = status ? status : plan->launch(&config, step->kernel, pointers, NULL);
    }
    *at -= status != 0;
    return status;
}

XLA_FFI_Error *ptxkit_jax_cuda(XLA_FFI_CallFrame *frame)
{
    jx_call call;
    char message[MESSAGE_BYTES] = "";
    const jx_plan *plan;
    uint64_t hash;
    int32_t at = 0;
    int status;
    if (asked(frame, XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE))
        return NULL;
    XLA_FFI_DeviceOrdinal_Get_Args device = {XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE, NULL, frame->ctx, 0};
    XLA_FFI_Stream_Get_Args stream = {XLA_FFI_Stream_Get_Args_STRUCT_SIZE, NULL, frame->ctx, NULL};
    XLA_FFI_Error *error = frame->api->XLA_FFI_DeviceOrdinal_Get(&device);
    if (error != NULL)
        return error;
    if (!taken(frame, &call))
        return failed(frame->api, XLA_FFI_Error_Code_INTERNAL, "a product of ptxkit.jax was called without its words: compile it again");
    hash = hashed(call.call.ptr, call.call.len);
    plan = known(&call.call, hash, device.device_ordinal, call.apart);
    if (plan == NULL) {
        if (!enter(message) || leave(prepare(call.call.ptr, call.call.len, device.device_ordinal, call.apart, &plan, message)))
            return failed(frame->api, XLA_FFI_Error_Code_INTERNAL, message);
        keep(&call.call, hash, device.device_ordinal, call.apart, plan);
    }
    if (frame->stage != XLA_FFI_ExecutionStage_EXECUTE)     /* kernels are loaded before anything runs or is captured */
        return NULL;
    if (call.count < plan->buffers || (plan->workspace_bytes && call.last_bytes < plan->workspace_bytes)) {
        snprintf(message, sizeof message, "this product needs a workspace of %llu bytes on device %d and has %llu: it was compiled for "
                 "another device or for arrays at multiples of 16 bytes; compile it where it runs", (unsigned long long)plan->workspace_bytes,
                 device.device_ordinal, (unsigned long long)(call.count < plan->buffers ? 0 : call.last_bytes));
        return failed(frame->api, XLA_FFI_Error_Code_FAILED_PRECONDITION, message);
    }
    error = frame->api->XLA_FFI_Stream_Get(&stream);
    if (error != NULL)
        return error;
    status = ptxkit_jax_launch(plan, call.data, stream.stream, &at);
    if (!status)
        return NULL;
    snprintf(message, sizeof message, "the driver refused step %d of %d of a product, with status %d%s", (int)at + 1, (int)plan->count,
             status, status >= 700 ? "; the fault may be of an earlier kernel, since launches do not wait" : "");
    return failed(frame->api, XLA_FFI_Error_Code_INTERNAL, message);
}

XLA_FFI_Error *ptxkit_jax_cpu(XLA_FFI_CallFrame *frame)
{
    jx_call call;
    char message[MESSAGE_BYTES] = "";
    if (asked(frame, 0))
        return NULL;
    if (!taken(frame, &call))
        return failed(frame->api, XLA_FFI_Error_Code_INTERNAL, "a product of ptxkit.jax was called without its words: compile it again");
    if (!enter(message) || leave(simulate(call.call.ptr, call.call.len, call.data, message)))
        return failed(frame->api, XLA_FFI_Error_Code_INTERNAL, message);
    return NULL;
}
