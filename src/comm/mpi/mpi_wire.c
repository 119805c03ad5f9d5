// MPI as a wire: its messages between two, without its collectives. MPI_THREAD_FUNNELED is enough.
#include "base/base.h"
#include "comm/messages/wire.h"
#include "comm/mpi/unstarted.h"

#include <mpi.h>

// Between nodes, up to FAR_MOST bytes go in messages of FAR bytes. Over TCP, Open MPI sends messages below 64 KB at
// once; before a longer one it asks the receiver, whose answer queues behind everything that the receiver sends itself,
// and while ranks compute, long messages arrive at half the rate. MPI counts with int.
enum { MOST = 1 << 30, FAR = 60 << 10, FAR_MOST = 16 << 20 };

struct mpi_wire {
    struct wire base;
    MPI_Comm comm;
    // Of a test: the requests that are under way, where they are among those given, and which of them are complete.
    VEC(MPI_Request) request;
    VEC(int) index, done;
};

static struct mpi_wire *mpi_of(struct wire *wire) {
    return (struct mpi_wire *)wire;
}

_Static_assert(sizeof(MPI_Request) <= sizeof(struct wire_request), "a request holds one of MPI's");

static struct wire_request request_of(MPI_Request mpi) {
    struct wire_request request = {0};
    memcpy(&request, &mpi, sizeof mpi);
    return request;
}

static MPI_Request mpi_request_of(const struct wire_request *request) {
    MPI_Request mpi;
    memcpy(&mpi, request, sizeof mpi);
    return mpi;
}

static trireme_status mpi_start(struct wire *base, trireme_error *error) {
    struct mpi_wire *wire = mpi_of(base);
    int done = 0, provided = 0;
    MPI_Initialized(&done);
    if (done)
        FAIL(TRIREME_ERROR_USAGE, "MPI has been started in this process before: it can be only once");
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS || provided < MPI_THREAD_FUNNELED)
        FAIL(TRIREME_ERROR_IO, "MPI cannot be started with a thread of its own");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (MPI_Comm_dup(MPI_COMM_WORLD, &wire->comm) != MPI_SUCCESS)
        FAIL(TRIREME_ERROR_IO, "MPI cannot duplicate its communicator");
    MPI_Comm_set_errhandler(wire->comm, MPI_ERRORS_RETURN);
    int *largest_tag, known;
    MPI_Comm_get_attr(wire->comm, MPI_TAG_UB, &largest_tag, &known);
    base->last_tag = known ? *largest_tag : 32767;
    MPI_Comm_rank(wire->comm, &base->rank);
    MPI_Comm_size(wire->comm, &base->ranks);
    return TRIREME_OK;
}

static void mpi_unstarted(const struct wire *wire, char *text, size_t limit) {
    (void)wire;
    unstarted_print(text, limit);
}

static bool mpi_send(struct wire *wire, int rank, int tag, const void *data, int64_t bytes, struct wire_request *out) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Isend(data, (int)bytes, MPI_BYTE, rank, tag, mpi_of(wire)->comm, &request);
    *out = request_of(request);
    return code == MPI_SUCCESS;
}

static bool mpi_receive(struct wire *wire, int rank, int tag, void *data, int64_t bytes, struct wire_request *out) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int from = rank == WIRE_ANY ? MPI_ANY_SOURCE : rank;
    const int code = MPI_Irecv(data, (int)bytes, MPI_BYTE, from, tag, mpi_of(wire)->comm, &request);
    *out = request_of(request);
    return code == MPI_SUCCESS;
}

static int mpi_test(struct wire *base, struct wire_request *request, int count, int *done, char reason[WIRE_REASON]) {
    struct mpi_wire *wire = mpi_of(base);
    int complete = 0;
    wire->request.count = wire->index.count = 0;
    for (int i = 0; i < count; i++) {
        if (!request[i].bits)
            continue;
        VEC_PUSH(&wire->request, mpi_request_of(&request[i]));
        VEC_PUSH(&wire->index, i);
    }
    if (wire->request.count == 0)
        return 0;
    VEC_RESERVE(&wire->done, wire->request.count);
    const int code =
        MPI_Testsome((int)wire->request.count, wire->request.item, &complete, wire->done.item, MPI_STATUSES_IGNORE);
    if (code != MPI_SUCCESS) {
        char text[MPI_MAX_ERROR_STRING] = "";
        int length = 0;
        MPI_Error_string(code, text, &length);
        snprintf(reason, WIRE_REASON, "%s", text);
        return -1;
    }
    for (int k = 0; k < complete; k++) {
        done[k] = wire->index.item[wire->done.item[k]];
        request[done[k]].bits = 0;
    }
    return complete;
}

static void mpi_cancel(struct wire *wire, struct wire_request *request) {
    (void)wire;
    MPI_Request mpi = mpi_request_of(request);
    MPI_Cancel(&mpi);
}

static void mpi_end(struct wire *wire) {
    MPI_Comm_free(&mpi_of(wire)->comm);
    MPI_Finalize();
}

static void mpi_release(struct wire *base) {
    struct mpi_wire *wire = mpi_of(base);
    VEC_RELEASE(&wire->request);
    VEC_RELEASE(&wire->index);
    VEC_RELEASE(&wire->done);
    free(wire);
}

static const struct wire_functions MPI = {
    .start = mpi_start,
    .unstarted = mpi_unstarted,
    .send = mpi_send,
    .receive = mpi_receive,
    .test = mpi_test,
    .cancel = mpi_cancel,
    .end = mpi_end,
    .release = mpi_release,
};

trireme_status world_create_mpi(struct world **out, double deadline, trireme_error *error) {
    struct mpi_wire *wire = mem_alloc(sizeof *wire);
    wire->base = (struct wire){.functions = &MPI,
                               .name = "MPI",
                               .node = getenv("TRIREME_NODE"),
                               .most = MOST,
                               .far = FAR,
                               .far_most = FAR_MOST};
    return world_create_messages(out, &wire->base, deadline, error);
}

const char *world_mpi_version(void) {
#ifdef OPEN_MPI
    return "Open MPI";
#else
    return "MPICH";
#endif
}
