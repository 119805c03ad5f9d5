#include "planner/estimate.h"

#include "base/parallel_for.h"
#include "parallel/layout.h"

#include <ctype.h>
#include <math.h>
#include <pthread.h>

static struct plan_choice estimate_single(const struct plan_request *r, const struct probe *p) {
    return (struct plan_choice){.parts = (int)parallel_given(r->config, AXES_PARTS),
                                .replicas = 1,
                                .shards = 1,
                                .tensor = p->tensor,
                                .sequence = p->sequence,
                                .overlap = p->overlap,
                                .stages = 1,
                                .schedule = "1f1b",
                                .micro_batch_size = p->micro_batch_size,
                                .recompute = p->recompute,
                                .logits_rows = p->logits_rows};
}

// ---- layers

// Whether the op takes something that must be whole.
static bool takes_whole(const struct op_info *info) {
    for (int i = 0; i < info->inputs; i++)
        for (int d = 0; d < info->in[i].ndim; d++)
            if (isupper((unsigned char)info->in[i].dim[d]))
                return true;
    return false;
}

// Of ranks that share sequences some may have more of the work; the others wait for them.
static const struct sim_class *busiest(const struct simulation *s) {
    const struct sim_class *most = s->of_class;
    for (int c = 1; c < s->classes; c++)
        if (s->of_class[c].computing > most->computing)
            most = &s->of_class[c];
    return most;
}

// Adds the seconds of the passes, by the events of the rank that computes most.
static void add_events(struct probe_part *out, const struct simulation *s, const struct op_table *ops) {
    const struct sim_class *who = busiest(s);
    const struct program *p = who->program;
    double begin[2] = {INFINITY, INFINITY}, end[2] = {0, 0};
    for (size_t i = 0; i < who->events.count; i++) {
        const struct sim_event *e = &who->events.item[i];
        const struct template *t = &p->templates.item[p->schedule.item[e->invocation].template];
        const struct instruction *in = &t->instructions.item[e->instruction];
        if (in->stream != STREAM_COMPUTE && !stream_is(p, in->stream, STREAM_PROMPT))
            continue;
        if (t->phase == PHASE_OPTIMIZER)
            *(takes_whole(&ops->op[in->op]) ? &out->update_whole : &out->update) += e->end - e->begin;
        if (t->phase != PHASE_FORWARD && t->phase != PHASE_BACKWARD)
            continue;
        bool backward = t->phase == PHASE_BACKWARD;
        begin[backward] = MIN(begin[backward], e->begin);
        end[backward] = MAX(end[backward], e->end);
    }
    out->forward = MAX(0, end[0] - begin[0]);
    out->backward = MAX(0, end[1] - begin[1]);
}

// Compiles the programs of `config` for a global batch of `sequences`, with layers divided evenly over the stages. The
// caller releases programs and plan, also on failure.
static trireme_status compile_batch(struct stages *programs, struct parallel *plan, struct config *config,
                                    const struct plan_request *r, int64_t sequences, trireme_error *error) {
    char batch[32];
    snprintf(batch, sizeof batch, "%lld", (long long)sequences);
    TRY(config_set(config, "training.global_batch_size", batch, "plan", error));
    TRY(config_set(config, "parallelism.pipeline_parallel_layout", "", "plan", error));
    TRY(config_set(config, "parallelism.pipeline_parallel_activation_limit", "0", "plan", error));
    TRY(config_set(config, "activation_checkpoint.full_layers", "", "plan", error));
    TRY(config_set(config, "activation_checkpoint.selective_layers", "", "plan", error));
    TRY(parallel_resolve(plan, config, r->model, error));
    const struct stages_options how = {.ops = r->ops, .threads = 1, .jobs = 1, .unproved = true};
    TRY(stages_create(programs, config, r->model, plan, TRAIN_ALONE, &how, error));
    return stages_compile(programs, EVERY_STAGE, error);
}

// A model like the request's, but of `layers` layers, all of one of its kinds.
static struct model_config model_of_kind(const struct plan_request *r, int layer_kind, int layers) {
    struct model_config model = *r->model;
    model_layers_set_all(&model, r->model->kind[layer_kind]);
    model.num_hidden_layers = layers;
    return model;
}

// The part of the layers that are of that kind.
static double share_of_kind(const struct plan_request *r, int layer_kind) {
    return (double)model_layers_of_kind(r->model, layer_kind) / (double)r->model->num_hidden_layers;
}

// Measures a step of a model of `layers` layers of one kind on the ranks alone that share its rows and its layers.
static trireme_status estimate_measure(struct probe_part *out, const struct estimator *e, const struct probe *p,
                                       int layer_kind, int layers, trireme_error *error) {
    const struct plan_request *r = e->request;
    const struct model_config model = model_of_kind(r, layer_kind, layers);
    struct plan_request small = *r;
    small.model = &model;
    struct cluster plain = e->kinds.item[p->kind].plain;
    plain.ranks_before = p->first;
    small.cluster = &plain;
    struct plan_choice choice = estimate_single(r, p);
    small.ranks = p->tensor * choice.parts;
    struct config config;
    TRY(plan_config(&config, &small, &choice, error));
    struct parallel plan = {0};
    struct stages programs = {0};
    struct simulation simulation = {0};
    struct simulation_options options = {.events = true};
    trireme_status status = compile_batch(&programs, &plan, &config, &small, p->micro_batch_size, error);
    const struct program *step = status == TRIREME_OK ? stages_program(&programs, 0, PROGRAM_TRAIN) : NULL;
    if (status == TRIREME_OK)
        status = simulate(&simulation, &step, r->ops, small.cluster, &options, error);
    if (status == TRIREME_OK) {
        struct sim_memory memory;
        memory_of_stage(&memory, &programs.stage[0], step, r->ops);
        out->units = programs.stage[0].state.units.units;
        add_events(out, &simulation, r->ops);
        out->parameters = (double)memory.part[MEMORY_PARAMETERS];
        out->gradients = (double)memory.part[MEMORY_GRADIENTS];
        out->states = (double)memory.part[MEMORY_OPTIMIZER];
        out->activations = (double)(memory.total - memory.part[MEMORY_PARAMETERS] - memory.part[MEMORY_GRADIENTS] -
                                    memory.part[MEMORY_OPTIMIZER]);
    }
    simulation_release(&simulation);
    stages_release(&programs);
    parallel_release(&plan);
    config_release(&config);
    return status;
}

// ---- what microbatches hold

// As held_bytes, for a schedule.
static double most_held(const struct schedule *s, int rank, const int *first_layer, const struct probe_slot *slot,
                        bool rests) {
    double now = 0, most = 0;
    for (size_t i = 0; i < s->rank[rank].count; i++) {
        struct pass pass = s->rank[rank].item[i];
        if (pass.kind > PASS_BACKWARD_WEIGHT)
            continue;
        int v = s->virtual_stage[rank * s->chunks + pass.chunk];
        double layers = first_layer[v + 1] - first_layer[v], bytes[2];
        for (int k = 0; k < 2; k++)
            bytes[k] = layers * slot->held[k].layer + (rests ? slot->held[k].rest : 0);
        // While a backward runs, it holds the larger of what the pass before left for it and what it leaves itself.
        double before = pass.kind == PASS_FORWARD ? 0 : bytes[pass.kind == PASS_BACKWARD_WEIGHT];
        double after = pass.kind == PASS_FORWARD ? bytes[0] : pass.kind == PASS_BACKWARD_INPUT ? bytes[1] : 0;
        now += after - before;
        most = MAX(most, now + MAX(0, before - after));
    }
    return most;
}

double held_bytes(const struct shape *s, const struct plan_choice *c, const int *first_layer, int rank,
                  const struct probe_slot *slot, bool rests) {
    return most_held(&s->order[c->vocabulary].schedule, rank, first_layer, slot, rests);
}

// Bytes of the message that a program sends after its forward.
static double estimate_message_bytes(const struct program *p) {
    FOR_INSTRUCTIONS(i, p)
        if (i->op == OP_SEND)
            return communicated_bytes(p, i);
    return 0;
}

// Measures the memory of the first of two stages of `layers` layers of one kind each; nothing is simulated. What all of
// a stage's layers hold together becomes the `rest` of out->held, which has 0 for a layer.
static trireme_status measure_slot(struct probe_slot *out, const struct plan_request *r, const struct probe *p,
                                   int layer_kind, int layers, bool apart, trireme_error *error) {
    const struct model_config model = model_of_kind(r, layer_kind, 2 * layers);
    struct plan_request small = *r;
    small.model = &model;
    struct plan_choice choice = estimate_single(r, p);
    small.ranks = 2 * p->tensor * choice.parts;
    choice.stages = 2;
    choice.schedule = apart ? "zb-h1" : "1f1b";
    struct config config;
    TRY(plan_config(&config, &small, &choice, error));
    struct parallel plan = {0};
    struct stages programs = {0};
    trireme_status status = compile_batch(&programs, &plan, &config, &small, 2 * p->micro_batch_size, error);
    if (status == TRIREME_OK) {
        const struct program *first = stages_program(&programs, 0, PROGRAM_TRAIN);
        int layer[] = {0, layers, 2 * layers};
        struct probe_slot whole = {0};
        for (int k = 0; k <= apart; k++)
            whole.held[k].rest = (double)program_held_bytes(first, r->ops, k ? PHASE_BACKWARD : PHASE_FORWARD);
        whole.message = estimate_message_bytes(first);
        whole.scratch = (double)(first->arena[SPACE_DEVICE].step_bytes - first->arena[SPACE_DEVICE].fixed_bytes) -
                        count_messages(plan.schedule, schedule_splits_backward(plan.schedule), 0) * whole.message -
                        most_held(plan.schedule, 0, layer, &whole, true);
        *out = whole;
    }
    stages_release(&programs);
    parallel_release(&plan);
    config_release(&config);
    return status;
}

// The same for a layer of the model, where layers of several kinds count as many times as there are of each.
static void fill_slot(const struct estimator *e, const struct probe *p, struct probe_slot *out, bool apart) {
    *out = (struct probe_slot){0};
    for (int kind = 0; kind < model_layer_kinds(e->request->model) && !out->why; kind++) {
        struct probe_slot few = {0}, more = {0};
        trireme_error why;
        if (measure_slot(&few, e->request, p, kind, 1, apart, &why) != TRIREME_OK ||
            measure_slot(&more, e->request, p, kind, 2, apart, &why) != TRIREME_OK)
            out->why = error_copy(&why);
        const double share = share_of_kind(e->request, kind);
        out->message = more.message;
        out->scratch += share * MAX(0, more.scratch);
        for (int k = 0; k < 2; k++) {
            const double layer = MAX(0, more.held[k].rest - few.held[k].rest);
            out->held[k].layer += share * layer;
            out->held[k].rest += share * MAX(0, few.held[k].rest - layer);
        }
    }
}

enum { FEW = 2 };

static void fill_probe(const struct estimator *e, struct probe *p) {
    const int layers = (int)MIN(FEW, e->request->model->num_hidden_layers);
    for (int kind = 0; kind < model_layer_kinds(e->request->model) && !p->why; kind++) {
        struct probe_part few = {0}, more = {0};
        trireme_error why;
        if (estimate_measure(&few, e, p, kind, layers, &why) != TRIREME_OK ||
            estimate_measure(&more, e, p, kind, layers + 1, &why) != TRIREME_OK)
            p->why = error_copy(&why);
        const double share = share_of_kind(e->request, kind);
        for (int i = 0; i < PROBE_NUMBERS; i++) {
            const double layer = MAX(0, more.number[i] - few.number[i]);
            p->layer.number[i] += share * layer;
            p->rest.number[i] += share * MAX(0, few.number[i] - layers * layer);
        }
    }
    for (int apart = 0; apart < 2 && !p->why && e->stages && p->kind == 0; apart++)
        fill_slot(e, p, &p->slot[apart], apart);
}

const struct probe *find_measured(struct estimator *e, const struct plan_choice *c, int kind) {
    for (size_t i = 0; i < e->probes.count; i++) {
        const struct probe *p = &e->probes.item[i];
        if (p->kind == kind && p->tensor == c->tensor && p->sequence == c->sequence && p->overlap == c->overlap &&
            p->micro_batch_size == c->micro_batch_size && p->recompute == c->recompute &&
            p->logits_rows == c->logits_rows)
            return p;
    }
    struct probe p = {.kind = kind,
                      .first = slowest_group(e, c->tensor * c->parts),
                      .tensor = c->tensor,
                      .sequence = c->sequence,
                      .overlap = c->overlap,
                      .micro_batch_size = c->micro_batch_size,
                      .recompute = c->recompute,
                      .logits_rows = c->logits_rows};
    if (!e->collecting)
        fill_probe(e, &p);
    VEC_PUSH(&e->probes, p);
    return &e->probes.item[e->probes.count - 1];
}

// ---- all of them at once

static void fill_one(void *argument, int i) {
    const struct estimator *e = argument;
    int shapes = (int)e->shapes.count;
    // Longest jobs first: the last shapes have most stages.
    if (i < shapes)
        fill_shape(e, e->shapes.item[shapes - 1 - i]);
    else
        fill_probe(e, &e->probes.item[i - shapes]);
}

void estimator_fill(struct estimator *e) {
    e->collecting = false;
    parallel_for(e->request->threads, (int)(e->shapes.count + e->probes.count), fill_one, e);
}

// ---- a pipeline

const struct probe_slot *slot_of(const struct probe *p, const struct shape *s) {
    return &p->slot[s->splits];
}

struct load load_of_stage(const struct estimator *e, const struct shape *s, const struct plan_choice *c,
                          const int *first_layer, int rank) {
    const bool spread = c->vocabulary, tied = e->request->model->tie_word_embeddings;
    int chunks = s->order[0].schedule.chunks, last = c->stages * chunks - 1;
    struct load load = {.ends = spread ? 1. / c->stages : 0,
                        .head = spread ? 1. / c->stages : 0,
                        .messages = s->order[spread].messages[rank],
                        .losses = s->order[spread].losses[rank]};
    for (int k = 0; k < chunks; k++) {
        int v = s->order[0].schedule.virtual_stage[rank * chunks + k];
        load.layers += first_layer[v + 1] - first_layer[v];
        // Embedding and head count as a half each; tied, they are one and the same.
        if (!spread && (v == 0 || v == last))
            load.ends += tied ? 1 - load.ends : .5;
        load.head += !spread && v == last;
    }
    return load;
}

static double load_seconds(const struct probe *p, const struct load *l) {
    return l->layers * (p->layer.forward + p->layer.backward) + l->head * (p->rest.forward + p->rest.backward);
}

static double load_bytes(const struct probe_part *layer, const struct probe_part *rest, const struct load *l,
                         double (*of)(const struct probe_part *)) {
    return l->layers * of(layer) + l->ends * of(rest);
}

static double parameters_of(const struct probe_part *p) {
    return p->parameters;
}
static double gradients_of(const struct probe_part *p) {
    return p->gradients;
}
static double states_of(const struct probe_part *p) {
    return p->states;
}

static void add_stage(struct pipe_estimate *out, const struct estimator *e, const struct probe *of_kind,
                      const struct load *l, double activations, int stages, int stage) {
    const struct probe *p = &of_kind[slowest_kind(e, of_kind, stages, stage)];
    double room = room_of_stage(e, stages, stage), seconds = load_seconds(p, l);
    if (seconds > out->seconds) {
        out->seconds = seconds;
        out->layers = l->layers;
        out->forward = l->layers * p->layer.forward + l->head * p->rest.forward;
        out->backward = seconds - out->forward;
        out->update = l->layers * p->layer.update + l->ends * p->rest.update;
        out->update_whole = l->layers * p->layer.update_whole + l->ends * p->rest.update_whole;
    }
    double parameters = load_bytes(&p->layer, &p->rest, l, parameters_of),
           gradients = load_bytes(&p->layer, &p->rest, l, gradients_of),
           states = load_bytes(&p->layer, &p->rest, l, states_of);
    double most = out->parameters + out->gradients + out->states + out->activations;
    if (out->room == 0 || (parameters + gradients + states + activations) * out->room > most * room) {
        out->room = room;
        out->parameters = parameters;
        out->gradients = gradients;
        out->states = states;
        out->activations = activations;
    }
}

static trireme_status choice_topology(struct topology *out, const struct plan_request *r, const struct plan_choice *c,
                                      const struct link_use *uses, size_t count, trireme_error *error) {
    struct model_split split;
    TRY(model_split_create(&split, r->model, c->tensor, c->sequence, error));
    struct mesh mesh = mesh_single();
    mesh.degree[AXIS_KV] = split.copies;
    mesh.degree[AXIS_TP] = c->tensor / split.copies;
    for (int a = 0; a < AXIS_COUNT; a++)
        if (AXES(a) & AXES_PARTS)
            mesh.degree[a] = (int)parallel_given(r->config, AXES(a));
    mesh.degree[AXIS_FSDP] = c->shards;
    mesh.degree[AXIS_DP] = c->replicas;
    mesh.degree[AXIS_PP] = c->stages;
    return topology_create(out, r->cluster, &mesh, uses, count, error);
}

// What messages between the stages of a choice go over, kept for all choices with as many tensor ranks and stages.
static const struct stage_links *find_links(struct estimator *e, const struct plan_choice *c) {
    for (size_t i = 0; i < e->links.count; i++)
        if (e->links.item[i].tensor == c->tensor && e->links.item[i].stages == c->stages)
            return &e->links.item[i];
    struct stage_links links = {.tensor = c->tensor, .stages = c->stages};
    const struct link_use uses[] = {{AXES(AXIS_PP), 1, true}, {AXES(AXIS_PP), c->stages - 1, false}};
    struct topology topology;
    trireme_error none;
    if (choice_topology(&topology, e->request, c, uses, ARRAY_LENGTH(uses), &none) == TRIREME_OK) {
        links.route = mem_alloc((size_t)c->stages * sizeof *links.route);
        for (int stage = 0; stage < c->stages; stage++)
            links.route[stage] = topology.route[0][topology.ranks / c->stages * stage];
        links.ends = topology.route[1][0];
        topology_release(&topology);
    }
    VEC_PUSH(&e->links, links);
    return &e->links.item[e->links.count - 1];
}

// Seconds of a message from one stage to the next, over all pairs of stages. The mean counts for a microbatch, which
// passes all pairs; the most for microbatches that follow one another, which the slowest pair lets through one at a
// time.
struct message_seconds {
    double mean, most;
};

static struct message_seconds message_seconds(struct estimator *e, const struct plan_choice *c, double bytes) {
    const struct stage_links *links = find_links(e, c);
    struct message_seconds out = {0};
    for (int stage = 0; stage + 1 < c->stages && links->route; stage++) {
        double seconds = cost_communicate(e->request->cluster, &links->route[stage], OP_SEND, bytes);
        out.mean += seconds / (c->stages - 1);
        out.most = MAX(out.most, seconds);
    }
    return out;
}

// The probe of a choice's layers. Where the user says how many layers are recomputed in which mode, a layer is an
// average of the modes, by these shares.
static struct probe find_layers(struct estimator *e, const struct plan_choice *c, int virtual_stages, int kind) {
    double share[RECOMPUTE_MODES];
    layout_shares(&e->layout[0][c->recompute], virtual_stages, (int)e->request->model->num_hidden_layers, share);
    const struct probe base = find_probe(e, c, kind);
    struct probe out = base;
    for (int mode = 0; mode < RECOMPUTE_MODES; mode++) {
        if (mode == (int)c->recompute || share[mode] == 0)
            continue;
        struct plan_choice other = *c;
        other.recompute = (enum config_recompute)mode;
        const struct probe p = find_probe(e, &other, kind);
        out.why = out.why ? out.why : p.why;
        for (int i = 0; i < PROBE_NUMBERS; i++)
            out.layer.number[i] += share[mode] * (p.layer.number[i] - base.layer.number[i]);
        for (int i = 0; i < 4; i++) {
            struct probe_slot *slot = &out.slot[i / 2];
            slot->why = slot->why ? slot->why : p.slot[i / 2].why;
            slot->held[i % 2].layer +=
                share[mode] * (p.slot[i / 2].held[i % 2].layer - base.slot[i / 2].held[i % 2].layer);
        }
    }
    return out;
}

// Adds up all stages of a pipeline.
static trireme_status add_stages(struct pipe_estimate *out, struct estimator *e, const struct plan_choice *c,
                                 const struct probe *of_kind, struct shape *s, trireme_error *error) {
    const struct probe_slot *slot = slot_of(of_kind, s);
    int *first = first_layers(e, c, s, error);
    double forward = 0, backward = 0; // of a rank's layers, means over ranks
    if (!first)
        return error->status;
    for (int rank = 0; rank < c->stages; rank++) {
        struct load load = load_of_stage(e, s, c, first, rank);
        double held =
            held_bytes(s, c, first, rank, slot, true) + load.messages * slot->message + kept_logits(e, c, load.losses);
        // While head and loss run, no layer does: the larger of the two counts.
        held += MAX(slot->scratch, load.head * of_kind->rest.activations);
        add_stage(out, e, of_kind, &load, slot->why ? INFINITY : held, c->stages, rank);
        const struct probe_part *layer = &of_kind[slowest_kind(e, of_kind, c->stages, rank)].layer;
        forward += load.layers * layer->forward / c->stages;
        backward += load.layers * layer->backward / c->stages;
    }
    free(first);
    // Weights' passes that are apart hide no communication of gradients.
    int chunks = s->order[0].schedule.chunks;
    out->last_backward = out->backward / chunks * (s->splits ? .5 : 1);
    struct message_seconds message = message_seconds(e, c, slot->message);
    double one = forward / chunks;
    if (one > 0)
        out->waiting = one * shape_waiting(s, c->vocabulary, message.mean / one, message.most / one, out->microbatches);
    if (e->request->model->tie_word_embeddings && !c->vocabulary && schedule_ends_apart(&s->order[0].schedule)) {
        out->tied = of_kind->rest.gradients;
        out->ends = find_links(e, c)->ends;
    }
    out->idle = s->order[c->vocabulary].idle;
    pipe_fill(out, out->seconds, forward + backward);
    return TRIREME_OK;
}

trireme_status estimate_pipe(struct estimator *e, const struct plan_choice *c, struct pipe_estimate *out,
                             trireme_error *error) {
    const struct plan_request *r = e->request;
    int data = c->replicas * c->shards;
    int microbatches = (int)(r->config->training.global_batch_size / data / c->micro_batch_size);
    struct shape *s = c->stages > 1 ? find_shape(e, c, microbatches) : NULL;
    int chunks = s && !s->why && !e->collecting ? s->order[0].schedule.chunks : 1;
    struct probe *of_kind = mem_alloc(e->kinds.count * sizeof *of_kind);
    const trireme_error *why = s ? s->why : NULL;
    for (size_t kind = 0; kind < e->kinds.count; kind++) {
        of_kind[kind] = find_layers(e, c, c->stages * chunks, (int)kind);
        why = why ? why : of_kind[kind].why;
    }
    trireme_status status = TRIREME_OK;
    if (why)
        status = error_repeat(error, why);
    else if (e->collecting)
        status = error_set(error, TRIREME_ERROR_USAGE, "nothing is known of it yet");
    *out = (struct pipe_estimate){.microbatches = microbatches,
                                  .layer_units = MAX(1, of_kind->layer.units),
                                  .layer_parameters = of_kind->layer.parameters,
                                  .layer_gradients = of_kind->layer.gradients};
    if (status == TRIREME_OK && s) {
        status = add_stages(out, e, c, of_kind, s, error);
    } else if (status == TRIREME_OK) {
        double layers = (double)r->model->num_hidden_layers;
        add_stage(out, e, of_kind, &(struct load){.layers = layers, .ends = 1, .head = 1},
                  layers * of_kind->layer.activations + of_kind->rest.activations, 1, 0);
        out->last_backward = out->backward;
        pipe_fill(out, out->seconds, 0);
    }
    free(of_kind);
    return status;
}

void pipe_fill(struct pipe_estimate *pipe, double busiest, double mean) {
    pipe->seconds = busiest * pipe->microbatches + pipe->idle * mean + pipe->waiting;
}

// ---- data parallel ranks

bool data_links_create(struct data_links *out, const struct plan_request *r, const struct plan_choice *c,
                       trireme_error *error) {
    struct link_use uses[] = {{AXES_SHARD, 0, false}, {AXES_DATA & ~AXES_SHARD, 0, false}, {AXES_DATA, 0, false}};
    struct topology topology;
    if (choice_topology(&topology, r, c, uses, ARRAY_LENGTH(uses), error) != TRIREME_OK)
        return false;
    *out = (struct data_links){r->cluster, topology.route[0][0], topology.route[1][0], topology.route[2][0], 0};
    for (size_t i = 0; i < r->cluster->groups.count; i++)
        out->loss = MAX(out->loss, r->cluster->devices.item[r->cluster->groups.item[i].device].communication);
    topology_release(&topology);
    return true;
}

// Seconds of a collective on a layer: nearly all bytes are in one of its units, but each unit is communicated by
// itself.
static double estimate_collective(const struct data_links *l, const struct route *route, enum op op, double units,
                                  double bytes) {
    if (route->ranks < 2 || bytes <= 0)
        return 0;
    return cost_communicate(l->cluster, route, op, bytes) + (units - 1) * cost_communicate(l->cluster, route, op, 0);
}

// The seconds that transfers add to the work that they overlap, where `least` of them cannot hide: those that exceed
// the work, and those that computing loses to the rest.
static double add_beside(const struct data_links *l, double transfers, double least, double work) {
    double exposed = MAX(least, transfers - work);
    return exposed + l->loss * MAX(0, transfers - exposed);
}

double choice_state_bytes(const struct plan_choice *c, double parameters, double gradients, double states) {
    double shards = c->shards * c->parts;
    int z = c->zero_stage;
    return parameters / (z >= 3 ? shards : 1) + gradients / (z >= 2 ? shards : 1) + states / (z >= 1 ? shards : 1);
}

double passing_bytes(const struct plan_choice *c, const struct pipe_estimate *p) {
    return (c->zero_stage >= 2 ? p->layer_gradients : 0) + (c->zero_stage == 3 ? 2 * p->layer_parameters : 0);
}

struct estimate estimate_data(const struct estimator *e, const struct pipe_estimate *p, const struct data_links *l,
                              const struct plan_choice *c) {
    double shards = c->shards * c->parts,
           narrow = e->request->config->parallelism.reduce_dtype == CONFIG_REDUCE_BF16 ? .5 : 1;
    int z = c->zero_stage;
    struct estimate out = {
        p->seconds + p->update_whole + p->update / (z >= 1 ? shards : 1),
        (choice_state_bytes(c, p->parameters, p->gradients, p->states) + passing_bytes(c, p) + p->activations) *
            e->room / p->room};
    if (p->tied > 0)
        out.seconds += cost_communicate(l->cluster, &p->ends, OP_ALL_REDUCE, p->tied / (z >= 1 ? shards : 1));
    double units = p->layers + 1, gradient = narrow * p->gradients / units, parameter = p->parameters / units;
    if (z == 0) {
        double one = estimate_collective(l, &l->all, OP_ALL_REDUCE, p->layer_units, gradient);
        out.seconds += add_beside(l, units * one, one, p->last_backward);
        return out;
    }
    double scatter = estimate_collective(l, &l->shards, OP_REDUCE_SCATTER, p->layer_units, gradient),
           gather = estimate_collective(l, &l->shards, OP_ALL_GATHER, p->layer_units, parameter),
           reduce = estimate_collective(l, &l->replicas, OP_ALL_REDUCE, p->layer_units, gradient / shards);
    int m = p->microbatches;
    // Gathers hide behind forward, except the first unit's: in each microbatch, or in the first one alone.
    out.seconds += gather + (z == 3 ? m : 1) * add_beside(l, units * gather, 0, p->forward);
    if (z == 1)
        out.seconds += add_beside(l, units * (scatter + reduce), scatter + reduce, p->last_backward);
    // Reductions for each microbatch hide behind its backward, except the last unit's.
    else
        out.seconds += m * add_beside(l, units * (scatter + (z == 3 ? gather : 0)), scatter, p->backward) + reduce;
    return out;
}

// ---- beginning and end

void estimator_create(struct estimator *e, const struct plan_request *request, bool chooses_logits) {
    *e = (struct estimator){.request = request, .chooses_logits = chooses_logits && estimator_chooses_logits(request)};
    estimator_devices(e);
    e->stages = request->ranks > 1 && request->model->num_hidden_layers > 1;
    for (int balanced = 0; balanced < 2; balanced++)
        for (int mode = 0; mode < RECOMPUTE_MODES; mode++) {
            struct config *config = &e->layout[balanced][mode];
            trireme_error none;
            config_copy(config, request->config);
            CHECK(config_set(config, "activation_checkpoint.mode", config_recompute_word((enum config_recompute)mode),
                             "plan", &none) == TRIREME_OK);
            if (!config_is_set(request->config, "parallelism.pipeline_parallel_layout"))
                CHECK(config_set(config, "parallelism.pipeline_parallel_layout", balanced ? "auto" : "", "plan",
                                 &none) == TRIREME_OK);
        }
}

void estimator_release(struct estimator *e) {
    for (int balanced = 0; balanced < 2; balanced++)
        for (int mode = 0; mode < RECOMPUTE_MODES; mode++)
            config_release(&e->layout[balanced][mode]);
    for (size_t i = 0; i < e->shapes.count; i++)
        release_shape(e->shapes.item[i]);
    for (size_t i = 0; i < e->probes.count; i++) {
        struct probe *p = &e->probes.item[i];
        free(p->why);
        free(p->slot[0].why);
        free(p->slot[1].why);
    }
    for (size_t i = 0; i < e->links.count; i++)
        free(e->links.item[i].route);
    VEC_RELEASE(&e->links);
    VEC_RELEASE(&e->shapes);
    VEC_RELEASE(&e->probes);
    estimator_devices_release(e);
}
