// Proves that what several stages of a pipeline do to one thing, each in its own program, is the same: they clip by one
// norm, parameters that two of them have are updated alike, and where they share a vocabulary, all work with the same
// tokens, the same words and the same input of the head. That they meet is for verify_groups.c.
#include "verify/proofs.h"

// Something that must be the same in every program that has it: of one key there may be one value only.
struct agreed {
    char *key, *value;
    int rank;
};

struct agreement {
    VEC(struct agreed);
};

static int compare_agreed(const void *a, const void *b) {
    const struct agreed *x = a, *y = b;
    return strcmp(x->key, y->key) ?: COMPARE(x->rank, y->rank);
}

static void stages_agree(struct agreement *all, int rank, char *key, char *value) {
    VEC_PUSH(all, (struct agreed){key, value, rank});
}

// The op and its attributes.
static char *stages_describe(const struct op_table *table, const struct instruction *i) {
    const struct op_info *info = &table->op[i->op];
    struct text text = {0};
    text_add(&text, "%s", info->name);
    for (int k = 0; k < info->attributes; k++)
        if (info->attribute[k].is_float)
            text_add(&text, " %s %.17g", info->attribute[k].name, i->attribute[k].f);
        else
            text_add(&text, " %s %lld", info->attribute[k].name, (long long)i->attribute[k].i);
    return text.text;
}

// The name of a buffer, or of the one whose value it holds once more.
static char *stages_name_of(const struct program *p, int buffer) {
    return mem_strdup(p->buffers.item[program_original(p, buffer)].name);
}

static void list_instruction(struct agreement *all, const struct program *p, const struct op_table *table,
                             const struct mentions *mentions, const struct instruction *i, int rank) {
    const struct op_info *info = &table->op[i->op];
    const int vocab = op_attribute_find(info, "vocab");
    const struct operand *updated = instruction_input(table, i, MEANING_PARAMETER);
    if (info->role == ROLE_CLIP)
        stages_agree(all, rank, mem_printf("the norm"), stages_describe(table, i));
    if (info->role == ROLE_UPDATE)
        stages_agree(all, rank, mem_printf("the update of %s", program_buffer_name(p, updated->buffer)),
                     stages_describe(table, i));
    if (i->op == OP_SOFTCAP)
        stages_agree(all, rank, mem_printf("the cap of logits"),
                     mem_printf("%.17g", i->attribute[ATTRIBUTE(SOFTCAP, cap)].f));
    if (vocab >= 0)
        stages_agree(all, rank, mem_printf("the number of words"),
                     mem_printf("%lld", (long long)i->attribute[vocab].i));
    const int looked_up = i->op == OP_EMBED ? i->in[INPUT(EMBED, w)].buffer : NONE;
    if (looked_up != NONE && p->buffers.item[looked_up].placement[AXIS_PP] >= PLACE_SHARD(0))
        stages_agree(all, rank, mem_printf("what is looked up in %s", p->buffers.item[looked_up].name),
                     stages_name_of(p, i->in[INPUT(EMBED, ids)].buffer));
    if (i->op != OP_LOGITS_EXP)
        return;
    const struct operand *targets = &i->in[INPUT(LOGITS_EXP, targets)];
    int logits = i->in[INPUT(LOGITS_EXP, logits)].buffer;
    FOR_MENTIONS(mentions, m, logits)
        if (m->instruction->op == OP_SOFTCAP && mention_output(m) == OUTPUT(SOFTCAP, y)) {
            logits = m->instruction->in[INPUT(SOFTCAP, x)].buffer;
            break;
        }
    FOR_MENTIONS(mentions, m, logits)
        if (m->instruction->op == OP_MATMUL && mention_output(m) == OUTPUT(MATMUL, y))
            stages_agree(all, rank,
                         mem_printf("the input of the head with targets %s+%lld", //
                                    program_buffer_name(p, targets->buffer), (long long)targets->offset),
                         stages_name_of(p, m->instruction->in[INPUT(MATMUL, x)].buffer));
}

static trireme_status check_agreed(const struct program *const *program_of_rank, const struct op_table *table,
                                   trireme_error *error) {
    const struct mesh *mesh = &program_of_rank[0]->mesh;
    struct agreement all = {0};
    for (int stage = 0; stage < mesh->degree[AXIS_PP]; stage++) {
        const int rank = mesh_member(mesh, 0, AXES(AXIS_PP), stage);
        struct mentions mentions;
        mentions_create(&mentions, program_of_rank[rank]);
        FOR_INSTRUCTIONS(i, program_of_rank[rank])
            list_instruction(&all, program_of_rank[rank], table, &mentions, i, rank);
        mentions_release(&mentions);
    }
    VEC_SORT(&all, compare_agreed);
    trireme_status status = TRIREME_OK;
    for (size_t k = 1; k < all.count && status == TRIREME_OK; k++) {
        const struct agreed *a = &all.item[k - 1], *b = &all.item[k];
        if (strcmp(a->key, b->key) == 0 && strcmp(a->value, b->value) != 0)
            status = error_set(error, TRIREME_ERROR_PROGRAM, "rank %d: %s is %s, but rank %d's is %s", b->rank, b->key,
                               b->value, a->rank, a->value);
    }
    for (size_t k = 0; k < all.count; k++) {
        free(all.item[k].key);
        free(all.item[k].value);
    }
    VEC_RELEASE(&all);
    return status;
}

// ---- tied parameters

struct held_parameter {
    const char *name;
    int rank;
    bool same, part; // along the stages
};

static int compare_parameters(const void *a, const void *b) {
    const struct held_parameter *x = a, *y = b;
    return strcmp(x->name, y->name) ?: COMPARE(x->rank, y->rank);
}

// A parameter that two stages update must be declared the same on both, one that all have parts of must be declared
// spread, and no other may be.
static trireme_status check_tied(const struct program *const *program_of_rank, const struct op_table *table,
                                 trireme_error *error) {
    const struct mesh *mesh = &program_of_rank[0]->mesh;
    VEC(struct held_parameter) all = {0};
    for (int stage = 0; stage < mesh->degree[AXIS_PP]; stage++) {
        const int rank = mesh_member(mesh, 0, AXES(AXIS_PP), stage);
        const struct program *p = program_of_rank[rank];
        FOR_INSTRUCTIONS(u, p) {
            if (table->op[u->op].role != ROLE_UPDATE)
                continue;
            const struct operand *updated = instruction_input(table, u, MEANING_PARAMETER);
            const struct buffer *b = &p->buffers.item[program_root(p, updated->buffer)];
            int8_t place = b->placement[AXIS_PP];
            VEC_PUSH(&all, (struct held_parameter){b->name, rank, place == PLACE_REPLICATE, place >= PLACE_SHARD(0)});
        }
    }
    VEC_SORT(&all, compare_parameters);
    const struct held_parameter *wrong = NULL;
    int stages = 0;
    for (size_t i = 0, n; i < all.count && !wrong; i += n) {
        stages = 1; // each may update it piece by piece
        for (n = 1; i + n < all.count && strcmp(all.item[i].name, all.item[i + n].name) == 0; n++)
            stages += all.item[i + n].rank != all.item[i + n - 1].rank;
        for (size_t k = 0; k < n && !wrong; k++) {
            const struct held_parameter *held = &all.item[i + k];
            bool right = held->part ? stages == mesh->degree[AXIS_PP] : stages <= 2 && held->same == (stages == 2);
            if (!right)
                wrong = held;
        }
    }
    trireme_status status = TRIREME_OK;
    if (wrong)
        status = error_set(error, TRIREME_ERROR_PROGRAM,
                           "rank %d: %s is declared %s, but %d stages have it: tied parameters are on two", wrong->rank,
                           wrong->name,
                           wrong->same   ? "the same along pp"
                           : wrong->part ? "spread over the stages"
                                         : "this stage's own",
                           stages);
    VEC_RELEASE(&all);
    return status;
}

trireme_status verify_stages(const struct program *const *program_of_rank, const struct op_table *table,
                             trireme_error *error) {
    TRY(check_tied(program_of_rank, table, error));
    return check_agreed(program_of_rank, table, error);
}
