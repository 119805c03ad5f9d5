// A safetensors file of hostile bytes: what is accepted describes tensors that lie inside it, side by side and apart,
// and lookups find each of them.
#include "ckpt/safetensors.h"

static void check_tensor(const struct safetensors *s, const struct safetensors_tensor *t, const uint8_t *data,
                         size_t size) {
    uint64_t bytes;
    trireme_error error = {0};
    char text[SAFETENSORS_TYPE_TEXT], hex[CHECKSUM_HEX];
    CHECK(t->ndim >= 0 && t->ndim <= SAFETENSORS_DIMS);
    CHECK(safetensors_bytes(t->dtype, t->ndim, t->shape, &bytes) && bytes == t->bytes);
    CHECK(t->position <= size && t->bytes <= size - t->position && t->data == data + t->position);
    CHECK(safetensors_find(s, t->name) == t);
    CHECK(strlen(safetensors_type_text(t->dtype, t->ndim, t->shape, text)) < sizeof text);
    CHECK(safetensors_expect(s, t, t->dtype, t->ndim, t->shape, &error) == TRIREME_OK);
    checksum_of(t->data, t->bytes, hex); // all of it can be read
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    trireme_error error = {0};
    struct safetensors *s = NULL;
    trireme_status status = safetensors_open_memory(data, size, "fuzz.safetensors", &s, &error);
    if (status != TRIREME_OK) {
        CHECK(status == TRIREME_ERROR_CORRUPT && error.status == status && error.message[0] && !s);
        for (const char *c = error.message; *c; c++)
            CHECK((unsigned char)*c >= 0x20);
        return 0;
    }
    uint64_t header, total = 0;
    memcpy(&header, data, 8);
    for (size_t i = 0; i < s->tensor.count; i++) {
        check_tensor(s, &s->tensor.item[i], data, size);
        total += s->tensor.item[i].bytes;
    }
    CHECK(total == size - 8 - header);
    for (size_t i = 0; i < s->metadata.count; i++)
        CHECK(safetensors_metadata(s, s->metadata.item[i].key) == s->metadata.item[i].value);
    safetensors_close(s);
    return 0;
}
