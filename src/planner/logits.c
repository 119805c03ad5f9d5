// How many rows of logits choices make at once. Fewer rows take less memory, but the gradient of the head is read and
// written once for every piece.
#include "compile/stages.h"
#include "planner/estimate.h"

bool estimator_chooses_logits(const struct plan_request *request) {
    return !cluster_has_cores(request->cluster) && !config_is_set(request->config, "training.logits_rows");
}

static int64_t logits_rows_of(const struct estimator *e, const struct plan_choice *c) {
    return c->micro_batch_size * parallel_given_rows(e->request->config, e->request->model);
}

// Where the configuration leaves it open, with `ranks` ranks sharing the vocabulary.
static int pieces_by_default(const struct estimator *e, const struct plan_choice *c, int ranks, bool pipeline) {
    const struct model_config *m = e->request->model;
    const int64_t rows = logits_rows_of(e, c), columns = divide_up(m->vocab_size, ranks);
    return (int)divide_up(rows, logits_chunk_rows(rows, m->hidden_size, m->vocab_size, columns,
                                                  model_dtype(e->request->config), pipeline));
}

int logits_pieces(const struct estimator *e, const struct plan_choice *c) {
    if (!e->chooses_logits)
        return 1;
    const int64_t rows = logits_rows_of(e, c);
    return c->logits_rows ? (int)divide_up(rows, c->logits_rows)
                          : pieces_by_default(e, c, c->tensor * (c->vocabulary ? c->stages : 1), c->stages > 1);
}

double kept_logits(const struct estimator *e, const struct plan_choice *c, double losses) {
    const struct model_config *m = e->request->model;
    const double size = dtype_size(model_dtype(e->request->config)), rows = (double)logits_rows_of(e, c) * size,
                 columns = (double)m->vocab_size / (c->tensor * c->stages);
    // The head's inputs for the next microbatch have room, too.
    return losses > 0 ? rows * (losses * columns + (losses + 1) * (double)m->hidden_size) : 0;
}

int64_t logits_rows(const struct estimator *e, const struct plan_choice *c, int pieces) {
    return divide_up(logits_rows_of(e, c), pieces);
}

// Interpolates between two probes: time by the number of pieces, memory by the number of rows.
static struct probe logits_between(const struct probe *few, int few_pieces, const struct probe *all, int pieces) {
    struct probe p = *all;
    const double by_pieces = (pieces - 1.) / (few_pieces - 1.), by_rows = (1 - 1. / pieces) / (1 - 1. / few_pieces);
    const struct probe_part *a = &all->rest, *f = &few->rest;
    p.rest.forward += by_pieces * (f->forward - a->forward);
    p.rest.backward += by_pieces * (f->backward - a->backward);
    p.rest.activations = MAX(0, a->activations + by_rows * (f->activations - a->activations));
    p.why = few->why ? few->why : all->why;
    return p;
}

struct probe find_probe(struct estimator *e, const struct plan_choice *c, int kind) {
    enum { LEAST = 4 }; // pieces, so that the difference can be measured
    struct plan_choice of = *c;
    of.logits_rows = 0;
    if (!e->chooses_logits || pieces_by_default(e, c, c->tensor, true) == 1)
        return *find_measured(e, &of, kind);
    const int few = MAX((int)LEAST, pieces_by_default(e, c, c->tensor, false));
    of.logits_rows = logits_rows(e, c, few);
    const struct probe with_few = *find_measured(e, &of, kind);
    of.logits_rows = logits_rows_of(e, c);
    const struct probe with_all = *find_measured(e, &of, kind);
    return logits_between(&with_few, few, &with_all, logits_pieces(e, c));
}
