/* ---- which configuration a group product gets ---- */

static int px_group_find(const NAME_group *group, const px_group_table **table)
{
    uint64_t mean;
    int i, j;
    if (group == NULL) {
        px_fail(PX_WRONG_ARGUMENT, "group is NULL");
        return -1;
    }
    mean = group->mean_rows ? group->mean_rows : group->groups ? px_ceil(group->rows, group->groups) : 0;
    for (i = 0; i < (int)(sizeof px_group_tables / sizeof *px_group_tables); ++i) {
        const px_group_table *each = &px_group_tables[i];
        const px_group_layer *layer = &each->layer;
        if (layer->type != group->type || layer->groups != group->groups || layer->n != group->n || layer->k != group->k
            || layer->gated != (group->gated != 0))
            continue;
        for (j = 0; j + 1 < each->count && mean > each->choices[j].most; ++j) { }
        *table = each;
        return each->choices[j].plan;
    }
    px_fail(PX_WRONG_ARGUMENT, "there is no group product of type %d with %llu groups, N %llu, K %llu%s here: the header lists those that "
            "there are", group->type, (unsigned long long)group->groups, (unsigned long long)group->n, (unsigned long long)group->k,
            group->gated ? ", gated," : "");
    return -1;
}

int NAME_group_choice(const NAME_group *group)
{
    const px_group_table *table = NULL;
    return px_group_find(group, &table);
}

const char *NAME_group_configuration(int choice)
{
    return choice >= 0 && choice < (int)(sizeof px_group_plans / sizeof *px_group_plans) ? px_group_plans[choice].base.words
                                                                                        : "no configuration of this pack";
}

int NAME_group_workspace(const NAME_group *group, uint64_t *bytes)
{
    const px_group_table *table = NULL;
    int choice = px_group_find(group, &table);
    if (choice < 0)
        return PX_WRONG_ARGUMENT;
    if (bytes == NULL)
        return px_fail(PX_WRONG_ARGUMENT, "bytes is NULL: it is where the size of the workspace goes");
    for (*bytes = 0; choice >= 0; choice = px_group_plans[choice].second)
        *bytes = px_most(*bytes, px_group_plans[choice].workspace);
    return PX_OK;
}

int NAME_group_gemm(const NAME_group *group, void *stream)
{
    const px_group_table *table = NULL;
    const int choice = px_group_find(group, &table);
    px_group made;
    if (choice < 0)
        return PX_WRONG_ARGUMENT;
    made.rows = group->rows;
    made.x = group->x;
    made.w = group->w;
    made.y = group->y;
    made.lengths = group->cu_seqlens;
    made.x_scale = group->x_scale;
    made.w_scale = group->w_scale;
    made.ldx = group->ldx;
    made.ldy = group->ldy;
    made.x_scale_ld = group->x_scale_ld;
    made.workspace = group->workspace;
    made.workspace_bytes = group->workspace_bytes;
    return px_group_run(&table->layer, px_group_plans, choice, made, stream);
}
