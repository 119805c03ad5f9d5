#include "run/verification.h"

#include "ckpt/state_files.h"

// What rank 0 has all verify: a path of so many bytes follows.
struct request {
    int32_t content, spares_state;
    int64_t path_bytes;
};

// What a rank has come to.
struct finding {
    int64_t piece; // the number of the damaged one
    int32_t status;
};

// Which share of the files each rank reads: ranks that find the same manifest as rank 0 take part. False: this one does
// not.
static bool verification_share(struct checksum_share *share, const char (*manifest)[CHECKSUM_HEX], int ranks,
                               int rank) {
    *share = (struct checksum_share){0};
    for (int i = 0; i < ranks; i++) {
        if (strcmp(manifest[i], manifest[0]) != 0)
            continue;
        share->rank += i < rank;
        share->ranks++;
    }
    return strcmp(manifest[rank], manifest[0]) == 0;
}

static trireme_status verification_find_share(struct checksum_share *share, bool *takes_part, const char *path,
                                              struct communicator *all, trireme_error *error) {
    *share = CHECKSUM_WHOLE;
    *takes_part = true;
    if (!all)
        return TRIREME_OK;
    const int ranks = communicator_size(all);
    char own[CHECKSUM_HEX] = "";
    char(*manifest)[CHECKSUM_HEX] = mem_alloc((size_t)ranks * sizeof *manifest);
    manifest_identify(path, own);
    trireme_status status = comm_all_gather_bytes(all, own, manifest, sizeof own, error);
    if (status == TRIREME_OK)
        *takes_part = verification_share(share, (const char(*)[CHECKSUM_HEX])manifest, ranks, communicator_index(all));
    free(manifest);
    return status;
}

static trireme_status verification_read(const char *path, struct manifest_check check, struct checksum_share *share,
                                        const struct checksum_watch *watch, trireme_error *error) {
    struct manifest m = {0};
    TRY(manifest_read(path, &m, error));
    trireme_status status = manifest_verify(&m, path, check, share, watch, error);
    manifest_release(&m);
    return status;
}

// Makes what the rank with the first damaged piece has found what all have.
static trireme_status verification_agree(const struct checksum_share *share, trireme_error *found,
                                         struct communicator *all, trireme_error *error) {
    const int ranks = communicator_size(all);
    const struct finding own = {share->failed, (int32_t)found->status};
    struct finding *each = mem_alloc((size_t)ranks * sizeof *each);
    trireme_status status = comm_all_gather_bytes(all, &own, each, sizeof own, error);
    int first = NONE;
    for (int i = 0; i < ranks && status == TRIREME_OK; i++)
        if (each[i].status != TRIREME_OK && (first == NONE || each[i].piece < each[first].piece))
            first = i;
    free(each);
    if (status == TRIREME_OK && first != NONE)
        status = comm_broadcast(all, found, sizeof *found, first, error);
    return status;
}

trireme_status verification_together(const char *path, struct manifest_check check, struct communicator *all,
                                     trireme_error *error) {
    struct checksum_share share;
    struct ranks_work work = ranks_work_begin(all);
    const struct checksum_watch watch = {ranks_work_on, &work};
    trireme_error found = {0};
    bool takes_part;
    TRY(verification_find_share(&share, &takes_part, path, all, error));
    if (takes_part && verification_read(path, check, &share, &watch, &found) == TRIREME_OK)
        found = (trireme_error){0}; // it may tell of a file that was accepted after all
    TRY(ranks_work_end(&work, error));
    if (all)
        TRY(verification_agree(&share, &found, all, error));
    return found.status == TRIREME_OK ? TRIREME_OK : error_repeat(error, &found);
}

static trireme_status verification_request(void *user, const char *path, struct manifest_check check,
                                           trireme_error *error) {
    struct communicator *all = user;
    if (!all || !check.content)
        return directory_verify(path, check, NULL, error);
    CHECK(!check.spare || check.spare == state_files_own);
    struct request request = {check.content, check.spare != NULL, (int64_t)strlen(path) + 1};
    char *copy = mem_strdup(path);
    trireme_status status = ranks_tell_part(all, error);
    if (status == TRIREME_OK)
        status = comm_broadcast(all, &request, sizeof request, 0, error);
    if (status == TRIREME_OK)
        status = comm_broadcast(all, copy, request.path_bytes, 0, error);
    free(copy);
    TRY(status);
    return verification_together(path, check, all, error);
}

// Fails only where ranks are lost.
static trireme_status verification_serve(void *user, trireme_error *error) {
    struct communicator *all = user;
    struct request request;
    trireme_error found;
    TRY(comm_broadcast(all, &request, sizeof request, 0, error));
    char *path = mem_alloc((size_t)request.path_bytes);
    trireme_status status = comm_broadcast(all, path, request.path_bytes, 0, error);
    const struct manifest_check check = {.content = request.content,
                                         .spare = request.spares_state ? state_files_own : NULL};
    if (status == TRIREME_OK)
        verification_together(path, check, all, &found);
    free(path);
    return status;
}

struct directory_verifier verification_lead(struct communicator *all) {
    return (struct directory_verifier){verification_request, all};
}

struct ranks_part verification_part(struct communicator *all) {
    return (struct ranks_part){verification_serve, all};
}
