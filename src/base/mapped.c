#include "base/mapped.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

bool mapped_copy(const void *from, size_t bytes, void *to) {
    enum { MOST = 1 << 30 }; // the kernel copies no more than 2 GiB at once
    for (size_t done = 0, now; done < bytes; done += now) {
        now = MIN(bytes - done, (size_t)MOST);
        const struct iovec local = {(char *)to + done, now}, remote = {(char *)from + done, now};
        const ssize_t got = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
        if (got < 0 && errno != EFAULT)
            memcpy(local.iov_base, remote.iov_base, now);
        else if (got < (ssize_t)now)
            return false;
    }
    return true;
}

// A fault maps what the cache has around a page: of the aligned 64 KiB of addresses that it is in, or all of the block
// of memory that it is in, which begins at a multiple of its size in the file, 2 MiB at most.
void mapped_forget(const void *map, size_t length, size_t from, size_t bytes) {
    enum { NEAR = 1 << 16, BLOCK = 1 << 21 };
    const size_t begin = (from > NEAR ? from - NEAR : 0) / BLOCK * BLOCK,
                 end = MIN(length, (from + bytes + NEAR + BLOCK - 1) / BLOCK * BLOCK);
    if (bytes > 0 && begin < end)
        madvise((char *)map + begin, end - begin, MADV_DONTNEED);
}
