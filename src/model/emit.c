// What the forward pass of all layers is made with. On tensor ranks the parts of a layer begin with communication and
// end with it (enter, leave); on one rank neither emits anything.
#include "model/emit.h"

#include "model/layer.h"
#include "model/lora.h"

static int parameter_buffer(const struct emitter *e, const char *name) {
    int number = parameter_find(e->table, name);
    return number == NONE ? NONE : e->parameter[number];
}

struct operand emit_parameter(const struct emitter *e, int layer, const char *part) {
    char *name = layer == NONE ? mem_strdup(part) : mem_printf("layers.%d.%s", layer, part);
    int buffer = parameter_buffer(e, name);
    free(name);
    return buffer == NONE ? operand_none() : operand_whole(e->program, buffer);
}

int64_t emit_row_count(const struct emitter *e) {
    return e->batch->sequences * e->seq_rows;
}

int64_t emit_stream_rows(const struct emitter *e) {
    return emit_row_count(e) / (e->split->sequence ? e->split->ranks : 1);
}

int emit_new_buffer(const struct emitter *e, int layer, const char *part, enum dtype dtype, int ndim,
                    const int64_t *dim) {
    char *name = layer == NONE ? mem_strdup(part) : mem_printf("layers.%d.%s", layer, part);
    int buffer = program_buffer(e->program, name, dtype, KIND_ACT, SCOPE_LOCAL, ndim, dim);
    free(name);
    return buffer;
}

int emit_new_activation(const struct emitter *e, int layer, const char *part, int64_t n_rows, int64_t columns) {
    return emit_new_buffer(e, layer, part, e->dtype, 2, (int64_t[]){n_rows, columns});
}

int emit_new_statistic(const struct emitter *e, int layer, const char *part, int ndim, const int64_t *dim) {
    return emit_new_buffer(e, layer, part, dtype_accumulate(e->dtype), ndim, dim);
}

void emit_forward(const struct emitter *e, enum op op, int layer, int inputs, const struct operand *in, int outputs,
                  const struct operand *out, const union attribute *attribute) {
    program_emit(e->program, e->template, op, PHASE_FORWARD, layer, inputs, in, outputs, out, attribute);
}

struct operand emit_sequence(struct operand view, int64_t number) {
    view.offset += number * view.stride[0];
    view.ndim--;
    memmove(view.dim, view.dim + 1, (size_t)view.ndim * sizeof *view.dim);
    memmove(view.stride, view.stride + 1, (size_t)view.ndim * sizeof *view.stride);
    return view;
}

struct operand emit_whole_operand(const struct emitter *e, int buffer) {
    return buffer == NONE ? operand_none() : operand_whole(e->program, buffer);
}

struct operand emit_row_numbers(const struct emitter *e, int buffer) {
    const int64_t rows = emit_row_count(e);
    return operand_shape(emit_whole_operand(e, buffer), 1, &rows);
}

// ---- between tensor ranks

bool emit_is_split(const struct emitter *e) {
    return e->split->ranks > 1;
}

static struct operand emit_flat(const struct emitter *e, int buffer) {
    struct operand operand = emit_whole_operand(e, buffer);
    return operand_shape(operand, 1, (int64_t[]){operand_count(&operand)});
}

int tensor_stream(struct program *program) {
    return program_stream(program, "tensor", STREAM_PROMPT);
}

int emit_enter(struct emitter *e, int layer, const char *name, int x) {
    if (!emit_is_split(e))
        return x;
    int64_t width = e->program->buffers.item[x].dim[1];
    int y = emit_new_activation(e, layer, name, emit_row_count(e), width);
    if (e->split->sequence) {
        program_communicate(e->program, e->template, OP_ALL_GATHER, PHASE_FORWARD, tensor_stream(e->program),
                            AXES_TENSOR, emit_whole_operand(e, x), emit_whole_operand(e, y))
            ->layer = layer;
        return y;
    }
    struct operand in = emit_flat(e, x), out = emit_flat(e, y);
    struct instruction *fan =
        program_emit(e->program, e->template, OP_FAN_OUT, PHASE_FORWARD, layer, 1, &in, 1, &out, NULL);
    fan->group = mesh_present(&e->program->mesh, AXES_TENSOR);
    return y;
}

int emit_leave(struct emitter *e, int layer, const char *name, int partial) {
    int y = emit_new_activation(e, layer, name, emit_stream_rows(e), e->program->buffers.item[partial].dim[1]);
    enum op op = e->split->sequence ? OP_REDUCE_SCATTER : OP_ALL_REDUCE;
    program_communicate(e->program, e->template, op, PHASE_FORWARD, tensor_stream(e->program), AXES_TENSOR,
                        emit_whole_operand(e, partial), emit_whole_operand(e, y))
        ->layer = layer;
    return y;
}

// ---- what parts are made of

void emit_product(const struct emitter *e, int layer, struct operand x, struct operand w, struct operand bias,
                  struct operand residual, struct operand y) {
    emit_forward(e, OP_MATMUL, layer,
                 GIVEN(MATMUL, [INPUT(MATMUL, x)] = x, [INPUT(MATMUL, w)] = w, [INPUT(MATMUL, b)] = bias,
                       [INPUT(MATMUL, r)] = residual),
                 MADE(MATMUL, [OUTPUT(MATMUL, y)] = y), NULL);
}

static int emit_biased(struct emitter *e, int layer, int a, int b, struct operand bias, const char *result) {
    const struct buffer like = e->program->buffers.item[a];
    int y = emit_new_activation(e, layer, result, like.dim[0], like.dim[1]);
    emit_forward(e, OP_ADD_BIAS, layer,
                 GIVEN(ADD_BIAS, [INPUT(ADD_BIAS, a)] = emit_whole_operand(e, a),
                       [INPUT(ADD_BIAS, b)] = emit_whole_operand(e, b), [INPUT(ADD_BIAS, bias)] = bias),
                 MADE(ADD_BIAS, [OUTPUT(ADD_BIAS, y)] = emit_whole_operand(e, y)), NULL);
    return y;
}

// Whether a buffer holds a parameter that is trained.
static bool emit_is_trained(const struct emitter *e, struct operand parameter) {
    for (size_t i = 0; i < e->table->parameters.count; i++)
        if (e->parameter[i] == parameter.buffer)
            return !e->table->parameters.item[i].frozen;
    return false;
}

// Whether a bias is added by itself: it is trained although the weight is not, and so is its gradient made.
static bool emit_is_apart(const struct emitter *e, struct operand weight, struct operand bias) {
    return bias.buffer != NONE && emit_is_trained(e, bias) && !emit_is_trained(e, weight);
}

int emit_norm(struct emitter *e, int layer, const char *norm, int x) {
    int64_t n_rows = e->program->buffers.item[x].dim[0];
    char *weight = mem_printf("%s.weight", norm), *bias = mem_printf("%s.bias", norm),
         *mean = mem_printf("%s.mean", norm), *rstd = mem_printf("%s.rstd", norm);
    const struct operand w = emit_parameter(e, layer, weight), b = emit_parameter(e, layer, bias);
    const bool apart = emit_is_apart(e, w, b);
    char *unbiased = mem_printf("%s.unbiased", norm);
    int y = emit_new_activation(e, layer, apart ? unbiased : norm, n_rows, e->config->hidden_size);
    const double eps = e->config->norm_eps;
    if (e->config->form.norm == NORM_LAYER) {
        int m = emit_new_statistic(e, layer, mean, 1, &n_rows), r = emit_new_statistic(e, layer, rstd, 1, &n_rows);
        emit_forward(e, OP_LAYERNORM, layer,
                     GIVEN(LAYERNORM, [INPUT(LAYERNORM, x)] = emit_whole_operand(e, x), [INPUT(LAYERNORM, w)] = w,
                           [INPUT(LAYERNORM, b)] = apart ? operand_none() : b),
                     MADE(LAYERNORM, [OUTPUT(LAYERNORM, y)] = emit_whole_operand(e, y),
                          [OUTPUT(LAYERNORM, mean)] = emit_whole_operand(e, m),
                          [OUTPUT(LAYERNORM, rstd)] = emit_whole_operand(e, r)),
                     (union attribute[OP_MAX_ATTRIBUTES]){[ATTRIBUTE(LAYERNORM, eps)] = {.f = eps}});
    } else {
        int r = emit_new_statistic(e, layer, rstd, 1, &n_rows);
        emit_forward(e, OP_RMSNORM, layer,
                     GIVEN(RMSNORM, [INPUT(RMSNORM, x)] = emit_whole_operand(e, x), [INPUT(RMSNORM, w)] = w),
                     MADE(RMSNORM, [OUTPUT(RMSNORM, y)] = emit_whole_operand(e, y),
                          [OUTPUT(RMSNORM, rstd)] = emit_whole_operand(e, r)),
                     (union attribute[OP_MAX_ATTRIBUTES]){
                         [ATTRIBUTE(RMSNORM, eps)] = {.f = eps},
                         [ATTRIBUTE(RMSNORM, plus)] = {.f = e->config->form.norm == NORM_RMS_PLUS_ONE}});
    }
    free(weight), free(bias), free(mean), free(rstd), free(unbiased);
    return apart ? emit_biased(e, layer, y, NONE, b, norm) : y;
}

int emit_norm_before(struct emitter *e, int layer, const char *norm, int x) {
    return e->config->form.norms == NORM_AFTER ? x : e->normed != NONE ? e->normed : emit_norm(e, layer, norm, x);
}

// x W^T + b (+ residual) with the parameters `part`.weight and `part`.bias of the layer. A bias that is trained
// although the weight is not is added by itself: so is its gradient.
static int emit_linear_onto(struct emitter *e, int layer, const char *part, int x, int residual, const char *result) {
    char *weight_name = mem_printf("%s.weight", part), *bias_name = mem_printf("%s.bias", part),
         *unbiased = mem_printf("%s.unbiased", result);
    struct operand weight = emit_parameter(e, layer, weight_name), bias = emit_parameter(e, layer, bias_name);
    const bool apart = emit_is_apart(e, weight, bias);
    int y = emit_new_activation(e, layer, apart ? unbiased : result, e->program->buffers.item[x].dim[0], weight.dim[0]);
    emit_product(e, layer, emit_whole_operand(e, x), weight, apart ? operand_none() : bias,
                 emit_whole_operand(e, residual), emit_whole_operand(e, y));
    free(weight_name), free(bias_name), free(unbiased);
    return apart ? emit_biased(e, layer, y, NONE, bias, result) : y;
}

int emit_linear(struct emitter *e, int layer, const char *part, int x, const char *result, const struct emit_band *band,
                int bands) {
    return emit_linear_onto(e, layer, part, x, emit_adapters(e, layer, part, x, band, bands), result);
}

static int emit_sum(struct emitter *e, int layer, int a, int b, const char *result) {
    int y = emit_new_activation(e, layer, result, emit_stream_rows(e), e->program->buffers.item[a].dim[1]);
    emit_forward(e, OP_ADD, layer,
                 GIVEN(ADD, [INPUT(ADD, a)] = emit_whole_operand(e, a), [INPUT(ADD, b)] = emit_whole_operand(e, b)),
                 MADE(ADD, [OUTPUT(ADD, y)] = emit_whole_operand(e, y)), NULL);
    return y;
}

// The projection out of a part, without bias: the sum of the partial ones of several ranks.
static int emit_out_sum(struct emitter *e, int layer, const char *part, int x, const char *result) {
    char *weight_name = mem_printf("%s.weight", part), *part_name = mem_printf("%s.part", part);
    struct operand weight = emit_parameter(e, layer, weight_name);
    int partial = emit_new_activation(e, layer, part_name, emit_row_count(e), weight.dim[0]);
    emit_product(e, layer, emit_whole_operand(e, x), weight, operand_none(), operand_none(),
                 emit_whole_operand(e, partial));
    free(weight_name), free(part_name);
    return emit_leave(e, layer, result, partial);
}

// The same, onto `residual` (NONE: onto nothing), of which the adapter's part is one. Where the projection is split by
// columns, bias and residual are added after the reduction. Models whose norms come after have no bias there.
static int emit_out_onto(struct emitter *e, int layer, const char *part, int x, int residual, const char *result) {
    residual = emit_adapter_out(e, layer, part, x, residual);
    if (!emit_is_split(e))
        return emit_linear_onto(e, layer, part, x, residual, result);
    if (residual == NONE)
        return emit_out_sum(e, layer, part, x, result);
    char *bias_name = mem_printf("%s.bias", part),
         *sum_name = mem_printf("%s.%s", part, e->config->form.norms == NORM_BEFORE ? "sum" : "unadapted");
    struct operand bias = emit_parameter(e, layer, bias_name);
    int sum = emit_out_sum(e, layer, part, x, sum_name);
    free(bias_name), free(sum_name);
    if (bias.buffer == NONE)
        return emit_sum(e, layer, sum, residual, result);
    return emit_biased(e, layer, sum, residual, bias, result);
}

int emit_out(struct emitter *e, int layer, const char *part, int x, int residual, const char *after,
             const char *result) {
    if (e->config->form.norms == NORM_BEFORE)
        return emit_out_onto(e, layer, part, x, residual, result);
    char *sum_name = mem_printf("%s.sum", part);
    int sum = emit_out_onto(e, layer, part, x, NONE, sum_name);
    free(sum_name);
    return emit_sum(e, layer, emit_norm(e, layer, after, sum), residual, result);
}

// ---- layers

void emit_cache_add(struct emit_cache *entries, struct state_table *state, const struct model_config *c,
                    int64_t sequences, int64_t context, enum dtype dtype) {
    entries->context = context;
    entries->of = mem_alloc((size_t)c->num_hidden_layers * sizeof *entries->of);
    for (int layer = 0; layer < c->num_hidden_layers; layer++) {
        for (int k = 0; k < CACHE_BUFFERS; k++)
            entries->of[layer][k] = NONE;
        for (int i = 0; i < LAYER_PARTS; i++) {
            const struct layer_part *part = model_layer_part(model_layer(c, layer), i);
            if (part->cache)
                part->cache(state, c, layer, sequences, context, dtype, entries->of[layer]);
        }
    }
}

void emit_cache_declare(struct emit_cache *cache, struct program *p, const struct state_table *state,
                        const struct emit_cache *entries, const struct model_config *c) {
    cache->context = entries->context;
    cache->of = mem_alloc((size_t)c->num_hidden_layers * sizeof *cache->of);
    for (int layer = 0; layer < c->num_hidden_layers; layer++)
        for (int k = 0; k < CACHE_BUFFERS; k++) {
            int entry = entries->of[layer][k];
            cache->of[layer][k] = entry == NONE ? NONE : state_buffer(state, p, entry, NONE);
        }
}

void emit_cache_release(struct emit_cache *cache) {
    free(cache->of);
    cache->of = NULL;
}

int emit_layer(struct emitter *e, int layer, int x) {
    const struct layer_kind *kind = model_layer(e->config, layer);
    int onto = x;
    e->normed = model_shares_norm(e->config) ? emit_norm(e, layer, "attention_norm", x) : NONE;
    for (int i = 0; i < LAYER_PARTS; i++)
        onto = model_layer_part(kind, i)->emit(e, layer, e->config->parallel_residual ? x : onto, onto);
    return onto;
}
