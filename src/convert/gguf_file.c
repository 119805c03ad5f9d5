#include "convert/gguf_file.h"

enum { VERSION = 3, ALIGNMENT = 32 };
enum value_type { VALUE_U32 = 4, VALUE_I32, VALUE_F32, VALUE_BOOL, VALUE_STRING, VALUE_ARRAY }; // of the format

static void put_u32(struct text *out, uint32_t number) {
    text_add_bytes(out, (const char *)&number, sizeof number);
}

static void put_u64(struct text *out, uint64_t number) {
    text_add_bytes(out, (const char *)&number, sizeof number);
}

static void put_f32(struct text *out, float number) {
    text_add_bytes(out, (const char *)&number, sizeof number);
}

static void put_bool(struct text *out, bool value) {
    text_add_bytes(out, &(char){(char)value}, 1);
}

static void put_string(struct text *out, const char *value, size_t length) {
    put_u64(out, length);
    text_add_bytes(out, value, length);
}

static struct text *gguf_add_key(struct gguf_file *f, const char *key, enum value_type type) {
    f->keys++;
    put_string(&f->values, key, strlen(key));
    put_u32(&f->values, type);
    return &f->values;
}

static struct text *gguf_add_array(struct gguf_file *f, const char *key, enum value_type type, size_t count) {
    struct text *out = gguf_add_key(f, key, VALUE_ARRAY);
    put_u32(out, type);
    put_u64(out, count);
    return out;
}

void gguf_add_string(struct gguf_file *f, const char *key, const char *value, size_t length) {
    put_string(gguf_add_key(f, key, VALUE_STRING), value, length);
}

void gguf_add_u32(struct gguf_file *f, const char *key, int64_t value) {
    CHECK(value >= 0 && value <= UINT32_MAX);
    put_u32(gguf_add_key(f, key, VALUE_U32), (uint32_t)value);
}

void gguf_add_f32(struct gguf_file *f, const char *key, double value) {
    put_f32(gguf_add_key(f, key, VALUE_F32), (float)value);
}

void gguf_add_bool(struct gguf_file *f, const char *key, bool value) {
    put_bool(gguf_add_key(f, key, VALUE_BOOL), value);
}

void gguf_add_bools(struct gguf_file *f, const char *key, const bool *value, size_t count) {
    struct text *out = gguf_add_array(f, key, VALUE_BOOL, count);
    for (size_t i = 0; i < count; i++)
        put_bool(out, value[i]);
}

void gguf_add_i32s(struct gguf_file *f, const char *key, const int32_t *value, size_t count) {
    struct text *out = gguf_add_array(f, key, VALUE_I32, count);
    text_add_bytes(out, (const char *)value, count * sizeof *value);
}

void gguf_add_f32s(struct gguf_file *f, const char *key, const float *value, size_t count) {
    struct text *out = gguf_add_array(f, key, VALUE_F32, count);
    text_add_bytes(out, (const char *)value, count * sizeof *value);
}

void gguf_begin_strings(struct gguf_file *f, const char *key, size_t count) {
    gguf_add_array(f, key, VALUE_STRING, count);
}

void gguf_add_item(struct gguf_file *f, const char *value, size_t length) {
    put_string(&f->values, value, length);
}

void gguf_add_tensor(struct gguf_file *f, struct gguf_tensor tensor) {
    VEC_PUSH(&f->tensors, tensor);
}

static void put_tensor(struct text *out, const struct gguf_tensor *t, uint64_t offset) {
    static const uint32_t TYPES[] = {[STORED_F32] = 0, [STORED_F16] = 1, [STORED_Q8_0] = 8, [STORED_BF16] = 30};
    put_string(out, t->name, strlen(t->name));
    put_u32(out, (uint32_t)t->ndim);
    if (t->ndim == 2)
        put_u64(out, (uint64_t)t->columns);
    put_u64(out, (uint64_t)t->rows);
    put_u32(out, TYPES[t->stored]);
    put_u64(out, offset);
}

void gguf_place(struct gguf_file *f) {
    uint64_t offset = 0;
    text_add(&f->head, "GGUF");
    put_u32(&f->head, VERSION);
    put_u64(&f->head, f->tensors.count);
    put_u64(&f->head, f->keys);
    text_add_bytes(&f->head, f->values.text, f->values.length);
    for (size_t i = 0; i < f->tensors.count; i++) {
        struct gguf_tensor *t = &f->tensors.item[i];
        t->position = offset;
        put_tensor(&f->head, t, offset);
        offset = (uint64_t)round_up((int64_t)(offset + stored_bytes(t->stored, t->rows * t->columns)), ALIGNMENT);
    }
    while (f->head.length % ALIGNMENT)
        text_add_bytes(&f->head, "", 1);
    for (size_t i = 0; i < f->tensors.count; i++)
        f->tensors.item[i].position += f->head.length;
    f->file_bytes = f->head.length + offset;
}

void gguf_release(struct gguf_file *f) {
    for (size_t i = 0; i < f->tensors.count; i++)
        free(f->tensors.item[i].name);
    VEC_RELEASE(&f->tensors);
    text_release(&f->values);
    text_release(&f->head);
}
