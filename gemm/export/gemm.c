/* ---- products: the grid, the arguments and the tensor maps of a configuration, as ptxkit.gemm makes them ---- */

enum {
    PX_CONSTANT, PX_M, PX_N, PX_K, PX_M_TILES, PX_N_TILES, PX_K_TILES, PX_LINE, PX_PANEL, PX_BATCH, PX_A, PX_A_LINE, PX_A_INNER, PX_B,
    PX_B_LINE, PX_B_INNER, PX_D, PX_LDD, PX_A_SCALE, PX_B_SCALE, PX_A_SCALE_LD, PX_A_SCALE_MN, PX_B_SCALE_LD, PX_B_SCALE_K, PX_COUNTERS,
    PX_SUMS, PX_CURVE, PX_COPY, PX_MAP_A, PX_MAP_B, PX_MAP_D, PX_MAP_A_SCALE
};
enum { PX_STATIC, PX_DYNAMIC, PX_SPLIT_IN_CLUSTER, PX_SPLIT_IN_WORKSPACE, PX_STREAM_K };
enum { PX_MOST_ARGUMENTS = 64, PX_MOST_DEVICES = 16, PX_WORKSPACE_UNIT = 16, PX_MOST_CURVES = 64, PX_MOST_PLACES = 65536,
       PX_COPY_UNIT = 256, PX_MULTIPROCESSORS = 16 };

typedef struct { int what; uint64_t constant; } px_argument;    /* a parameter of a kernel: where its value comes from */

typedef struct {
    int type, padded;                       /* an enumerator of the header; block scales of A on lines of 16 bytes */
    uint64_t n, k;
    int m_is_fast, n_is_fast;               /* A is read as [K, M], B as [K, N] */
    int a_turned, b_turned;                 /* the caller's A or B has these extents the other way round, one of which is 1 */
    int a_across, b_across;                 /* tiles of A or B go across its lines */
    int bytes, out_bytes;                   /* of an element of A and B, and of D */
    int block_scales, scales;
} px_layer;

typedef struct {                            /* a kernel before a product, which copies A or B to lines that tensor copies can load */
    px_kernel *kernel;
    const px_argument *arguments;
    uint32_t count;
    int of_b;
    uint64_t bytes, pitch, ctas;
} px_copy;

typedef struct {
    px_kernel *kernel;
    const px_argument *arguments;
    uint32_t count;                         /* of them */
    const px_copy *copies;
    uint32_t copies_count;
    const px_box *a, *b, *d, *a_scale;      /* NULL: the kernel copies nothing through such a map */
    uint32_t bm, bn, bk, cluster_m, cluster_n, splits, panel, along_m, warpgroups, most_rows, a_unit, b_unit, d_unit, scale_unit, swap_ab;
    int scheduler, hilbert;
    const char *words;
    int clusters[PX_MOST_DEVICES];          /* that a device holds at once, where that is known */
} px_plan;

typedef struct { uint64_t most; int plan; } px_choice;          /* up to so many rows */
typedef struct { px_layer layer; const px_choice *choices; int count; } px_table;

typedef struct {
    uint64_t m;
    const void *a, *b;
    void *d;
    uint64_t lda, ldb, ldd;
    const void *a_scale, *b_scale;
    uint64_t a_scale_ld;
    void *workspace;
    uint64_t workspace_bytes;
} px_product;

typedef struct { uint64_t m_tiles, n_tiles, k_tiles, rows, columns, ctas, workspace, curve, copies[2]; } px_grid;

static uint64_t px_ceil(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }
static uint64_t px_least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t px_most(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Makes a plan's kernel ready, and says how many of its clusters the thread's device holds at once. */
static int px_clusters(px_plan *plan, uint64_t *clusters, int *on)
{
    const px_kernel *kernel = plan->kernel;
    px_attribute attributes[2];
    px_config config = px_configured(kernel, kernel->cluster, 0, NULL, attributes);
    int found = 0, device = -1, result, status = px_ready_on(plan->kernel, &device);
    *on = device;
    if (status != PX_OK)
        return status;
    if (device < PX_MOST_DEVICES) {
        pthread_mutex_lock(&px_lock);
        found = plan->clusters[device];
        pthread_mutex_unlock(&px_lock);
    }
    if (found > 0) {
        *clusters = (uint64_t)found;
        return PX_OK;
    }
    attributes[0].id = PX_CLUSTER_DIMENSION;
    memcpy(attributes[0].value, kernel->cluster, sizeof kernel->cluster);
    config.count = 1;
    result = px_driver.max_clusters(&found, kernel->kernel, &config);
    if (result)
        return px_fail(PX_REFUSED, "the driver does not say how many CTAs of %s the device holds: %s", kernel->entry, px_words(result));
    if (found < 1)
        return px_fail(PX_WRONG_DEVICE, "the device holds no cluster of %s (%s)", kernel->entry, plan->words);
    *clusters = (uint64_t)found;
    if (device < PX_MOST_DEVICES) {
        pthread_mutex_lock(&px_lock);
        plan->clusters[device] = found;
        pthread_mutex_unlock(&px_lock);
    }
    return PX_OK;
}

/* The persistent grid on a device that holds so many clusters, and the bytes of its workspace. */
static int px_gridded(const px_layer *layer, const px_plan *plan, uint64_t m, uint64_t clusters, px_grid *grid)
{
    const int spread = plan->scheduler == PX_SPLIT_IN_WORKSPACE, streams = plan->scheduler == PX_STREAM_K;
    const uint64_t cluster = plan->kernel->cluster[0], tile = (uint64_t)plan->bm * plan->bn * 4;
    uint64_t whole, count, resident;
    uint32_t i;
    if (m < 1 || m > (uint64_t)1 << 31)
        return px_fail(PX_WRONG_ARGUMENT, "m is %llu: it is between 1 and 2^31", (unsigned long long)m);
    if (plan->most_rows && m > plan->most_rows)
        return px_fail(PX_WRONG_ARGUMENT, "m is %llu, and the largest configuration here is for %u rows: export it for more",
                       (unsigned long long)m, (unsigned)plan->most_rows);
    grid->m_tiles = px_ceil(plan->swap_ab ? layer->n : m, plan->bm);
    grid->n_tiles = px_ceil(plan->swap_ab ? m : layer->n, plan->bn);
    grid->k_tiles = px_ceil(layer->k, plan->bk);
    grid->rows = px_ceil(grid->m_tiles, plan->cluster_m);
    grid->columns = px_ceil(grid->n_tiles, plan->cluster_n);
    whole = grid->rows * grid->columns;
    count = whole * (spread ? plan->splits : 1);
    resident = px_least(count, px_most(clusters, spread ? plan->splits : 1));
    if (plan->scheduler == PX_SPLIT_IN_CLUSTER)
        resident = count;
    if (streams)
        resident = px_most(1, px_least(clusters, px_most(whole, whole * grid->k_tiles / PX_MIN_STAGES_OF_PART)));
    if (count >= (uint64_t)1 << 31 || resident * cluster > 2147483647u || (spread && whole * cluster * plan->warpgroups * 4 > PX_COUNTER_BYTES)
        || (streams && resident * cluster * plan->warpgroups * 4 > PX_COUNTER_BYTES))
        return px_fail(PX_WRONG_ARGUMENT, "m is %llu, which are too many tiles for this configuration (%s): export it for more rows",
                       (unsigned long long)m, plan->words);
    grid->curve = 0;
    grid->ctas = resident * cluster;
    grid->workspace = spread || streams || plan->scheduler == PX_DYNAMIC ? PX_COUNTER_BYTES : 0;
    grid->workspace += (spread ? whole * cluster * plan->splits : streams ? grid->ctas : 0) * tile;
    for (i = 0; i < plan->copies_count; ++i) {
        grid->copies[i] = px_ceil(px_most(grid->workspace, PX_COUNTER_BYTES), PX_COPY_UNIT) * PX_COPY_UNIT;
        grid->workspace = grid->copies[i] + plan->copies[i].bytes;
    }
    return PX_OK;
}

/* The order of a grid's cluster tiles along a Hilbert curve, each as row << 16 | column, through squares along the longer axis. */
static void px_hilbert(uint64_t rows, uint64_t columns, uint32_t *order)
{
    const uint64_t narrow = px_least(rows, columns), far = px_most(rows, columns);
    uint64_t side = 1, block, index;
    while (side < narrow)
        side *= 2;
    for (block = 0; block * side < far; ++block)
        for (index = 0; index < side * side; ++index) {
            uint64_t x = 0, y = 0, scale, bits = index;
            for (scale = 1; scale < side; scale *= 2, bits >>= 2) {     /* from (0, 0) to (side - 1, 0) */
                const uint64_t right = bits >> 1 & 1, up = (bits ^ bits >> 1) & 1, old = x;
                if (!up) {
                    x = right ? scale - 1 - y : y;
                    y = right ? scale - 1 - old : old;
                }
                x += scale * right;
                y += scale * up;
            }
            x += block * side;
            if (y < narrow && x < far)
                *order++ = (uint32_t)(rows == narrow ? y << 16 | x : x << 16 | y);
        }
}

/* The address of the table of a curve on a device. A table is made once and stays allocated. */
static int px_curve(int device, px_grid *grid)
{
    static struct { int device; uint64_t rows, columns, address; } known[PX_MOST_CURVES];
    static int count = 0;
    const uint64_t places = grid->rows * grid->columns;
    uint32_t *order;
    int i, result = 0;
    if (px_most(grid->rows, grid->columns) > PX_MOST_PLACES)
        return px_fail(PX_WRONG_ARGUMENT, "a curve goes through at most %d rows and columns of tiles", PX_MOST_PLACES);
    pthread_mutex_lock(&px_lock);
    for (i = 0; i < count && !grid->curve; ++i)
        if (known[i].device == device && known[i].rows == grid->rows && known[i].columns == grid->columns)
            grid->curve = known[i].address;
    if (!grid->curve && count < PX_MOST_CURVES && (order = (uint32_t *)malloc(places * sizeof *order)) != NULL) {
        px_hilbert(grid->rows, grid->columns, order);
        result = px_driver.allocate(&grid->curve, places * sizeof *order);
        if (!result)
            result = px_driver.copy(grid->curve, order, places * sizeof *order);
        free(order);
        if (!result) {
            known[count].device = device;
            known[count].rows = grid->rows;
            known[count].columns = grid->columns;
            known[count++].address = grid->curve;
        }
    }
    pthread_mutex_unlock(&px_lock);
    if (result)
        return px_fail(PX_REFUSED, "the driver has no memory for the order of %llu tiles: %s", (unsigned long long)places,
                       px_words(result));
    if (!grid->curve)
        return px_fail(PX_REFUSED, "there is no memory for the order of %llu tiles, or there are more than %d such orders",
                       (unsigned long long)places, PX_MOST_CURVES);
    return PX_OK;
}

static int px_line(const char *name, const void *pointer, uint64_t ld, uint64_t least, unsigned bytes, unsigned unit)
{
    if (pointer == NULL)
        return px_fail(PX_WRONG_ARGUMENT, "%s is NULL", name);
    if ((uintptr_t)pointer % unit)
        return px_fail(PX_WRONG_ARGUMENT, "%s is at the address %p, which is not a multiple of %u bytes", name, pointer, unit);
    if (ld < least || ld >= (uint64_t)1 << 32)
        return px_fail(PX_WRONG_ARGUMENT, "ld%s is %llu: lines have %llu elements", name, (unsigned long long)ld, (unsigned long long)least);
    if (ld * bytes % unit)
        return px_fail(PX_WRONG_ARGUMENT, "ld%s is %llu elements of %u bytes: lines must begin at multiples of %u bytes (pad them)", name,
                       (unsigned long long)ld, bytes, unit);
    return PX_OK;
}

/* The leading dimension of lines without gaps; a single line has any, and counts as padded to 16 bytes. */
static uint64_t px_alone(uint64_t inner, int single, unsigned bytes)
{
    return single ? px_ceil(inner * bytes, 16) * 16 / bytes : inner;
}

/* Fails if d shares bytes with an operand of `lines` lines of `inner` elements: certainly, if both have the same distance from line to line,
   or no gaps; what else lies among one another is the caller's to know. */
static int px_apart(const px_layer *layer, const px_product *product, const char *name, const void *other, uint64_t ld, uint64_t inner,
                    uint64_t lines)
{
    const uint64_t d = (uintptr_t)product->d, at = (uintptr_t)other, out = (uint64_t)layer->out_bytes, bytes = (uint64_t)layer->bytes;
    const uint64_t d_pitch = product->ldd * out, d_width = layer->n * out, pitch = ld * bytes, width = inner * bytes;
    const uint64_t d_end = d + (product->m - 1) * d_pitch + d_width, end = at + (lines - 1) * pitch + width;
    const uint64_t past = d_pitch && at >= d ? (at - d) % d_pitch : d_pitch ? (d_pitch - (d - at) % d_pitch) % d_pitch : 0;
    const int gapless = (product->m == 1 || d_pitch == d_width) && (lines == 1 || pitch == width);
    if (d >= end || at >= d_end || !(gapless || (pitch == d_pitch && (past < d_width || past + width > d_pitch))))
        return PX_OK;
    return px_fail(PX_WRONG_ARGUMENT, "d and %s share memory: a launch writes d in no fixed order while it reads %s; give d memory of its own",
                   name, name);
}

/* What is read along the other extent lies without gaps, whatever the caller calls a line of it. `lines`: those of the caller. */
static int px_turned(const char *name, int turned, uint64_t lines, uint64_t *ld)
{
    if (turned && lines > 1 && *ld > 1)
        return px_fail(PX_WRONG_ARGUMENT, "ld%s is %llu: this product reads lines of one element that lie without gaps (0 or 1)", name,
                       (unsigned long long)*ld);
    *ld = turned ? 0 : *ld;
    return PX_OK;
}

/* Leading dimensions of 0 are those of lines without gaps; those of a single line do not matter. Fails for what the configuration cannot take. */
static int px_checked(const px_layer *layer, const px_plan *plan, px_product *product)
{
    const uint64_t a_inner = layer->m_is_fast ? product->m : layer->k, b_inner = layer->n_is_fast ? layer->n : layer->k;
    const uint64_t depth = px_ceil(layer->k, 128);
    const unsigned bytes = (unsigned)layer->bytes, out = (unsigned)layer->out_bytes;
    int status = px_turned("a", layer->a_turned, layer->m_is_fast ? product->m : layer->k, &product->lda);
    if (status == PX_OK)
        status = px_turned("b", layer->b_turned, layer->n_is_fast ? layer->n : layer->k, &product->ldb);
    if (status != PX_OK)
        return status;
    if (!product->lda || (layer->m_is_fast ? layer->k : product->m) == 1)
        product->lda = px_alone(a_inner, (layer->m_is_fast ? layer->k : product->m) == 1, bytes);
    if (!product->ldb || (layer->n_is_fast ? layer->k : layer->n) == 1)
        product->ldb = px_alone(b_inner, (layer->n_is_fast ? layer->k : layer->n) == 1, bytes);
    if (!product->ldd || product->m == 1)
        product->ldd = layer->n;
    status = px_line("a", product->a, product->lda, a_inner, bytes, plan->a_unit);
    if (status == PX_OK)
        status = px_line("b", product->b, product->ldb, b_inner, bytes, plan->b_unit);
    if (status == PX_OK)
        status = px_line("d", product->d, product->ldd, layer->n, out, plan->d_unit);
    if (status == PX_OK)
        status = px_apart(layer, product, "a", product->a, product->lda, a_inner, layer->m_is_fast ? layer->k : product->m);
    if (status == PX_OK)
        status = px_apart(layer, product, "b", product->b, product->ldb, b_inner, layer->n_is_fast ? layer->k : layer->n);
    if (status == PX_OK && layer->scales && ((uintptr_t)product->a_scale % 4 || (uintptr_t)product->b_scale % 4
                                             || product->a_scale == NULL || product->b_scale == NULL))
        return px_fail(PX_WRONG_ARGUMENT, "a_scale and b_scale are addresses of float32 numbers on the device");
    if (status == PX_OK && layer->block_scales) {
        if (!product->a_scale_ld)
            product->a_scale_ld = product->m;
        if (product->a_scale_ld < product->m || product->a_scale_ld * depth >= (uint64_t)1 << 32)
            return px_fail(PX_WRONG_ARGUMENT, "a_scale_ld is %llu: it is at least m, %llu", (unsigned long long)product->a_scale_ld,
                           (unsigned long long)product->m);
        if ((uintptr_t)product->a_scale % plan->scale_unit || product->a_scale_ld * 4 % plan->scale_unit
            || (uintptr_t)product->b_scale % plan->scale_unit)
            return px_fail(PX_WRONG_ARGUMENT, "a_scale, its lines of a_scale_ld elements and b_scale must begin at multiples of %u bytes",
                           (unsigned)plan->scale_unit);
    }
    return status;
}

/* The step from one of `count` to the next; 0 where there is no next. */
static uint64_t px_along(uint64_t count, uint64_t step)
{
    return count > 1 ? step : 0;
}

static uint64_t px_value(const px_layer *layer, const px_plan *plan, const px_product *product, const px_grid *grid,
                         const px_argument *argument)
{
    const uint64_t lines = plan->along_m ? grid->rows : grid->columns, across = plan->along_m ? grid->columns : grid->rows;
    switch (argument->what) {
    case PX_M: return product->m;
    case PX_N: return layer->n;
    case PX_K: return layer->k;
    case PX_M_TILES: return grid->m_tiles;
    case PX_N_TILES: return grid->n_tiles;
    case PX_K_TILES: return grid->k_tiles;
    case PX_LINE: return 0xFFFFFFFFu / across;
    case PX_PANEL: return 0xFFFFFFFFu / ((lines - 1) % plan->panel + 1);
    case PX_BATCH: return 0xFFFFFFFFu / (grid->rows * grid->columns);
    case PX_A: return (uintptr_t)product->a;
    case PX_A_LINE: return layer->a_across ? px_along(product->m, 1) : product->lda;
    case PX_A_INNER: return layer->a_across ? px_along(layer->k, product->lda) : 1;
    case PX_B: return (uintptr_t)product->b;
    case PX_B_LINE: return layer->b_across ? px_along(layer->n, 1) : product->ldb;
    case PX_B_INNER: return layer->b_across ? px_along(layer->k, product->ldb) : 1;
    case PX_D: return (uintptr_t)product->d;
    case PX_LDD: return px_along(product->m, product->ldd);
    case PX_A_SCALE: return (uintptr_t)product->a_scale;
    case PX_B_SCALE: return (uintptr_t)product->b_scale;
    case PX_A_SCALE_LD: return px_along(px_ceil(layer->k, 128), product->a_scale_ld);
    case PX_A_SCALE_MN: return px_along(product->m, 1);
    case PX_B_SCALE_LD: return px_along(px_ceil(layer->n, 128), px_ceil(layer->k, 128));
    case PX_B_SCALE_K: return px_along(px_ceil(layer->k, 128), 1);
    case PX_COUNTERS: return grid->workspace ? (uintptr_t)product->workspace : 0;
    case PX_CURVE: return grid->curve;
    case PX_SUMS: return grid->workspace ? (uintptr_t)product->workspace + PX_COUNTER_BYTES : 0;
    default: return argument->constant;
    }
}

static int px_mapped(uint64_t *room, void **place, const px_box *box, const void *data, uint64_t inner, uint64_t outer, uint64_t ld)
{
    uint64_t shape[2], strides[2];
    shape[0] = outer;
    shape[1] = inner;
    strides[0] = ld;
    strides[1] = 1;
    return px_encode(room, place, box, (void *)(uintptr_t)data, shape, strides);
}

/* Launches the kernels that copy operands into the workspace. */
static int px_copied(const px_layer *layer, const px_plan *plan, const px_product *product, const px_grid *grid, int device, void *stream)
{
    uint64_t values[PX_MOST_ARGUMENTS];
    void *arguments[PX_MOST_ARGUMENTS];
    uint32_t i, j, ctas[3] = {0, 1, 1};
    int processors = 0, status = PX_OK, result;
    for (i = 0; i < plan->copies_count && status == PX_OK; ++i) {
        const px_copy *copy = &plan->copies[i];
        result = px_driver.device_attribute(&processors, PX_MULTIPROCESSORS, device);
        if (result)
            return px_fail(PX_REFUSED, "device %d does not say how many SMs it has: %s", device, px_words(result));
        status = px_ready(copy->kernel);
        for (j = 0; j < copy->count; ++j) {
            values[j] = copy->arguments[j].what == PX_COPY ? (uintptr_t)product->workspace + grid->copies[i]
                                                           : px_value(layer, plan, product, grid, &copy->arguments[j]);
            arguments[j] = &values[j];
        }
        ctas[0] = (uint32_t)px_least(copy->ctas, PX_COPY_CTAS * (uint64_t)processors);
        if (status == PX_OK)
            status = px_launch(copy->kernel, ctas, arguments, 1, stream);
    }
    return status;
}

/* Launches a product. */
static int px_run(const px_layer *layer, px_plan *plan, px_product product, void *stream)
{
    uint64_t rooms[4][PX_ROOM], values[PX_MOST_ARGUMENTS], clusters = 0;
    uint32_t ctas[3] = {0, 1, 1}, i;
    void *arguments[PX_MOST_ARGUMENTS], *maps[4] = {NULL, NULL, NULL, NULL}, *first = NULL;
    const void *a, *b;
    uint64_t lda, ldb;
    px_grid grid;
    int device = -1, status = px_clusters(plan, &clusters, &device);
    if (status == PX_OK)
        status = px_gridded(layer, plan, product.m, clusters, &grid);
    if (status == PX_OK && plan->hilbert)
        status = px_curve(device, &grid);
    if (status == PX_OK)
        status = px_checked(layer, plan, &product);
    if (status != PX_OK)
        return status;
    if (grid.workspace && (product.workspace == NULL || (uintptr_t)product.workspace % PX_WORKSPACE_UNIT
                           || product.workspace_bytes < grid.workspace))
        return px_fail(PX_WRONG_ARGUMENT, "the workspace has %llu bytes at %p: this product needs %llu at a multiple of %d",
                       (unsigned long long)product.workspace_bytes, product.workspace, (unsigned long long)grid.workspace,
                       PX_WORKSPACE_UNIT);
    a = product.a;
    b = product.b;
    lda = product.lda;
    ldb = product.ldb;
    for (i = 0; i < plan->copies_count; ++i) {
        const void *copy = (const void *)((uintptr_t)product.workspace + grid.copies[i]);
        if (plan->copies[i].of_b) {
            b = copy;
            ldb = plan->copies[i].pitch / (unsigned)layer->bytes;
        } else {
            a = copy;
            lda = plan->copies[i].pitch / (unsigned)layer->bytes;
        }
    }
    if (plan->a)
        status = px_mapped(rooms[0], &maps[0], plan->a, a, layer->m_is_fast != layer->a_across ? product.m : layer->k,
                           layer->m_is_fast != layer->a_across ? layer->k : product.m, lda);
    if (status == PX_OK && plan->b)
        status = px_mapped(rooms[1], &maps[1], plan->b, b, layer->n_is_fast != layer->b_across ? layer->n : layer->k,
                           layer->n_is_fast != layer->b_across ? layer->k : layer->n, ldb);
    if (status == PX_OK && plan->d)
        status = px_mapped(rooms[2], &maps[2], plan->d, product.d, layer->n, product.m, product.ldd);
    if (status == PX_OK && plan->a_scale)
        status = px_mapped(rooms[3], &maps[3], plan->a_scale, product.a_scale, product.m, px_ceil(layer->k, 128), product.a_scale_ld);
    if (status == PX_OK)
        status = px_copied(layer, plan, &product, &grid, device, stream);
    if (status != PX_OK)
        return status;
    for (i = 4; i-- > 0;)
        first = maps[i] ? maps[i] : first;
    if (plan->swap_ab)                                      /* the kernel's first map is that of b */
        first = maps[1];
    if (first == NULL) {                                    /* a kernel reads no map that it copies nothing through */
        memset(rooms[0], 0, sizeof rooms[0]);
        first = (void *)(((uintptr_t)rooms[0] + 63) / 64 * 64);
    }
    for (i = 0; i < plan->count; ++i) {
        const int map = plan->arguments[i].what - PX_MAP_A;
        if (map >= 0) {
            arguments[i] = maps[map] ? maps[map] : first;
            continue;
        }
        values[i] = px_value(layer, plan, &product, &grid, &plan->arguments[i]);
        arguments[i] = &values[i];                          /* little-endian: the first bytes are the narrower value */
    }
    ctas[0] = (uint32_t)grid.ctas;
    return px_launch(plan->kernel, ctas, arguments, 1, stream);
}

/* The bytes of workspace that a product needs on the thread's device. */
static int px_needs(const px_layer *layer, px_plan *plan, uint64_t m, uint64_t *bytes)
{
    uint64_t clusters = 0;
    px_grid grid;
    int device = -1, status = bytes == NULL ? px_fail(PX_WRONG_ARGUMENT, "bytes is NULL: it is where the size of the workspace goes") : PX_OK;
    if (status == PX_OK)
        status = px_clusters(plan, &clusters, &device);
    if (status == PX_OK)
        status = px_gridded(layer, plan, m, clusters, &grid);
    if (status == PX_OK && plan->hilbert)
        status = px_curve(device, &grid);
    if (status == PX_OK)
        *bytes = grid.workspace;
    return status;
}

/* Loads a plan's kernels for the thread's current context. */
static int px_loaded(const px_plan *plan)
{
    uint32_t i;
    int status = px_ready(plan->kernel);
    for (i = 0; i < plan->copies_count && status == PX_OK; ++i)
        status = px_ready(plan->copies[i].kernel);
    return status;
}

/* Clears the counters at the start of a workspace: once, before its first product. */
static int px_prepare(px_kernel *kernel, void *workspace, uint64_t bytes, void *stream)
{
    int status = px_ready(kernel), result;
    if (status != PX_OK || bytes == 0)
        return status;
    if (workspace == NULL)
        return px_fail(PX_WRONG_ARGUMENT, "the workspace is NULL, and %llu bytes are to be prepared", (unsigned long long)bytes);
    result = px_driver.clear((uint64_t)(uintptr_t)workspace, 0, px_least(bytes, PX_COUNTER_BYTES), stream);
    return result ? px_fail(PX_REFUSED, "the driver does not clear the workspace: %s", px_words(result)) : PX_OK;
}
