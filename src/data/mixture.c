#include "data/mixture.h"

#include "base/json.h"

#include <ctype.h>
#include <math.h>

// ---- as it is written

static trireme_status mixture_refuse(const char *entry, size_t length, trireme_error *error) {
    char excerpt[JSON_EXCERPT_BYTES];
    FAIL(TRIREME_ERROR_USAGE,
         "%s: expected a positive weight, a space and a path, for each source, as in \"0.7 text/wiki, 0.3 text/code\"",
         json_excerpt_bytes(entry, length, excerpt));
}

static trireme_status mixture_add(struct mixture *m, const char *entry, size_t length, trireme_error *error) {
    while (length && isspace((unsigned char)*entry))
        entry++, length--;
    while (length && isspace((unsigned char)entry[length - 1]))
        length--;
    char *text = mem_printf("%.*s", (int)length, entry), *path = text;
    const double weight = strtod(text, &path);
    const bool apart = path > text && isspace((unsigned char)*path);
    while (isspace((unsigned char)*path))
        path++;
    const bool good = apart && *path && isfinite(weight) && weight > 0;
    if (good) {
        m->weight[m->count] = weight;
        m->path[m->count++] = mem_strdup(path);
    }
    free(text);
    return good ? TRIREME_OK : mixture_refuse(entry, length, error);
}

trireme_status mixture_parse(const char *text, struct mixture *out, trireme_error *error) {
    struct mixture m = {0};
    trireme_status status = TRIREME_OK;
    for (const char *at = text, *end = text; end && status == TRIREME_OK; at = end + 1) {
        end = strchr(at, ',');
        if (m.count == MIXTURE_SOURCES)
            status = error_set(error, TRIREME_ERROR_USAGE, "more than %d sources", MIXTURE_SOURCES);
        else
            status = mixture_add(&m, at, end ? (size_t)(end - at) : strlen(at), error);
        if (!end)
            break;
    }
    if (status == TRIREME_OK)
        *out = m;
    else
        mixture_release(&m);
    return status;
}

void mixture_release(struct mixture *m) {
    for (int i = 0; i < m->count; i++)
        free(m->path[i]);
    *m = (struct mixture){0};
}

// ---- proportions

// Sources are taken off one after the other: of K samples the first one has K x share, rounded, and the rest is shared
// among the others in the same way. So the source of a sample, and its number there, follow from the sample's number by
// one multiplication for each source, and nothing is to be stored.

enum { SHARE_BITS = 62 };

struct mixture_shares mixture_shares(const double *weight, int count) {
    CHECK(0 < count && count <= MIXTURE_SOURCES);
    struct mixture_shares s = {.count = count};
    double rest = 0;
    for (int i = count - 1; i >= 0; i--) {
        const double scaled = ldexp(weight[i], -8); // the sum stays finite
        rest += scaled;
        s.share[i] = (uint64_t)ldexp(scaled / rest, SHARE_BITS);
    }
    return s;
}

double mixture_part(const struct mixture_shares *s, int source) {
    double rest = 1;
    for (int i = 0; i < source; i++)
        rest *= 1 - ldexp((double)s->share[i], -SHARE_BITS);
    return rest * ldexp((double)s->share[source], -SHARE_BITS);
}

// How many of the first k samples have this share.
static uint64_t samples_before(uint64_t share, uint64_t k) {
    const unsigned __int128 half = (unsigned __int128)1 << (SHARE_BITS - 1);
    return (uint64_t)(((unsigned __int128)share * k + half) >> SHARE_BITS);
}

struct mixture_sample mixture_sample(const struct mixture_shares *s, uint64_t k) {
    for (int i = 0; i < s->count - 1; i++) {
        const uint64_t before = samples_before(s->share[i], k);
        if (samples_before(s->share[i], k + 1) > before)
            return (struct mixture_sample){i, before};
        k -= before;
    }
    return (struct mixture_sample){s->count - 1, k};
}
