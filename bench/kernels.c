// Times matrix products and attention on GPT-2 124M's shapes, a small model's and generation's, against the FMA peak
// measured in the same run; where oneDNN is at hand, its matrix product on the same operands takes turns with ours.
// Medians. Attention counts the multiply-adds that the causal mask leaves.
//
//   kernels [THREADS [WORD [INSTRUCTION-SET]]]     default: all processors, all lines, the best set
#include <math.h>
#include <omp.h>
#include <unistd.h>

#include "base/bf16.h"
#include "base/clock.h"
#include "base/region.h"
#include "kernels/cpu/peak.h"

#ifdef BENCH_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

enum { REPEATS = 9 };

struct scratch {
    struct region region;
    size_t used;
};

static void *take(struct scratch *arena, int64_t bytes) {
    void *p = (char *)arena->region.base + arena->used;
    arena->used += ((size_t)bytes + 4095) & ~(size_t)4095;
    CHECK(arena->used <= arena->region.bytes);
    return p;
}

// A contiguous tensor of values between -0.5 and 0.5.
static struct tensor make(struct scratch *arena, enum dtype dtype, int ndim, const int64_t *dim) {
    struct tensor t = {.dtype = dtype, .ndim = ndim};
    int64_t count = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        t.dim[i] = dim[i];
        t.stride[i] = count;
        count *= dim[i];
    }
    t.data = take(arena, count * dtype_size(dtype));
    for (int64_t i = 0; i < count; i++) {
        float x = (float)(i * 7919 % 10007) / 10007 - 0.5f;
        if (dtype == DTYPE_BF16)
            ((uint16_t *)t.data)[i] = bf16_from_float(x);
        else if (dtype == DTYPE_F32)
            ((float *)t.data)[i] = x;
    }
    return t;
}

static struct tensor matrix(struct scratch *arena, enum dtype dtype, int64_t rows, int64_t columns) {
    return make(arena, dtype, 2, (int64_t[]){rows, columns});
}

static double median(double *x) {
    sort_doubles(x, REPEATS);
    return x[REPEATS / 2];
}

static void prepare(struct call *call, const struct kernel *kernel, struct scratch *arena) {
    trireme_error error;
    if (kernel->prepare)
        CHECK(kernel->prepare(call, &call->prepared, &call->workspace_bytes, &error) == TRIREME_OK);
    call->workspace = take(arena, call->workspace_bytes);
    kernel->run(call);
}

// Seconds per run, so many runs together that clock and threads' waking do not matter.
static double once(const struct call *call, const struct kernel *kernel, int inner) {
    int64_t start = clock_now();
    for (int i = 0; i < inner; i++)
        kernel->run(call);
    return (double)(clock_now() - start) * 1e-9 / inner;
}

// ---- oneDNN

#ifdef BENCH_ONEDNN
struct other {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[4];
};

#define DNNL(expression) CHECK((expression) == dnnl_success)

#if DNNL_VERSION_MAJOR >= 3
typedef dnnl_memory_desc_t described;
typedef const_dnnl_memory_desc_t description;
#define DESCRIBED(d) (d)
#define DESCRIBE dnnl_memory_desc_create_with_strides
#else
typedef dnnl_memory_desc_t described;
typedef const dnnl_memory_desc_t *description;
#define DESCRIBED(d) (&(d))
#define DESCRIBE dnnl_memory_desc_init_by_strides
#endif

static described describe(const struct tensor *t, bool transposed) {
    described d;
    dnnl_dims_t dim = {t->dim[transposed], t->dim[!transposed]};
    dnnl_dims_t stride = {t->stride[transposed], t->stride[!transposed]};
    DNNL(DESCRIBE(&d, 2, dim, t->dtype == DTYPE_BF16 ? dnnl_bf16 : dnnl_f32, stride));
    return d;
}

static dnnl_exec_arg_t argument(const struct other *o, int arg, description d, void *data) {
    dnnl_exec_arg_t a = {.arg = arg};
    DNNL(dnnl_memory_create(&a.memory, d, o->engine, data));
    return a;
}

// out = a b, with a or b transposed. No primitive where oneDNN has none for this CPU (bf16 without AVX-512).
static struct other other_create(const struct tensor *a, bool a_transposed, const struct tensor *b, bool b_transposed,
                                 const struct tensor *out, struct scratch *arena) {
    struct other o = {0};
    DNNL(dnnl_engine_create(&o.engine, dnnl_cpu, 0));
    DNNL(dnnl_stream_create(&o.stream, o.engine, dnnl_stream_default_flags));
    described da = describe(a, a_transposed), db = describe(b, b_transposed), dc = describe(out, false);
    dnnl_primitive_attr_t attributes;
    DNNL(dnnl_primitive_attr_create(&attributes));
    DNNL(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    dnnl_primitive_desc_t pd;
#if DNNL_VERSION_MAJOR >= 3
    dnnl_status_t made = dnnl_matmul_primitive_desc_create(&pd, o.engine, da, db, NULL, dc, attributes);
#else
    dnnl_matmul_desc_t desc;
    DNNL(dnnl_matmul_desc_init(&desc, &da, &db, NULL, &dc));
    dnnl_status_t made = dnnl_primitive_desc_create(&pd, &desc, attributes, o.engine, NULL);
#endif
    dnnl_primitive_attr_destroy(attributes);
    if (made == dnnl_unimplemented)
        return o;
    DNNL(made);
    size_t scratch_bytes = dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
    DNNL(dnnl_primitive_create(&o.primitive, pd));
    o.args[0] = argument(&o, DNNL_ARG_SRC, DESCRIBED(da), a->data);
    o.args[1] = argument(&o, DNNL_ARG_WEIGHTS, DESCRIBED(db), b->data);
    o.args[2] = argument(&o, DNNL_ARG_DST, DESCRIBED(dc), out->data);
    o.args[3] = argument(&o, DNNL_ARG_SCRATCHPAD, dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0),
                         take(arena, (int64_t)scratch_bytes));
    dnnl_primitive_desc_destroy(pd);
    return o;
}

// 0 where there is no primitive.
static double other_once(const struct other *o, int inner) {
    if (!o->primitive)
        return 0;
    int64_t start = clock_now();
    for (int i = 0; i < inner; i++)
        DNNL(dnnl_primitive_execute(o->primitive, o->stream, 4, o->args));
    dnnl_stream_wait(o->stream);
    return (double)(clock_now() - start) * 1e-9 / inner;
}
#endif

// ---- lines

struct bench {
    const struct kernel *kernels;
    enum dtype model;
    int threads;
    double peak;
    const char *word;
    struct scratch arena;
};

static void print_line(const struct bench *b, const char *name, double flops, double seconds, double other) {
    printf("%-44s %-5s %9.3f %8.1f %6.1f%%", name, dtype_name(b->model), seconds * 1e3, flops / seconds * 1e-9,
           100 * flops / seconds / b->peak);
    if (other > 0)
        printf(" %8.1f %6.2f", flops / other * 1e-9, other / seconds);
    printf("\n");
    fflush(stdout);
}

static void matmul_line(struct bench *b, enum op op, int64_t m, int64_t n, int64_t k) {
    char name[64];
    snprintf(name, sizeof name, "%s m=%lld n=%lld k=%lld",
             op == OP_MATMUL      ? "matmul"
             : op == OP_MATMUL_DX ? "matmul_dx"
                                  : "matmul_dw",
             (long long)m, (long long)n, (long long)k);
    if (!strstr(name, b->word))
        return;
    struct scratch *arena = &b->arena;
    arena->used = 0;
    struct tensor x = matrix(arena, b->model, m, k), y = matrix(arena, b->model, m, n);
    struct tensor w = matrix(arena, op == OP_MATMUL_DW ? DTYPE_F32 : b->model, n, k);
    struct tensor bias = make(arena, op == OP_MATMUL_DW ? DTYPE_F32 : b->model, 1, (int64_t[]){n});
    struct call call = {.op = op, .inputs = 2, .outputs = 1, .threads = b->threads};
    if (op == OP_MATMUL) {
        call.inputs = 3;
        call.in[0] = x, call.in[1] = w, call.in[2] = bias, call.out[0] = y;
    } else if (op == OP_MATMUL_DX) {
        call.in[0] = y, call.in[1] = w, call.out[0] = x;
    } else {
        call.outputs = 2;
        call.in[0] = x, call.in[1] = y, call.out[0] = w, call.out[1] = bias;
    }
    const struct kernel *kernel = &b->kernels[op];
    prepare(&call, kernel, arena);
    double flops = 2.0 * (double)m * (double)n * (double)k, ours[REPEATS], theirs[REPEATS] = {0};
    int inner = (int)MAX(1, 4e9 / flops);
#ifdef BENCH_ONEDNN
    struct other other = op == OP_MATMUL      ? other_create(&x, false, &w, true, &y, arena)
                         : op == OP_MATMUL_DX ? other_create(&y, false, &w, false, &x, arena)
                                              : other_create(&y, true, &x, false, &w, arena);
    other_once(&other, 1);
#endif
    for (int i = 0; i < REPEATS; i++) {
        ours[i] = once(&call, kernel, inner);
#ifdef BENCH_ONEDNN
        theirs[i] = other_once(&other, inner);
#endif
    }
    print_line(b, name, flops, median(ours), median(theirs));
#ifdef BENCH_ONEDNN
    for (int i = 0; i < 4 && other.primitive; i++)
        dnnl_memory_destroy(other.args[i].memory);
    if (other.primitive)
        dnnl_primitive_destroy(other.primitive);
    dnnl_stream_destroy(other.stream);
    dnnl_engine_destroy(other.engine);
#endif
}

// q, k and v are views into rows [q heads | k heads | v heads], as a model has them.
static struct tensor heads_view(const struct tensor *rows, int64_t first, int64_t heads, int64_t width) {
    struct tensor t = {.data = (char *)rows->data + first * width * dtype_size(rows->dtype), .dtype = rows->dtype};
    t.ndim = 4;
    t.dim[0] = rows->dim[0], t.dim[1] = rows->dim[1], t.dim[2] = heads, t.dim[3] = width;
    t.stride[0] = rows->stride[0], t.stride[1] = rows->stride[1], t.stride[2] = width, t.stride[3] = 1;
    return t;
}

static void attention_line(struct bench *b, int64_t batch, int64_t length, int64_t heads, int64_t groups,
                           int64_t width) {
    char name[64];
    struct scratch *arena = &b->arena;
    arena->used = 0;
    const int64_t all = (heads + 2 * groups) * width;
    struct tensor qkv = make(arena, b->model, 3, (int64_t[]){batch, length, all});
    struct tensor dqkv = make(arena, b->model, 3, (int64_t[]){batch, length, all});
    struct tensor o = make(arena, b->model, 4, (int64_t[]){batch, length, heads, width});
    struct tensor d_o = make(arena, b->model, 4, (int64_t[]){batch, length, heads, width});
    struct tensor lse = make(arena, DTYPE_F32, 3, (int64_t[]){batch, heads, length});
    struct tensor starts = make(arena, DTYPE_I32, 2, (int64_t[]){batch, length});
    memset(starts.data, 0, (size_t)(4 * batch * length));
    struct call forward = {.op = OP_ATTENTION, .inputs = 5, .outputs = 2, .threads = b->threads};
    forward.in[0] = heads_view(&qkv, 0, heads, width);
    forward.in[1] = heads_view(&qkv, heads, groups, width);
    forward.in[2] = heads_view(&qkv, heads + groups, groups, width);
    forward.in[3] = starts;
    forward.out[0] = o, forward.out[1] = lse;
    forward.attribute[0].f = 0.125;
    struct call backward = forward;
    backward.op = OP_ATTENTION_BWD;
    backward.inputs = 8, backward.outputs = 3;
    backward.in[5] = o, backward.in[6] = lse, backward.in[7] = d_o;
    backward.out[0] = heads_view(&dqkv, 0, heads, width);
    backward.out[1] = heads_view(&dqkv, heads, groups, width);
    backward.out[2] = heads_view(&dqkv, heads + groups, groups, width);
    double product = (double)(batch * heads * width) * (double)length * (double)(length + 1);
    for (int pass = 0; pass < 2; pass++) {
        struct call *call = pass ? &backward : &forward;
        snprintf(name, sizeof name, "%s b=%lld T=%lld h=%lld g=%lld D=%lld", pass ? "attention_bwd" : "attention",
                 (long long)batch, (long long)length, (long long)heads, (long long)groups, (long long)width);
        if (!strstr(name, b->word))
            continue;
        const struct kernel *kernel = &b->kernels[call->op];
        prepare(call, kernel, arena);
        double ours[REPEATS], flops = (pass ? 5 : 2) * product;
        for (int i = 0; i < REPEATS; i++)
            ours[i] = once(call, kernel, (int)MAX(1, 4e9 / flops));
        print_line(b, name, flops, median(ours), 0);
    }
}

static void lines(struct bench *b) {
    static const int64_t shape[][3] = {
        {4096, 2304, 768}, {4096, 768, 768}, {4096, 3072, 768}, {4096, 768, 3072}, {1024, 50304, 768},
        {2048, 768, 256},  {2048, 256, 256}, {2048, 1024, 256}, {2048, 256, 1024}, {2048, 256, 688},
        {256, 2304, 768},  {256, 768, 768},  {256, 3072, 768},  {256, 768, 3072},  {256, 50304, 768},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(shape); i++)
        for (int p = 0; p < 3; p++) {
            const enum op op[] = {OP_MATMUL, OP_MATMUL_DX, OP_MATMUL_DW};
            matmul_line(b, op[p], shape[i][0], shape[i][1], shape[i][2]);
        }
    for (int64_t m = 1; m <= 128; m *= 2)
        matmul_line(b, OP_MATMUL, m, 2304, 768);
    matmul_line(b, OP_MATMUL, 1, 50304, 768);
    attention_line(b, 4, 1024, 12, 12, 64);
    attention_line(b, 8, 256, 8, 4, 32);
    attention_line(b, 1, 4096, 16, 4, 128);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    enum isa isa = isa_best();
    for (enum isa i = ISA_BASE; argc > 3 && i < ISA_COUNT; i++)
        if (isa_usable(i) && strcmp(argv[3], isa_name(i)) == 0)
            isa = i;
    if (argc > 3 && strcmp(argv[3], isa_name(isa)) != 0) {
        fprintf(stderr, "this machine has no instructions called %s\n", argv[3]);
        return 2;
    }
    omp_set_num_threads(threads); // for oneDNN
    struct bench b = {.threads = threads, .word = argc > 2 ? argv[2] : ""};
    trireme_error error;
    if (region_create(&b.arena.region, (size_t)2 << 30, true, "operands", &error) != TRIREME_OK) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    for (int m = 0; m < 2; m++) {
        b.model = m ? DTYPE_BF16 : DTYPE_F32;
        b.kernels = cpu_kernel_table_for(b.model, isa);
        b.peak = peak_flops_for(b.model, threads, INFINITY, isa);
        printf("%s, %s, %d threads, peak %.1f GFLOP/s\n%-44s %-5s %9s %8s %7s %8s %6s\n", isa_name(isa),
               dtype_name(b.model), threads, b.peak * 1e-9, "op", "dtype", "ms", "GFLOP/s", "of peak", "oneDNN",
               "ratio");
        lines(&b);
    }
    region_release(&b.arena.region);
    return 0;
}
