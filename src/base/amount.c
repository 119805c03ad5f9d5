#include "base/amount.h"

#include <inttypes.h>
#include <math.h>
#include <strings.h>

struct amount amount(int64_t bytes) {
    static const char *const UNITS[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double count = (double)bytes;
    size_t unit = 0;
    for (; fabs(count) >= 999.95 && unit + 1 < ARRAY_LENGTH(UNITS); unit++)
        count /= 1000;
    struct amount a;
    snprintf(a.text, sizeof a.text, "%.*f %s", unit ? 1 : 0, count, UNITS[unit]);
    return a;
}

bool amount_read(const char *text, int64_t *bytes) {
    static const struct {
        const char *word;
        double bytes;
    } UNITS[] = {{"", 1},
                 {"B", 1},
                 {"KB", 1e3},
                 {"MB", 1e6},
                 {"GB", 1e9},
                 {"TB", 1e12},
                 {"KiB", 1ull << 10},
                 {"MiB", 1ull << 20},
                 {"GiB", 1ull << 30},
                 {"TiB", 1ull << 40}};
    if (*text < '0' || *text > '9')
        return false;
    char *end;
    const double number = strtod(text, &end);
    end += strspn(end, " ");
    for (size_t i = 0; i < ARRAY_LENGTH(UNITS); i++)
        if (strcasecmp(end, UNITS[i].word) == 0) {
            const double all = number * UNITS[i].bytes;
            *bytes = all < 0x1p62 ? (int64_t)all : 0;
            return all < 0x1p62;
        }
    return false;
}

struct counted counted(int64_t count, const char *what) {
    struct counted c;
    snprintf(c.text, sizeof c.text, "%" PRId64 " %s%s", count, what, count == 1 ? "" : "s");
    return c;
}

void duration_text(double seconds, char out[32]) {
    long s = !(seconds > 0) ? 0 : seconds > 1e9 ? 1000000000L : (long)(seconds + 0.5);
    if (s < 3600)
        snprintf(out, 32, "%ldm%02lds", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, 32, "%ldh%02ldm", s / 3600, s / 60 % 60);
    else
        snprintf(out, 32, "%ldd%02ldh", s / 86400, s / 3600 % 24);
}
