#include "data/token_mapping.h"

#include "base/mapped.h"
#include "base/xxh3.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t nanoseconds(struct timespec at) {
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

static trireme_status mapping_map(struct token_mapping *m, int fd, const struct stat *info, trireme_error *error) {
    void *data = mmap(NULL, (size_t)info->st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        const int reason = errno;
        // With a set of many files it is not memory that runs out.
        FAIL(TRIREME_ERROR_IO, "%s: cannot map %" PRId64 " bytes: %s%s", m->path, (int64_t)info->st_size,
             strerror(reason),
             reason == ENOMEM ? ": a process may have no more address space (ulimit -v), or no more files mapped "
                                "(vm.max_map_count)"
                              : "");
    }
    m->data = data;
    m->bytes = info->st_size;
    m->device = info->st_dev;
    m->inode = info->st_ino;
    m->modified = nanoseconds(info->st_mtim);
    m->sums = block_sums_create(m->bytes);
    m->checked = mem_alloc((size_t)m->sums.count);
    // Windows are read in random order: reading ahead (megabytes on some disks), the kernel would read what is not
    // needed. mapping_will_need asks for what is. Advice may fail: it only changes speed.
    madvise(data, (size_t)info->st_size, MADV_RANDOM);
    return TRIREME_OK;
}

trireme_status mapping_open(struct token_mapping *m, char *path, trireme_error *error) {
    *m = (struct token_mapping){.path = path};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe that nobody writes to is refused, not waited for
    if (fd < 0)
        FAIL(TRIREME_ERROR_IO, "%s: cannot open: %s", path, strerror(errno));
    struct stat info;
    trireme_status status = TRIREME_OK;
    if (fstat(fd, &info) != 0)
        status = error_set(error, TRIREME_ERROR_IO, "%s: cannot examine: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        status = error_set(error, TRIREME_ERROR_USAGE, "%s: is not a regular file", path);
    else if (info.st_size == 0)
        status = error_set(error, TRIREME_ERROR_CORRUPT, "%s: the token file is empty (0 bytes)", path);
    if (status == TRIREME_OK)
        status = mapping_map(m, fd, &info, error);
    close(fd);
    return status;
}

void mapping_release(struct token_mapping *m) {
    if (m->data)
        munmap((void *)m->data, (size_t)m->bytes);
    block_sums_release(&m->sums);
    free((void *)m->checked);
    free(m->told_by);
    free(m->path);
    *m = (struct token_mapping){0};
}

static bool is_named(const struct token_mapping *m, struct stat *info) {
    return stat(m->path, info) == 0 && info->st_dev == m->device && info->st_ino == m->inode;
}

trireme_status mapping_check(const struct token_mapping *m, trireme_error *error) {
    struct stat info;
    uint8_t last;
    if (!m->data)
        return TRIREME_OK;
    if (is_named(m, &info)) {
        if (info.st_size < m->bytes)
            FAIL(TRIREME_ERROR_CORRUPT,
                 "%s became shorter while it was read (%" PRId64 " bytes, before %" PRId64
                 "): write another file and rename it",
                 m->path, (int64_t)info.st_size, m->bytes);
    } else if (!mapped_copy(m->data + m->bytes - 1, 1, &last)) {
        FAIL(TRIREME_ERROR_CORRUPT,
             "%s has another name now, and became shorter while it was read, or its disk failed: write another file",
             m->path);
    }
    return TRIREME_OK;
}

trireme_status mapping_copy(const struct token_mapping *m, int64_t begin, int64_t end, void *out,
                            trireme_error *error) {
    if (mapped_copy(m->data + begin, (size_t)(end - begin), out))
        return TRIREME_OK;
    TRY(mapping_check(m, error));
    FAIL(TRIREME_ERROR_CORRUPT,
         "%s became shorter while it was read (write another file and rename it), or its disk failed", m->path);
}

void mapping_will_need(const struct token_mapping *m, int64_t begin, int64_t end) {
    const int64_t page = sysconf(_SC_PAGESIZE), aligned = begin / page * page;
    madvise((void *)(m->data + aligned), (size_t)(end - aligned), MADV_WILLNEED);
}

void mapping_give_back(const struct token_mapping *m, int64_t from, int64_t bytes) {
    if (!m->stays)
        mapped_forget(m->data, (size_t)m->bytes, (size_t)from, (size_t)bytes);
}

// The checksum of what is there now.
static trireme_status mapping_sum_now(const struct token_mapping *m, int64_t block, uint64_t *sum,
                                      trireme_error *error) {
    enum { PIECE = 1 << 14 };
    uint8_t bytes[PIECE];
    const int64_t begin = block_begin(block), end = block_end(&m->sums, block);
    struct xxh3 xxh3 = xxh3_begin();
    trireme_status status = TRIREME_OK;
    mapping_will_need(m, begin, end);
    for (int64_t at = begin; at < end && status == TRIREME_OK; at += PIECE) {
        const int64_t stop = MIN(end, at + PIECE);
        status = mapping_copy(m, at, stop, bytes, error);
        xxh3_add(&xxh3, bytes, (size_t)(stop - at));
    }
    *sum = block_sum(xxh3_end(&xxh3));
    mapping_give_back(m, begin, end - begin);
    return status;
}

// Checks a block, or makes its checksum known.
static trireme_status mapping_verify_block(const struct token_mapping *m, int64_t block, trireme_error *error) {
    uint64_t now, expected = 0;
    if (m->checked[block])
        return TRIREME_OK;
    TRY(mapping_sum_now(m, block, &now, error));
    if (!atomic_compare_exchange_strong(&m->sums.sum[block], &expected, now) && expected != now)
        FAIL(TRIREME_ERROR_CORRUPT,
             "%s: bytes %" PRId64 " to %" PRId64 " are not those that %s has the checksum of: the file is damaged, or "
             "was written by another program: put it back, or prepare the text again",
             m->path, block_begin(block), block_end(&m->sums, block), m->told_by ? m->told_by : "this run");
    m->checked[block] = true;
    return TRIREME_OK;
}

trireme_status mapping_verify(const struct token_mapping *m, int64_t begin, int64_t end, trireme_error *error) {
    for (int64_t block = begin / BLOCK_BYTES; block_begin(block) < end; block++)
        TRY(mapping_verify_block(m, block, error));
    return TRIREME_OK;
}

trireme_status mapping_sum(const struct token_mapping *m, int64_t block, uint64_t *sum, trireme_error *error) {
    if (!m->sums.sum[block])
        TRY(mapping_verify_block(m, block, error));
    *sum = m->sums.sum[block];
    return TRIREME_OK;
}

void mapping_expect(struct token_mapping *m, const struct block_sums *sums, const char *list) {
    CHECK(sums->bytes == m->bytes);
    for (int64_t i = 0; i < sums->count; i++) {
        uint64_t unknown = 0;
        atomic_compare_exchange_strong(&m->sums.sum[i], &unknown, sums->sum[i]);
    }
    if (!m->told_by)
        m->told_by = mem_strdup(list);
}

trireme_status mapping_check_unchanged(struct token_mapping *m, trireme_error *error) {
    struct stat info;
    if (!m->data || !is_named(m, &info) || info.st_size < m->bytes || nanoseconds(info.st_mtim) == m->modified)
        return TRIREME_OK;
    for (int64_t block = 0; block < m->sums.count; block++) {
        const uint64_t known = m->sums.sum[block];
        uint64_t now = 0;
        if (known)
            TRY(mapping_sum_now(m, block, &now, error));
        if (now != known)
            FAIL(TRIREME_ERROR_CORRUPT,
                 "%s was written into while the run read it, and bytes %" PRId64 " to %" PRId64
                 " are others now: put those back that the run began with (next time write another file and rename it)",
                 m->path, block_begin(block), block_end(&m->sums, block));
    }
    m->modified = nanoseconds(info.st_mtim);
    return TRIREME_OK;
}
