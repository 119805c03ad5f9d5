// The programs of outer steps, with faults: one instruction less or one more, an operand of another unit, another
// group; programs of which one writes what the other touches; training programs that communicate between islands.
#include "codec/codec.h"
#include "compile/stages.h"
#include "optim/outer_schedule.h"
#include "program/channels.h"
#include "program/operands.h"
#include "support/checkpoint.h"
#include "support/mesh_keys.h"
#include "support/mutant.h"
#include "support/sanitized.h"
#include "support/test.h"
#include "verify/verify.h"

enum { LESS = SANITIZED ? 5 : 1 }; // of how many mutants one is tried

struct programs {
    struct config config;
    struct model_config model;
    struct stages stages;
};

static void programs_create(struct programs *p, const char *mesh, const char *zero, const char *method,
                            const char *delay, const char *more) {
    const char *const overrides[] = {SMALL_GPT2,
                                     "training.global_batch_size=8",
                                     "parallelism.island_degree=2",
                                     "run.directory=unused",
                                     mesh,
                                     zero,
                                     method,
                                     delay,
                                     more};
    trireme_error error = {0};
    const char *used[ARRAY_LENGTH(overrides)];
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LENGTH(overrides); i++)
        if (strcmp(overrides[i], "training.global_batch_size=4") != 0)
            used[n++] = overrides[i];
    assert_ok(config_load(&p->config, NULL, used, n, &error), &error);
    assert_ok(model_config_resolve(&p->model, &p->config, NO_TOKENS, &error), &error);
    assert_ok(stages_create(&p->stages, &p->config, &p->model, NULL, TRAIN_AND_EVALUATE, NULL, &error), &error);
    assert_ok(stages_compile(&p->stages, EVERY_STAGE, &error), &error);
    assert_ok(stages_verify(&p->stages, &error), &error);
}

static void programs_release(struct programs *p) {
    stages_release(&p->stages);
    config_release(&p->config);
}

static const struct program *program_of(const struct programs *p, enum program_kind kind) {
    return stages_program(&p->stages, 0, kind);
}

static void refuse(const struct programs *p, struct program *mutant, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void refuse(const struct programs *p, struct program *mutant, const char *format, ...) {
    trireme_error error = {0};
    char what[80];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (program_verify(mutant, p->stages.options.ops, &error) == TRIREME_OK)
        fail_msg("%s: %s is accepted", mutant->name, what);
    assert_int_equal(error.status, TRIREME_ERROR_PROGRAM);
    mutant_release(mutant);
}

#define METHOD(name) "outer.method=" name
#define DELAY(steps) "outer.delay_steps=" steps
#define CODEC(name) "outer.codec=" name
#define OFFLOAD "outer.offload=file"
static const struct {
    const char *mesh, *zero, *method, *delay, *more;
} MESHES[] = {
    {FSDP "1", ZERO "0", METHOD("local_sgd"), DELAY("0"), CODEC("none")},
    {FSDP "2", ZERO "3", METHOD("diloco"), DELAY("0"), OFFLOAD},
    {FSDP "2", ZERO "1", METHOD("local_sgd"), DELAY("2"), OFFLOAD},
    {TP "2", ZERO "0", METHOD("streaming_diloco"), DELAY("2"), CODEC("none")},
    {FSDP "2", ZERO "2", METHOD("co2"), DELAY("-1"), CODEC("none")},
    {FSDP "2", ZERO "1", METHOD("eager_diloco"), DELAY("-1"), CODEC("none")},
    {FSDP "2", ZERO "1", METHOD("diloco"), DELAY("0"), CODEC("int8")},
    {FSDP "2", ZERO "1", METHOD("local_scaled"), "optimizer.offload=file", "optimizer.name=scaled"},
    {FSDP "2", ZERO "1", METHOD("gossip"), DELAY("0"), OFFLOAD},
    {TP "2", ZERO "0", METHOD("streaming_diloco"), DELAY("2"), CODEC("fp4")},
};

static void mesh_programs(struct programs *p, size_t m) {
    programs_create(p, MESHES[m].mesh, MESHES[m].zero, MESHES[m].method, MESHES[m].delay, MESHES[m].more);
}

// Those of outer steps, [first, count).
static size_t first_outer(const struct programs *p) {
    size_t first = 0;
    while (p->stages.specs.item[first].kind < PROGRAM_OUTER_MEET)
        first++;
    return first;
}

static void instructions_are_done_once(void **state) {
    (void)state;
    for (size_t m = 0; m < ARRAY_LENGTH(MESHES); m++) {
        struct programs p;
        mesh_programs(&p, m);
        for (size_t k = first_outer(&p); k < p.stages.specs.count; k++) {
            const struct program *of = &stage_program(&p.stages.stage[0], (int)k)->program;
            for (size_t i = 0; i < of->templates.item[0].instructions.count; i += LESS) {
                struct program less = mutant_copy(of), more = mutant_copy(of);
                mutant_delete((struct place){&less.templates.item[0], i});
                refuse(&p, &less, "one instruction less, number %zu", i);
                mutant_repeat(&more, (struct place){&more.templates.item[0], i});
                refuse(&p, &more, "one instruction twice, number %zu", i);
            }
        }
        programs_release(&p);
    }
}

// The next instruction of the same op whose operand has another unit's elements, as many; NULL: there is none.
static struct instruction *next_alike(struct program *p, size_t i, int operand) {
    const struct template *t = &p->templates.item[0];
    const struct operand *from = instruction_operand_at(&t->instructions.item[i], operand);
    for (size_t j = i + 1; j < t->instructions.count && from->buffer != NONE; j++) {
        struct instruction *next = &t->instructions.item[j];
        if (next->op != t->instructions.item[i].op)
            continue;
        const struct operand *to = instruction_operand_at(next, operand);
        if (to->buffer != NONE && !operand_equal(from, to) && operand_count(from) == operand_count(to))
            return next;
    }
    return NULL;
}

// Every operand, in place of that of the next instruction of the same op.
static void operands_are_of_one_unit(void **state) {
    (void)state;
    for (size_t m = 0; m < ARRAY_LENGTH(MESHES); m++) {
        struct programs p;
        int tried = 0;
        mesh_programs(&p, m);
        for (size_t k = first_outer(&p); k < p.stages.specs.count; k++) {
            const struct program *of = &stage_program(&p.stages.stage[0], (int)k)->program;
            for (size_t i = 0; i < of->templates.item[0].instructions.count; i += LESS) {
                const struct instruction *from = &of->templates.item[0].instructions.item[i];
                for (int o = 0; o < from->inputs + from->outputs; o++) {
                    struct program mutant = mutant_copy(of);
                    struct instruction *next = next_alike(&mutant, i, o);
                    if (!next) {
                        mutant_release(&mutant);
                        continue;
                    }
                    *mutant_operand(next, o) = *instruction_operand_at(from, o);
                    refuse(&p, &mutant, "operand %d of %zu in the next", o, i);
                    tried++;
                }
            }
        }
        assert_true(tried > 0);
        programs_release(&p);
    }
}

// Other groups than the islands: none, any other axis, the islands and another.
static void refuse_other_groups(const struct programs *p, const struct program *of, size_t i) {
    for (int a = -1; a < AXIS_COUNT; a++)
        for (int beside = 0; beside < 2; beside++) {
            const axis_set group = (a < 0 ? AXES_NONE : AXES(a)) | (beside ? AXES_ISLAND : AXES_NONE);
            if (group == AXES_ISLAND)
                continue;
            struct program mutant = mutant_copy(of);
            mutant.templates.item[0].instructions.item[i].group = group;
            refuse(p, &mutant, "group %x of %zu", group, i);
        }
}

static void sums_are_over_the_islands(void **state) {
    (void)state;
    struct programs p;
    int sums = 0;
    mesh_programs(&p, 2);
    const struct program *of = program_of(&p, PROGRAM_OUTER_EXCHANGE);
    for (size_t i = 0; i < of->templates.item[0].instructions.count; i++)
        if (of->templates.item[0].instructions.item[i].op == OP_ALL_REDUCE) {
            refuse_other_groups(&p, of, i);
            sums++;
        }
    assert_true(sums > 0);
    // The weight is this rank's term of the total, nothing that all islands have alike.
    struct program mutant = mutant_copy(of);
    for (size_t i = 0; i < mutant.buffers.count; i++)
        if (mutant.buffers.item[i].kind == KIND_INPUT)
            mutant.buffers.item[i].placement[AXIS_ISLAND] = PLACE_REPLICATE;
    refuse(&p, &mutant, "a weight that is the same on all islands");
    programs_release(&p);
}

// What is gathered over the islands, and decoded as it was encoded.
static void codes_are_those_of_all_islands(void **state) {
    (void)state;
    struct programs p;
    mesh_programs(&p, ARRAY_LENGTH(MESHES) - 1);
    const struct program *of = program_of(&p, PROGRAM_OUTER_EXCHANGE);
    int gathers = 0, codecs = 0;
    for (size_t i = 0; i < of->templates.item[0].instructions.count; i++) {
        const enum op op = of->templates.item[0].instructions.item[i].op;
        for (int codec = 0; codec < CODEC_COUNT + 1 && (op == OP_COMPRESS || op == OP_WEIGH_CODES); codec++) {
            struct program mutant = mutant_copy(of);
            if (codec == CODEC_FP4) {
                mutant_release(&mutant);
                continue;
            }
            mutant.templates.item[0].instructions.item[i].attribute[0].i = codec;
            refuse(&p, &mutant, "codec %d in %zu", codec, i);
            codecs++;
        }
        if (op == OP_ALL_GATHER) {
            refuse_other_groups(&p, of, i);
            gathers++;
        }
    }
    assert_true(gathers > 0 && codecs > 0);
    for (int codec = 0; codec < CODEC_FP4; codec++) { // of which codes would be larger
        struct program all = mutant_copy(of);
        for (size_t i = 0; i < all.templates.item[0].instructions.count; i++) {
            struct instruction *in = &all.templates.item[0].instructions.item[i];
            if (in->op == OP_COMPRESS || in->op == OP_WEIGH_CODES)
                in->attribute[0].i = codec;
        }
        refuse(&p, &all, "codec %d in all", codec);
    }
    // The weight is this island's of all weights, nothing that all have alike; and no other number.
    struct program mutant = mutant_copy(of), other = mutant_copy(of);
    for (size_t i = 0; i < of->buffers.count; i++)
        if (of->buffers.item[i].kind == KIND_INPUT) {
            mutant.buffers.item[i].placement[AXIS_ISLAND] = PLACE_REPLICATE;
            snprintf(other.buffers.item[i].as, sizeof other.buffers.item[i].as, "lr");
        }
    refuse(&p, &mutant, "a weight that is the same on all islands");
    refuse(&p, &other, "a learning rate as the weight");
    programs_release(&p);
}

// Number k of the instructions of an op.
static struct instruction *instruction_of(struct program *p, enum op op, int k) {
    for (size_t i = 0; i < p->templates.item[0].instructions.count; i++)
        if (p->templates.item[0].instructions.item[i].op == op && k-- == 0)
            return &p->templates.item[0].instructions.item[i];
    fail_msg("%s has no such instruction", p->name);
    return NULL;
}

// What divides gradients follows from the squares of all islands, and from the number of updates that they are of; also
// where there is one island, and what a rank holds along the axis says nothing.
static void check_divisors(const char *islands) {
    struct programs p;
    programs_create(&p, FSDP "2", islands, METHOD("local_scaled"), DELAY("0"), "optimizer.name=scaled");
    const struct program *of = program_of(&p, PROGRAM_OUTER_MEET);
    const struct {
        enum op op, from;
        int input, taken;
        bool output; // of `from`
        const char *what;
    } FAULTS[] = {
        {OP_RESCALE, OP_SETTLE, INPUT(RESCALE, total), INPUT(SETTLE, total), false, "a sum of weights"},
        {OP_RESCALE, OP_WEIGH, INPUT(RESCALE, total), INPUT(WEIGH, weight), false, "a weight"},
        {OP_RESCALE, OP_SETTLE, INPUT(RESCALE, squares), INPUT(SETTLE, value), false, "a sum of parameters"},
        {OP_RESCALE, OP_WEIGH_SQUARES, INPUT(RESCALE, squares), 0, false, "the island's own squares"},
        {OP_RESCALE, OP_WEIGH_SQUARES, INPUT(RESCALE, rounds), INPUT(WEIGH_SQUARES, t), false, "its own count"},
        {OP_WEIGH_SQUARES, OP_RESCALE, INPUT(WEIGH_SQUARES, squares), 0, false, "divisors"},
        {OP_WEIGH_SQUARES, OP_WEIGH, INPUT(WEIGH_SQUARES, squares), 0, false, "parameters"},
        {OP_WEIGH_SQUARES, OP_WEIGH_SQUARES, INPUT(WEIGH_SQUARES, weight), INPUT(WEIGH_SQUARES, t), false, "a count"},
        {OP_SETTLE, OP_WEIGH_SQUARES, INPUT(SETTLE, value), OUTPUT(WEIGH_SQUARES, value), true, "a sum of squares"},
        {OP_SETTLE, OP_RESCALE, INPUT(SETTLE, total), INPUT(RESCALE, total), false, "a sum of updates"},
    };
    for (size_t i = 0; i < ARRAY_LENGTH(FAULTS); i++) {
        struct program mutant = mutant_copy(of);
        const struct instruction *from = instruction_of(&mutant, FAULTS[i].from, 0);
        *mutant_operand(instruction_of(&mutant, FAULTS[i].op, 0), FAULTS[i].input) =
            FAULTS[i].output ? from->out[FAULTS[i].taken] : from->in[FAULTS[i].taken];
        refuse(&p, &mutant, "%s: %s", p.stages.options.ops->op[FAULTS[i].op].name, FAULTS[i].what);
    }
    // The second unit's squares are of the updates that the first has counted.
    struct program mutant = mutant_copy(of);
    struct instruction *first = instruction_of(&mutant, OP_WEIGH_SQUARES, 0),
                       *second = instruction_of(&mutant, OP_WEIGH_SQUARES, 1);
    for (int i = INPUT(WEIGH_SQUARES, t); i <= INPUT(WEIGH_SQUARES, since); i++)
        *mutant_operand(second, i) = first->in[i];
    *mutant_operand(second, second->inputs + OUTPUT(WEIGH_SQUARES, total)) = first->out[OUTPUT(WEIGH_SQUARES, total)];
    refuse(&p, &mutant, "a count that is made twice");
    mutant = mutant_copy(of);
    first = instruction_of(&mutant, OP_WEIGH_SQUARES, 0);
    *mutant_operand(first, INPUT(WEIGH_SQUARES, since)) = operand_none();
    refuse(&p, &mutant, "a count of all updates there have been");
    mutant = mutant_copy(of);
    first = instruction_of(&mutant, OP_WEIGH_SQUARES, 0);
    *mutant_operand(first, first->inputs + OUTPUT(WEIGH_SQUARES, squares1)) =
        instruction_of(&mutant, OP_RESCALE, 0)->in[INPUT(RESCALE, divisor)];
    refuse(&p, &mutant, "squares that go on");
    programs_release(&p);
}

static void divisors_follow_from_squares(void **state) {
    (void)state;
    check_divisors("parallelism.island_degree=2");
    check_divisors("parallelism.island_degree=1");
}

static void leave_distance_out(struct program *mutant, int k) {
    struct instruction *moves = instruction_of(mutant, OP_OUTER_SGD, k);
    *mutant_operand(moves, INPUTS(OUTER_SGD) + OUTPUT(OUTER_SGD, moved)) = operand_none();
    moves->accumulate = ACCUMULATE_NO;
}

// From how far the anchors have moved follows by what the next means are divided: each counts once.
static void distances_count_once(void **state) {
    (void)state;
    struct programs p;
    trireme_error error = {0};
    mesh_programs(&p, 4);
    const struct program *of = program_of(&p, PROGRAM_OUTER_TURN);
    struct program mutant = mutant_copy(of);
    size_t at = 0;
    while (mutant.templates.item[0].instructions.item[at].op != OP_STALENESS)
        at++;
    mutant_delete((struct place){&mutant.templates.item[0], at});
    assert_int_equal(program_verify(&mutant, p.stages.options.ops, &error), TRIREME_ERROR_PROGRAM);
    assert_says(error.message, "does not say by what the next means are divided");
    mutant_release(&mutant);
    for (int k = 0; k < 2; k++) {
        mutant = mutant_copy(of);
        struct instruction *moves = instruction_of(&mutant, OP_OUTER_SGD, k);
        moves->accumulate = moves->accumulate == ACCUMULATE_NO ? ACCUMULATE_YES : ACCUMULATE_NO;
        refuse(&p, &mutant, "the distance of unit %d in place of the others', or added to nothing", k);
        mutant = mutant_copy(of);
        leave_distance_out(&mutant, k);
        refuse(&p, &mutant, "the distance of unit %d left out", k);
        mutant = mutant_copy(of);
        *mutant_operand(instruction_of(&mutant, OP_OUTER_SGD, k), INPUT(OUTER_SGD, excess)) = operand_none();
        struct program alone = mutant_copy(&mutant);
        refuse(&p, &mutant, "a mean of unit %d that is not divided", k);
        leave_distance_out(&alone, k);
        refuse(&p, &alone, "unit %d, which has no part in it", k);
    }
    programs_release(&p);
}

// What an island hears is what one other has, and of the same thing; all islands hear one as far away.
static void messages_are_of_one_peer(void **state) {
    (void)state;
    struct programs p;
    programs_create(&p, DP "1", "outer.sync_steps=2", METHOD("gossip"), "parallelism.island_degree=4", CODEC("int8"));
    assert_int_equal(outer_distances(&p.config), 2);
    assert_int_not_equal(stages_find_part(&p.stages, PROGRAM_OUTER_MEET, 1), NONE);
    const struct program *of = program_of(&p, PROGRAM_OUTER_MEET);
    const struct template *t = &of->templates.item[0];
    int messages = 0, sent = 0;
    for (int i = 0; i < (int)t->instructions.count; i++) {
        for (int peer = -4; peer <= 4 && op_is_message(t->instructions.item[i].op); peer++) {
            struct program one = mutant_copy(of), both = mutant_copy(of);
            struct instruction *end = one.templates.item[0].instructions.item,
                               *ends = both.templates.item[0].instructions.item;
            if ((peer - end[i].peer) % 4 == 0) {
                mutant_release(&one);
                mutant_release(&both);
                continue;
            }
            end[i].peer = peer;
            refuse(&p, &one, "peer %d of %d", peer, i);
            ends[i].peer = peer;
            ends[message_other_end(of, 0, i)].peer = -peer;
            refuse(&p, &both, "peer %d of %d and its other end", peer, i);
            messages++;
        }
        for (int k = i + 1; k < (int)t->instructions.count; k++) {
            const struct operand *one = &t->instructions.item[i].in[0], *other = &t->instructions.item[k].in[0];
            if (t->instructions.item[i].op != OP_SEND || t->instructions.item[k].op != OP_SEND ||
                operand_count(one) != operand_count(other))
                continue;
            struct program later = mutant_copy(of), earlier = mutant_copy(of);
            *mutant_operand(&later.templates.item[0].instructions.item[k], 0) = *one;
            refuse(&p, &later, "what %d sends in %d", i, k);
            *mutant_operand(&earlier.templates.item[0].instructions.item[i], 0) = *other;
            refuse(&p, &earlier, "what %d sends in %d", k, i);
            sent++;
        }
        if (t->instructions.item[i].op == OP_OUTER_SGD) {
            struct program still = mutant_copy(of), own = mutant_copy(of);
            still.templates.item[0].instructions.item[i].attribute[ATTRIBUTE(OUTER_SGD, pull)].f = 0;
            refuse(&p, &still, "an anchor that is sent for nothing, to %d", i);
            mutant_operand(&own.templates.item[0].instructions.item[i], INPUT(OUTER_SGD, other))[0] =
                *mutant_operand(&own.templates.item[0].instructions.item[i], INPUT(OUTER_SGD, anchor));
            refuse(&p, &own, "the own anchor as the other's, in %d", i);
        }
        if (t->instructions.item[i].op == OP_WEIGH_CODES) {
            struct program twice = mutant_copy(of), alone = mutant_copy(of), equal = mutant_copy(of);
            struct instruction *weigh = &twice.templates.item[0].instructions.item[i];
            *mutant_operand(weigh, INPUT(WEIGH_CODES, from)) = *mutant_operand(weigh, INPUT(WEIGH_CODES, codes));
            refuse(&p, &twice, "the own codes twice, in %d", i);
            weigh = &equal.templates.item[0].instructions.item[i];
            *mutant_operand(weigh, INPUT(WEIGH_CODES, from_weight)) =
                *mutant_operand(weigh, INPUT(WEIGH_CODES, weight));
            refuse(&p, &equal, "the own weight twice, in %d", i);
            weigh = &alone.templates.item[0].instructions.item[i];
            *mutant_operand(weigh, INPUT(WEIGH_CODES, from)) = operand_none();
            *mutant_operand(weigh, INPUT(WEIGH_CODES, from_weight)) = operand_none();
            refuse(&p, &alone, "the own codes alone, in %d", i);
        }
    }
    assert_true(messages > 10 && sent > 0);
    programs_release(&p);
}

// Whatever a training program exchanges between islands is each one's own.
static void training_stays_on_its_island(void **state) {
    (void)state;
    for (size_t m = 1; m < ARRAY_LENGTH(MESHES); m++) {
        struct programs p;
        int tried = 0;
        mesh_programs(&p, m);
        const struct program *of = program_of(&p, PROGRAM_TRAIN);
        for (size_t t = 0; t < of->templates.count; t++)
            for (size_t i = 0; i < of->templates.item[t].instructions.count; i++)
                for (int beside = 0; beside < 2; beside++) {
                    if (!of->templates.item[t].instructions.item[i].group)
                        continue;
                    struct program mutant = mutant_copy(of);
                    struct instruction *in = &mutant.templates.item[t].instructions.item[i];
                    in->group = AXES_ISLAND | (beside ? in->group : AXES_NONE);
                    if (in->op == OP_FAN_OUT) {
                        mutant_release(&mutant);
                        continue;
                    }
                    refuse(&p, &mutant, "%zu of template %zu between islands", i, t);
                    tried++;
                }
        assert_true(tried > 10);
        programs_release(&p);
    }
}

// A state in a file, also where what has become of it was read: the next transfer waits for what this one waited for.
static void what_changes_goes_back(void **state) {
    (void)state;
    struct programs p;
    trireme_error error = {0};
    int anchors = 0;
    mesh_programs(&p, 1);
    const struct program *of = program_of(&p, PROGRAM_OUTER_MEET);
    const struct template *t = &of->templates.item[0];
    for (size_t i = 0; i + 1 < t->instructions.count; i++) {
        const struct instruction *back = &t->instructions.item[i];
        if (back->op != OP_TRANSFER || back[1].op != OP_TRANSFER ||
            of->buffers.item[back->out[0].buffer].scope != SCOPE_STATE)
            continue;
        struct program mutant = mutant_copy(of);
        memcpy(mutant.templates.item[0].instructions.item[i + 1].wait, back->wait, sizeof back->wait);
        mutant_delete((struct place){&mutant.templates.item[0], i});
        assert_int_equal(program_verify(&mutant, p.stages.options.ops, &error), TRIREME_ERROR_PROGRAM);
        anchors += strstr(error.message, "anchor.again is changed, and not moved back") != NULL;
        mutant_release(&mutant);
    }
    assert_true(anchors > 0);
    programs_release(&p);
}

// What islands keep while they evaluate lies where a training step has gradients: none may come in between.
static void what_is_kept_is_not_gradients(void **state) {
    (void)state;
    struct programs p;
    trireme_error error = {0};
    mesh_programs(&p, 1);
    const struct program *train = program_of(&p, PROGRAM_TRAIN), *show = program_of(&p, PROGRAM_OUTER_SHOW),
                         *hide = program_of(&p, PROGRAM_OUTER_HIDE);
    assert_ok(program_follows(train, show, &error), &error);
    assert_ok(program_follows(show, hide, &error), &error);
    assert_int_equal(program_follows(train, hide, &error), TRIREME_ERROR_PROGRAM);
    assert_says(error.message, "gradients is kept");
    programs_release(&p);
}

static void refuse_beside(const struct programs *p, const struct program *a, const struct program *b,
                          const char *what) {
    trireme_error error = {0};
    assert_int_equal(program_beside(a, b, p->stages.options.ops, &error), TRIREME_ERROR_PROGRAM);
    assert_says(error.message, what);
    assert_int_equal(program_beside(b, a, p->stages.options.ops, &error), TRIREME_ERROR_PROGRAM);
}

static void programs_beside_one_another_do_not_meet(void **state) {
    (void)state;
    struct programs p;
    trireme_error error = {0};
    programs_create(&p, MESHES[1].mesh, MESHES[1].zero, METHOD("local_sgd"), DELAY("2"), CODEC("none"));
    const struct program *exchange = program_of(&p, PROGRAM_OUTER_EXCHANGE), *train = program_of(&p, PROGRAM_TRAIN);
    assert_ok(program_beside(exchange, train, p.stages.options.ops, &error), &error);
    assert_ok(program_beside(train, exchange, p.stages.options.ops, &error), &error);
    refuse_beside(&p, exchange, program_of(&p, PROGRAM_OUTER_TAKE), "outer.taken is ");
    refuse_beside(&p, exchange, program_of(&p, PROGRAM_OUTER_SETTLE), "outer.value is ");
    refuse_beside(&p, train, program_of(&p, PROGRAM_EVALUATE), ".parameters is ");

    // What one reads the other may read, too, but not write.
    struct program mutant = mutant_copy(exchange);
    const int entry = mutant.buffers.item[mutant.templates.item[0].instructions.item[0].in[0].buffer].belongs_to;
    struct operand *weighed = mutant_operand(&mutant.templates.item[0].instructions.item[0], 0);
    *weighed = operand_whole(&mutant, entry);
    refuse_beside(&p, &mutant, train, ".parameters is ");
    mutant_release(&mutant);

    mutant = mutant_copy(train);
    char *name = mutant.streams.item[1].name;
    mutant.streams.item[1].name = (char *)"outer";
    refuse_beside(&p, exchange, &mutant, "both have the stream outer");
    mutant.streams.item[1].name = name;
    mutant_release(&mutant);

    mutant = mutant_copy(train);
    for (size_t t = 0; t < mutant.templates.count; t++)
        for (size_t i = 0; i < mutant.templates.item[t].instructions.count; i++) {
            struct instruction *in = &mutant.templates.item[t].instructions.item[i];
            if (in->op == OP_ALL_REDUCE) {
                in->group = AXES_ISLAND;
                in->stream = 1;
            }
        }
    refuse_beside(&p, exchange, &mutant, "both communicate over island on channel 1");
    mutant_release(&mutant);
    programs_release(&p);
}

// What is the same on all islands does not depend on whether one of them has skipped a step: the zeros between the
// tensors of a unit whose matrices are cut.
static void islands_skip_steps_of_their_own(void **state) {
    (void)state;
    struct programs p;
    programs_create(&p, FSDP "2", "model.hidden_size=20", METHOD("local_sgd"), "optimizer.name=muon", CODEC("none"));
    int gaps = 0;
    FOR_INSTRUCTIONS(i, program_of(&p, PROGRAM_TRAIN))
        gaps += i->op == OP_ZERO && i->phase == PHASE_OPTIMIZER;
    assert_true(gaps > 0);
    programs_release(&p);
}

// Of two fragments that have the same units, some are in none.
static void each_unit_is_of_one_fragment(void **state) {
    (void)state;
    struct programs p;
    trireme_error error = {0};
    mesh_programs(&p, 3);
    const int first = stages_find_part(&p.stages, PROGRAM_OUTER_TAKE, 0),
              second = stages_find_part(&p.stages, PROGRAM_OUTER_TAKE, 1);
    struct stage *stage = &p.stages.stage[0];
    struct compiled *own = stage->programs.item[second];
    stage->programs.item[second] = stage->programs.item[first];
    assert_int_equal(stages_verify(&p.stages, &error), TRIREME_ERROR_PROGRAM);
    assert_says(error.message, "programs outer_take, expected one");
    stage->programs.item[second] = own;
    programs_release(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instructions_are_done_once),
        cmocka_unit_test(operands_are_of_one_unit),
        cmocka_unit_test(sums_are_over_the_islands),
        cmocka_unit_test(codes_are_those_of_all_islands),
        cmocka_unit_test(each_unit_is_of_one_fragment),
        cmocka_unit_test(training_stays_on_its_island),
        cmocka_unit_test(what_changes_goes_back),
        cmocka_unit_test(what_is_kept_is_not_gradients),
        cmocka_unit_test(programs_beside_one_another_do_not_meet),
        cmocka_unit_test(islands_skip_steps_of_their_own),
        cmocka_unit_test(divisors_follow_from_squares),
        cmocka_unit_test(distances_count_once),
        cmocka_unit_test(messages_are_of_one_peer),
    };
    return cmocka_run_group_tests_name("outer programs", tests, NULL, NULL);
}
