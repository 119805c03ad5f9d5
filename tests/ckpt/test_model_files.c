// Models in Hugging Face's directories: what is saved loads back to the same bits, and what does not fit is named.
#include "test_model_files.h"

#include "base/bf16.h"
#include "ckpt/convert.h"

// Arbitrary numbers on either side of one that need all bits of an f32, zeros in the padding.
static double value_of(const struct parameter *p, int64_t index) {
    if (index >= parameter_rows(p) * p->dim[1])
        return 0;
    return (double)(float)(4 * rng_uniform(11, rng_stream(p->name), (uint64_t)index) - 2);
}

static void fill(struct fixture *f) {
    for (size_t i = 0; i < f->table.parameters.count; i++) {
        const struct parameter *p = &f->table.parameters.item[i];
        for (int64_t j = 0; j < p->dim[0] * p->dim[1]; j++) {
            double value = value_of(p, j);
            convert_encode(f->values.dtype, &value, 1, f->data[i], f->remainder ? f->remainder[i] : NULL, j);
        }
    }
}

static void scribble(struct fixture *f) {
    for (size_t i = 0; i < f->table.parameters.count; i++) {
        memset(f->data[i], 0xa5, parameter_bytes(&f->table.parameters.item[i], f->values.dtype));
        if (f->remainder)
            memset(f->remainder[i], 0xa5, parameter_bytes(&f->table.parameters.item[i], DTYPE_U16));
    }
}

static void assert_filled(struct fixture *f) {
    for (size_t i = 0; i < f->table.parameters.count; i++) {
        const struct parameter *p = &f->table.parameters.item[i];
        for (int64_t j = 0; j < p->dim[0] * p->dim[1]; j++) {
            double expected = value_of(p, j), found;
            if (f->values.dtype == DTYPE_F64)
                found = ((double *)f->data[i])[j];
            else if (f->values.dtype == DTYPE_F32)
                found = ((float *)f->data[i])[j];
            else if (f->remainder)
                found = master_join(((uint16_t *)f->data[i])[j], f->remainder[i][j]);
            else {
                found = bf16_to_float(((uint16_t *)f->data[i])[j]);
                expected = bf16_to_float(bf16_from_float((float)expected));
            }
            if (found != expected)
                fail_msg("%s[%lld]: expected %.9g, found %.9g", p->name, (long long)j, expected, found);
        }
    }
}

static void save(struct fixture *f, uint64_t shard_bytes) {
    trireme_error error = {0};
    struct directory *d;
    assert_ok(directory_begin(f->path, DIRECTORY_REFUSE, &d, &error), &error);
    model_write(d, &f->config, &f->table, f->values.dtype, f->data, shard_bytes);
    assert_ok(directory_commit(d, &error), &error);
    assert_ok(directory_verify(f->path, MANIFEST_CONTENT, NULL, &error), &error);
}

static trireme_status load(struct fixture *f, trireme_error *error) {
    scribble(f);
    return model_files_load(f->path, &f->config, &f->table, &f->values, f->remainder ? &f->remainders : NULL, true,
                            NULL, error);
}

static void assert_loads(struct fixture *f) {
    trireme_error error = {0};
    assert_ok(load(f, &error), &error);
    assert_filled(f);
}

// ---- other people's files: the saved one, changed

struct change {
    const char *tensor, *name;    // the tensor, and what it is to be called; NULL: left out
    const char *from, *to;        // what the names of all that begin so begin with instead
    enum safetensors_dtype dtype; // of all; SAFETENSORS_DTYPES: as they are
    bool flattened;               // the tensor gets one dim
};

// The largest binary16 of at most this magnitude.
static uint16_t half_of(double number) {
    uint16_t low = 0, high = 0x7c00; // bits of positive ones grow with them
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        double value;
        convert_decode(SAFETENSORS_F16, &middle, 1, &value);
        *(value <= fabs(number) ? &low : &high) = middle;
    }
    return (uint16_t)(low | (number < 0 ? 0x8000 : 0));
}

static void put_numbers(struct text *out, enum safetensors_dtype dtype, const double *numbers, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        float single = (float)numbers[i];
        uint16_t half = bf16_from_float(single);
        if (dtype == SAFETENSORS_F16)
            half = half_of(numbers[i]);
        if (dtype == SAFETENSORS_F64)
            text_add_bytes(out, (const char *)&numbers[i], 8);
        else if (dtype == SAFETENSORS_F32)
            text_add_bytes(out, (const char *)&single, 4);
        else
            text_add_bytes(out, (const char *)&half, 2);
    }
}

static int64_t count_of(const struct safetensors_tensor *t) {
    return t->ndim == 2 ? t->shape[0] * t->shape[1] : t->shape[0];
}

// Writes the model's tensors again, changed, and `extra` (NULL: none), each of whose `extra_count` numbers is
// `extra_value`.
static void rewrite(struct fixture *f, const struct change *c, const char *extra, int64_t extra_count,
                    double extra_value) {
    trireme_error error = {0};
    struct safetensors *s;
    struct safetensors_layout layout;
    assert_ok(safetensors_open(f->path, &s, &error), &error);
    struct sample_tensor *tensor = mem_alloc((s->tensor.count + 1) * sizeof *tensor);
    struct text *bytes = mem_alloc((s->tensor.count + 1) * sizeof *bytes);
    size_t kept = 0;
    char renamed[64][100];
    assert_true(s->tensor.count < ARRAY_LENGTH(renamed));
    for (size_t i = 0; i <= s->tensor.count; i++) {
        const struct safetensors_tensor *t = i < s->tensor.count ? &s->tensor.item[i] : NULL;
        const bool it = t && c->tensor && strcmp(t->name, c->tensor) == 0;
        if (t ? it && !c->name : !extra)
            continue;
        const int64_t count = t ? count_of(t) : extra_count;
        struct sample_tensor *new = &tensor[kept];
        *new = (struct sample_tensor){.name = !t   ? extra
                                              : it ? c->name
                                                   : t->name,
                                      .dtype = c->dtype < SAFETENSORS_DTYPES ? c->dtype
                                               : t                           ? t->dtype
                                                                             : SAFETENSORS_F32,
                                      .ndim = !t || (it && c->flattened) ? 1 : t->ndim,
                                      .shape = {count}};
        if (c->from && strncmp(new->name, c->from, strlen(c->from)) == 0) {
            snprintf(renamed[i], sizeof renamed[i], "%s%s", c->to, new->name + strlen(c->from));
            new->name = renamed[i];
        }
        if (new->ndim == 2)
            memcpy(new->shape, t->shape, 2 * sizeof *new->shape);
        double *numbers = mem_alloc((size_t)count * sizeof *numbers);
        for (int64_t k = 0; k < count && !t; k++)
            numbers[k] = extra_value;
        if (t)
            convert_decode(t->dtype, t->data, count, numbers);
        put_numbers(&bytes[kept], new->dtype, numbers, count);
        new->data = bytes[kept++].text;
        free(numbers);
    }
    tensors_declare(&layout, "model", 0, tensor, kept);
    assert_ok(tensors_write(&layout, f->root, tensor, NULL, 0, &error), &error);
    for (size_t i = 0; i < kept; i++)
        text_release(&bytes[i]);
    free(bytes);
    free(tensor);
    safetensors_close(s);
    char *command = mem_printf("mv '%s/model.safetensors' '%s/model.safetensors'", f->root, f->path);
    assert_int_equal(system(command), 0);
    free(command);
}

static const struct change unchanged = {.dtype = SAFETENSORS_DTYPES};

#define PHI3                                                                                                  \
    "{\"model_type\":\"phi3\",\"num_hidden_layers\":2,\"hidden_size\":16,\"intermediate_size\":24,\"num_key_" \
    "value_heads\":2,\"num_attention_heads\":4,\"vocab_size\":9,\"max_position_embeddings\":8"
#define NEOX                                                                                            \
    "{\"model_type\":\"gpt_neox\",\"num_hidden_layers\":2,\"hidden_size\":16,\"intermediate_size\":24," \
    "\"num_attention_heads\":4,\"vocab_size\":9,\"max_position_embeddings\":8"                          \
    ",\"rotary_pct\":0.5"

// ---- models

static void a_model_survives_saving(void **state) {
    (void)state;
    static const char *const jsons[] = {
        GPT2 "}",  GPT2 ",\"tie_word_embeddings\":false,\"bias\":false}",
        LLAMA "}", LLAMA ",\"attention_bias\":true,\"mlp_bias\":true,\"tie_word_embeddings\":true}",
        QWEN2 "}", PHI3 "}",
        NEOX "}"};
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16};
    for (size_t i = 0; i < ARRAY_LENGTH(jsons) * ARRAY_LENGTH(dtypes); i++) {
        struct fixture f;
        setup(&f, jsons[i / 3], dtypes[i % 3], false);
        fill(&f);
        save(&f, i % 2 ? 700 : 0);
        assert_loads(&f);
        teardown(&f);
    }
}

// The files hold what transformers expects: its names, its shapes, [in, out] in GPT-2, no padding.
static void files_have_the_shapes_of_transformers(void **state) {
    (void)state;
    struct fixture f;
    trireme_error error = {0};
    setup(&f, GPT2 "}", DTYPE_F32, false);
    fill(&f);
    save(&f, 0);
    struct safetensors *s;
    assert_ok(safetensors_open(f.path, &s, &error), &error);
    assert_string_equal(safetensors_metadata(s, "format"), "pt");
    assert_int_equal(s->tensor.count, 2 + 2 * 12 + 2);
    const struct safetensors_tensor *t = safetensors_find(s, "transformer.h.1.attn.c_attn.weight");
    assert_ok(safetensors_expect(s, t, SAFETENSORS_F32, 2, (int64_t[]){16, 48}, &error), &error);
    const struct parameter *p = NULL;
    for (size_t i = 0; i < f.table.parameters.count; i++)
        if (strcmp(f.table.parameters.item[i].name, "layers.1.attention.qkv.weight") == 0)
            p = &f.table.parameters.item[i];
    assert_non_null(p);
    for (int64_t in = 0; in < 16; in++)
        for (int64_t out = 0; out < 48; out++)
            assert_true((double)((const float *)t->data)[in * 48 + out] == value_of(p, out * 16 + in));
    t = safetensors_find(s, "transformer.wte.weight");
    assert_ok(safetensors_expect(s, t, SAFETENSORS_F32, 2, (int64_t[]){9, 16}, &error), &error);
    safetensors_close(s);
    teardown(&f);

    setup(&f, LLAMA "}", DTYPE_BF16, false);
    fill(&f);
    save(&f, 0);
    assert_ok(safetensors_open(f.path, &s, &error), &error);
    t = safetensors_find(s, "model.layers.0.self_attn.v_proj.weight");
    assert_ok(safetensors_expect(s, t, SAFETENSORS_BF16, 2, (int64_t[]){8, 16}, &error), &error);
    p = &f.table.parameters.item[1];
    assert_string_equal(p->name, "layers.0.attention.qkv.weight");
    assert_int_equal(((const uint16_t *)t->data)[5], bf16_from_float((float)value_of(p, 24 * 16 + 5)));
    t = safetensors_find(s, "lm_head.weight");
    assert_ok(safetensors_expect(s, t, SAFETENSORS_BF16, 2, (int64_t[]){70, 16}, &error), &error);
    safetensors_close(s);
    teardown(&f);
}

static void biases_of_zero_stand_in_for_none(void **state) {
    (void)state;
    struct fixture f;
    trireme_error error = {0};
    setup(&f, GPT2 ",\"bias\":false}", DTYPE_F32, false);
    fill(&f);
    save(&f, 0);
    struct safetensors *s;
    assert_ok(safetensors_open(f.path, &s, &error), &error);
    const struct safetensors_tensor *t = safetensors_find(s, "transformer.h.0.attn.c_attn.bias");
    assert_ok(safetensors_expect(s, t, SAFETENSORS_F32, 1, (int64_t[]){48}, &error), &error);
    for (int i = 0; i < 48; i++)
        assert_true(((const float *)t->data)[i] == 0);
    safetensors_close(s);
    assert_loads(&f);
    struct change c = unchanged;
    c.tensor = "transformer.ln_f.bias"; // absent is as good
    rewrite(&f, &c, NULL, 0, 0);
    assert_loads(&f);
    rewrite(&f, &unchanged, "transformer.ln_f.bias", 16, 0.5);
    assert_says(load(&f, &error), &error, "\"transformer.ln_f.bias\": expected zeros");
    teardown(&f);
}

static void other_dtypes_are_converted(void **state) {
    (void)state;
    struct fixture f;
    trireme_error error = {0};
    struct change c = unchanged;
    setup(&f, LLAMA "}", DTYPE_F32, false);
    fill(&f);
    save(&f, 0);
    c.dtype = SAFETENSORS_F64;
    rewrite(&f, &c, NULL, 0, 0);
    assert_loads(&f);
    c.dtype = SAFETENSORS_F16;
    rewrite(&f, &c, NULL, 0, 0);
    assert_ok(load(&f, &error), &error);
    for (int64_t i = 0; i < 70 * 16; i++) {
        double found = ((float *)f.data[0])[i], expected = value_of(&f.table.parameters.item[0], i);
        assert_true(fabs(found) <= fabs(expected) && fabs(found - expected) <= fabs(expected) / 1024 + 0x1p-24);
    }
    teardown(&f);
    // An f32 file enters a bf16 model with its master weights exactly, plain bf16 to nearest.
    for (int remainder = 0; remainder < 2; remainder++) {
        setup(&f, GPT2 "}", DTYPE_BF16, remainder);
        struct fixture single;
        setup(&single, GPT2 "}", DTYPE_F32, false);
        fill(&single);
        save(&single, 0);
        memcpy(f.path, single.path, sizeof f.path);
        assert_loads(&f);
        teardown(&single);
        teardown(&f);
    }
}

// A bf16 file has no low halves: they are zero.
static void a_bf16_file_gives_zero_remainders(void **state) {
    (void)state;
    struct fixture f;
    trireme_error error = {0};
    setup(&f, GPT2 "}", DTYPE_BF16, true);
    fill(&f);
    save(&f, 0);
    assert_ok(load(&f, &error), &error);
    for (size_t i = 0; i < f.table.parameters.count; i++)
        for (int64_t j = 0; j < f.table.parameters.item[i].dim[0] * f.table.parameters.item[i].dim[1]; j++)
            assert_int_equal(f.remainder[i][j], 0);
    teardown(&f);
}

// Cuts the file short once its first piece is loaded.
static void cut_short(void *user) {
    assert_int_equal(truncate(user, 4096), 0);
}

// Another program that writes the file anew while it is read must not end this one by SIGBUS.
static void a_file_that_becomes_shorter_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *json;
        enum dtype dtype;
    } CASES[] = {{LLAMA "}", DTYPE_F32}, {LLAMA "}", DTYPE_F64}, {GPT2 "}", DTYPE_F32}};
    for (size_t i = 0; i < ARRAY_LENGTH(CASES); i++) {
        struct fixture f;
        trireme_error error = {0};
        setup(&f, CASES[i].json, CASES[i].dtype, false);
        fill(&f);
        save(&f, 0);
        struct change c = unchanged;
        c.dtype = SAFETENSORS_F32;
        rewrite(&f, &c, NULL, 0, 0);
        char *file = mem_printf("%s/model.safetensors", f.path);
        const struct checksum_watch watch = {cut_short, file};
        assert_says(model_files_load(f.path, &f.config, &f.table, &f.values, NULL, true, &watch, &error), &error,
                    "model.safetensors became shorter while it was read");
        free(file);
        teardown(&f);
    }
}

// Larger than what is asked for, turned or converted at once.
static void large_tensors_go_in_blocks(void **state) {
    (void)state;
    struct fixture f;
    setup(&f, LARGE, DTYPE_F32, false);
    fill(&f);
    save(&f, 0);
    assert_loads(&f);
    struct change c = unchanged;
    c.dtype = SAFETENSORS_F64;
    rewrite(&f, &c, NULL, 0, 0);
    assert_loads(&f);
    teardown(&f);
}

// A tied head must equal the embedding to its end.
static void large_heads_are_compared(void **state) {
    (void)state;
    enum { COUNT = 2100 * 128 };
    struct fixture f;
    trireme_error error = {0};
    setup(&f, LARGE, DTYPE_F32, false);
    for (int same = 0; same < 2; same++) {
        fill(&f);
        for (int64_t i = 0; i < COUNT; i++)
            ((float *)f.data[0])[i] = i + 1 < COUNT || same ? 1 : 2;
        for (int less = 0; less < 2; less++) {
            save(&f, 0);
            rewrite(&f, &unchanged, "lm_head.weight", COUNT - less, 1);
            trireme_status status = model_files_load(f.path, &f.config, &f.table, &f.values, NULL, true, NULL, &error);
            if (same && !less)
                assert_ok(status, &error);
            else
                assert_says(status, &error, "\"lm_head.weight\" differs from the embedding");
        }
    }
    teardown(&f);
}

static void every_f16_is_decoded(void **state) {
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        uint16_t bits = (uint16_t)i;
        // The same number's bits as a double: the exponent's bias is 1023 instead of 15.
        uint64_t sign = (uint64_t)(i >> 15) << 63, exponent = i >> 10 & 31, fraction = i & 1023, wide;
        if (exponent == 31)
            wide = sign | (uint64_t)2047 << 52 | fraction << 42;
        else
            wide = sign | (exponent + 1008) << 52 | fraction << 42;
        double expected, found;
        memcpy(&expected, &wide, 8);
        if (exponent == 0)
            expected = (sign ? -1 : 1) * (double)fraction / 16777216;
        convert_decode(SAFETENSORS_F16, &bits, 1, &found);
        if (isnan(expected))
            assert_true(isnan(found));
        else
            assert_true(found == expected && !signbit(found) == !signbit(expected));
    }
}

static void known_variants_are_let_pass(void **state) {
    (void)state;
    struct fixture f;
    trireme_error error = {0};
    struct change c = unchanged;
    setup(&f, GPT2 "}", DTYPE_F32, false);
    fill(&f);
    save(&f, 0);
    c.from = "transformer.", c.to = "";
    rewrite(&f, &c, "h.0.attn.bias", 64, 1);
    assert_loads(&f);
    rewrite(&f, &unchanged, "lm_head.weight", 9 * 16, 1);
    assert_says(load(&f, &error), &error, "\"lm_head.weight\" differs from the embedding");
    teardown(&f);

    setup(&f, LLAMA ",\"tie_word_embeddings\":true}", DTYPE_F32, false);
    fill(&f);
    save(&f, 0);
    rewrite(&f, &unchanged, "model.layers.0.self_attn.rotary_emb.inv_freq", 2, 1);
    assert_loads(&f);
    c = (struct change){.dtype = SAFETENSORS_DTYPES, .tensor = "model.embed_tokens.weight", .name = "lm_head.weight"};
    rewrite(&f, &c, NULL, 0, 0);
    assert_loads(&f);
    teardown(&f);

    // The model of one without a head, and the text model of one with images, as either version of transformers has it.
    static const char *const BASES[] = {"", "language_model.model.", "model.language_model."};
    for (size_t i = 0; i < ARRAY_LENGTH(BASES); i++) {
        setup(&f, LLAMA ",\"tie_word_embeddings\":true}", DTYPE_F32, false);
        fill(&f);
        save(&f, 0);
        c = (struct change){.dtype = SAFETENSORS_DTYPES, .from = "model.", .to = BASES[i]};
        rewrite(&f, &c, i ? "vision_tower.patch.weight" : NULL, 5, 1);
        assert_loads(&f);
        teardown(&f);
    }
    // What GPT-NeoX's head is called where transformers 5 has written it.
    setup(&f, NEOX "}", DTYPE_F32, false);
    fill(&f);
    save(&f, 0);
    c = (struct change){.dtype = SAFETENSORS_DTYPES, .tensor = "embed_out.weight", .name = "lm_head.weight"};
    rewrite(&f, &c, "gpt_neox.layers.0.attention.bias", 5, 1);
    assert_loads(&f);
    teardown(&f);
}

// Projections that lie head by head in the file: row 3 of 4 heads of 4 rows is q of head 0, row 4 k of head 0, and row
// 12 q of head 1.
static void projections_lie_head_by_head(void **state) {
    (void)state;
    struct fixture f;
    trireme_error error = {0};
    struct safetensors *s;
    setup(&f, NEOX "}", DTYPE_F32, false);
    fill(&f);
    save(&f, 0);
    const struct parameter *qkv = &f.table.parameters.item[parameter_find(&f.table, "layers.0.attention.qkv.weight")];
    assert_ok(safetensors_open(f.path, &s, &error), &error);
    const struct safetensors_tensor *t = safetensors_find(s, "gpt_neox.layers.0.attention.query_key_value.weight");
    static const int64_t ROWS[][2] = {{3, 3}, {4, 16}, {8, 32}, {12, 4}, {47, 47}}; // of the file, ours
    for (size_t i = 0; i < ARRAY_LENGTH(ROWS); i++) {
        float found;
        memcpy(&found, (const char *)t->data + ROWS[i][0] * 16 * 4, sizeof found);
        assert_true((double)found == value_of(qkv, ROWS[i][1] * 16));
    }
    safetensors_close(s);
    teardown(&f);
}

static void what_does_not_fit_is_named(void **state) {
    (void)state;
    struct fixture f;
    trireme_error error = {0};
    static const struct {
        struct change change;
        const char *extra, *says;
    } cases[] = {
        {{.dtype = SAFETENSORS_DTYPES, .tensor = "model.norm.weight"}, NULL, "tensor \"model.norm.weight\" is missing"},
        {{.dtype = SAFETENSORS_DTYPES,
          .tensor = "model.layers.1.mlp.up_proj.weight",
          .name = "model.layers.1.mlp.up.weight"},
         NULL,
         "tensor \"model.layers.1.mlp.up_proj.weight\" is missing"},
        {{.dtype = SAFETENSORS_DTYPES, .tensor = "model.norm.weight"},
         "model.norm.weight",
         "expected F32 [16], found F32 [5]"},
        {{.dtype = SAFETENSORS_DTYPES, .tensor = "lm_head.weight", .name = "lm_head.weight", .flattened = true},
         NULL,
         "expected F32 [70, 16], found F32 [1120]"},
        {{.dtype = SAFETENSORS_DTYPES},
         "model.layers.2.input_layernorm.weight",
         "\"model.layers.2.input_layernorm.weight\" is unexpected"},
        {{.dtype = SAFETENSORS_DTYPES}, "model.layers.0.self_attn.q_proj.bias", "q_proj.bias\" is unexpected"},
        {{.dtype = SAFETENSORS_U16}, NULL, "of dtype U16; models of F32, BF16, F16 and F64 are read"},
    };
    setup(&f, LLAMA "}", DTYPE_F32, false);
    for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
        fill(&f);
        save(&f, 0);
        rewrite(&f, &cases[i].change, cases[i].extra, 5, 1);
        assert_says(load(&f, &error), &error, cases[i].says);
        assert_int_equal(error.status, TRIREME_ERROR_CORRUPT);
        assert_non_null(strstr(error.message, f.path));
        for (size_t p = 0; p < f.table.parameters.count; p++) // nothing was written
            assert_int_equal(*(unsigned char *)f.data[p], 0xa5);
    }
    teardown(&f);
}

static void numbers_that_are_not_finite_are_refused(void **state) {
    (void)state;
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F64, DTYPE_BF16};
    for (size_t i = 0; i < 2 * ARRAY_LENGTH(dtypes); i++) {
        struct fixture f;
        trireme_error error = {0};
        setup(&f, i % 2 ? GPT2 "}" : LLAMA "}", dtypes[i / 2], false);
        for (size_t p = 0; p < f.table.parameters.count; p++) {
            const double bad = p % 2 ? NAN : -INFINITY;
            fill(&f);
            convert_encode(f.values.dtype, &bad, 1, f.data[p], NULL, 0);
            save(&f, 0);
            char *says = mem_printf("holds a number that is not finite in %s", dtype_name(f.values.dtype));
            assert_says(load(&f, &error), &error, says);
            assert_int_equal(error.status, TRIREME_ERROR_CORRUPT);
            free(says);
        }
        teardown(&f);
    }
    struct fixture f;
    trireme_error error = {0};
    setup(&f, LLAMA "}", DTYPE_F32, false);
    fill(&f);
    save(&f, 0);
    rewrite(&f, &(struct change){.dtype = SAFETENSORS_F64, .tensor = "model.norm.weight"}, "model.norm.weight", 16,
            1e300);
    assert_says(load(&f, &error), &error, "tensor \"model.norm.weight\": holds a number that is not finite in f32");
    teardown(&f);
}

static void several_missing_tensors_are_counted(void **state) {
    (void)state;
    struct fixture f, small;
    trireme_error error = {0};
    setup(&f, LLAMA "}", DTYPE_F32, false);
    setup(&small, QWEN2 "}", DTYPE_F32, false);
    fill(&small);
    save(&small, 0);
    fill(&f);
    save(&f, 0);
    char *command = mem_printf("mv '%s/model.safetensors' '%s/'", small.path, f.path);
    assert_int_equal(system(command), 0);
    free(command);
    assert_says(load(&f, &error), &error, "tensor \"model.layers.1.self_attn.q_proj.weight\" is missing, and 8 more");
    teardown(&small);
    teardown(&f);
}

static void another_architecture_is_refused(void **state) {
    (void)state;
    struct fixture f, other;
    trireme_error error = {0};
    setup(&f, LLAMA "}", DTYPE_F32, false);
    fill(&f);
    save(&f, 0);
    setup(&other, GPT2 "}", DTYPE_F32, false);
    memcpy(other.path, f.path, sizeof f.path);
    assert_says(load(&other, &error), &error, "theirs is LlamaForCausalLM, the model's GPT2LMHeadModel");
    assert_non_null(strstr(error.message, f.path));
    f.config.rope[0].theta = 20000;
    assert_says(load(&f, &error), &error, "their rope_theta is 10000, the model's 20000");
    assert_ok(model_files_load(f.path, &f.config, &f.table, &f.values, f.remainder ? &f.remainders : NULL, false, NULL,
                               &error),
              &error);
    teardown(&other);
    teardown(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_survives_saving),
        cmocka_unit_test(files_have_the_shapes_of_transformers),
        cmocka_unit_test(biases_of_zero_stand_in_for_none),
        cmocka_unit_test(other_dtypes_are_converted),
        cmocka_unit_test(a_bf16_file_gives_zero_remainders),
        cmocka_unit_test(a_file_that_becomes_shorter_is_refused),
        cmocka_unit_test(large_tensors_go_in_blocks),
        cmocka_unit_test(large_heads_are_compared),
        cmocka_unit_test(every_f16_is_decoded),
        cmocka_unit_test(known_variants_are_let_pass),
        cmocka_unit_test(projections_lie_head_by_head),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(numbers_that_are_not_finite_are_refused),
        cmocka_unit_test(several_missing_tensors_are_counted),
        cmocka_unit_test(another_architecture_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
