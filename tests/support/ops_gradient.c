// Compares gradients with finite differences in f64. For outputs o of a forward op and random G, L = sum of G o is a
// number; the backward op, given G as the gradient of o, must give the derivatives of L. Central differences of fourth
// order.
#include "kernels/ref/tensor.h"
#include "support/ops_internal.h"

#include <math.h>

static const double step = 1e-3, accepted = 1e-8; // relative to the largest gradient

// L of a forward instance: `gradient[o]` is the tensor of G for output o, or NULL.
static double weigh(struct op_instance *forward, const struct tensor *const gradient[OP_MAX_OUT]) {
    reference_of(forward->info->op).run(&forward->call);
    double sum = 0;
    for (int o = 0; o < forward->info->outputs; o++)
        for (int64_t e = 0; gradient[o] && e < tensor_elements(gradient[o]); e++)
            sum += tensor_get(gradient[o], tensor_position(gradient[o], e)) *
                   tensor_get(&forward->call.out[o], tensor_position(&forward->call.out[o], e));
    return sum;
}

static double differentiate(struct op_instance *forward, const struct tensor *const gradient[OP_MAX_OUT], double *x) {
    static const struct {
        double steps, weight;
    } point[] = {{1, 8.0 / 12}, {-1, -8.0 / 12}, {2, -1.0 / 12}, {-2, 1.0 / 12}};
    double origin = *x, sum = 0;
    for (int i = 0; i < 4; i++) {
        *x = origin + point[i].steps * step;
        sum += point[i].weight * weigh(forward, gradient);
    }
    *x = origin;
    return sum / step;
}

// Compares `got`, less `plus` where that is not NULL, with the derivatives with respect to input `input`.
static trireme_status compare(struct op_instance *forward, const struct tensor *const gradient[OP_MAX_OUT], int input,
                              const struct tensor *got, const struct tensor *plus, const char *name, int64_t *checked,
                              trireme_error *error) {
    const struct tensor *x = &forward->call.in[input];
    double largest = 0;
    for (int64_t e = 0; e < tensor_elements(got); e++)
        largest = fmax(largest, fabs(tensor_get(got, tensor_position(got, e))));
    CHECK(x->dtype == DTYPE_F64);
    for (int64_t e = 0; e < tensor_elements(x); e++) {
        double expected = differentiate(forward, gradient, (double *)x->data + tensor_position(x, e));
        double value = tensor_get(got, tensor_position(got, e));
        if (plus)
            value -= tensor_get(plus, tensor_position(plus, e));
        if (!(fabs(value - expected) <= accepted * fmax(largest, 1e-3)))
            FAIL(TRIREME_ERROR_CORRUPT, "%s[%lld] is %.12g, finite differences of %s give %.12g (largest %.3g)", name,
                 (long long)e, value, forward->info->name, expected, largest);
        ++*checked;
    }
    return TRIREME_OK;
}

static trireme_status check_backward(const struct op_instance *backward, struct op_instance *forward, int64_t *checked,
                                     trireme_error *error) {
    const struct op_info *info = backward->info;
    const struct tensor *gradient[OP_MAX_OUT] = {0}, *plus[OP_MAX_IN] = {0};
    for (int i = 0; i < info->inputs; i++) {
        const struct op_reference *read = &info->reads[i];
        if (read->pass && backward->call.in[i].data)
            plus[read->index] = &backward->call.in[i];
        else if (read->gradient && !read->pass && backward->call.in[i].data)
            gradient[read->index] = &backward->call.in[i];
    }
    for (int o = 0; o < info->outputs; o++) {
        int input = info->contributes[o].index;
        if (backward->call.out[o].data)
            TRY(compare(forward, gradient, input, &backward->call.out[o], plus[input], info->out[o].name, checked,
                        error));
    }
    return TRIREME_OK;
}

// Loss ops: output 1 is the gradient of scale times the sum of output 0 (whose gradient each is then `scale`) for input
// 0.
static trireme_status check_loss(struct op_instance *loss, int64_t *checked, trireme_error *error) {
    const int last = loss->info->outputs - 1;
    struct tensor dlogits = loss->call.out[last], weight = loss->call.out[0];
    double *weights = mem_alloc((size_t)tensor_elements(&weight) * sizeof *weights);
    double *kept = mem_alloc((size_t)tensor_elements(&dlogits) * sizeof *kept);
    for (int64_t e = 0; e < tensor_elements(&weight); e++)
        weights[e] = tensor_scalar(&loss->call.in[2]);
    memcpy(kept, dlogits.data, (size_t)tensor_elements(&dlogits) * sizeof *kept);
    weight.data = weights;
    dlogits.data = kept; // the op runs again and again for the differences
    const struct tensor *gradient[OP_MAX_OUT] = {&weight};
    trireme_status status = compare(loss, gradient, 0, &dlogits, NULL, loss->info->out[last].name, checked, error);
    free(weights);
    free(kept);
    return status;
}

// The loss that is split by vocabulary: of one rank's part of it, sum and picked logit are what its logits change. With
// nll = max + log(sum) - picked, their gradients are scale / sum of all ranks and -scale, or 0 where masked.
static trireme_status check_split_loss(const struct op_table *table, const char *spec, const struct op_options *options,
                                       struct op_instance *loss, int64_t *checked, trireme_error *error) {
    char text[128];
    struct op_instance forward;
    snprintf(text, sizeof text, "logits_sum%s", spec + strlen(loss->info->name));
    trireme_status status = op_instance_create(&forward, table, text, options, error);
    if (status == TRIREME_OK) {
        for (int i = 0; i < forward.info->inputs; i++) {
            CHECK(strcmp(forward.info->in[i].name, loss->info->in[i].name) == 0);
            tensor_copy(&loss->call.in[i], &forward.call.in[i]);
        }
        const struct tensor *targets = &loss->call.in[1], *sum = &loss->call.in[4];
        const int64_t rows = tensor_elements(targets);
        const double scale = tensor_scalar(&loss->call.in[5]);
        double *weights = mem_alloc(2 * (size_t)rows * sizeof *weights);
        for (int64_t m = 0; m < rows; m++) {
            bool masked = tensor_int(targets, m) < 0;
            weights[m] = masked ? 0 : scale / tensor_get(sum, m);
            weights[rows + m] = masked ? 0 : -scale;
        }
        struct tensor d_sum = forward.call.out[0], d_picked = forward.call.out[1];
        d_sum.data = weights;
        d_picked.data = weights + rows;
        const struct tensor *gradient[OP_MAX_OUT] = {&d_sum, &d_picked};
        status = compare(&forward, gradient, 0, &loss->call.out[0], NULL, loss->info->out[0].name, checked, error);
        free(weights);
    }
    op_instance_release(&forward);
    return status;
}

// Forward ops that add some of their inputs up: the derivative is the output's gradient itself.
static trireme_status check_identities(struct op_instance *forward, int64_t *checked, trireme_error *error) {
    struct tensor g = forward->call.out[0];
    double *values = mem_alloc((size_t)tensor_elements(&g) * sizeof *values);
    for (int64_t e = 0; e < tensor_elements(&g); e++)
        values[e] = sin((double)e + 1);
    g.data = values;
    const struct tensor *gradient[OP_MAX_OUT] = {&g};
    trireme_status status = TRIREME_OK;
    for (int i = 0; i < forward->info->inputs && status == TRIREME_OK; i++)
        if (forward->info->identity[i] && forward->call.in[i].data)
            status = compare(forward, gradient, i, &g, NULL, forward->info->in[i].name, checked, error);
    free(values);
    return status;
}

trireme_status op_gradient(const struct op_table *table, const char *spec, unsigned absent, const struct kernel *kernel,
                           int64_t *checked, trireme_error *error) {
    struct op_options options = {.model = DTYPE_F64, .threads = 1, .absent = absent, .seed = 11};
    struct op_instance instance = {0}, forward = {0};
    *checked = 0;
    trireme_status status = op_instance_create(&instance, table, spec, &options, error);
    if (status == TRIREME_OK)
        status = op_instance_run(&instance, kernel, error);
    if (status == TRIREME_OK && instance.info->role == ROLE_BACKWARD) {
        status = op_instance_forward(&forward, table, spec, &options, error);
        if (status == TRIREME_OK)
            status = check_backward(&instance, &forward, checked, error);
    } else if (status == TRIREME_OK && instance.info->op == OP_LOGITS_GRAD) {
        status = check_split_loss(table, spec, &options, &instance, checked, error);
    } else if (status == TRIREME_OK && instance.info->role == ROLE_LOSS) {
        status = check_loss(&instance, checked, error);
    } else if (status == TRIREME_OK) {
        status = check_identities(&instance, checked, error);
    }
    op_instance_release(&instance);
    op_instance_release(&forward);
    if (status != TRIREME_OK)
        error_prefix(error, status, "%s (absent %#x)", spec, absent);
    return status;
}
