// Times the pointwise kernels on GPT-2 124M's shapes (microbatch 4 x 1024, qk norm and SwiGLU on shapes of that size),
// against memcpy of as many bytes by as many threads, in turns in the same run: prints the fastest of each and their
// ratio (a kernel that takes a millisecond is easily disturbed, and a disturbance can only slow it down). Several sets
// of operands take turns, so that the caches hold none of them. An operand that is read or written counts once for
// each; the copy counts what it reads and what it writes. Linked, like a test, with the library's objects.
//
//   pointwise [THREADS [WORD [INSTRUCTION-SET]]]     default: all processors, all ops, the best set
#include <omp.h>
#include <unistd.h>

#include "base/bf16.h"
#include "base/clock.h"
#include "base/region.h"
#include "kernels/cpu/isa.h"

enum { REPEATS = 25, MAX_SETS = 16 };
static const size_t ROTATION = (size_t)400 << 20, COPIED = (size_t)256 << 20;

struct shape {
    enum op op;
    const char *dims;                    // "m4096 C768": the extent of each dim letter
    double attribute[OP_MAX_ATTRIBUTES]; // in the order of ops.def
    bool accumulate, inplace;
};

static const struct shape shapes[] = {
    {OP_EMBED, "m4096 v50304 C768", {0}, false, false},
    {OP_EMBED_DW, "m4096 v50304 C768", {0}, true, false},
    {OP_ADD, "m4096 c768", {0}, false, false},
    {OP_LAYERNORM, "m4096 C768", {1e-5}, false, false},
    {OP_LAYERNORM_BWD, "m4096 C768", {0}, true, false},
    {OP_LAYERNORM_BWD, "m4096 C768", {0}, true, true},
    {OP_LAYERNORM_DX, "m4096 C768", {0}, false, true},
    {OP_LAYERNORM_DW, "m4096 C768", {0}, true, false},
    {OP_RMSNORM, "m4096 C768", {1e-5}, false, false},
    {OP_RMSNORM_BWD, "m4096 C768", {0}, true, true},
    {OP_QKNORM, "m4096 c2304 D64 h24", {12, 12, 1e-6}, false, false},
    {OP_QKNORM_DX, "m4096 c2304 D64 h24", {12, 12}, false, true},
    {OP_QKNORM_DW, "m4096 c2304 D64 h24", {12, 12}, true, false},
    {OP_ROPE, "m4096 c2304 S1024 D64", {24}, false, true},
    {OP_ROPE, "m4096 c2304 S1024 D64", {24}, false, false},
    {OP_GELU, "m4096 f3072", {0}, false, false},
    {OP_GELU, "m4096 f3072", {1}, false, false},
    {OP_GELU_DX, "m4096 f3072", {0}, false, true},
    {OP_GELU_DX, "m4096 f3072", {1}, false, true},
    {OP_SWIGLU, "m4096 c4096 f2048", {0}, false, false},
    {OP_SWIGLU_DX, "m4096 c4096 f2048", {0}, false, true},
    {OP_CROSS_ENTROPY, "m1024 V50304", {50257}, false, false},
    {OP_CROSS_ENTROPY_GRAD, "m1024 V50304", {50257}, false, true},
    {OP_LOGITS_MAX, "m1024 v50304", {50257}, false, false},
    {OP_LOGITS_SUM, "m1024 v50304", {50257}, false, false},
    {OP_LOGITS_GRAD, "m1024 v50304", {50257}, false, true},
    {OP_FAN_OUT, "n3145728", {0}, false, false},
    {OP_ZERO, "n3145728", {0}, false, false},
    {OP_SQUARE_SUM, "n124475904", {0}, false, false},
    {OP_ADAMW, "n124475904", {0.9, 0.95, 1e-8, 0.1}, false, true},
    {OP_LION, "n124475904", {0.9, 0.99, 0.1}, false, true},
    {OP_SGD, "n124475904", {0.9, 0.1}, false, true},
};

static int64_t extent(const char *dims, char letter) {
    if (letter == '1')
        return 1;
    const char *at = strchr(dims, letter);
    CHECK(at);
    return strtoll(at + 1, NULL, 10);
}

static int64_t count_of(const struct tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n *= t->dim[i];
    return n;
}

static double bytes_of(const struct tensor *t) {
    return t->data ? (double)count_of(t) * (double)dtype_size(t->dtype) : 0;
}

// ---- operands

struct scratch {
    struct region region;
    size_t used;
};

static void *arena_take(struct scratch *arena, size_t bytes) {
    void *p = (char *)arena->region.base + arena->used;
    arena->used += (bytes + 4095) & ~(size_t)4095;
    CHECK(arena->used <= arena->region.bytes);
    return p;
}

static void tensor_make(struct tensor *t, const struct op_operand *operand, const char *dims, enum dtype model,
                        struct scratch *arena) {
    static const char letters[] = "PASIUX";
    const enum dtype dtypes[] = {model, DTYPE_F32, DTYPE_F64, DTYPE_I32, DTYPE_U16, model};
    *t = (struct tensor){.dtype = dtypes[strchr(letters, operand->dtype) - letters], .ndim = operand->ndim};
    int64_t stride = 1;
    for (int i = operand->ndim - 1; i >= 0; i--) {
        t->dim[i] = extent(dims, operand->dim[i]);
        t->stride[i] = stride;
        stride *= t->dim[i];
    }
    t->data = arena_take(arena, (size_t)(stride * dtype_size(t->dtype)));
}

// How many values integers take: as many as there are positions or tokens; 1: all are zero.
static int64_t limit_of(const char *name, const char *dims) {
    if (strcmp(name, "first") == 0)
        return 1;
    return extent(dims, strcmp(name, "pos") == 0 ? 'S' : strchr(dims, 'V') ? 'V' : 'v') - 64;
}

// Values between 0 and 1; numbers of tokens and positions run through what there is.
static void tensor_fill(const struct tensor *t, const char *name, const char *dims) {
    int64_t n = count_of(t), limit = t->dtype == DTYPE_I32 ? limit_of(name, dims) : 1;
    for (int64_t i = 0; i < n; i++) {
        double x = (double)(i % 1021) / 1021;
        if (t->dtype == DTYPE_F32)
            ((float *)t->data)[i] = (float)x;
        else if (t->dtype == DTYPE_BF16)
            ((uint16_t *)t->data)[i] = bf16_from_float((float)x);
        else if (t->dtype == DTYPE_F64)
            ((double *)t->data)[i] = 0.5;
        else if (t->dtype == DTYPE_I32)
            ((int32_t *)t->data)[i] = (int32_t)(strcmp(name, "pos") == 0 ? i % limit : i * 7919 % limit);
        else
            ((uint16_t *)t->data)[i] = (uint16_t)i;
    }
}

static void call_make(struct call *call, const struct op_info *info, const struct shape *shape, enum dtype model,
                      const struct kernel *kernel, struct scratch *arena) {
    *call = (struct call){.op = shape->op, .inputs = info->inputs, .outputs = info->outputs};
    call->accumulate = shape->accumulate;
    for (int i = 0; i < info->inputs; i++) {
        if (info->in[i].dtype == 'U' && model == DTYPE_F32)
            continue;
        tensor_make(&call->in[i], &info->in[i], shape->dims, model, arena);
        tensor_fill(&call->in[i], info->in[i].name, shape->dims);
    }
    for (int i = 0; i < info->outputs; i++) {
        if (info->out[i].dtype == 'U' && model == DTYPE_F32)
            continue;
        if (shape->inplace && info->inplace[i] >= 0) {
            call->out[i] = call->in[info->inplace[i]];
            continue;
        }
        tensor_make(&call->out[i], &info->out[i], shape->dims, model, arena);
        tensor_fill(&call->out[i], "", shape->dims);
    }
    for (int i = 0; i < info->attributes; i++)
        if (info->attribute[i].is_float)
            call->attribute[i].f = shape->attribute[i];
        else
            call->attribute[i].i = (int64_t)shape->attribute[i];
    trireme_error error;
    if (kernel->prepare)
        CHECK(kernel->prepare(call, &call->prepared, &call->workspace_bytes, &error) == TRIREME_OK);
    call->workspace = arena_take(arena, (size_t)call->workspace_bytes);
}

// What the op must read and write. Of an embedding's table only the rows that occur count.
static double call_bytes(const struct call *call) {
    double bytes = 0;
    for (int i = 0; i < call->inputs; i++)
        bytes += call->op == OP_EMBED && i == 1 ? bytes_of(&call->out[0]) : bytes_of(&call->in[i]);
    for (int i = 0; i < call->outputs; i++)
        bytes += call->op == OP_EMBED_DW ? 8.0 * (double)count_of(&call->in[1]) : bytes_of(&call->out[i]);
    return bytes;
}

// ---- measuring

static double copy(char *to, const char *from, size_t bytes, int threads) {
    int64_t start = clock_now();
#pragma omp parallel num_threads(threads)
    {
        size_t t = (size_t)omp_get_thread_num(), n = (size_t)omp_get_num_threads();
        memcpy(to + bytes * t / n, from + bytes * t / n, bytes * (t + 1) / n - bytes * t / n);
    }
    return (double)(clock_now() - start);
}

static void measure(const struct op_info *info, const struct shape *shape, enum dtype model, enum isa isa, int threads,
                    struct scratch *arena) {
    struct kernel kernel = cpu_kernel_table_for(model, isa)[shape->op];
    if (!kernel.run)
        return;
    arena->used = 0;
    char *copies = arena_take(arena, 2 * COPIED);
    struct call call[MAX_SETS];
    int sets = 0;
    do {
        call_make(&call[sets], info, shape, model, &kernel, arena);
        call[sets].threads = threads;
        kernel.run(&call[sets++]);
    } while (sets < MAX_SETS && arena->used < 2 * COPIED + ROTATION);

    double bytes = call_bytes(&call[0]), taken = 1e30, copied = 1e30;
    size_t part = MIN((size_t)(bytes / 2), COPIED);
    for (int i = 0; i < REPEATS; i++) {
        size_t offset = (size_t)i % (COPIED / part) * part;
        double copying = copy(copies + COPIED + offset, copies + offset, part, threads) * (bytes / 2 / (double)part);
        int64_t start = clock_now();
        kernel.run(&call[i % sets]);
        double running = (double)(clock_now() - start);
        copied = MIN(copied, copying);
        taken = MIN(taken, running);
    }
    for (int i = 0; i < sets && kernel.release; i++)
        kernel.release(call[i].prepared);
    char name[64];
    snprintf(name, sizeof name, "%s%s", info->name, shape->inplace ? ", in place" : "");
    printf("%-29s %-22s %-5s %9.3f %8.1f %8.1f %6.0f%%\n", name, shape->dims, dtype_name(model), taken * 1e-6,
           bytes / taken, bytes / copied, 100 * copied / taken);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    const char *word = argc > 2 ? argv[2] : "";
    enum isa isa = isa_best();
    for (enum isa i = ISA_BASE; argc > 3 && i < ISA_COUNT; i++)
        if (isa_usable(i) && strcmp(argv[3], isa_name(i)) == 0)
            isa = i;
    if (argc > 3 && strcmp(argv[3], isa_name(isa)) != 0) {
        fprintf(stderr, "this machine has no instructions called %s\n", argv[3]);
        return 2;
    }
    struct scratch arena = {0};
    trireme_error error;
    if (region_create(&arena.region, (size_t)5 << 30, true, "operands", &error) != TRIREME_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    memset(arena.region.base, 1, 2 * COPIED);
    struct op_table *table = op_table_create();
    printf("%s, %d threads\n%-29s %-22s %-5s %9s %8s %8s %7s\n", isa_name(isa), threads, "op", "shape", "dtype", "ms",
           "GB/s", "memcpy", "ratio");
    for (int m = 0; m < 2; m++)
        for (size_t i = 0; i < ARRAY_LENGTH(shapes); i++)
            if (strstr(table->op[shapes[i].op].name, word)) {
                measure(&table->op[shapes[i].op], &shapes[i], m ? DTYPE_BF16 : DTYPE_F32, isa, threads, &arena);
                fflush(stdout);
            }
    free(table);
    region_release(&arena.region);
    return 0;
}
