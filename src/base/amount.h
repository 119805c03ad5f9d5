// Bytes, seconds and counts as text for people.
#ifndef BASE_AMOUNT_H
#define BASE_AMOUNT_H

#include "base/base.h"

// Bytes in decimal units: "512 B", "4.4 MB", "1.1 TB".
struct amount {
    char text[16];
};
struct amount amount(int64_t bytes);
// Reads a size such as "5GB", "1.5 GiB" or "4096"; false where the text is none, or beyond 2^62.
bool amount_read(const char *text, int64_t *bytes);
// "1 layer", "2 layers": `what` is the singular.
struct counted {
    char text[80];
};
struct counted counted(int64_t count, const char *what);
// "1m05s", "2h10m", "3d04h". Negative numbers and NaN count as 0, more than 1e9 seconds as 1e9.
void duration_text(double seconds, char out[32]);

#endif
