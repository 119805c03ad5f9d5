#include "sim/sim_prepare.h"

#include "sim/cost.h"

static enum sim_part prepare_part_of(const struct op_table *table, const struct instruction *in) {
    if (in->phase == PHASE_OPTIMIZER)
        return SIM_OPTIMIZER;
    static const enum sim_part PARTS[FAMILY_COUNT] = {
        [FAMILY_MATMUL] = SIM_MATMUL, [FAMILY_ATTENTION] = SIM_ATTENTION, [FAMILY_REST] = SIM_REST};
    return PARTS[table->op[in->op].family];
}

static int find_use(struct prepared *p, const struct mesh *mesh, const struct instruction *in) {
    bool message = op_is_message(in->op), pair = message || instruction_is_pair(in);
    struct link_use use = {mesh_present(mesh, in->group), pair ? in->peer : 0,
                           in->open  ? LINK_OPEN_MESSAGE
                           : message ? LINK_MESSAGE
                                     : LINK_NO_MESSAGE};
    for (size_t i = 0; i < p->uses.count; i++) {
        const struct link_use *u = &p->uses.item[i];
        if (u->group == use.group && u->peer == use.peer && u->message == use.message)
            return (int)i;
    }
    VEC_PUSH(&p->uses, use);
    return (int)p->uses.count - 1;
}

static struct lane_item prepare_describe(struct prepared *p, struct prepared_program *pp, const struct instruction *in,
                                         int index, int number) {
    struct lane_item item = {.index = index, .number = number, .when = (uint8_t)in->when};
    item.after_first = in->accumulate == ACCUMULATE_AFTER_FIRST;
    item.part = (uint8_t)prepare_part_of(p->table, in);
    if (p->table->op[in->op].role == ROLE_COMMUNICATION) {
        item.kind = !op_is_message(in->op) ? LANE_COLLECTIVE : op_gives_away(in->op) ? LANE_SEND : LANE_RECEIVE;
        item.axis = (uint8_t)axes_outermost(in->group);
        item.use = find_use(p, &pp->program->mesh, in);
    }
    p->unequal |= cost_unequal(pp->program, in) | (in->open ? in->group : AXES_NONE);
    return item;
}

// Collectives of replicas so far, on one stream and of one use: how many instructions of the stream there
// were up to the last of them.
struct traffic {
    int stream;
    int32_t use, count;
};
struct traffics {
    VEC(struct traffic);
};

static bool shares_links(const struct prepared_program *pp, const struct lane_item *item, int stream) {
    return item->kind == LANE_COLLECTIVE && stream_is(pp->program, stream, STREAM_BULK);
}

// Collectives that go over the same links at the same time share them. They are simulated as if they took turns, in the
// order of the program.
static void wait_for_links(struct prepared_program *pp, struct lane_item *item, int stream,
                           const struct traffics *before) {
    for (size_t i = 0; i < before->count && shares_links(pp, item, stream); i++) {
        const struct traffic *t = &before->item[i];
        if (t->stream == stream)
            continue;
        VEC_PUSH(&pp->waits, (struct lane_wait){(uint8_t)t->stream, false, t->count, t->use});
        item->waits++;
    }
}

static void note_traffic(struct traffics *before, const struct prepared_program *pp, const struct lane_item *item,
                         int stream, int32_t count) {
    if (!shares_links(pp, item, stream))
        return;
    for (size_t i = 0; i < before->count; i++)
        if (before->item[i].stream == stream && before->item[i].use == item->use) {
            before->item[i].count = count;
            return;
        }
    VEC_PUSH(before, (struct traffic){stream, item->use, count});
}

static void prepare_template(struct prepared *p, struct prepared_program *pp, int number) {
    const struct template *t = &pp->program->templates.item[number];
    struct lane *lanes = &pp->lane[number * STREAMS_MAX];
    int32_t before[STREAMS_MAX] = {0};
    struct traffics traffic = {0};
    for (size_t i = 0; i < t->instructions.count; i++)
        lanes[t->instructions.item[i].stream].count++;
    for (int s = 0; s < STREAMS_MAX; s++)
        lanes[s].item = mem_alloc((size_t)lanes[s].count * sizeof *lanes[s].item);
    for (size_t i = 0; i < t->instructions.count; i++) {
        const struct instruction *in = &t->instructions.item[i];
        struct lane_item item = prepare_describe(p, pp, in, (int)i, pp->instructions++);
        item.first_wait = (int32_t)pp->waits.count;
        for (int s = 0; s < STREAMS_MAX; s++)
            if (in->wait[s] && s != in->stream) {
                const bool counts = wait_counts(in->wait[s]);
                VEC_PUSH(&pp->waits,
                         (struct lane_wait){(uint8_t)s, !counts, counts ? before[s] - wait_lag(in->wait[s]) : 0, NONE});
                item.waits++;
            }
        wait_for_links(pp, &item, in->stream, &traffic);
        lanes[in->stream].item[before[in->stream]++] = item;
        note_traffic(&traffic, pp, &item, in->stream, before[in->stream]);
    }
    VEC_RELEASE(&traffic);
}

void prepare(struct prepared *out, const struct program *const *program_of_stage, const struct op_table *table) {
    int stages = program_of_stage[0]->mesh.degree[AXIS_PP];
    *out = (struct prepared){.table = table, .stages = stages};
    out->program = mem_alloc((size_t)stages * sizeof *out->program);
    for (int i = 0; i < stages; i++) {
        struct prepared_program *pp = &out->program[i];
        pp->program = program_of_stage[i];
        size_t templates = pp->program->templates.count;
        pp->lane = mem_alloc(templates * STREAMS_MAX * sizeof *pp->lane);
        for (size_t t = 0; t < templates; t++)
            prepare_template(out, pp, (int)t);
        slot_waits_create(&pp->slot_waits, pp->program);
    }
}

void prepared_release(struct prepared *p) {
    for (int i = 0; i < p->stages; i++) {
        struct prepared_program *pp = &p->program[i];
        for (size_t k = 0; k < pp->program->templates.count * STREAMS_MAX; k++)
            free(pp->lane[k].item);
        slot_waits_release(&pp->slot_waits);
        VEC_RELEASE(&pp->waits);
        free(pp->lane);
    }
    free(p->program);
    VEC_RELEASE(&p->uses);
}

double *prepare_seconds(const struct prepared *p, const struct topology *topology, int who,
                        const struct simulation_options *options) {
    int rank = topology_rank(topology, who);
    const struct prepared_program *pp = &p->program[mesh_coordinate(&topology->mesh, rank, AXIS_PP)];
    struct station station = topology_station(topology, rank);
    double *seconds = mem_alloc(2 * (size_t)pp->instructions * sizeof *seconds);
    for (size_t t = 0; t < pp->program->templates.count; t++)
        for (int s = 0; s < STREAMS_MAX; s++) {
            const struct lane *lane = &pp->lane[t * STREAMS_MAX + (size_t)s];
            for (int i = 0; i < lane->count; i++) {
                const struct lane_item *item = &lane->item[i];
                const struct instruction *in = &pp->program->templates.item[t].instructions.item[item->index];
                double *both = &seconds[2 * item->number];
                if (item->kind != LANE_COMPUTE) {
                    both[0] = both[1] = cost_communicate(topology->cluster, &topology->route[item->use][rank], in->op,
                                                         communicated_bytes(pp->program, in));
                } else if (options->seconds) {
                    both[0] = both[1] = options->seconds(options->user, pp->program, (int)t, item->index);
                } else {
                    both[0] = cost_compute(&station, pp->program, p->table, in, rank, in->accumulate == ACCUMULATE_YES);
                    both[1] =
                        item->after_first ? cost_compute(&station, pp->program, p->table, in, rank, true) : both[0];
                }
            }
        }
    return seconds;
}
