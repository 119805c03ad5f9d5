#include "base/xxh3.h"

#define XXH_STATIC_LINKING_ONLY // the size of a state: its memory is ours, which is never refused
#include <xxhash.h>

struct xxh3 xxh3_begin(void) {
    struct xxh3 x = {mem_aligned(64, sizeof(XXH3_state_t))};
    CHECK(XXH3_64bits_reset(x.state) == XXH_OK);
    return x;
}

void xxh3_add(struct xxh3 *x, const void *data, size_t bytes) {
    CHECK(XXH3_64bits_update(x->state, data, bytes) == XXH_OK);
}

uint64_t xxh3_end(struct xxh3 *x) {
    const uint64_t sum = XXH3_64bits_digest(x->state);
    free(x->state);
    return sum;
}

uint64_t xxh3_of(const void *data, size_t bytes) {
    return XXH3_64bits(data, bytes);
}
