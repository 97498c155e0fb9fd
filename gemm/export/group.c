/* ---- group products: the grid, the arguments and the tensor maps of a configuration, as ptxkit.gemm.group_gemm makes them ---- */

enum {
    PXG_CONSTANT, PXG_ROWS, PXG_OUT, PXG_OUT_ROW, PXG_LENGTHS, PXG_X_SCALE, PXG_X_SCALE_LD, PXG_W_SCALE, PXG_WORKSPACE, PXG_MAP_X,
    PXG_MAP_W, PXG_MAP_Y, PXG_MAP_X_SCALE, PXG_MAP_W_SCALE, PXG_MAP_X_TAIL, PXG_MAPS = 6
};

typedef struct {
    int type, gated;
    uint64_t groups, n, k;                  /* N: columns of Y; W has twice as many rows a group where it is gated */
    int bytes, out_bytes, block_scales, scales;
} px_group_layer;

typedef struct {
    px_plan base;                           /* of which the kernel, its arguments and what the device holds are used */
    const px_box *maps[PXG_MAPS];
    uint64_t tile_tokens, weight_tiles;     /* rows of Y that a cluster has, and clusters along N */
    int ragged, second, d_unit;             /* Y as a map of overlapping blocks; the number of the second kernel, or -1 */
    int sharing;                            /* the most CTAs of a tile; 1 where each has tiles of its own */
    uint64_t workspace;
} px_group_plan;

typedef struct { px_group_layer layer; const px_choice *choices; int count; } px_group_table;

typedef struct {
    uint64_t rows;
    const void *x, *w;
    void *y;
    const void *lengths, *x_scale, *w_scale;
    uint64_t ldx, ldy, x_scale_ld;
    void *workspace;
    uint64_t workspace_bytes;
} px_group;

enum { PX_RAGGED_ROWS = 64 };

static uint64_t px_common(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The CTAs of a launch: the same number, of whole clusters, for each kernel of the configuration. */
static int px_group_ctas(const px_group_layer *layer, px_group_plan *plans, int first, uint64_t rows, uint32_t *ctas)
{
    uint64_t size = 1, wanted = 0, held = 0;
    int number, device = -1, processors = 0, status, result;
    for (number = first; number >= 0; number = plans[number].second) {
        const uint64_t cluster = plans[number].base.kernel->cluster[0];
        const uint64_t tiles = (rows / plans[number].tile_tokens + px_least(layer->groups, rows)) * plans[number].weight_tiles;
        uint64_t clusters = 0;
        status = px_clusters(&plans[number].base, &clusters, &device);
        if (status != PX_OK)
            return status;
        if (number == first) {
            result = px_driver.device_attribute(&processors, PX_MULTIPROCESSORS, device);
            if (result)
                return px_fail(PX_REFUSED, "device %d does not say how many SMs it has: %s", device, px_words(result));
            held = (uint64_t)processors;
        }
        held = px_least(held, clusters * cluster);
        size = size / px_common(size, cluster) * cluster;
        wanted = px_most(wanted, tiles * cluster * (unsigned)plans[number].sharing);
    }
    *ctas = (uint32_t)(px_least(px_ceil(wanted, size), px_most(1, held / size)) * size);
    return PX_OK;
}

static int px_group_checked(const px_group_layer *layer, const px_group_plan *plan, px_group *group)
{
    const uint64_t depth = px_ceil(layer->k, 128);
    int status;
    if (group->rows < 1 || group->rows >= (uint64_t)1 << 31)
        return px_fail(PX_WRONG_ARGUMENT, "rows is %llu: it is between 1 and 2^31", (unsigned long long)group->rows);
    if (!group->ldx || group->rows == 1)
        group->ldx = layer->k;
    if (!group->ldy || group->rows == 1)
        group->ldy = layer->n;
    status = px_line("x", group->x, group->ldx, layer->k, (unsigned)layer->bytes, 16);
    if (status == PX_OK)
        status = px_line("w", group->w, layer->k, layer->k, (unsigned)layer->bytes, 16);
    if (status == PX_OK)
        status = px_line("y", group->y, group->ldy, layer->n, (unsigned)layer->out_bytes, (unsigned)plan->d_unit);
    if (status != PX_OK)
        return status;
    if (group->lengths == NULL || (uintptr_t)group->lengths % 4)
        return px_fail(PX_WRONG_ARGUMENT, "cu_seqlens is an address of int32 numbers on the device");
    if (layer->scales && (group->x_scale == NULL || group->w_scale == NULL || (uintptr_t)group->x_scale % 4
                          || (uintptr_t)group->w_scale % 4))
        return px_fail(PX_WRONG_ARGUMENT, "x_scale and w_scale are addresses of float32 numbers on the device");
    if (!layer->block_scales)
        return PX_OK;
    if (!group->x_scale_ld)
        group->x_scale_ld = px_ceil(group->rows, 4) * 4;
    if (group->x_scale_ld < group->rows || group->x_scale_ld * depth >= (uint64_t)1 << 32)
        return px_fail(PX_WRONG_ARGUMENT, "x_scale_ld is %llu: it is at least rows, %llu", (unsigned long long)group->x_scale_ld,
                       (unsigned long long)group->rows);
    if ((uintptr_t)group->x_scale % 16 || (uintptr_t)group->w_scale % 16 || group->x_scale_ld % 4)
        return px_fail(PX_WRONG_ARGUMENT, "x_scale, its lines of x_scale_ld elements and w_scale must begin at multiples of 16 bytes");
    return PX_OK;
}

static int px_group_mapped(const px_group_layer *layer, const px_group_plan *plan, const px_group *group, int map, uint64_t *room,
                           void **place)
{
    const uint64_t lines = layer->n * (layer->gated ? 2 : 1), depth = px_ceil(layer->k, 128);
    uint64_t shape[5], strides[5];
    const void *data = group->x;
    strides[0] = 1;
    switch (map + PXG_MAP_X) {
    case PXG_MAP_X: case PXG_MAP_X_TAIL:
        shape[0] = group->rows, shape[1] = layer->k;
        strides[0] = group->ldx, strides[1] = 1;
        break;
    case PXG_MAP_W:
        data = group->w;
        if (layer->gated) {
            shape[0] = layer->groups, shape[1] = 2, shape[2] = layer->n, shape[3] = layer->k;
            strides[0] = lines * layer->k, strides[1] = layer->n * layer->k, strides[2] = layer->k, strides[3] = 1;
        } else {
            shape[0] = layer->groups, shape[1] = layer->n, shape[2] = layer->k;
            strides[0] = lines * layer->k, strides[1] = layer->k, strides[2] = 1;
        }
        break;
    case PXG_MAP_Y:
        data = group->y;
        if (plan->ragged) {                 /* begins before Y; no copy has coordinates there */
            data = (const void *)((uintptr_t)data - PX_RAGGED_ROWS * group->ldy * (unsigned)layer->out_bytes);
            shape[0] = group->rows + 1, shape[1] = PX_RAGGED_ROWS, shape[2] = layer->n;
            strides[0] = group->ldy, strides[1] = group->ldy, strides[2] = 1;
        } else {
            shape[0] = group->rows, shape[1] = layer->n;
            strides[0] = group->ldy, strides[1] = 1;
        }
        break;
    case PXG_MAP_X_SCALE:
        data = group->x_scale;
        shape[0] = depth, shape[1] = group->rows;
        strides[0] = group->x_scale_ld, strides[1] = 1;
        break;
    default:
        data = group->w_scale;
        shape[0] = layer->groups * px_ceil(lines, 128) * depth;
    }
    return px_encode(room, place, plan->maps[map], (void *)(uintptr_t)data, shape, strides);
}

/* Launches the kernels of a group product. */
static int px_group_run(const px_group_layer *layer, px_group_plan *plans, int first, px_group group, void *stream)
{
    uint64_t rooms[PXG_MAPS][PX_ROOM], values[PX_MOST_ARGUMENTS];
    uint32_t ctas[3] = {0, 1, 1}, i;
    void *arguments[PX_MOST_ARGUMENTS];
    int number, status = px_group_ctas(layer, plans, first, group.rows, &ctas[0]);
    if (status == PX_OK)
        status = px_group_checked(layer, &plans[first], &group);
    for (number = first; number >= 0 && status == PX_OK; number = plans[number].second) {
        const px_group_plan *plan = &plans[number];
        void *maps[PXG_MAPS] = {NULL, NULL, NULL, NULL, NULL, NULL}, *other = NULL;
        int map;
        if (plan->workspace && (group.workspace == NULL || (uintptr_t)group.workspace % PX_WORKSPACE_UNIT
                                || group.workspace_bytes < plan->workspace))
            return px_fail(PX_WRONG_ARGUMENT, "the workspace has %llu bytes at %p: this product needs %llu at a multiple of %d",
                           (unsigned long long)group.workspace_bytes, group.workspace, (unsigned long long)plan->workspace,
                           PX_WORKSPACE_UNIT);
        if (plan->ragged && (uintptr_t)group.y < PX_RAGGED_ROWS * group.ldy * (unsigned)layer->out_bytes)
            return px_fail(PX_WRONG_ARGUMENT, "ldy is %llu: the address %d rows before y is negative", (unsigned long long)group.ldy,
                           PX_RAGGED_ROWS);
        for (map = PXG_MAPS; map-- > 0 && status == PX_OK;)
            if (plan->maps[map]) {
                status = px_group_mapped(layer, plan, &group, map, rooms[map], &maps[map]);
                other = maps[map];
            }
        for (i = 0; i < plan->base.count && status == PX_OK; ++i) {
            const px_argument *argument = &plan->base.arguments[i];
            values[i] = argument->constant;
            arguments[i] = &values[i];
            switch (argument->what) {
            case PXG_CONSTANT: break;
            case PXG_ROWS: values[i] = group.rows; break;
            case PXG_OUT: values[i] = (uintptr_t)group.y; break;
            case PXG_OUT_ROW: values[i] = group.ldy; break;
            case PXG_LENGTHS: values[i] = (uintptr_t)group.lengths; break;
            case PXG_X_SCALE: values[i] = (uintptr_t)group.x_scale; break;
            case PXG_X_SCALE_LD: values[i] = group.x_scale_ld; break;
            case PXG_W_SCALE: values[i] = (uintptr_t)group.w_scale; break;
            case PXG_WORKSPACE: values[i] = plan->workspace ? (uintptr_t)group.workspace : 0; break;
            default: arguments[i] = maps[argument->what - PXG_MAP_X] ? maps[argument->what - PXG_MAP_X] : other;
            }
        }
        if (status == PX_OK)
            status = px_launch(plan->base.kernel, ctas, arguments, 1, stream);
    }
    return status;
}
