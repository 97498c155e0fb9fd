/* ---- which configuration a product gets ---- */

/* The table of a product and the number of its plan; -1 with a sentence. */
static int px_find(const NAME_product *product, const px_table **table)
{
    uint64_t line;
    int i, j, padded, other = 0;
    if (product == NULL) {
        px_fail(PX_WRONG_ARGUMENT, "product is NULL");
        return -1;
    }
    line = product->a_scale_ld ? product->a_scale_ld : product->m;
    padded = line % 4 == 0;
    for (i = 0; i < (int)(sizeof px_tables / sizeof *px_tables); ++i) {
        const px_table *each = &px_tables[i];
        const px_layer *layer = &each->layer;
        if (layer->type != product->type || layer->n != product->n || layer->k != product->k)
            continue;
        other |= layer->block_scales;
        if (layer->block_scales && (layer->padded != padded || (!padded && product->m > each->choices[each->count - 1].most)))
            continue;
        for (j = 0; j + 1 < each->count && product->m > each->choices[j].most; ++j) { }
        *table = each;
        return each->choices[j].plan;
    }
    if (other)
        px_fail(PX_WRONG_ARGUMENT, "the lines of a_scale have %llu elements: pad them to a multiple of 4 (a_scale_ld)",
                (unsigned long long)line);
    else
        px_fail(PX_WRONG_ARGUMENT, "there is no product of type %d with N %llu and K %llu here: the header lists those that there are",
                product->type, (unsigned long long)product->n, (unsigned long long)product->k);
    return -1;
}

int NAME_choice(const NAME_product *product)
{
    const px_table *table = NULL;
    return px_find(product, &table);
}

const char *NAME_configuration(int choice)
{
    return choice >= 0 && choice < (int)(sizeof px_plans / sizeof *px_plans) ? px_plans[choice].words : "no configuration of this pack";
}

int NAME_workspace(const NAME_product *product, uint64_t *bytes)
{
    const px_table *table = NULL;
    const int choice = px_find(product, &table);
    return choice < 0 ? (int)PX_WRONG_ARGUMENT : px_needs(&table->layer, &px_plans[choice], product->m, bytes);
}

int NAME_gemm(const NAME_product *product, void *stream)
{
    const px_table *table = NULL;
    const int choice = px_find(product, &table);
    px_product made;
    if (choice < 0)
        return PX_WRONG_ARGUMENT;
    made.m = product->m;
    made.a = product->a;
    made.b = product->b;
    made.d = product->d;
    made.lda = product->lda;
    made.ldb = product->ldb;
    made.ldd = product->ldd;
    made.a_scale = product->a_scale;
    made.b_scale = product->b_scale;
    made.a_scale_ld = product->a_scale_ld;
    made.workspace = product->workspace;
    made.workspace_bytes = product->workspace_bytes;
    return px_run(&table->layer, &px_plans[choice], made, stream);
}
