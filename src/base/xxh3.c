#include "base/xxh3.h"

#include <xxhash.h>

struct xxh3 xxh3_begin(void) {
    struct xxh3 x = {XXH3_createState()};
    CHECK(x.state && XXH3_64bits_reset(x.state) == XXH_OK);
    return x;
}

void xxh3_add(struct xxh3 *x, const void *data, size_t bytes) {
    CHECK(XXH3_64bits_update(x->state, data, bytes) == XXH_OK);
}

uint64_t xxh3_end(struct xxh3 *x) {
    const uint64_t sum = XXH3_64bits_digest(x->state);
    XXH3_freeState(x->state);
    return sum;
}

uint64_t xxh3_of(const void *data, size_t bytes) {
    return XXH3_64bits(data, bytes);
}
