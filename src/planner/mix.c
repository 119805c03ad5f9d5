#include "planner/mix.h"

#include "planner/evaluate.h"
#include "planner/learn.h"

#include <math.h>

enum { ROUNDS = 4 };
// What a pipeline may well take over its estimate: memory of 19 was off by 3.7% on average.
static const double TOO_LOW = 1.04;

// ---- from estimates

// Of all kinds, in each mode.
struct mode_probes {
    struct probe *of_kind[RECOMPUTE_MODES];
};

// Returns why they are impossible; NULL: they are not.
static const trireme_error *find_probes(struct mode_probes *out, struct estimator *e, const struct plan_choice *choice,
                                        bool mode_set) {
    const trireme_error *why = NULL;
    for (int m = 0; m < RECOMPUTE_MODES; m++) {
        struct plan_choice of = *choice;
        if (!mode_set) // else all three are that one
            of.recompute = (enum config_recompute)m;
        out->of_kind[m] = mem_alloc(e->kinds.count * sizeof *out->of_kind[m]);
        for (size_t kind = 0; kind < e->kinds.count; kind++) {
            out->of_kind[m][kind] = find_probe(e, &of, (int)kind);
            why = why ? why : out->of_kind[m][kind].why;
        }
    }
    return why;
}

static void release_probes(struct mode_probes *probes) {
    for (int m = 0; m < RECOMPUTE_MODES; m++)
        free(probes->of_kind[m]);
}

static void read_seconds(struct mix *mix, const struct estimator *e, const struct mode_probes *probes, int stage) {
    struct layers_problem *p = &mix->problem;
    int kind = slowest_kind(e, probes->of_kind[0], p->stages, stage);
    for (int m = 0; m < RECOMPUTE_MODES; m++) {
        const struct probe_part *layer = &probes->of_kind[m][kind].layer;
        p->stage[stage].layer[m] = layer->forward + layer->backward;
    }
    const struct probe *none = &probes->of_kind[0][kind];
    double head = mix->load[stage].head;
    p->stage[stage].seconds = head * (none->rest.forward + none->rest.backward);
    mix->forward[stage] = (struct probe_forward){none->layer.forward, head * none->rest.forward};
}

// What a stage takes in each mode; first[] has the first layer of each virtual stage.
static trireme_status read_bytes(struct mix *mix, struct estimator *e, const struct plan_choice *c,
                                 const struct mode_probes *probes, const int *first, int rank, trireme_error *error) {
    const struct load *l = &mix->load[rank];
    double *held = mix->problem.stage[rank].held, *fixed = mix->fixed[rank];
    for (int m = 0; m < RECOMPUTE_MODES; m++) {
        const struct probe_slot *slot = slot_of(probes->of_kind[m], mix->shape);
        if (slot->why)
            return error_repeat(error, slot->why);
        const double layers = held_bytes(mix->shape, c, first, rank, slot, false),
                     all = held_bytes(mix->shape, c, first, rank, slot, true),
                     one = l->layers > 0 ? layers / l->layers : 0;
        fixed[m] = all - layers + l->messages * slot->message + kept_logits(e, c, l->losses) +
                   MAX(slot->scratch, l->head * probes->of_kind[m]->rest.activations);
        held[m] = m ? MIN(one, held[m - 1]) : one;
        fixed[m] = m ? MAX(fixed[m], fixed[m - 1]) : fixed[m];
    }
    return TRIREME_OK;
}

static int hold_more_first(const void *a, const void *b) {
    const struct layers_chunk *x = a, *y = b;
    return COMPARE(y->share, x->share) ?: COMPARE(x->index, y->index);
}

// A rank's chunks, by the microbatches that are held of each.
static void read_chunks(struct mix *mix, const struct plan_choice *c, const int *first, int rank) {
    const struct schedule *s = &mix->shape->order[c->vocabulary].schedule;
    struct layers_chunk *chunk = mix->chunk + rank * s->chunks;
    int *slots = mem_alloc((size_t)s->chunks * sizeof *slots), sum = 0;
    schedule_in_flight(s, rank, slots);
    for (int k = 0; k < s->chunks; k++)
        sum += slots[k];
    for (int k = 0; k < s->chunks; k++) {
        const int v = s->virtual_stage[rank * s->chunks + k];
        chunk[k] = (struct layers_chunk){k, first[v + 1] - first[v], slots[k] * (double)s->chunks / sum};
    }
    qsort(chunk, (size_t)s->chunks, sizeof *chunk, hold_more_first);
    mix->problem.stage[rank].chunk = chunk;
    free(slots);
}

static trireme_status read_stages(struct mix *mix, struct estimator *e, const struct plan_choice *c,
                                  const struct mode_probes *probes, trireme_error *error) {
    struct layers_problem *p = &mix->problem;
    const struct shape *shape = mix->shape;
    int *first = first_layers(e, c, shape, error);
    if (!first)
        return error->status;
    p->given = c->layout || config_is_set(e->request->config, "parallelism.pipeline_parallel_layout");
    p->chunks = shape->order[0].schedule.chunks;
    p->least = p->given ? 1 : p->chunks;
    mix->chunk = mem_alloc((size_t)(c->stages * p->chunks) * sizeof *mix->chunk);
    trireme_status status = TRIREME_OK;
    for (int r = 0; r < c->stages && status == TRIREME_OK; r++) {
        mix->load[r] = load_of_stage(e, shape, c, first, r);
        status = read_bytes(mix, e, c, probes, first, r, error);
        p->stage[r].room = room_of_stage(e, c->stages, r);
        p->stage[r].layers = p->given ? (int)mix->load[r].layers : 0;
        read_chunks(mix, c, first, r);
        read_seconds(mix, e, probes, r);
    }
    free(first);
    return status;
}

static void read_whole(struct mix *mix, const struct estimator *e, const struct mode_probes *probes) {
    struct layers_problem *p = &mix->problem;
    mix->load[0] = (struct load){.layers = p->layers, .ends = 1, .head = 1};
    mix->chunk = mem_alloc(sizeof *mix->chunk);
    *mix->chunk = (struct layers_chunk){.share = 1};
    p->stage[0].chunk = mix->chunk;
    p->stage[0].room = room_of_stage(e, 1, 0);
    read_seconds(mix, e, probes, 0);
    for (int m = 0; m < RECOMPUTE_MODES; m++) {
        const struct probe *probe = probes->of_kind[m];
        p->stage[0].held[m] = probe->layer.activations;
        mix->fixed[0][m] = MAX(m ? mix->fixed[0][m - 1] : 0, probe->rest.activations);
    }
}

static void choose_by_speed(struct mix *mix) {
    struct layers_problem *p = &mix->problem;
    double *room = mem_alloc((size_t)p->stages * sizeof *room);
    mix->by_speed = mem_alloc((size_t)p->stages * sizeof *mix->by_speed);
    for (int r = 0; r < p->stages; r++) {
        room[r] = p->stage[r].room;
        p->stage[r].room = INFINITY;
    }
    if (!isfinite(layers_choose(p, mix->by_speed))) {
        free(mix->by_speed);
        mix->by_speed = NULL;
    }
    for (int r = 0; r < p->stages; r++)
        p->stage[r].room = room[r];
    free(room);
}

trireme_status mix_create(struct mix *out, struct estimator *e, const struct plan_choice *choice,
                          trireme_error *error) {
    struct mode_probes probes;
    int data = choice->replicas * choice->shards;
    const bool mode_set = config_is_set(e->request->config, "activation_checkpoint.mode");
    const trireme_error *why = find_probes(&probes, e, choice, mode_set);
    trireme_status status = why ? error_repeat(error, why) : TRIREME_OK;
    struct mix mix = {.layer = probes.of_kind[0]->layer,
                      .rest = probes.of_kind[0]->rest,
                      .mode_set = mode_set,
                      .moved = choice->layout != NULL};
    struct layers_problem *p = &mix.problem;
    size_t stages = (size_t)choice->stages;
    *p = (struct layers_problem){
        .stages = choice->stages, .layers = (int)e->request->model->num_hidden_layers, .chunks = 1, .least = 1};
    p->stage = mem_alloc(stages * sizeof *p->stage);
    mix.of = mem_alloc(stages * sizeof *mix.of);
    mix.load = mem_alloc(stages * sizeof *mix.load);
    mix.fixed = mem_alloc(stages * sizeof *mix.fixed);
    mix.forward = mem_alloc(stages * sizeof *mix.forward);
    if (status == TRIREME_OK && choice->stages == 1) {
        read_whole(&mix, e, &probes);
    } else if (status == TRIREME_OK) {
        int64_t batch = e->request->config->training.global_batch_size;
        mix.shape = find_shape(e, choice, (int)(batch / data / choice->micro_batch_size));
        status = mix.shape->why ? error_repeat(error, mix.shape->why) : read_stages(&mix, e, choice, &probes, error);
    }
    release_probes(&probes);
    *out = mix;
    if (status != TRIREME_OK)
        mix_release(out);
    else if (e->kinds.count > 1 && choice->stages > 1)
        choose_by_speed(out);
    return status;
}

void mix_release(struct mix *mix) {
    free(mix->problem.stage);
    free(mix->of);
    free(mix->by_speed);
    free(mix->load);
    free(mix->fixed);
    free(mix->forward);
    free(mix->chunk);
    *mix = (struct mix){.of = NULL};
}

// ---- choosing

static bool mix_is_mixed(const struct mix *mix) {
    int all[RECOMPUTE_MODES] = {0}, kinds = 0;
    for (int r = 0; r < mix->problem.stages; r++)
        for (int m = 0; m < RECOMPUTE_MODES; m++)
            all[m] += mix->of[r].of[m];
    for (int m = 0; m < RECOMPUTE_MODES; m++)
        kinds += all[m] > 0;
    return kinds > 1;
}

// Even if all took `slack` times as much.
static bool all_fit(const struct mix *mix, const struct layers_choice *of, double slack) {
    bool fits = true;
    for (int r = 0; r < mix->problem.stages; r++)
        fits &= slack * layers_bytes(&mix->problem, r, &of[r]) <= mix->problem.stage[r].room;
    return fits;
}

// As even as can be, or as the user says, nothing computed again; or in the mode that is set.
static struct layers_choice plain_layers(const struct mix *mix, int stage) {
    return (struct layers_choice){{(int)mix->load[stage].layers}};
}

// Even if estimates are too low, which those of pipelines may be; where a mode is set nothing else would be tried.
static bool plain_surely_fits(struct mix *mix) {
    for (int r = 0; r < mix->problem.stages; r++)
        mix->of[r] = plain_layers(mix, r);
    return all_fit(mix, mix->of, mix->mode_set ? MEMORY_SLACK : mix->shape ? TOO_LOW : 1);
}

static bool mix_is_plain(const struct mix *mix) {
    bool plain = true;
    for (int r = 0; r < mix->problem.stages; r++)
        plain &= mix->of[r].of[0] == plain_layers(mix, r).of[0] && layers_count(&mix->of[r]) == mix->of[r].of[0];
    return plain;
}

static bool choose_modes(struct mix *mix) {
    bool fits = true;
    for (int r = 0; r < mix->problem.stages && fits; r++)
        fits = isfinite(layers_least(&mix->problem, r, (int)mix->load[r].layers, &mix->of[r]));
    return fits;
}

static void read_state(struct mix *mix, const struct plan_choice *c, const struct pipe_estimate *pipe) {
    struct layers_problem *p = &mix->problem;
    p->state = choice_state_bytes(c, mix->layer.parameters, mix->layer.gradients, mix->layer.states);
    double ends = choice_state_bytes(c, mix->rest.parameters, mix->rest.gradients, mix->rest.states);
    for (int r = 0; r < p->stages; r++)
        for (int m = 0; m < RECOMPUTE_MODES; m++)
            p->stage[r].bytes[m] = mix->fixed[r][m] + mix->load[r].ends * ends + passing_bytes(c, pipe);
}

// In so much more or less room than there is. False where nothing fits.
static bool choose_within(struct mix *mix, double slack, bool quickly) {
    struct layers_problem *p = &mix->problem;
    for (int r = 0; r < p->stages; r++)
        p->stage[r].room *= slack;
    quickly &= !mix->by_speed;
    const bool fits = layers_may_fit(p) && ((quickly && choose_modes(mix)) || isfinite(layers_choose(p, mix->of)));
    for (int r = 0; r < p->stages; r++)
        p->stage[r].room /= slack;
    return fits;
}

// Whether what is chosen is no other choice of the search.
static bool is_new(const struct mix *mix) {
    return mix->mode_set || (mix->by_speed || mix->moved ? !mix_is_plain(mix) : mix_is_mixed(mix));
}

bool mix_choose(struct mix *mix, const struct plan_choice *c, const struct pipe_estimate *pipe, bool quickly) {
    struct layers_problem *p = &mix->problem;
    read_state(mix, c, pipe);
    if ((!mix->by_speed || p->given) && plain_surely_fits(mix))
        return false;
    if (mix->by_speed && all_fit(mix, mix->by_speed, 1)) {
        memcpy(mix->of, mix->by_speed, (size_t)p->stages * sizeof *mix->of);
        return true;
    }
    // Estimates may be too high or too low, and programs tell; what fits only if they are too high may become another.
    if (!choose_within(mix, 1, quickly))
        return choose_within(mix, MEMORY_SLACK, quickly);
    return is_new(mix) || (choose_within(mix, 1 / TOO_LOW, quickly) && is_new(mix));
}

// What the room of each stage is multiplied with where layers just fit, found by bisection; chosen for that.
static double mix_balance_layers(struct mix *mix) {
    enum { STEPS = 40 };
    struct layers_problem *p = &mix->problem;
    double *room = mem_alloc((size_t)p->stages * sizeof *room), least = 0, most = 0;
    for (int r = 0; r < p->stages; r++) {
        const struct layers_choice all = {{[CONFIG_RECOMPUTE_FULL] = p->layers}};
        room[r] = p->stage[r].room;
        most = MAX(most, layers_bytes(p, r, &all) / room[r]);
    }
    for (int step = 0; step <= STEPS; step++) {
        double middle = step < STEPS ? (least + most) / 2 : most * (1 + 1e-9); // rounded
        for (int r = 0; r < p->stages; r++)
            p->stage[r].room = middle * room[r];
        if (layers_may_fit(p))
            most = middle;
        else
            least = middle;
    }
    if (!isfinite(layers_choose(p, mix->of)))
        most = INFINITY;
    for (int r = 0; r < p->stages; r++)
        p->stage[r].room = room[r];
    free(room);
    return most;
}

double mix_balance(struct mix *mix, const struct plan_choice *c, const struct pipe_estimate *pipe) {
    mix->balanced = true;
    read_state(mix, c, pipe);
    return mix_balance_layers(mix);
}

static int slowest_stage(const struct mix *mix) {
    int slowest = 0;
    for (int r = 1; r < mix->problem.stages; r++)
        if (layers_seconds(&mix->problem, r, &mix->of[r]) > layers_seconds(&mix->problem, slowest, &mix->of[slowest]))
            slowest = r;
    return slowest;
}

struct pipe_estimate mix_pipe(const struct mix *mix, const struct pipe_estimate *pipe) {
    const struct layers_problem *p = &mix->problem;
    struct pipe_estimate out = *pipe;
    int slowest = slowest_stage(mix);
    double seconds = layers_seconds(p, slowest, &mix->of[slowest]), layers = 0;
    for (int r = 0; r < p->stages; r++)
        layers += layers_seconds(p, r, &mix->of[r]) - p->stage[r].seconds;
    out.layers = layers_count(&mix->of[slowest]);
    out.forward = out.layers * mix->forward[slowest].layer + mix->forward[slowest].head;
    out.backward = seconds - out.forward;
    out.last_backward *= out.backward / pipe->backward;
    pipe_fill(&out, seconds, layers / p->stages);
    return out;
}

double mix_bytes(const struct mix *mix, double room) {
    double most = 0;
    for (int r = 0; r < mix->problem.stages; r++)
        most = MAX(most, layers_bytes(&mix->problem, r, &mix->of[r]) * room / mix->problem.stage[r].room);
    return most;
}

// ---- into lists

// A stage's layers to its virtual stages.
static void spread_stage(const struct mix *mix, int rank, bool vocabulary, int *layers, int *full, int *selective) {
    const int chunks = mix->problem.chunks,
              *stage = mix->shape->order[vocabulary].schedule.virtual_stage + rank * chunks;
    struct layers_choice *of = mem_alloc((size_t)chunks * sizeof *of);
    layers_spread(&mix->problem, rank, &mix->of[rank], of);
    for (int k = 0; k < chunks; k++) {
        layers[stage[k]] = layers_count(&of[k]);
        selective[stage[k]] = of[k].of[CONFIG_RECOMPUTE_SELECTIVE];
        full[stage[k]] = of[k].of[CONFIG_RECOMPUTE_FULL];
    }
    free(of);
}

// NULL: none.
static char *print_list(const int *number, int count) {
    struct text t = {0};
    int sum = 0;
    for (int i = 0; i < count; i++)
        sum += number[i];
    if (sum)
        text_add_numbers(&t, number, count);
    return t.text;
}

// Those that are the mix's.
static void clear_lists(const struct mix *mix, struct plan_choice *c) {
    const char **list[] = {&c->full_layers, &c->selective_layers, &c->layout};
    for (size_t i = 0; i < ARRAY_LENGTH(list) - mix->problem.given; i++) {
        free((void *)*list[i]);
        *list[i] = NULL;
    }
}

static void swap_lists(struct plan_choice *a, struct plan_choice *b) {
    struct plan_choice c = *a;
    *a = *b;
    *b = c;
}

static void write_lists(const struct mix *mix, struct plan_choice *c) {
    int stages = mix->problem.stages * mix->problem.chunks;
    int *number = mem_alloc(3 * (size_t)stages * sizeof *number), *full = number + stages, *selective = full + stages;
    clear_lists(mix, c);
    if (mix->shape) {
        for (int r = 0; r < mix->problem.stages; r++)
            spread_stage(mix, r, c->vocabulary, number, full, selective);
    } else {
        *full = mix->of[0].of[CONFIG_RECOMPUTE_FULL];
        *selective = mix->of[0].of[CONFIG_RECOMPUTE_SELECTIVE];
    }
    if (!mix->mode_set) {
        c->full_layers = print_list(full, stages);
        c->selective_layers = print_list(selective, stages);
    }
    if (mix->shape && !mix->problem.given)
        c->layout = print_list(number, stages);
    free(number);
}

// ---- by programs

// What each stage takes; without the holes in its memory plan where even that is too much.
static trireme_status measure_stages(const struct mix *mix, double *bytes, const struct plan_request *r,
                                     const struct plan_choice *c, trireme_error *error) {
    struct choice_programs programs;
    TRY(choice_compile(&programs, r, c, PLAN_SOON, true, error));
    for (int i = 0; i < c->stages; i++) {
        struct sim_memory memory;
        memory_of_stage(&memory, &programs.stages.stage[i], programs.program[i], r->ops);
        const double least = (double)(memory.total - memory.part[MEMORY_UNUSED]);
        bytes[i] = least > mix->problem.stage[i].room ? least : (double)memory.total;
    }
    choice_release(&programs);
    return TRIREME_OK;
}

// Modes of each stage whose bytes beside its layers were measured.
typedef bool measured_modes[RECOMPUTE_MODES];

// Corrects the estimates of each stage by what it takes: also those of modes that were not measured.
static void mix_correct(struct mix *mix, const double *bytes, measured_modes *measured) {
    struct layers_problem *p = &mix->problem;
    for (int i = 0; i < p->stages; i++) {
        const int deepest = layers_deepest(&mix->of[i]);
        const double wrong = bytes[i] - layers_bytes(p, i, &mix->of[i]);
        for (int m = 0; m < RECOMPUTE_MODES; m++)
            if (m == deepest || !measured[i][m])
                p->stage[i].bytes[m] += wrong;
        measured[i][deepest] = true;
    }
}

// For when nothing fits: as many layers as are chosen may yet fit if all are recomputed in full, on stages that were
// not measured so. False where that is no hope.
static bool mix_hope(struct mix *mix, const measured_modes *measured) {
    struct layers_problem *p = &mix->problem;
    bool any = false;
    for (int i = 0; i < p->stages; i++) {
        const int layers = layers_count(&mix->of[i]);
        const struct layers_choice full = {{[RECOMPUTE_MODES - 1] = layers}};
        const double excess = layers_bytes(p, i, &full) - p->stage[i].room;
        if (isfinite(layers_least(p, i, layers, NULL)))
            continue;
        if (measured[i][RECOMPUTE_MODES - 1] || excess > (MEMORY_SLACK - 1) * p->stage[i].room)
            return false;
        p->stage[i].bytes[RECOMPUTE_MODES - 1] -= excess * (1 + 1e-9); // rounded
        any = true;
    }
    return any;
}

static bool choose_again(struct mix *mix, const measured_modes *measured) {
    struct layers_problem *p = &mix->problem;
    if (mix->balanced)
        return isfinite(mix_balance_layers(mix));
    return isfinite(layers_choose(p, mix->of)) || (mix_hope(mix, measured) && isfinite(layers_choose(p, mix->of)));
}

trireme_status mix_fit(struct mix *mix, const struct plan_request *r, struct plan_choice *choice,
                       trireme_error *error) {
    struct layers_problem *p = &mix->problem;
    size_t stages = (size_t)p->stages;
    double *bytes = mem_alloc(stages * sizeof *bytes);
    measured_modes *measured = mem_alloc(stages * sizeof *measured);
    struct layers_choice *last = mem_alloc(stages * sizeof *last);
    struct plan_choice next = *choice;
    trireme_status status = TRIREME_OK;
    bool found = false;
    for (int round = 0; round < ROUNDS && status == TRIREME_OK; round++) {
        write_lists(mix, &next);
        status = measure_stages(mix, bytes, r, &next, error);
        if (status != TRIREME_OK)
            break;
        bool fits = true;
        for (int i = 0; i < p->stages; i++)
            fits &= bytes[i] <= p->stage[i].room;
        mix_correct(mix, bytes, measured);
        // Estimates that were right once are not wrong later: what fits next is no slower.
        if (fits || !found)
            swap_lists(choice, &next);
        found |= fits;
        memcpy(last, mix->of, stages * sizeof *last);
        if ((fits && (round > 0 || mix->balanced)) || !choose_again(mix, measured) ||
            memcmp(last, mix->of, stages * sizeof *last) == 0)
            break;
    }
    clear_lists(mix, &next);
    free(last);
    free(measured);
    free(bytes);
    return status;
}
