/* ---- tensor maps ---- */

enum { PX_ROOM = 24 };                      /* holds 128 bytes at a multiple of 64, in words of 8 */

typedef struct {
    const char *name;
    int type, bytes, rank;                  /* CUtensorMapDataType, bytes of an element */
    uint32_t box[5];                        /* the contiguous dimension first */
    int swizzle, promotion;                 /* CUtensorMapSwizzle, CUtensorMapL2promotion */
} px_box;

/* Encodes the map of an array into `room`, and gives its place there. `shape` and `strides` count elements, the slowest dimension first;
   without strides the rows lie one after another. */
static int px_encode(uint64_t *room, void **place, const px_box *box, void *data, const uint64_t *shape, const uint64_t *strides)
{
    const uint64_t most = (uint64_t)1 << 40;
    uint64_t dims[5], bytes[5] = {0, 0, 0, 0, 0}, step = 1;
    uint32_t ones[5] = {1, 1, 1, 1, 1};
    int i, result;
    *place = (void *)(((uintptr_t)room + 63) / 64 * 64);
    if ((uintptr_t)data % 16)
        return px_fail(PX_WRONG_ARGUMENT, "%s is at the address %p, which is not a multiple of 16 bytes", box->name, data);
    if (shape == NULL)
        return px_fail(PX_WRONG_ARGUMENT, "%s_shape is NULL: it has the %d extents of the array", box->name, box->rank);
    if (strides != NULL && strides[box->rank - 1] != 1)
        return px_fail(PX_WRONG_ARGUMENT, "%s_strides[%d] is %llu: a tensor map needs the last dimension contiguous, a stride of 1",
                       box->name, box->rank - 1, (unsigned long long)strides[box->rank - 1]);
    for (i = 0; i < box->rank; ++i) {       /* i counts from the contiguous dimension */
        int axis = box->rank - 1 - i;
        uint64_t stride = strides ? strides[axis] : step;
        if (shape[axis] < 1 || shape[axis] > (uint64_t)1 << 32)
            return px_fail(PX_WRONG_ARGUMENT, "%s_shape[%d] is %llu: an extent is between 1 and 2^32", box->name, axis,
                           (unsigned long long)shape[axis]);
        if (stride >= most / (unsigned)box->bytes || (i && stride * (unsigned)box->bytes % 16))
            return px_fail(PX_WRONG_ARGUMENT, "%s: the stride of dimension %d is %llu elements of %d bytes: it must be a multiple of 16 "
                           "bytes below 2^40 (pad the rows to 16 bytes)", box->name, axis, (unsigned long long)stride, box->bytes);
        dims[i] = shape[axis];
        if (i)
            bytes[i - 1] = stride * (unsigned)box->bytes;
        step = stride > most / shape[axis] ? most : stride * shape[axis];
    }
    result = px_driver.encode(*place, box->type, (uint32_t)box->rank, data, dims, bytes, box->box, ones, 0, box->swizzle, box->promotion, 0);
    if (result)
        return px_fail(PX_REFUSED, "the driver cannot encode the tensor map of %s: %s", box->name, px_words(result));
    return PX_OK;
}
