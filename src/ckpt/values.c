#include "ckpt/values.h"

static trireme_status get(void *user, size_t number, const void **data, trireme_error *error) {
    (void)error;
    *data = ((void *const *)user)[number];
    return TRIREME_OK;
}

static bool begin(void *user, size_t number, size_t bytes) {
    memset(((void *const *)user)[number], 0, bytes);
    return true;
}

static void put(void *user, size_t number, size_t at, size_t bytes, const void *from) {
    memcpy(((char *const *)user)[number] + at, from, bytes);
}

struct parameter_values parameter_values_at(enum dtype dtype, void *const *data) {
    return (struct parameter_values){dtype, (void *)data, get, begin, put};
}
