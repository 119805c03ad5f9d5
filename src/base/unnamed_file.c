#include "base/unnamed_file.h"

#include "base/amount.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

// Some file systems know no unnamed files: there the name is taken away at once.
static int open_unnamed(const char *directory) {
    int descriptor = open(directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (descriptor >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return descriptor;
    char *path = mem_printf("%s/trireme-XXXXXX", directory);
    descriptor = mkostemp(path, O_CLOEXEC);
    if (descriptor >= 0)
        unlink(path);
    free(path);
    return descriptor;
}

// Where the file system cannot reserve, this writes zeros.
static int reserve(int descriptor, int64_t bytes) {
    int failed;
    do
        failed = posix_fallocate(descriptor, 0, bytes);
    while (failed == EINTR);
    return failed;
}

trireme_status unnamed_file_create(struct unnamed_file *file, const char *directory, int64_t bytes, const char *what,
                                   trireme_error *error) {
    CHECK(bytes > 0);
    const int descriptor = open_unnamed(directory);
    if (descriptor < 0)
        FAIL(TRIREME_ERROR_IO, "%.200s takes no file for %s: %s", directory, what, strerror(errno));
    int failed = reserve(descriptor, bytes);
    void *map =
        failed ? NULL : mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
    if (map == MAP_FAILED)
        failed = errno;
    if (failed) {
        close(descriptor);
        FAIL(TRIREME_ERROR_IO, "%.200s has no room for %s, which takes %s: %s", directory, what, amount(bytes).text,
             strerror(failed));
    }
    *file = (struct unnamed_file){descriptor, bytes, map};
    return TRIREME_OK;
}

void unnamed_file_release(struct unnamed_file *file) {
    if (!file->map)
        return;
    munmap(file->map, (size_t)file->bytes);
    close(file->descriptor);
    *file = (struct unnamed_file){0};
}

enum { MOST_AT_ONCE = 1 << 30 }; // the kernel moves no more than 2 GiB at once

trireme_status unnamed_file_read(const struct unnamed_file *file, int64_t at, void *to, int64_t bytes,
                                 trireme_error *error) {
    for (int64_t done = 0; done < bytes;) {
        const ssize_t got =
            pread(file->descriptor, (char *)to + done, (size_t)MIN(bytes - done, (int64_t)MOST_AT_ONCE), at + done);
        if (got == 0 || (got < 0 && errno != EINTR))
            FAIL(TRIREME_ERROR_IO, "cannot read %s of a temporary file: %s", amount(bytes - done).text,
                 got ? strerror(errno) : "it ends before them");
        done += MAX(got, 0);
    }
    return TRIREME_OK;
}

trireme_status unnamed_file_write(const struct unnamed_file *file, int64_t at, const void *from, int64_t bytes,
                                  trireme_error *error) {
    for (int64_t done = 0; done < bytes;) {
        const ssize_t put = pwrite(file->descriptor, (const char *)from + done,
                                   (size_t)MIN(bytes - done, (int64_t)MOST_AT_ONCE), at + done);
        if (put < 0 && errno != EINTR)
            FAIL(TRIREME_ERROR_IO, "cannot write %s to a temporary file: %s", amount(bytes - done).text,
                 strerror(errno));
        done += MAX(put, 0);
    }
    return TRIREME_OK;
}

void unnamed_file_forget(const struct unnamed_file *file) {
    if (file->map)
        madvise(file->map, (size_t)file->bytes, MADV_DONTNEED);
}
