/* ---- pointers ---- */

static int px_aligned(const char *name, const void *pointer, unsigned bytes)
{
    if ((uintptr_t)pointer % bytes)
        return px_fail(PX_WRONG_ARGUMENT, "%s is at the address %p, which is not a multiple of %u bytes", name, pointer, bytes);
    return PX_OK;
}
