// Buffers outside of the memory that kernels compute in: what transfers do, what the verifier proves of them, and what
// it refuses.
#include "compile/passes.h"
#include "exec/exec.h"
#include "sim/simulate.h"
#include "support/by_hand.h"
#include "support/checkpoint.h"
#include "support/mutant.h"
#include "support/team.h"
#include "support/test.h"
#include "verify/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static const char *spaces_directory(void) {
    const char *directory = getenv("TMPDIR");
    return directory ? directory : "/tmp";
}

// A file for the arenas that the program has outside of memory.
static struct space_file spaces_file(struct unnamed_file *file, const struct program *p) {
    const struct arena *arena = &p->arena[SPACE_FILE];
    trireme_error error = {0};
    assert_ok(unnamed_file_create(file, spaces_directory(), arena->state_bytes + arena->step_bytes, "a test", &error),
              &error);
    return (struct space_file){file, 0, arena->state_bytes};
}

// ---- activations that are in a file between forward and backward

static void emit_transfer(struct program *p, int template, size_t at, int stream, int from, int to) {
    const struct operand x = {.buffer = from, .ndim = 1, .dim = {buffer_count(&p->buffers.item[from])}, .stride = {1}};
    struct operand y = x;
    y.buffer = to;
    program_emit(p, template, OP_TRANSFER, p->templates.item[template].phase, NONE, 1, &x, 1, &y, NULL)->stream =
        stream;
    struct template *t = &p->templates.item[template];
    const struct instruction moved = t->instructions.item[t->instructions.count - 1];
    for (size_t i = t->instructions.count - 1; i > at; i--)
        t->instructions.item[i] = t->instructions.item[i - 1];
    t->instructions.item[at] = moved;
}

static bool touches(const struct instruction *in, int buffer, bool outputs) {
    for (int k = outputs ? in->inputs : 0; k < (outputs ? in->inputs + in->outputs : in->inputs); k++)
        if (instruction_operand_at(in, k)->buffer == buffer)
            return true;
    return false;
}

// Where in the template a buffer is first written, or read; NONE.
static int first_touch(const struct template *t, int buffer, bool outputs) {
    for (size_t i = 0; i < t->instructions.count; i++)
        if (touches(&t->instructions.item[i], buffer, outputs))
            return (int)i;
    return NONE;
}

// Whether forward makes the whole of it once, and backward reads it as a whole.
static bool may_be_moved(const struct program *p, int buffer, int forward, int backward) {
    const struct buffer *b = &p->buffers.item[buffer];
    if (b->kind != KIND_ACT || b->scope != SCOPE_SLOT || b->parent != NONE || b->gradient_of != NONE ||
        b->recomputes != NONE || b->dtype != DTYPE_F64)
        return false;
    for (size_t i = 0; i < p->buffers.count; i++)
        if (p->buffers.item[i].parent == buffer)
            return false;
    const struct template *t = &p->templates.item[forward];
    const int made = first_touch(t, buffer, true);
    for (size_t i = made == NONE ? 0 : (size_t)made + 1; i < t->instructions.count; i++)
        if (touches(&t->instructions.item[i], buffer, true))
            return false;
    return made != NONE && first_touch(&p->templates.item[backward], buffer, false) != NONE;
}

// Moves activations to a file right after they are made, and back where backward first reads them. Returns how many.
static int offload_activations(struct program *p) {
    const int stream = program_stream(p, "transfer", STREAM_LINGERS), forward = 1, backward = 2;
    assert_int_equal(p->templates.item[forward].phase, PHASE_FORWARD);
    assert_int_equal(p->templates.item[backward].phase, PHASE_BACKWARD);
    int moved = 0;
    for (int b = 0, all = (int)p->buffers.count; b < all; b++) {
        if (!may_be_moved(p, b, forward, backward))
            continue;
        int copy[2];
        for (int k = 0; k < 2; k++) {
            const struct buffer of = p->buffers.item[b];
            char *name = mem_printf("%s.%s", of.name, k ? "back" : "away");
            copy[k] = program_buffer(p, name, of.dtype, of.kind, SCOPE_LOCAL, of.ndim, of.dim);
            free(name);
            p->buffers.item[copy[k]].recomputes = b;
            p->buffers.item[copy[k]].space = k ? SPACE_DEVICE : SPACE_FILE;
        }
        struct template *t = &p->templates.item[backward];
        const int read = first_touch(t, b, false);
        for (size_t i = 0; i < t->instructions.count; i++)
            for (int k = 0; k < t->instructions.item[i].inputs; k++)
                if (t->instructions.item[i].in[k].buffer == b)
                    t->instructions.item[i].in[k].buffer = copy[1];
        emit_transfer(p, backward, (size_t)read, stream, copy[0], copy[1]);
        emit_transfer(p, forward, (size_t)first_touch(&p->templates.item[forward], b, true) + 1, stream, b, copy[0]);
        p->buffers.item[b].scope = SCOPE_LOCAL;
        moved++;
    }
    pass_scopes(p);
    pass_waits(p);
    return moved;
}

struct offloaded {
    struct subject subject;
    struct program program;
};

static void offloaded_create(struct offloaded *o) {
    trireme_error error = {0};
    subject_create(&o->subject, "llama", (const char *const[]){SMALL_LLAMA, NULL});
    struct text text = {0}; // to make it anew, without offsets
    program_print(subject_program(&o->subject), o->subject.small.engine.ops, &text);
    assert_ok(program_parse(&o->program, o->subject.small.engine.ops, text.text, text.length, &error), &error);
    text_release(&text);
    assert_in_range(offload_activations(&o->program), 8, 1000);
    assert_ok(program_plan(&o->program, o->subject.small.engine.ops, NULL, &error), &error);
}

static void offloaded_release(struct offloaded *o) {
    program_release(&o->program);
    subject_release(&o->subject);
}

// Runs a step of the program on the subject's inputs; its state then is in subject.state.
static trireme_status run_offloaded(struct offloaded *o, struct space_file file, trireme_error *error) {
    struct subject *s = &o->subject;
    struct engine *e = &s->small.engine;
    void *step = mem_aligned(BUFFER_ALIGNMENT, (size_t)o->program.arena[SPACE_DEVICE].step_bytes);
    memset(step, 0xff, (size_t)o->program.arena[SPACE_DEVICE].step_bytes);
    memcpy(s->state, s->first_state, s->state_bytes);
    struct streams *streams = streams_create(NULL, 1);
    struct executor *executor;
    streams_use_file(streams, SPACE_FILE, file);
    trireme_status status =
        executor_create(&executor, streams, &o->program, e->ops, KERNELS_REFERENCE, s->state, step, error);
    if (status == TRIREME_OK) {
        small_model_batch(engine_compiled(e, PROGRAM_TRAIN), executor, 7, 0);
        status = executor_run(executor, NULL, error);
        executor_free(executor);
    }
    streams_free(streams);
    free(step);
    return status;
}

static void activations_go_through_a_file(void **unused) {
    (void)unused;
    struct offloaded o;
    trireme_error error = {0};
    struct unnamed_file file;
    offloaded_create(&o);
    assert_ok(program_verify(&o.program, o.subject.small.engine.ops, &error), &error);
    assert_true(o.program.arena[SPACE_FILE].step_bytes > 0);
    check_round_trip(&o.program, o.subject.small.engine.ops);
    const struct space_file in_file = spaces_file(&file, &o.program);
    assert_ok(run_offloaded(&o, in_file, &error), &error);
    assert_memory_equal(o.subject.state, o.subject.result, o.subject.state_bytes);
    // The file matters: without it the program does not start.
    assert_int_equal(run_offloaded(&o, (struct space_file){0}, &error), TRIREME_ERROR_PROGRAM);
    assert_non_null(strstr(error.message, "for which there is no file"));
    unnamed_file_release(&file);
    offloaded_release(&o);
}

// ---- refused

static struct instruction *spaces_find(struct program *p, int template, bool transfer) {
    struct template *t = &p->templates.item[template];
    for (size_t i = 0; i < t->instructions.count; i++)
        if ((t->instructions.item[i].op == OP_TRANSFER) == transfer)
            return &t->instructions.item[i];
    fail();
    return NULL;
}

static struct instruction *spaces_last(struct program *p, int template) {
    struct template *t = &p->templates.item[template];
    size_t i = t->instructions.count - 1;
    while (t->instructions.item[i].op != OP_TRANSFER)
        i--;
    return &t->instructions.item[i];
}

// The first instruction of backward that reads what has come back, as input *k.
static struct instruction *spaces_reader(struct program *p, int *k) {
    const int back = spaces_find(p, 2, true)->out[0].buffer;
    struct template *t = &p->templates.item[2];
    struct instruction *reader = &t->instructions.item[first_touch(t, back, false)];
    for (*k = 0; reader->in[*k].buffer != back;)
        (*k)++;
    return reader;
}

static void faults_of_transfers(void **unused) {
    (void)unused;
    struct offloaded o;
    offloaded_create(&o);
    const struct op_table *ops = o.subject.small.engine.ops;
#define FAULT(change, what)                                                                 \
    do {                                                                                    \
        struct program p = mutant_copy(&o.program);                                         \
        struct instruction *out = spaces_find(&p, 1, true), *in = spaces_find(&p, 2, true); \
        int k = 0;                                                                          \
        struct instruction *reader = spaces_reader(&p, &k);                                 \
        struct buffer *away = &p.buffers.item[in->in[0].buffer];                            \
        trireme_error error = {0};                                                          \
        (void)out, (void)in, (void)reader, (void)away;                                      \
        change;                                                                             \
        assert_words(program_verify(&p, ops, &error), &error, what, "");                    \
        mutant_release(&p);                                                                 \
    } while (0)
    FAULT(reader->in[k].buffer = in->in[0].buffer, "lies in the space file, which only transfers reach");
    FAULT(reader->wait[in->stream] = 0, "while another stream may still write it");
    FAULT(out->wait[STREAM_COMPUTE] = 0, "while another stream may still write it");
    FAULT(out->out[0] = in->out[0], "lie in one space");
    FAULT(mutant_delete((struct place){&p.templates.item[1], (size_t)(out - p.templates.item[1].instructions.item)}),
          "");
    FAULT(mutant_delete((struct place){&p.templates.item[2], (size_t)(in - p.templates.item[2].instructions.item)}),
          "");
    FAULT(p.buffers.item[in->out[0].buffer].recomputes = NONE, "once more");
    FAULT(in->in[0].dim[0] = in->out[0].dim[0] = in->in[0].dim[0] / 2, "before it is written");
    FAULT((in->in[0].dim[0] /= 2, in->out[0].dim[0] /= 2, in->in[0].offset += in->in[0].dim[0]), "once more");
    FAULT(in->stream = STREAM_COMPUTE, "while another stream may still write it");
    FAULT(in->predicate = program_find(&p, "tokens"), "predicate");
    FAULT(away->space = SPACE_COUNT, "lies in a space that does not exist");
    FAULT(away->offset += BUFFER_ALIGNMENT * (p.arena[SPACE_FILE].step_bytes / BUFFER_ALIGNMENT), "of an arena of");
    FAULT(away->offset = p.buffers.item[spaces_last(&p, 1)->out[0].buffer].offset, "");
    FAULT(p.buffers.item[program_find(&p, "tokens")].space = SPACE_FILE, "is for the host, but lies in the space file");
#undef FAULT
    offloaded_release(&o);
}

// ---- states that are in a file between updates

static const char *const OFFLOADED[] = {SMALL_LLAMA, "optimizer.offload=file", NULL};

static void faults_of_states(void **unused) {
    (void)unused;
    struct small_model small;
    small_model_create(&small, OFFLOADED, false);
    const struct op_table *ops = small.engine.ops;
    const struct program *program = &engine_compiled(&small.engine, PROGRAM_TRAIN)->program;
    check_round_trip(program, ops);
#define FAULT(change, what, named)                                                        \
    do {                                                                                  \
        struct program p = mutant_copy(program);                                          \
        const struct place at = mutant_find(&p, OP_ADAMW, "layers.0.m.again");            \
        struct instruction *update = mutant_at(at), *out = update + 1;                    \
        const int m = program_find(&p, "layers.0.m"), v = program_find(&p, "layers.0.v"); \
        const int stream = program_find_stream(&p, "transfer");                           \
        trireme_error error = {0};                                                        \
        (void)out, (void)m, (void)v, (void)stream;                                        \
        while (out->op != OP_TRANSFER || out->out[0].buffer != m)                         \
            out++;                                                                        \
        change;                                                                           \
        assert_words(program_verify(&p, ops, &error), &error, what, named);               \
        mutant_release(&p);                                                               \
    } while (0)
    const int k = INPUT(ADAMW, m), o = OUTPUT(ADAMW, m1);
    // The new state stays where the next step does not look for it.
    FAULT(mutant_delete((struct place){at.template, (size_t)(spaces_last(&p, (int)(at.template - p.templates.item)) -
                                                             at.template->instructions.item)}),
          "nothing moves", ".v.again back");
    FAULT(out->in[0] = mutant_at(at)->in[INPUT(ADAMW, v)], "once more", "layers.0.m");
    FAULT(update->in[k].buffer = update->out[o].buffer = m, "which only transfers reach", "layers.0.m");
    FAULT(update->wait[stream] = 0, "while another stream may still write it", "layers.0.");
    FAULT(out->wait[STREAM_COMPUTE] = 0, "while another stream may still write it", "layers.0.");
    // It is taken back before it is updated, and what the update makes is lost.
    FAULT(
        {
            const struct instruction moved = *out;
            for (struct instruction *i = out; i > update; i--)
                *i = i[-1];
            *update = moved;
        },
        "", "");
    FAULT(p.buffers.item[update->in[k].buffer].belongs_to = NONE, "are declared different things", "layers.0.m");
    FAULT(memcpy(p.buffers.item[update->in[k].buffer].as, "v", 2), "are declared different things", "layers.0.m");
    FAULT(p.buffers.item[m].space = SPACE_DEVICE, "lie in one space", "layers.0.m");
    FAULT(p.buffers.item[m].offset = p.buffers.item[v].offset, "overlap in memory", "layers.0.");
    // Another unit's state, brought to a copy that is declared to be this one's.
    FAULT(p.buffers.item[update->in[k].buffer].recomputes = program_find(&p, "layers.1.m"), "", "");
#undef FAULT
    small_model_release(&small);
}

// ---- time

static double simulated(const struct program *p, const struct op_table *ops, const char *file) {
    char *text =
        mem_printf("devices:\n  d: {peak: {f64: 1 TFLOP/s}, memory: 1 GB, bandwidth: 1000 GB/s, %slaunch: 0 us,\n"
                   "      efficiency: {other: {memory: 1}}}\nnodes: [{device: d, nodes: 1, devices: 1}]\n",
                   file);
    struct cluster cluster;
    struct simulation result;
    trireme_error error = {0};
    assert_ok(cluster_parse(&cluster, ops, "test", text, strlen(text), &error), &error);
    assert_ok(simulate(&result, &p, ops, &cluster, NULL, &error), &error);
    const double seconds = result.seconds;
    simulation_release(&result);
    cluster_release(&cluster);
    free(text);
    return seconds;
}

// On a device that computes in no time a step takes as long as its transfers.
static void transfers_take_time(void **unused) {
    (void)unused;
    struct small_model small;
    small_model_create(&small, OFFLOADED, false);
    const struct op_table *ops = small.engine.ops;
    const struct program *p = &engine_compiled(&small.engine, PROGRAM_TRAIN)->program;
    double bytes = 0;
    for (size_t i = 0; i < p->buffers.count; i++)
        if (p->buffers.item[i].space == SPACE_FILE)
            bytes += 2 * (double)buffer_bytes(&p->buffers.item[i]); // there and back
    assert_true(bytes > 0);
    const double slow = simulated(p, ops, "file_bandwidth: 1 MB/s, "), plain = simulated(p, ops, "");
    assert_true(slow > bytes / 1e6 && slow < 1.01 * bytes / 1e6);
    assert_true(plain > bytes / FILE_BANDWIDTH && plain < 2 * bytes / FILE_BANDWIDTH);
    small_model_release(&small);
}

// ---- failures

static void a_full_disk_ends_the_step(void **unused) {
    (void)unused;
    struct offloaded o;
    trireme_error error = {0};
    offloaded_create(&o);
    struct unnamed_file full = {open("/dev/full", O_RDWR), o.program.arena[SPACE_FILE].step_bytes, NULL};
    assert_int_equal(run_offloaded(&o, (struct space_file){&full, 0, 0}, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, "stream transfer, forward["));
    assert_non_null(strstr(error.message, strerror(ENOSPC)));
    close(full.descriptor);
    full.descriptor = open("/dev/null", O_RDWR); // takes all, gives nothing
    assert_int_equal(run_offloaded(&o, (struct space_file){&full, 0, 0}, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, "stream transfer, backward["));
    assert_non_null(strstr(error.message, "it ends before"));
    close(full.descriptor);
    offloaded_release(&o);
}

// On two ranks: what one cannot write ends the other's step, too, which waits for it.
static const char MEETS[] =
    "program meets microbatches 1\nmesh dp 2\narena state 0 fixed 0 scratch 0+0 step 0\nstream transfer\n"
    "stream reduce bulk\npool 0 chunk 0 at 0: 0\n"
    "buffer %0 f32 input step [16] \"x\"\nbuffer %1 f32 act local [1,16] \"h\"\n"
    "buffer %2 f32 act local [1,16] space file recomputes %1 \"away\"\n"
    "buffer %3 f32 act local [1,16] recomputes %1 \"back\"\n"
    "buffer %4 f32 act local [16] \"other\"\nbuffer %5 f32 output step [16] \"y\"\n"
    "template 0 forward \"t\"\n"
    "  %1[1,16] = gelu %0[1,16] tanh 0 phase forward\n"
    "  %2[16] = transfer %1[16] phase forward stream transfer wait compute\n"
    "  %3[16] = transfer %2[16] phase forward stream transfer\n"
    "  %5[1,16] = gelu %3[1,16] tanh 0 phase forward wait transfer\n"
    "invoke 0 microbatch 0 first last\n";

struct meeting_ranks {
    const struct program *program;
    const struct op_table *ops;
};

static trireme_status meet_or_fail(void *user, const struct member *member, trireme_error *error) {
    const struct meeting_ranks *m = user;
    struct unnamed_file file = {open(member->rank ? "/dev/full" : "/dev/zero", O_RDWR), 4096, NULL};
    void *step = mem_aligned(BUFFER_ALIGNMENT, (size_t)m->program->arena[SPACE_DEVICE].step_bytes);
    memset(step, 0, (size_t)m->program->arena[SPACE_DEVICE].step_bytes);
    struct streams *streams = streams_create(member, 1);
    streams_use_file(streams, SPACE_FILE, (struct space_file){&file, 0, 0});
    struct executor *executor;
    trireme_status status =
        executor_create(&executor, streams, m->program, m->ops, KERNELS_REFERENCE, NULL, step, error);
    if (status == TRIREME_OK) {
        status = executor_run(executor, NULL, error);
        executor_free(executor);
    }
    streams_free(streams);
    free(step);
    close(file.descriptor);
    return status;
}

static void what_one_rank_cannot_write_ends_all(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    struct program p;
    trireme_error error = {0};
    assert_ok(program_parse(&p, ops, MEETS, strlen(MEETS), &error), &error);
    assert_ok(program_plan(&p, ops, NULL, &error), &error);
    assert_ok(program_verify(&p, ops, &error), &error);
    // Rank 0 waits in a collective for rank 1, which does not come.
    struct operand y = operand_whole(&p, 5);
    struct instruction *sum = program_communicate(&p, 0, OP_ALL_REDUCE, PHASE_FORWARD,
                                                  program_find_stream(&p, "reduce"), AXES(AXIS_DP), y, y);
    sum->wait[STREAM_COMPUTE] = wait_for_all_but(0);
    struct meeting_ranks m = {&p, ops};
    assert_int_equal(team_ranks_run(2, 60, meet_or_fail, &m, &error), TRIREME_ERROR_IO);
    assert_non_null(strstr(error.message, "stream transfer, t[1] transfer of microbatch 0: away: cannot write"));
    program_release(&p);
    free(ops);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_go_through_a_file),
        cmocka_unit_test(faults_of_transfers),
        cmocka_unit_test(faults_of_states),
        cmocka_unit_test(transfers_take_time),
        cmocka_unit_test(a_full_disk_ends_the_step),
        cmocka_unit_test(what_one_rank_cannot_write_ends_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
