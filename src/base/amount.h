// Bytes, seconds and counts as people read them.
#ifndef BASE_AMOUNT_H
#define BASE_AMOUNT_H

#include "base/base.h"

// "512 B", "4.4 MB", "1148.9 GB" is "1.1 TB".
struct amount {
    char text[16];
};
struct amount amount(int64_t bytes);
// "1 layer", "2 layers".
struct counted {
    char text[80];
};
struct counted counted(int64_t count, const char *what);
// "1m05s", "2h10m", "3d04h"; nothing where it is negative or no number, and no more than 1e9 seconds.
void duration_text(double seconds, char out[32]);

#endif
