#include "tokenizer/metaspace.h"

#include "tokenizer/step_types.h"

trireme_status metaspace_read(struct metaspace *out, const json_t *step, const char *where, trireme_error *error) {
    static const char *const SCHEMES[] = {"always", "first", "never"};
    int scheme = METASPACE_ALWAYS;
    bool space = true;
    out->split = true;
    TRY(step_read_character(step, where, "replacement", &out->replacement, error));
    TRY(step_read_word(step, where, "prepend_scheme", JSON_OPTIONAL, SCHEMES, ARRAY_LENGTH(SCHEMES), &scheme, error));
    TRY(json_read_boolean(step, where, "add_prefix_space", JSON_OPTIONAL, &space, error));
    TRY(json_read_boolean(step, where, "split", JSON_OPTIONAL, &out->split, error));
    if (!space && scheme != METASPACE_NEVER)
        FAIL(TRIREME_ERROR_USAGE, "%s: Metaspace's \"add_prefix_space\" contradicts its \"prepend_scheme\"", where);
    out->scheme = (enum metaspace_scheme)scheme;
    return TRIREME_OK;
}
