#include "planner/learn.h"

// MEMORY_SLACK where others like it were compared.
static const double MEMORY_SLACK_LEARNT = 1.05;
// PLAN_SLACK where others like it were compared.
static const double SLACK_LEARNT = .97;

void learnt_release(struct learnt *learnt) {
    VEC_RELEASE(&learnt->kin);
    VEC_RELEASE(&learnt->meshes);
}

static int kin_of(struct learnt *l, const struct plan_choice *c) {
    const struct kin own = {.schedule = c->schedule,
                            .zero_stage = c->zero_stage,
                            .pipeline = c->stages > 1,
                            .vocabulary = c->vocabulary,
                            .balanced = l->estimator->kinds.count > 1 && c->balanced};
    for (size_t i = 0; i < l->kin.count; i++) {
        const struct kin *k = &l->kin.item[i];
        if (k->zero_stage == own.zero_stage && k->pipeline == own.pipeline && k->vocabulary == own.vocabulary &&
            k->balanced == own.balanced && strcmp(k->schedule, own.schedule) == 0)
            return (int)i;
    }
    VEC_PUSH(&l->kin, own);
    return (int)l->kin.count - 1;
}

static int learn_mesh_of(struct learnt *l, const struct plan_choice *c) {
    for (size_t i = 0; i < l->meshes.count; i++)
        if (l->meshes.item[i].tensor == c->tensor && l->meshes.item[i].stages == c->stages)
            return (int)i;
    VEC_PUSH(&l->meshes, (struct learnt_mesh){.tensor = c->tensor, .stages = c->stages});
    return (int)l->meshes.count - 1;
}

void learnt_place(struct learnt *l, struct candidate *c) {
    c->kin = kin_of(l, &c->choice);
    c->mesh = learn_mesh_of(l, &c->choice);
}

void learnt_add(struct learnt *l, const struct candidate *c, const struct plan_answer *a) {
    struct kin *k = &l->kin.item[c->kin];
    // Estimates know of no runtime, and of one room only.
    int64_t runtime = a->of_tightest.part[MEMORY_RUNTIME];
    double scale = l->estimator->room / (double)MAX(1, a->room - runtime);
    int64_t used = a->memory - runtime - a->of_tightest.part[MEMORY_UNUSED];
    double seconds = a->seconds / c->estimate.seconds, bytes = (double)used * scale / c->estimate.bytes;
    if (!c->choice.mixed) // which is made to fit
        k->bytes = k->bytes > 0 ? MIN(k->bytes, bytes) : bytes;
    k->seconds = k->seconds > 0 ? MIN(k->seconds, seconds) : seconds;
    l->meshes.item[c->mesh].compared = true;
}

double learnt_seconds(const struct learnt *l, const struct candidate *c) {
    double factor = l->kin.item[c->kin].seconds;
    bool compared = l->meshes.item[c->mesh].compared;
    return c->estimate.seconds * (factor <= 0 ? 1 : compared ? factor : MIN(factor, 1));
}

double learnt_slack(const struct learnt *l, const struct candidate *c) {
    return l->kin.item[c->kin].seconds > 0 && l->meshes.item[c->mesh].compared ? SLACK_LEARNT : PLAN_SLACK;
}

bool learnt_may_fit(const struct learnt *l, const struct candidate *c) {
    double factor = l->kin.item[c->kin].bytes;
    return c->choice.mixed ||
           c->estimate.bytes * (factor > 0 ? factor / MEMORY_SLACK_LEARNT : 1 / MEMORY_SLACK) <= l->estimator->room;
}

bool is_hopeless(const struct learnt *l, const struct candidate *c) {
    return l->kin.item[c->kin].bytes > 0 && !learnt_may_fit(l, c);
}
