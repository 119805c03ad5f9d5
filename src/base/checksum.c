#include "base/checksum.h"

static crypto_generichash_state *state_of(struct checksum *c) {
    return (crypto_generichash_state *)(((uintptr_t)c->memory + 63) & ~(uintptr_t)63);
}

void checksum_begin(struct checksum *c) {
    // Chooses the fastest implementation once for the process; safe from any thread.
    CHECK(sodium_init() >= 0);
    CHECK(crypto_generichash_init(state_of(c), NULL, 0, CHECKSUM_BYTES) == 0);
}

void checksum_add(struct checksum *c, const void *data, size_t bytes) {
    if (bytes)
        CHECK(crypto_generichash_update(state_of(c), data, bytes) == 0);
}

void checksum_end(struct checksum *c, char hex[CHECKSUM_HEX]) {
    unsigned char sum[CHECKSUM_BYTES];
    CHECK(crypto_generichash_final(state_of(c), sum, sizeof sum) == 0);
    sodium_bin2hex(hex, CHECKSUM_HEX, sum, sizeof sum);
}

void checksum_of(const void *data, size_t bytes, char hex[CHECKSUM_HEX]) {
    struct checksum c;
    checksum_begin(&c);
    checksum_add(&c, data, bytes);
    checksum_end(&c, hex);
}
