#include "generate/decoding.h"

#include "base/bf16.h"
#include "run/checkpoint.h"

#include <math.h>

static trireme_status decoding_make(struct decoding *d, const char *directory, const struct decoding_program *programs,
                                    size_t count, trireme_error *error) {
    enum { PROGRAMS_MOST = 4 };
    CHECK(count <= PROGRAMS_MOST);
    const struct decoding_program whole = {d->context, false};
    struct program_spec specs[PROGRAMS_MOST];
    TRY(model_config_read_on(&d->model, directory, d->config->lora.base_model, error));
    const bool cached = d->cached = d->config->generate.cache;
    for (size_t i = 0; i < count && cached; i++)
        d->rows = MAX(d->rows, programs[i].rows);
    // A program may be given fewer tokens than it has rows: the cache has room for those beyond the text.
    const int64_t room = cached ? d->context + d->rows : 0;
    count = cached ? count : 1;
    for (size_t i = 0; i < count; i++) {
        const struct decoding_program p = cached ? programs[i] : whole;
        specs[i] = (struct program_spec){.kind = PROGRAM_GENERATE,
                                         .batch = {d->texts, p.rows, 1},
                                         .context = room,
                                         .picked = p.all ? p.rows : d->texts};
    }
    d->plan = parallel_single(&d->model);
    TRY(engine_create(&d->engine, d->config, &d->model, &d->plan, (struct program_specs){.item = specs, .count = count},
                      NULL, error));
    return checkpoint_load_model(&d->engine, NULL, directory, true, error);
}

trireme_status decoding_open(struct decoding *d, const struct config *config, const char *directory, int64_t texts,
                             int64_t context, const struct decoding_program *programs, size_t count,
                             trireme_error *error) {
    *d = (struct decoding){.config = config, .texts = texts, .context = context};
    d->stands = mem_alloc((size_t)texts * sizeof *d->stands);
    trireme_status status = decoding_make(d, directory, programs, count, error);
    if (status != TRIREME_OK)
        decoding_release(d);
    return status;
}

void decoding_release(struct decoding *d) {
    engine_release(&d->engine);
    free(d->stands);
    *d = (struct decoding){0};
}

int64_t decoding_resume(const struct decoding *d, int64_t text, int64_t at) {
    return d->cached && (!model_is_recurrent(&d->model) || d->stands[text] == at) ? at : 0;
}

trireme_status decoding_run(struct decoding *d, size_t program, const struct decoding_part *parts,
                            trireme_error *error) {
    const struct engine_program *p = &d->engine.programs.item[program];
    const struct compiled *c = p->compiled;
    const int64_t rows = c->spec.batch.seq_len;
    const bool all = c->spec.picked != d->texts;
    int32_t *tokens = executor_address(p->executor, c->tokens, 0),
            *positions = executor_address(p->executor, c->positions, 0),
            *picked = executor_address(p->executor, c->picked, 0);
    for (int64_t t = 0; t < d->texts; t++) {
        const struct decoding_part *part = &parts[t];
        CHECK(part->count <= rows && part->at + part->count <= d->context);
        CHECK(part->count == 0 || part->at == decoding_resume(d, t, part->at));
        if (part->count > 0)
            d->stands[t] = part->at + part->count;
        for (int64_t i = 0; i < rows; i++) {
            const bool given = i < part->count;
            tokens[t * rows + i] = given ? part->tokens[i] : 0;
            // Rows beyond the last token compute something that nobody reads.
            positions[t * rows + i] = given ? (int32_t)(part->at + i) : 0;
        }
        if (c->at != NONE)
            ((int32_t *)executor_address(p->executor, c->at, 0))[t] = (int32_t)part->at;
        if (c->given != NONE)
            ((int32_t *)executor_address(p->executor, c->given, 0))[t] = (int32_t)part->count;
        if (!all)
            picked[t] = (int32_t)(t * rows + MAX(part->count, 1) - 1);
    }
    for (int64_t i = 0; i < rows && all; i++)
        picked[i] = (int32_t)i;
    if (c->starts != NONE)
        memset(executor_address(p->executor, c->starts, 0), 0, (size_t)(d->texts * rows) * sizeof(int32_t));
    return engine_run(&d->engine, p, NULL, error);
}

trireme_status decoding_logits(const struct decoding *d, size_t program, int64_t row, double *out,
                               trireme_error *error) {
    const struct engine_program *p = &d->engine.programs.item[program];
    const enum dtype dtype = d->engine.stage->state.dtype;
    const void *logits = executor_address(p->executor, p->compiled->logits, 0);
    const int64_t first = row * d->model.padded_vocab_size;
    bool finite = true;
    for (int64_t i = 0; i < d->model.vocab_size; i++) {
        out[i] = dtype == DTYPE_F64    ? ((const double *)logits)[first + i]
                 : dtype == DTYPE_BF16 ? bf16_to_float(((const uint16_t *)logits)[first + i])
                                       : ((const float *)logits)[first + i];
        finite = finite && isfinite(out[i]);
    }
    if (!finite)
        FAIL(TRIREME_ERROR_DIVERGED, "what the model says of the next token is not finite: its weights are no model's");
    return TRIREME_OK;
}

trireme_status decoding_check(const struct decoding *d, const int32_t *tokens, size_t count, trireme_error *error) {
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= d->model.vocab_size)
            FAIL(TRIREME_ERROR_USAGE, "token %d is not in the model's vocabulary of %lld", tokens[i],
                 (long long)d->model.vocab_size);
    return TRIREME_OK;
}
