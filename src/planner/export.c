// A plan in the words of Megatron-LM and TorchTitan, with comments on what they do differently or lack.
#include "base/amount.h"
#include "optim/optimizer.h"
#include "planner/evaluate.h"

#include <inttypes.h>
#include <math.h>

// Names and meanings are those of Megatron-LM's megatron/training/arguments.py and the configurations from which it
// makes flags (August 2026), and of TorchTitan's torchtitan/config/job_config.py as it was while its files were TOML
// (until February 2026). Its later configurations are Python, where most fields have the same names.

// The microbatches of a data-parallel rank in a step.
static int64_t microbatches_of(const struct plan_request *r, const struct plan_choice *c) {
    return r->config->training.global_batch_size / (c->replicas * c->shards) / c->micro_batch_size;
}

// A pipeline as the other system would run it; or all layers as one stage.
struct pipeline {
    const char *schedule; // the one that the other system runs
    int stages, chunks;
    int *layers, *again; // [virtual stages]: layers, and how many of them are recomputed; owned
    bool even;           // all virtual stages have the same number of layers
    bool merged;         // the chunks of a rank became one
};

// Merges the chunks of a rank into one; layers are divided evenly, the first ranks having one more.
static void pipeline_of_one_chunk(struct pipeline *p, const struct schedule *s, int all_layers) {
    int *layers = mem_alloc((size_t)s->stages * sizeof *layers), *again = mem_alloc((size_t)s->stages * sizeof *again);
    bool all = true; // layers are recomputed
    for (int v = 0; v < s->stages * s->chunks; v++)
        all &= p->again[v] == p->layers[v];
    for (int i = 0; i < s->stages; i++) {
        layers[i] = all_layers / s->stages + (i < all_layers % s->stages);
        again[i] = 0;
        for (int chunk = 0; chunk < s->chunks; chunk++)
            again[i] += p->again[s->virtual_stage[i * s->chunks + chunk]];
        again[i] = all ? layers[i] : MIN(again[i], layers[i]);
    }
    free(p->layers);
    free(p->again);
    *p = (struct pipeline){.stages = s->stages, .chunks = 1, .layers = layers, .again = again, .merged = true};
}

static bool goes_round(const struct schedule *s) {
    bool round = true;
    for (int v = 0; v < s->stages * s->chunks; v++)
        round &= s->place[v].rank == v % s->stages;
    return round;
}

// `there`: the other system has the schedule. Otherwise it runs 1F1B: interleaved with the same chunks where these go
// through all ranks over and over, else with one chunk, since a layout for chunks placed there and back is for that
// placement alone.
static struct pipeline pipeline_create(const struct plan_request *r, const struct plan_choice *c, bool there) {
    struct parallel plan;
    CHECK(choice_resolve(&plan, r, c));
    const struct schedule *s = plan.schedule;
    const int all_layers = (int)r->model->num_hidden_layers;
    struct pipeline p = {.stages = s ? s->stages : 1, .chunks = s ? s->chunks : 1};
    const int count = p.stages * p.chunks;
    p.layers = mem_alloc((size_t)count * sizeof *p.layers);
    p.again = mem_alloc((size_t)count * sizeof *p.again);
    for (int v = 0; v < count; v++) {
        p.layers[v] = s ? plan.first_layer[v + 1] - plan.first_layer[v] : all_layers;
        p.again[v] =
            (plan.full_layers ? plan.full_layers[v] : 0) + (plan.selective_layers ? plan.selective_layers[v] : 0);
    }
    if (s && !there && s->chunks > 1 && !goes_round(s))
        pipeline_of_one_chunk(&p, s, all_layers);
    p.even = true;
    for (int v = 0; v < p.stages * p.chunks; v++)
        p.even &= p.layers[v] == p.layers[0];
    p.schedule = there ? c->schedule : p.chunks > 1 ? "interleaved" : "1f1b";
    parallel_release(&plan);
    return p;
}

static void pipeline_release(struct pipeline *p) {
    free(p->layers);
    free(p->again);
}

static void schedule_is_not_there(struct text *cannot, const struct pipeline *p, const struct plan_choice *c) {
    text_add(cannot, "# not available: the schedule ");
    text_add_line(cannot, c->schedule); // perhaps a path
    text_add(cannot, "; here 1F1B%s, which takes other time and memory\n",
             p->chunks > 1 ? " of several chunks, interleaved"
             : p->merged   ? " of one chunk"
                           : "");
}

// Lists of layers that are recomputed in other modes than the rest: as chosen, else as the user has set; "": none.
struct again {
    const char *full, *selective;
};

static const char *layers_or_none(const char *chosen, const char *given) {
    const char *layers = chosen ? chosen : given;
    return strpbrk(layers, "123456789") ? layers : "";
}

static struct again again_of(const struct plan_request *r, const struct plan_choice *c) {
    const struct config_activation_checkpoint *given = &r->config->activation_checkpoint;
    return (struct again){.full = layers_or_none(c->full_layers, given->full_layers),
                          .selective = layers_or_none(c->selective_layers, given->selective_layers)};
}

// Whether layers differ in mode, where the rest is in mode `rest`.
static bool export_is_mixed(const struct again *again, enum config_recompute rest) {
    return (*again->full && rest != CONFIG_RECOMPUTE_FULL) || (*again->selective && rest == CONFIG_RECOMPUTE_NONE);
}

// The one mode for all layers that recomputes least but no layer less than the plan does, so that it takes no more
// memory.
static enum config_recompute mode_for_all(const struct again *again, enum config_recompute rest) {
    return *again->full                                         ? CONFIG_RECOMPUTE_FULL
           : *again->selective && rest == CONFIG_RECOMPUTE_NONE ? CONFIG_RECOMPUTE_SELECTIVE
                                                                : rest;
}

static void mixed_is_not_there(struct text *cannot, const struct again *again, enum config_recompute rest,
                               const char *here) {
    text_add(
        cannot,
        "# not available: layers of a stage that differ in what is computed again (full: %s; selective: %s; the rest: "
        "%s); here %s, which is slower\n",
        *again->full ? again->full : "none", *again->selective ? again->selective : "none", config_recompute_word(rest),
        here);
}

// Notes that layers differ in the plan, and that all are in one mode there.
static void mixed_is_all(struct text *cannot, const struct again *again, enum config_recompute rest,
                         enum config_recompute all) {
    if (export_is_mixed(again, rest))
        mixed_is_not_there(cannot, again, rest,
                           all == CONFIG_RECOMPUTE_FULL ? "all layers are in full, not some"
                                                        : "all layers are selective, not some");
}

// Both systems can split heads over tensor ranks only evenly; Trireme pads where they do not divide. Where several
// ranks share one head of keys and values, Trireme and Megatron-LM (`copies`) give each of them the whole head.
static void heads_are_not_there(struct text *cannot, const struct model_config *m, int tensor, bool copies) {
    const struct {
        int64_t count;
        bool copies;
        const char *what;
    } split[] = {{m->num_attention_heads, false, "heads"},
                 {m->num_key_value_heads, copies, "heads of keys and values"}};
    for (size_t i = 0; i < ARRAY_LENGTH(split); i++)
        if (split[i].count % tensor && !(split[i].copies && tensor % split[i].count == 0))
            text_add(cannot,
                     "# not available: %" PRId64 " %s over %d tensor parallel ranks, which do not divide them\n",
                     split[i].count, split[i].what, tensor);
}

// Both systems split each sequence; Trireme splits the rows of a microbatch, wherever sequences begin.
static void sequence_is_not_there(struct text *cannot, int64_t seq_len, int divisor) {
    if (seq_len % divisor)
        text_add(cannot, "# not available: sequences of %" PRId64 " tokens; %d has to divide them\n", seq_len, divisor);
}

// What both call the ways in which queries meet keys of other ranks; NULL: there is none like it.
static const struct {
    const char *megatron, *titan;
} METHODS[] = {[CONFIG_CONTEXT_PARALLEL_GATHER] = {"all_gather", "allgather"},
               [CONFIG_CONTEXT_PARALLEL_RING] = {"p2p", "alltoall"},
               [CONFIG_CONTEXT_PARALLEL_ULYSSES] = {"a2a", NULL},
               [CONFIG_CONTEXT_PARALLEL_HYBRID] = {"a2a+p2p", NULL},
               [CONFIG_CONTEXT_PARALLEL_BURST] = {NULL, NULL},
               [CONFIG_CONTEXT_PARALLEL_TOKENRING] = {NULL, NULL},
               [CONFIG_CONTEXT_PARALLEL_LIGHTSEQ] = {NULL, NULL},
               [CONFIG_CONTEXT_PARALLEL_AUTO] = {NULL, NULL}};

// What follows of how sequences lie: both systems lay them out in zigzag, and have one ring.
static void layout_is_not_there(struct text *cannot, const struct config *config) {
    const struct config_parallelism *p = &config->parallelism;
    const bool rings = p->context_parallel_method == CONFIG_CONTEXT_PARALLEL_RING ||
                       p->context_parallel_method == CONFIG_CONTEXT_PARALLEL_HYBRID;
    if (rings && p->context_parallel_layout != CONFIG_CONTEXT_PARALLEL_ZIGZAG)
        text_add(cannot, "# not available: sequences laid out %s over ranks; they are in zigzag there\n",
                 config_context_parallel_layout_word(p->context_parallel_layout));
    if (rings && p->context_parallel_inner_degree)
        text_add(cannot, "# not available: rings of %" PRId64 " ranks within the ring\n",
                 p->context_parallel_inner_degree);
}

static void method_is_not_there(struct text *cannot, enum config_context_parallel_method method) {
    text_add(cannot, "# not available: context parallel ranks that attend as %s does\n",
             config_context_parallel_method_word(method));
}

// ---- Megatron-LM

// In Megatron-LM all linear layers have biases, or only queries, keys and values, or none.
static void megatron_biases(struct text *out, struct text *cannot, const struct model_config *m) {
    bool gpt2 = m->family == FAMILY_GPT2, qkv = gpt2 ? m->bias : m->attention_bias;
    bool rest[] = {gpt2 ? m->bias : m->attention_output_bias, gpt2 ? m->bias : m->mlp_bias};
    if (qkv && rest[0] && rest[1])
        return;
    text_add(out, "--disable-bias-linear %s\\\n", qkv ? "--add-qkv-bias " : "");
    if (gpt2)
        text_add(cannot, "# not available: LayerNorm without biases\n");
    for (int i = 0; i < 2; i++)
        if (rest[i])
            text_add(cannot, "# not available: biases of %s, where not all linear layers have them\n",
                     i ? "the feed-forward" : "attention's output");
}

// In Megatron-LM GELU is approximated by tanh where it is fused with biases, as by default; else it is exact.
static void megatron_activation(struct text *out, struct text *cannot, const struct model_config *m) {
    if (m->bias && m->activation == ACTIVATION_GELU)
        text_add(out, "--no-bias-gelu-fusion \\\n");
    if (!m->bias && m->activation == ACTIVATION_GELU_TANH)
        text_add(cannot, "# not available: GELU by tanh without biases; here it is exact\n");
}

static void megatron_rope(struct text *out, struct text *cannot, const struct model_config *m) {
    text_add(out, "--position-embedding-type rope --rotary-base %.0f \\\n", m->rope[0].theta);
    if (m->rope[0].theta != rint(m->rope[0].theta))
        text_add(cannot, "# not available: a base of rotary frequencies that is no whole number, %.10g\n",
                 m->rope[0].theta);
    if (m->rope[0].scaling == ROPE_SCALING_LINEAR && m->rope[0].factor == rint(m->rope[0].factor))
        text_add(out, "--rotary-seq-len-interpolation-factor %.0f \\\n", m->rope[0].factor);
    else if (m->rope[0].scaling == ROPE_SCALING_LINEAR)
        text_add(cannot, "# not available: positions divided by what is no whole number, %.10g\n", m->rope[0].factor);
    if (m->rope[0].scaling != ROPE_SCALING_LLAMA3)
        return;
    text_add(out, "--use-rope-scaling --rope-scaling-factor %.10g \\\n", m->rope[0].factor);
    if (m->rope[0].low_freq_factor != 1 || m->rope[0].high_freq_factor != 4 || m->rope[0].original != 8192)
        text_add(cannot,
                 "# not available: scaling of rotary frequencies between %.10g and %.10g turns in %" PRId64
                 " positions; here between 1 and 4 in 8192\n",
                 m->rope[0].low_freq_factor, m->rope[0].high_freq_factor, m->rope[0].original);
}

// Neither system has the other families of models.
static void family_is_not_there(struct text *cannot, const struct model_config *m) {
    static const struct model_form LLAMA;
    const bool scaled = m->rope[0].scaling > ROPE_SCALING_LLAMA3;
    bool all_turned = true;
    for (int k = 0; k < model_layer_kinds(m); k++)
        all_turned = all_turned && m->kind[k].rope == 0;
    if (m->family == FAMILY_LLAMA &&
        (memcmp(&m->form, &LLAMA, sizeof LLAMA) != 0 || m->activation != ACTIVATION_SWIGLU || m->parallel_residual ||
         m->qk_norm == QK_NORM_WIDTH || m->attention_scalar > 0 || m->attention_multiplier > 0 || m->attention_sinks ||
         m->attention_cap > 0 || m->logits_cap > 0 || m->partial_rotary_factor > 0 || scaled || !all_turned))
        text_add(cannot, "# not available: what %s has and Llama does not: its norms, activation, positions or caps\n",
                 model_architecture(m) ?: "this model");
    if (model_is_recurrent(m))
        text_add(cannot, "# not available: layers with linear attention\n");
}

static void megatron_window(struct text *cannot, const struct model_config *m) {
    if (model_sliding_window(m) == 0)
        return;
    text_add(cannot, "# to be set: the sliding window (--window-size %" PRId64 ",0", model_sliding_window(m) - 1);
    if (model_layer_kinds(m) > 1) {
        text_add(cannot, "; --window-attn-skip-freq for layers ");
        model_layer_types(m, cannot);
    }
    text_add(cannot, ")\n");
}

static void megatron_model(struct text *out, struct text *cannot, const struct model_config *m,
                           const struct config *c) {
    text_add(out,
             "--num-layers %" PRId64 " --hidden-size %" PRId64 " --ffn-hidden-size %" PRId64
             " --num-attention-heads %" PRId64 " --kv-channels %" PRId64 " \\\n",
             m->num_hidden_layers, m->hidden_size, m->intermediate_size, m->num_attention_heads, m->head_dim);
    if (m->num_key_value_heads != m->num_attention_heads)
        text_add(out, "--group-query-attention --num-query-groups %" PRId64 " \\\n", m->num_key_value_heads);
    if (m->qk_norm)
        text_add(out, "--qk-layernorm \\\n");
    if (!m->tie_word_embeddings)
        text_add(out, "--untie-embeddings-and-output-weights \\\n");
    text_add(out, "--seq-length %" PRId64 " --max-position-embeddings %" PRId64 " --norm-epsilon %g \\\n",
             c->training.seq_len, m->max_position_embeddings, m->norm_eps);
    if (m->family == FAMILY_LLAMA)
        text_add(out, "--normalization RMSNorm --swiglu \\\n");
    else
        megatron_activation(out, cannot, m);
    megatron_biases(out, cannot, m);
    if (m->family == FAMILY_LLAMA)
        megatron_rope(out, cannot, m);
    family_is_not_there(cannot, m);
    megatron_window(cannot, m);
    text_add(out, "--attention-dropout 0 --hidden-dropout 0 --init-method-std %.10g \\\n", m->initializer_range);
    if (m->family == FAMILY_LLAMA)
        text_add(cannot,
                 "# not available: weights in front of residual sums that begin as large as all others; there they "
                 "are divided by the root of twice the layers\n");
}

static void units_to_be_set(struct text *cannot, const struct plan_request *r, const struct plan_choice *c) {
    int64_t layers = c->unit_layers ? MAX(c->unit_layers, 0) : r->config->parallelism.data_parallel_unit_layers;
    if (c->shards * c->replicas > 1 && layers != 1)
        text_add(cannot, "# to be set: %s gathered and reduced together\n", layers ? "several layers" : "half a layer");
}

// Megatron-LM's interleaved order takes microbatches in groups, each of which, the last one included, has at least as
// many microbatches as there are stages.
static void megatron_groups(struct text *out, struct text *cannot, const struct plan_choice *c, int64_t microbatches) {
    int64_t group = c->stages;
    while (group < microbatches && microbatches % group && microbatches % group < c->stages)
        group++;
    if (microbatches < c->stages)
        text_add(cannot, "# not available: interleaved with fewer microbatches (%" PRId64 ") than stages (%d)\n",
                 microbatches, c->stages);
    else if (group > c->stages)
        text_add(out, "--microbatch-group-size-per-virtual-pipeline-stage %" PRId64 " \\\n", group);
}

static void megatron_pipeline(struct text *out, struct text *cannot, const struct plan_request *r,
                              const struct plan_choice *c, const struct pipeline *p) {
    if (strcmp(c->schedule, p->schedule))
        schedule_is_not_there(cannot, p, c);
    if (c->vocabulary)
        text_add(cannot, "# not available: a vocabulary spread over all stages\n");
    if (!p->even) {
        // E: embedding, t: a layer, L: head and loss; | between virtual stages.
        text_add(out, "--pipeline-model-parallel-layout \"E");
        for (int v = 0; v < p->stages * p->chunks; v++)
            text_add(out, "%st*%d", v ? "|" : "", p->layers[v]);
        text_add(out, "L\" \\\n");
    } else if (p->chunks > 1) {
        text_add(out, "--num-virtual-stages-per-pipeline-rank %d \\\n", p->chunks);
    }
    if (p->chunks > 1)
        megatron_groups(out, cannot, c, microbatches_of(r, c));
}

static void megatron_data(struct text *out, struct text *cannot, const struct plan_choice *c) {
    static const char *const STRATEGIES[] = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
    if (c->zero_stage > 1)
        text_add(out,
                 "--use-megatron-fsdp --data-parallel-sharding-strategy %s --no-gradient-accumulation-fusion "
                 "--ckpt-format fsdp_dtensor \\\n",
                 STRATEGIES[c->zero_stage]);
    // Megatron-FSDP, too, adds up gradients of replicas only if it is told to overlap that.
    if (c->zero_stage > 0)
        text_add(out, "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \\\n");
    else if (c->replicas > 1)
        text_add(out, "--overlap-grad-reduce \\\n");
    if (c->zero_stage > 0 && c->replicas > 1)
        text_add(out, "--num-distributed-optimizer-instances %d \\\n", c->replicas);
    if (c->zero_stage > 1 && c->stages > 1)
        text_add(cannot, "# may be refused: Megatron-FSDP beside a pipeline, depending on the version\n");
}

static void megatron_recompute(struct text *out, struct text *cannot, const struct plan_request *r,
                               const struct plan_choice *c, const struct pipeline *p) {
    const struct again again = again_of(r, c);
    enum config_recompute all = mode_for_all(&again, c->recompute);
    // Its `block` method recomputes the first layers of each virtual stage, equally many in each, and nothing else.
    if (*again.full && c->recompute == CONFIG_RECOMPUTE_NONE) {
        const int stages = p->stages * p->chunks;
        int most = 0;
        bool alike = true;
        for (int v = 0; v < stages; v++)
            most = MAX(most, p->again[v]);
        for (int v = 0; v < stages; v++)
            alike &= p->again[v] == MIN(most, p->layers[v]);
        text_add(out, "--recompute-granularity full --recompute-method block --recompute-num-layers %d \\\n", most);
        if (*again.selective || !alike) {
            char *here = mem_printf("the first %d of each virtual stage are in full", most);
            mixed_is_not_there(cannot, &again, c->recompute, here);
            free(here);
        }
        return;
    }
    if (all == CONFIG_RECOMPUTE_FULL) {
        text_add(out, "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 \\\n");
    } else if (all == CONFIG_RECOMPUTE_SELECTIVE) {
        text_add(out, "--recompute-granularity selective --recompute-modules core_attn%s \\\n",
                 r->model->family == FAMILY_LLAMA ? " layernorm mlp" : " layernorm");
        text_add(cannot, "# about the same: what selective recompute computes again\n");
    }
    mixed_is_all(cannot, &again, c->recompute, all);
}

static void megatron_rate(struct text *out, struct text *cannot, const struct config *c) {
    static const char *const STYLES[] = {[CONFIG_DECAY_COSINE] = "cosine",
                                         [CONFIG_DECAY_LINEAR] = "linear",
                                         [CONFIG_DECAY_CONSTANT] = "constant",
                                         [CONFIG_DECAY_WSD] = "WSD --lr-wsd-decay-style linear"};
    const struct config_lr_scheduler *s = &c->lr_scheduler;
    int64_t warm_up = MIN(s->warmup_steps, learning_rate_decay_end(c) - 1);
    if (warm_up < s->warmup_steps)
        text_add(cannot, "# not available: a warm-up of %s, longer than all that follows it\n",
                 counted(s->warmup_steps, "step").text);
    text_add(out, "--train-iters %" PRId64 " --lr %.10g --lr-decay-style %s", c->training.steps, learning_rate_peak(c),
             STYLES[s->decay_type]);
    if (s->decay_type == CONFIG_DECAY_WSD)
        text_add(out, " --lr-wsd-decay-iters %" PRId64,
                 MAX(0, learning_rate_decay_end(c) - learning_rate_decay_begin(c)));
    if (s->decay_type != CONFIG_DECAY_CONSTANT)
        text_add(out, " --lr-decay-iters %" PRId64 " --min-lr %.10g", learning_rate_decay_end(c),
                 s->min_lr_factor * learning_rate_peak(c));
    text_add(out, " --lr-warmup-iters %" PRId64 " \\\n", MAX(0, warm_up));
}

static void megatron_optimizer(struct text *out, struct text *cannot, const struct config *c, int zero_stage) {
    const struct config_optimizer *o = &c->optimizer;
    if (o->name == CONFIG_OPTIMIZER_LION)
        text_add(
            cannot,
            "# not available: the optimizer lion, but in the latest versions (--optimizer lion), with betas of %.10g "
            "and %.10g\n",
            o->beta1, o->beta2);
    else if (o->name == CONFIG_OPTIMIZER_SGD)
        text_add(out, "--optimizer sgd --sgd-momentum %.10g \\\n", o->momentum);
    else if (o->name == CONFIG_OPTIMIZER_ADAMW)
        text_add(out, "--optimizer adam --adam-beta1 %.10g --adam-beta2 %.10g --adam-eps %.10g \\\n", o->beta1,
                 o->beta2, o->eps);
    else
        text_add(cannot, "# not available: the optimizer %s\n", config_optimizer_name_word(o->name));
    if (o->name != CONFIG_OPTIMIZER_ADAMW && zero_stage > 0)
        text_add(cannot, "# not available: sharded states of another optimizer than adam\n");
    text_add(out, "--weight-decay %.10g --clip-grad %.10g \\\n", o->weight_decay, c->training.max_norm);
    megatron_rate(out, cannot, c);
}

void plan_export_megatron(struct text *out, const struct plan_request *r, const struct plan_answer *a) {
    const struct plan_choice *c = &a->choice;
    const struct config *config = r->config;
    struct text cannot = {0}, flags = {0};
    text_add(&flags, "--tensor-model-parallel-size %d --pipeline-model-parallel-size %d%s \\\n", c->tensor, c->stages,
             c->tensor > 1 && c->sequence ? " --sequence-parallel" : "");
    if (c->parts > 1) {
        const enum config_context_parallel_method method = config->parallelism.context_parallel_method;
        text_add(&flags, "--context-parallel-size %d ", c->parts);
        if (METHODS[method].megatron)
            text_add(&flags, "--cp-comm-type %s ", METHODS[method].megatron);
        else
            method_is_not_there(&cannot, method);
        text_add(&flags, "\\\n");
        layout_is_not_there(&cannot, config);
        if (config->parallelism.context_parallel_method == CONFIG_CONTEXT_PARALLEL_HYBRID)
            text_add(&flags, "--hierarchical-context-parallel-sizes %" PRId64 " %" PRId64 " \\\n",
                     config->parallelism.context_parallel_ulysses_degree,
                     c->parts / config->parallelism.context_parallel_ulysses_degree);
        sequence_is_not_there(&cannot, config->training.seq_len, 2 * c->parts * (c->sequence ? c->tensor : 1));
    }
    const bool there = strcmp(c->schedule, "1f1b") == 0 || strcmp(c->schedule, "interleaved") == 0;
    struct pipeline pipeline = pipeline_create(r, c, there);
    if (c->stages > 1)
        megatron_pipeline(&flags, &cannot, r, c, &pipeline);
    heads_are_not_there(&cannot, r->model, c->tensor, true);
    if (c->sequence)
        sequence_is_not_there(&cannot, config->training.seq_len, c->tensor);
    if (r->model->intermediate_size % c->tensor)
        text_add(&cannot, "# not available: a hidden layer of %" PRId64 " over %d tensor parallel ranks\n",
                 r->model->intermediate_size, c->tensor);
    // Megatron-LM refuses tensor parallel ranks without it, except with Megatron-FSDP, which does better without.
    if (c->tensor > 1 && c->zero_stage < 2)
        text_add(&cannot, "# to be set: CUDA_DEVICE_MAX_CONNECTIONS=1 in the environment, which tensor parallel ranks "
                          "need on GPUs before Blackwell\n");
    megatron_data(&flags, &cannot, c);
    units_to_be_set(&cannot, r, c);
    megatron_recompute(&flags, &cannot, r, c, &pipeline);
    pipeline_release(&pipeline);
    if (config->training.dtype == CONFIG_DTYPE_BF16)
        text_add(&flags, "--bf16 \\\n");
    if (config->parallelism.reduce_dtype == CONFIG_REDUCE_BF16)
        text_add(&flags, "--grad-reduce-in-bf16 \\\n");
    if (config->training.dtype == CONFIG_DTYPE_F64)
        text_add(&cannot, "# not available: training in f64\n");
    text_add(&flags, "--micro-batch-size %" PRId64 " --global-batch-size %" PRId64 " \\\n", c->micro_batch_size,
             config->training.global_batch_size);
    text_add(&flags, "--reset-position-ids --reset-attention-mask --eod-mask-loss \\\n"); // documents are kept apart
    text_add(&cannot, "# may have no effect: --reset-attention-mask, on kernels of attention that know a causal mask "
                      "alone\n");
    megatron_model(&flags, &cannot, r->model, config);
    megatron_optimizer(&flags, &cannot, config, c->zero_stage);
    text_add(&cannot, "# to be set: --data-path, --tokenizer-type and its files, for a vocabulary of %" PRId64 "\n",
             r->model->vocab_size);
    // The last line does not end with a backslash.
    text_add(out, "# Megatron-LM, on %s\n%s%.*s\n", counted(r->ranks, "rank").text, cannot.length ? cannot.text : "",
             (int)flags.length - 3, flags.text);
    text_release(&cannot);
    text_release(&flags);
}

// ---- TorchTitan

// What torch.distributed.pipelining requires of the number of microbatches.
static void titan_microbatches(struct text *cannot, const struct pipeline *p, int64_t microbatches) {
    const int64_t rounds = MAX(1, microbatches / p->stages);
    if (strcmp(p->schedule, "interleaved") == 0 && microbatches % rounds)
        text_add(cannot,
                 "# not available: interleaved with %" PRId64 " microbatches, which are not %" PRId64 " equal rounds\n",
                 microbatches, rounds);
    if (p->chunks == 1 && microbatches < p->stages)
        text_add(cannot, "# not available: fewer microbatches (%" PRId64 ") than stages (%d)\n", microbatches,
                 p->stages);
}

static void titan_pipeline(struct text *out, struct text *cannot, const struct plan_request *r,
                           const struct plan_choice *c, int64_t sequences) {
    const struct schedule_kind *kind = schedule_kind(c->schedule); // NULL: from a file
    const bool there = kind && *kind->torch;
    struct pipeline p = pipeline_create(r, c, there);
    const int count = p.stages * p.chunks;
    text_add(out, "pipeline_parallel_degree = %d\n", c->stages);
    if (c->vocabulary)
        text_add(cannot, "# not available: a vocabulary spread over all stages\n");
    if (!there)
        schedule_is_not_there(cannot, &p, c);
    text_add(out, "pipeline_parallel_schedule = \"%s\"\n", schedule_kind(p.schedule)->torch);
    text_add(out, "pipeline_parallel_microbatch_size = %" PRId64 "\n", c->micro_batch_size);
    titan_microbatches(cannot, &p, microbatches_of(r, c));
    if (!p.even) {
        text_add(out, "module_fqns_per_model_part = [");
        for (int v = 0, layer = 0; v < count; v++) {
            text_add(out, "%s\n  [%s", v ? "," : "", v ? "" : "\"tok_embeddings\"");
            for (int i = 0; i < p.layers[v]; i++, layer++)
                text_add(out, "%s\"layers.%d\"", v == 0 || i ? ", " : "", layer);
            text_add(out, "%s]", v + 1 == count ? ", \"norm\", \"output\"" : "");
        }
        text_add(out, "]\n");
    } else {
        text_add(out,
                 "pipeline_parallel_layers_per_stage = %d\npipeline_parallel_first_stage_less_layers = 0\n"
                 "pipeline_parallel_last_stage_less_layers = 0\n",
                 p.layers[0]);
    }
    text_add(cannot, "# all %" PRId64 " sequences of a rank go through the pipeline as one local batch\n", sequences);
    pipeline_release(&p);
}

static void titan_context(struct text *out, struct text *cannot, const struct config *config, int parts) {
    const enum config_context_parallel_method method = config->parallelism.context_parallel_method;
    text_add(out, "context_parallel_degree = %d\n", parts);
    if (METHODS[method].titan)
        text_add(out, "context_parallel_rotate_method = \"%s\"\n", METHODS[method].titan);
    else
        method_is_not_there(cannot, method);
    layout_is_not_there(cannot, config);
}

static void titan_recompute(struct text *out, struct text *cannot, const struct plan_request *r,
                            const struct plan_choice *c) {
    const struct again again = again_of(r, c);
    enum config_recompute mode = mode_for_all(&again, c->recompute);
    text_add(out, "\n[activation_checkpoint]\nmode = \"%s\"\n", config_recompute_word(mode));
    mixed_is_all(cannot, &again, c->recompute, mode);
    if (mode == CONFIG_RECOMPUTE_SELECTIVE) {
        text_add(out, "selective_ac_option = \"op\"  # later there is no other\n");
        text_add(cannot, "# about the same: what selective recompute computes again\n");
    }
}

// A norm that no gradient reaches: with 0, all gradients would become 0.
static const double NO_CLIPPING = 1e9;

// In TOML, integers and real numbers are different types.
static void titan_real(struct text *out, const char *key, double value) {
    text_add(out, "%s = %.10g%s\n", key, value, value == floor(value) && value < 1e10 ? ".0" : "");
}

static void titan_rate(struct text *out, struct text *cannot, const struct config *c) {
    const struct config_lr_scheduler *s = &c->lr_scheduler;
    text_add(out, "\n[lr_scheduler]\nwarmup_steps = %" PRId64 "\ndecay_type = \"%s\"\n", s->warmup_steps,
             s->decay_type == CONFIG_DECAY_COSINE ? "cosine" : "linear");
    if (s->decay_type == CONFIG_DECAY_CONSTANT || s->decay_type == CONFIG_DECAY_WSD)
        titan_real(out, "decay_ratio", s->decay_type == CONFIG_DECAY_WSD ? s->decay_ratio : 0);
    titan_real(out, "min_lr_factor", s->min_lr_factor);
    if (s->decay_type != CONFIG_DECAY_CONSTANT && learning_rate_decay_end(c) != c->training.steps)
        text_add(cannot, "# not available: a decay that is over after step %" PRId64 ", not the last\n",
                 learning_rate_decay_end(c));
}

static void titan_optimizer(struct text *out, struct text *cannot, const struct config *c) {
    const struct config_optimizer *o = &c->optimizer;
    if (o->name != CONFIG_OPTIMIZER_ADAMW) {
        text_add(cannot, "# not available: the optimizer %s\n", config_optimizer_name_word(o->name));
    } else {
        text_add(out, "\n[optimizer]\nname = \"AdamW\"\n");
        titan_real(out, "lr", o->lr);
        titan_real(out, "beta1", o->beta1);
        titan_real(out, "beta2", o->beta2);
        titan_real(out, "eps", o->eps);
        titan_real(out, "weight_decay", o->weight_decay);
        if (o->weight_decay > 0)
            text_add(cannot, "# about the same: weight decay, which it has for norms and biases, too\n");
    }
    titan_rate(out, cannot, c);
}

static void titan_model(struct text *cannot, const struct model_config *m, int stages) {
    if (m->family == FAMILY_GPT2) {
        text_add(cannot, "# not available: GPT-2\n");
        return;
    }
    family_is_not_there(cannot, m);
    text_add(cannot, "# to be set: [model] name and flavor, or a flavor of these sizes\n");
    text_add(cannot,
             "# to be set: attn_type = \"flex\" and attn_mask_type = \"block_causal\" in the flavor, which together "
             "keep documents apart\n");
    text_add(cannot,
             "# not available: weights that begin with a standard deviation of %.10g; each model there has its own\n",
             m->initializer_range);
    if (m->tie_word_embeddings && (!m->qk_norm || stages > 1))
        text_add(cannot, "# not available: an embedding that is the head too, but in Qwen3 without a pipeline\n");
    if (m->attention_bias || m->mlp_bias)
        text_add(cannot, "# not available: biases of linear layers\n");
    if (model_sliding_window(m) > 0)
        text_add(cannot, "# not available: a sliding window\n");
    if (m->rope[0].scaling == ROPE_SCALING_LINEAR)
        text_add(cannot, "# not available: linear scaling of rotary frequencies\n");
}

void plan_export_torchtitan(struct text *out, const struct plan_request *r, const struct plan_answer *a) {
    const struct plan_choice *c = &a->choice;
    const struct config *config = r->config;
    int64_t sequences = config->training.global_batch_size / (c->replicas * c->shards);
    struct text cannot = {0}, body = {0};
    text_add(&body,
             "[training]\nlocal_batch_size = %" PRId64 "\nglobal_batch_size = %" PRId64 "\nseq_len = %" PRId64
             "\nsteps = %" PRId64 "\nmixed_precision_param = \"%s\"\nmixed_precision_reduce = \"float32\"\n",
             c->stages > 1 ? sequences : c->micro_batch_size, config->training.global_batch_size,
             config->training.seq_len, config->training.steps,
             config->training.dtype == CONFIG_DTYPE_BF16 ? "bfloat16" : "float32");
    titan_real(&body, "max_norm", config->training.max_norm > 0 ? config->training.max_norm : NO_CLIPPING);
    titan_optimizer(&body, &cannot, config);
    text_add(&body, "\n[parallelism]\ndata_parallel_replicate_degree = %d\ndata_parallel_shard_degree = %d\n",
             c->replicas, c->shards);
    if (c->zero_stage > 0)
        text_add(&body, "fsdp_reshard_after_forward = \"%s\"\n", c->zero_stage == 3 ? "always" : "never");
    if (c->replicas > 1 && c->shards == 1 && c->tensor * c->stages > 1)
        text_add(&cannot, "# not available: replicas without shards beside tensor or pipeline parallel ranks\n");
    if (c->zero_stage == 1)
        text_add(&cannot, "# not available: ZeRO-1; gradients are sharded too (ZeRO-2)\n");
    text_add(&body, "tensor_parallel_degree = %d\n", c->tensor);
    if (c->parts > 1)
        titan_context(&body, &cannot, config, c->parts);
    heads_are_not_there(&cannot, r->model, c->tensor, false);
    sequence_is_not_there(&cannot, config->training.seq_len, 2 * c->tensor * c->parts);
    if (c->tensor > 1 && !c->sequence)
        text_add(&cannot, "# not available: tensor parallel ranks that hold all rows; they split them (later: "
                          "enable_sequence_parallel = False)\n");
    if (c->overlap)
        text_add(&cannot,
                 "# not available: inputs' gradients that tensor parallel ranks exchange beside weights' products\n");
    units_to_be_set(&cannot, r, c);
    if (c->stages > 1)
        titan_pipeline(&body, &cannot, r, c, sequences);
    titan_recompute(&body, &cannot, r, c);
    if (config->training.dtype == CONFIG_DTYPE_BF16 && c->shards == 1 && c->tensor * c->stages > 1)
        text_add(&cannot,
                 "# not available: bf16 in tensor or pipeline parallel ranks without shards, which compute in f32\n");
    else if (config->training.dtype == CONFIG_DTYPE_BF16)
        text_add(&cannot, "# not available: parameters kept in bf16 with a 16-bit remainder; they are kept in f32\n");
    if (config->training.dtype == CONFIG_DTYPE_F64)
        text_add(&cannot, "# not available: training in f64\n");
    if (config->parallelism.reduce_dtype == CONFIG_REDUCE_BF16)
        text_add(&cannot, "# not available: gradients that travel as bf16\n");
    titan_model(&cannot, r->model, c->stages);
    text_add(out,
             "# TorchTitan until February 2026, on %s; later ones have no TOML: fields of mostly these names\n"
             "%s\n%s",
             counted(r->ranks, "rank").text, cannot.text, body.text);
    text_release(&cannot);
    text_release(&body);
}
