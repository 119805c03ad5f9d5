#include "base/mapped.h"

#include <errno.h>
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
