// How algorithms split and move bytes.
#include "comm/threads/threads.h"

int64_t part_begin(int64_t count, int64_t size, int ranks, int index) {
    if (index == ranks)
        return count;
    int64_t line = 64 / size, lines = count / line;
    return (lines / ranks * index + lines % ranks * index / ranks) * line;
}

bool is_streamed(int64_t bytes) {
    return bytes >= 16 << 20;
}

void copy_bytes(void *to, const void *from, int64_t bytes, bool streamed) {
    if (bytes == 0 || to == from)
        return;
    if (streamed)
        stream_copy(to, from, (size_t)bytes);
    else
        memcpy(to, from, (size_t)bytes);
}
