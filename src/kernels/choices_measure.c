// Times the ways to run each call (choices.h) in turns with the rule's.
//
// What measuring may cost, and what a run of the program takes, is processor time of this thread: on a machine that
// others use too, it measures as much as on one of its own. Ways are compared by the least time that passes.
#include "base/clock.h"
#include "base/region.h"
#include "kernels/choices.h"

// A way takes the rule's place when it needs less than this part of the rule's time, in two thirds of the rounds and
// comparing the least times of both. Ways that do not achieve this in the first rounds are dropped.
static const double FASTER = .97;
enum { ROUNDS = 9, FIRST_ROUNDS = 3 };
// A round runs a way for about ROUND_SECONDS, but at most ROUND_RUNS times.
static const double ROUND_SECONDS = 1e-3;
enum { ROUND_RUNS = 32 };
static const double LEAST_SECONDS = 3; // that measuring may always take, if half of a run is less
// The memory that operands move around in, at most: more than caches hold.
enum { INPUT_BYTES = 1 << 27, OUTPUT_BYTES = 1 << 26, PATTERN = 4093 };
// How often every call is first run by the rule. The last run's time counts: the first use of something takes longer.
enum { FIRST_RUNS = 2 };
// About the operations that a thread makes while a byte of new memory is filled: between 25 and 500 were seen.
enum { BYTE_FLOPS = 128 };

// Memory that is handed out round and round: what was used last lies in the caches, and what comes next does not.
struct ring {
    char *base;
    int64_t bytes, at;
};

struct trial {
    struct frequent_call of;
    char *name;
    double seconds; // of a run by the rule, in processor time of this thread
};

struct trials {
    VEC(struct trial);
    struct region region;
    char *workspace;
    int64_t workspace_bytes;
    struct ring in, out;
};

static int64_t tensor_bytes(const struct tensor *t) {
    int64_t last = 0;
    CHECK(!t->data || t->dtype == DTYPE_F32 || t->dtype == DTYPE_BF16);
    for (int d = 0; d < t->ndim; d++)
        last += (t->dim[d] - 1) * t->stride[d];
    return t->data ? align_up((last + 1) * dtype_size(t->dtype)) : 0;
}

static int64_t tensors_bytes(const struct tensor *t, int count) {
    int64_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += tensor_bytes(&t[i]);
    return bytes;
}

static void choices_place(struct ring *ring, struct tensor *t, int count) {
    if (ring->at + tensors_bytes(t, count) > ring->bytes)
        ring->at = 0;
    for (int i = 0; i < count; i++) {
        int64_t bytes = tensor_bytes(&t[i]);
        if (t[i].data)
            t[i].data = ring->base + ring->at;
        ring->at += bytes;
    }
}

static double choices_seconds_since(int64_t begin, int64_t (*now)(void)) {
    return 1e-9 * (double)(now() - begin);
}

static double run_seconds(struct trials *trials, const struct trial *t, enum kernel_way way, int64_t (*now)(void)) {
    struct call call = t->of.call;
    choices_place(&trials->in, call.in, call.inputs);
    choices_place(&trials->out, call.out, call.outputs);
    call.workspace = trials->workspace;
    call.way = way;
    int64_t begin = now();
    t->of.run(&call);
    return choices_seconds_since(begin, now);
}

// Fills with numbers of both signs from 1/128 to 1, whether read as f32 or as bf16.
static void choices_fill(void *to, int64_t bytes) {
    uint16_t *out = to;
    uint32_t state = 1;
    for (int64_t i = 0; i < bytes / 2; i++) {
        if (i >= PATTERN) {
            out[i] = out[i - PATTERN];
            continue;
        }
        state = state * 1664525 + 1013904223;
        out[i] = (uint16_t)(0x3c00 + (state >> 16) % 0x380 + (state >> 31 << 15));
    }
}

static int64_t memory_needed(struct trials *trials, int64_t bytes) {
    int64_t workspace = 0, in = MIN(bytes / 2, (int64_t)INPUT_BYTES), out = MIN(bytes / 4, (int64_t)OUTPUT_BYTES);
    for (size_t i = 0; i < trials->count; i++) {
        const struct call *call = &trials->item[i].of.call;
        workspace = MAX(workspace, call->workspace_bytes);
        in = MAX(in, tensors_bytes(call->in, call->inputs));
        out = MAX(out, tensors_bytes(call->out, call->outputs));
    }
    trials->workspace_bytes = align_up(workspace);
    trials->in.bytes = align_up(in);
    trials->out.bytes = align_up(out);
    return trials->workspace_bytes + trials->in.bytes + trials->out.bytes;
}

static trireme_status choices_take_memory(struct trials *trials, int64_t bytes, trireme_error *error) {
    TRY(region_create(&trials->region, (size_t)bytes, true, "timing kernels", error));
    trials->workspace = trials->region.base;
    trials->in.base = trials->workspace + trials->workspace_bytes;
    trials->out.base = trials->in.base + trials->in.bytes;
    choices_fill(trials->in.base, trials->in.bytes);
    return TRIREME_OK;
}

// The least counts: whatever else the machine does only makes a run longer.
static double choices_least(const double *values, int count) {
    double found = values[0];
    for (int i = 1; i < count; i++)
        found = MIN(found, values[i]);
    return found;
}

// One round: the ways in turn, beginning with another one in each round.
static void run_round(struct trials *trials, const struct trial *t, unsigned ways, int round, double times[][ROUNDS]) {
    const int runs = (int)MAX(1, MIN(ROUND_SECONDS / MAX(t->seconds, 1e-9), (double)ROUND_RUNS));
    for (int i = 0; i < KERNEL_WAYS; i++) {
        const int way = (round + i) % KERNEL_WAYS;
        if (!(ways >> way & 1))
            continue;
        times[way][round] = 0;
        for (int k = 0; k < runs; k++)
            times[way][round] += run_seconds(trials, t, (enum kernel_way)way, clock_now) / runs;
    }
}

// Those of `ways` that were faster than the rule in two thirds of the rounds.
static unsigned faster_ways(unsigned ways, int rounds, double times[][ROUNDS]) {
    unsigned faster = 0;
    for (int way = WAY_RULE + 1; way < KERNEL_WAYS; way++) {
        int wins = 0;
        for (int r = 0; r < rounds && ways >> way & 1; r++)
            wins += times[way][r] < FASTER * times[WAY_RULE][r];
        if (3 * wins >= 2 * rounds)
            faster |= 1U << way;
    }
    return faster;
}

static void choices_choose(struct trials *trials, const struct trial *t, struct choice *out) {
    double times[KERNEL_WAYS][ROUNDS];
    unsigned left = t->of.ways & ~(1U << WAY_RULE);
    for (int r = 0; r < ROUNDS && left; r++) {
        const unsigned ways = left | 1U << WAY_RULE;
        run_round(trials, t, ways, r, times);
        for (int way = WAY_RULE; way < KERNEL_WAYS; way++)
            if (ways >> way & 1)
                out->seconds[way] = choices_least(times[way], r + 1);
        if (r + 1 == FIRST_ROUNDS || r + 1 == ROUNDS)
            left = faster_ways(left, r + 1, times);
    }
    double best = FASTER * out->seconds[WAY_RULE];
    for (int way = WAY_RULE + 1; way < KERNEL_WAYS; way++)
        if (left >> way & 1 && out->seconds[way] < best) {
            best = out->seconds[way];
            out->way = (enum kernel_way)way;
        }
}

static struct trial *find_trial(struct trials *trials, const char *name) {
    for (size_t i = 0; i < trials->count; i++)
        if (strcmp(trials->item[i].name, name) == 0)
            return &trials->item[i];
    return NULL;
}

// Collects the calls that have more than one way and no choice yet, equal ones as one.
static void choices_gather(struct trials *trials, const struct choices *choices, const struct op_table *table,
                           const struct frequent_call *calls, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (calls[i].ways == 1U << WAY_RULE || choices_find(choices, table, &calls[i].call))
            continue;
        char *name = choices_call(table, &calls[i].call);
        struct trial *known = find_trial(trials, name);
        if (known) {
            known->of.times += calls[i].times;
            free(name);
        } else {
            VEC_PUSH(trials, (struct trial){.of = calls[i], .name = name});
        }
    }
}

static double choices_cost(const struct trial *t) {
    return (double)t->of.times * t->seconds;
}

// Seconds until a way can be known to be faster.
static double first_seconds(const struct trial *t) {
    return FIRST_ROUNDS * __builtin_popcount(t->of.ways) * MAX(t->seconds, ROUND_SECONDS);
}

// By what a second of measuring can gain, the most first.
static int compare_worth(const void *a, const void *b) {
    const struct trial *s = a, *t = b;
    double x = choices_cost(s) / first_seconds(s), y = choices_cost(t) / first_seconds(t);
    return COMPARE(y, x);
}

static bool is_stopped(const struct choices *choices) {
    return choices->stop && *choices->stop;
}

// Whether a hundredth of what the calls take in all runs pays for the memory and their first runs: judged by
// operations, as no time is known yet.
static bool is_worth_it(const struct trials *trials, int64_t runs, int64_t bytes) {
    double run = 0, first = 0;
    int threads = 0;
    for (size_t i = 0; i < trials->count; i++) {
        const struct frequent_call *of = &trials->item[i].of;
        run += (double)of->times * of->flops;
        first += FIRST_RUNS * of->flops;
        threads = MAX(threads, of->call.threads);
    }
    return (double)runs * run / 100 > first + (double)bytes * BYTE_FLOPS * threads;
}

// `begin`: the thread's time when choices_measure began.
static void choices_measure_calls(struct trials *trials, struct choices *choices, int64_t runs, int64_t begin) {
    double run = 0;
    for (size_t i = 0; i < trials->count && !is_stopped(choices); i++) {
        struct trial *t = &trials->item[i];
        for (int k = 0; k < FIRST_RUNS; k++)
            t->seconds = run_seconds(trials, t, WAY_RULE, clock_thread);
        run += choices_cost(t);
    }
    VEC_SORT(trials, compare_worth);
    const double part = (double)runs * run / 100, most = MAX(LEAST_SECONDS, run / 2);
    const int64_t first = clock_thread();
    for (size_t i = 0; i < trials->count && !is_stopped(choices); i++) {
        struct trial *t = &trials->item[i];
        const double round = first_seconds(t);
        if (choices_seconds_since(begin, clock_thread) + round > part ||
            choices_seconds_since(first, clock_thread) + round > most)
            continue;
        struct choice choice = {.call = t->name, .on = mem_strdup(choices->on)};
        choices_choose(trials, t, &choice);
        t->name = NULL;
        VEC_PUSH(&choices->item, choice);
    }
}

trireme_status choices_measure(struct choices *choices, const struct op_table *table, const struct frequent_call *calls,
                               size_t count, int64_t runs, int64_t bytes, trireme_error *error) {
    struct trials trials = {0};
    trireme_status status = TRIREME_OK;
    const int64_t begin = clock_thread();
    choices_gather(&trials, choices, table, calls, count);
    const int64_t needed = memory_needed(&trials, bytes);
    if (is_worth_it(&trials, runs, needed)) {
        status = choices_take_memory(&trials, needed, error);
        if (status == TRIREME_OK)
            choices_measure_calls(&trials, choices, runs, begin);
    }
    region_release(&trials.region);
    for (size_t i = 0; i < trials.count; i++)
        free(trials.item[i].name);
    VEC_RELEASE(&trials);
    return status;
}
