// Values are followed through whatever makes and reads them: compiled programs of which something is made twice, left
// out, or read where no gradient goes back.
#include "memory/memory_plan.h"
#include "support/by_hand.h"
#include "support/fleet.h"
#include "support/test.h"
#include "verify/verify.h"

// ---- programs as texts, in which buffers are given as {name}

// The words, with numbers in place of names.
static char *numbered(const struct text *t, const char *words) {
    struct text out = {0};
    for (const char *open; (open = strchr(words, '{')); words = strchr(open, '}') + 1) {
        char *name = mem_printf("\"%.*s\"\n", (int)strcspn(open + 1, "}"), open + 1), *line = strstr(t->text, name);
        if (!line)
            fail_msg("there is no buffer %s", name);
        while (line[-1] != '\n')
            line--;
        line += strlen("buffer ");
        text_add(&out, "%.*s%.*s", (int)(open - words), words, (int)strcspn(line, " "), line);
        free(name);
    }
    text_add(&out, "%s", words);
    return out.text;
}

// Puts other words in the place of the first `from`, with all that follows up to `until` (NULL: with nothing more).
static void change_until(struct text *t, const char *from, const char *until, const char *to) {
    char *first = numbered(t, from), *next = until ? numbered(t, until) : NULL, *other = numbered(t, to);
    const char *at = strstr(t->text, first), *end = !at ? NULL : next ? strstr(at, next) : at + strlen(first);
    if (!end)
        fail_msg("there is no \"%s\", or nothing that ends it", first);
    struct text changed = {0};
    text_add(&changed, "%.*s%s%s", (int)(at - t->text), t->text, other, end);
    text_release(t);
    *t = changed;
    free(first);
    free(next);
    free(other);
}

static void change(struct text *t, const char *from, const char *to) {
    change_until(t, from, NULL, to);
}

static void insert(struct text *t, const char *before, const char *lines) {
    change_until(t, before, before, lines);
}

// Adds a buffer: what it is, and its name.
static void declare(struct text *t, const char *what, const char *name) {
    int buffers = 0;
    for (const char *line = t->text; (line = strstr(line, "\nbuffer ")); line++)
        buffers++;
    char *line = mem_printf("\nbuffer %%%d %s \"%s\"\ntemplate 0 ", buffers, what, name);
    change(t, "\ntemplate 0 ", line);
    free(line);
}

static struct text text_of(const struct program *program) {
    struct op_table *ops = op_table_create();
    struct text t = {0};
    program_print(program, ops, &t);
    free(ops);
    return t;
}

static struct text compiled(const char *override) {
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_GPT2, override, NULL}, false);
    struct text t = text_of(&engine_compiled(&small.engine, PROGRAM_TRAIN)->program);
    small_model_release(&small);
    return t;
}

// The last stage of two, whose gradients of parameters are made in a template of their own.
static struct text compiled_stage(void) {
    struct fleet f;
    fleet_create(&f, "stages",
                 (const char *const[]){SMALL_GPT2, "parallelism.pipeline_parallel_degree=2",
                                       "parallelism.pipeline_parallel_schedule=zb-h1", NULL});
    struct text t = text_of(fleet_program(&f, 1));
    fleet_release(&f);
    return t;
}

static struct text compiled_evaluation(void) {
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_GPT2, NULL}, false);
    struct text t = text_of(&engine_compiled(&small.engine, PROGRAM_EVALUATE)->program);
    small_model_release(&small);
    return t;
}

static struct program parse(struct text *t, const struct op_table *ops) {
    struct program p;
    trireme_error error = {0};
    if (program_parse(&p, ops, t->text, t->length, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    text_release(t);
    return p;
}

static void refuse(struct text *t, const char *what, const char *name) {
    struct op_table *ops = op_table_create();
    struct program p = parse(t, ops);
    assert_program_refused(&p, ops, what, name);
    free(ops);
}

#define ROWS "f64 act slot [16,16]"
#define LOCAL_ROWS "f64 act local [16,16]"

// ---- terms that are left out

// The terms of one chunk of rows are added in all microbatches but the last, those of another only in the last.
static void chunks_in_turns(void **unused) {
    (void)unused;
    struct text t = compiled("training.logits_rows=5");
    change_until(&t, "  {grad.embed.weight}[64,16] - = matmul_dw {norm.rows5}", "  {logits.rows10}", "");
    change(&t, "{norm.rows10}[5,16] {d.logits.rows10}[5,64] phase weight accumulate yes",
           "{norm.rows5}[5,16] {d.logits.rows5}[5,64] phase weight not_last accumulate yes\n"
           "  {grad.embed.weight}[64,16] - = matmul_dw {norm.rows10}[5,16] {d.logits.rows10}[5,64] phase weight "
           "only_last accumulate yes");
    refuse(&t, "is left out of the last invocation, in which nothing does the same", "matmul_dw");
}

// Two that take turns, of which the second may be skipped: then the last microbatch has neither.
static void turns_that_may_be_skipped(void **unused) {
    (void)unused;
    struct text t = compiled(NULL);
    declare(&t, ROWS, "q");
    declare(&t, "i32 param state [1]", "mask");
    insert(&t, "  {layers.1.residual}[16,16] = ",
           "  {q}[16,16] = gelu {layers.1.attention.residual}[16,16] tanh 1 phase forward layer 1\n");
    change(&t, "{layers.1.mlp.down.bias}[16] {layers.1.attention.residual}[16,16]",
           "{layers.1.mlp.down.bias}[16] {q}[16,16]");
    static const char *const DX =
        "  {d.layers.1.attention.residual}[16,16] = layernorm_dx {layers.1.attention.residual}[16,16] "
        "{layers.1.mlp_norm.weight}[16] {layers.1.mlp_norm.mean.again}[16] {layers.1.mlp_norm.rstd.again}[16] "
        "{d.layers.1.mlp_norm}[16,16] {d.layers.1.attention.residual}[16,16] phase backward layer 1";
    char *lines = mem_printf(
        "  {d.layers.1.attention.residual}[16,16] = gelu_dx {layers.1.attention.residual}[16,16] "
        "{d.layers.1.residual}[16,16] tanh 1 phase backward layer 1\n%s not_last\n%s only_last if {mask}\n"
        "  {grad.layers.1.mlp_norm.weight}[16] {grad.layers.1.mlp_norm.bias}[16] = layernorm_dw "
        "{layers.1.attention.residual}[16,16] {layers.1.mlp_norm.mean.again}[16] {layers.1.mlp_norm.rstd.again}[16] "
        "{d.layers.1.mlp_norm}[16,16] phase weight layer 1 accumulate after_first\n",
        DX, DX);
    change_until(&t, "  {d.layers.1.attention.residual}[16,16] {grad.layers.1.mlp_norm.weight}",
                 "  {d.layers.1.attention.heads}[16,16] =", lines);
    free(lines);
    refuse(&t, "is left out of the last invocation, in which nothing does the same", "layernorm_dx");
}

// The embedding is that of the tokens plus that of the positions.
static void refuse_embedded_again(const char *lines) {
    struct text t = compiled(NULL);
    declare(&t, LOCAL_ROWS " recomputes {embedding}", "again");
    insert(&t, "  {layers.0.attention_norm.again}[16,16] ", lines);
    change(&t, "{layers.0.attention_norm.rstd.again}[16] = layernorm {embedding}[16,16]",
           "{layers.0.attention_norm.rstd.again}[16] = layernorm {again}[16,16]");
    change(&t, "= layernorm_bwd {embedding}[16,16]", "= layernorm_bwd {again}[16,16]");
    refuse(&t, "again is not made of the terms of embedding", "embed");
}
#define TOKENS "  {again}[16,16] = embed {tokens}[16] {embed.weight}[64,16] - phase forward\n"
#define POSITIONS "  {again}[16,16] = embed {positions}[16] {position.weight}[8,16] - phase forward accumulate yes\n"

static void made_again_without_a_term(void **unused) {
    (void)unused;
    refuse_embedded_again(TOKENS);
}

static void made_again_with_a_term_twice(void **unused) {
    (void)unused;
    refuse_embedded_again(TOKENS POSITIONS POSITIONS);
}

// ---- values that are made a second time

// The backward pass would read zeros where the forward pass has left its result.
static void activation_of_the_forward_pass(void **unused) {
    (void)unused;
    struct text t = compiled(NULL);
    change_until(&t, "buffer {layers.0.attention.heads} ", "\n",
                 "buffer {layers.0.attention.heads} " LOCAL_ROWS " \"layers.0.attention.heads\"");
    insert(&t, "  {logits.rows0}[16,64] = ", "  {layers.0.attention.heads}[256] = zero phase forward\n");
    refuse(&t, "makes another layers.0.attention.heads for the same microbatch", "zero");
}

// The same where another buffer has taken the memory in between, so that the first result is gone.
static void activation_whose_memory_was_taken(void **unused) {
    (void)unused;
    struct op_table *ops = op_table_create();
    trireme_error error = {0};
    struct text t = compiled(NULL);
    declare(&t, "f64 act local [256]", "dead");
    insert(&t, "template 2 ", "  {dead}[256] = fan_out {layers.1.residual}[256] phase forward\n");
    insert(&t, "  {grad.layers.0.attention.out.weight}[16,16] ",
           "  {layers.0.attention.heads}[256] = zero phase backward\n");
    struct program p = parse(&t, ops);
    assert_int_equal(program_plan(&p, ops, NULL, &error), TRIREME_OK);
    p.buffers.item[program_find(&p, "dead")].offset =
        p.buffers.item[program_find(&p, "layers.0.attention.heads")].offset;
    assert_words(program_verify(&p, ops, &error), &error,
                 "makes another layers.0.attention.heads for the same microbatch", "zero");
    program_release(&p);
    free(ops);
}

// What one template has left in its memory would be zeros in the next.
static void gradient_made_by_two_templates(void **unused) {
    (void)unused;
    struct text t = compiled_stage();
    change_until(&t, "buffer {d.layers.1.mlp.up} ", "\n",
                 "buffer {d.layers.1.mlp.up} f64 act local [16,64] gradient {layers.1.mlp.up} \"d.layers.1.mlp.up\"");
    insert(&t, "  {grad.layers.1.mlp.down.weight}", "  {d.layers.1.mlp.up}[1024] = zero phase weight\n");
    refuse(&t, "makes d.layers.1.mlp.up, which another template has made before", "zero");
}

// The loss would be a sum of zeros.
static void losses_made_by_two_templates(void **unused) {
    (void)unused;
    struct text t = compiled_stage();
    change_until(&t, "buffer {nll} ", "\n", "buffer {nll} f64 act local [16] \"nll\"");
    change_until(&t, "  {loss}[1] = loss_sum", "  {d.layers.1.residual}", "");
    insert(&t, "  {grad.layers.1.mlp.down.weight}",
           "  {nll}[16] = zero phase forward\n"
           "  {loss}[1] = loss_sum {nll}[16] {loss.scale}[1] phase forward accumulate after_first\n");
    refuse(&t, "makes nll, which another template has made before", "zero");
}

// Of the losses of an evaluation, zeros would be summed.
static void losses_of_an_evaluation(void **unused) {
    (void)unused;
    struct text t = compiled_evaluation();
    declare(&t, "f64 act local [16]", "dead");
    insert(&t, "  {loss}[1] = loss_sum",
           "  {dead}[16] = fan_out {nll}[16] phase forward\n  {nll}[16] = zero phase forward\n");
    refuse(&t, "changes nll, which has been read before", "zero");
}

// Their sum would be scaled by something else than the number of targets.
static void scale_of_an_evaluation(void **unused) {
    (void)unused;
    struct text t = compiled_evaluation();
    declare(&t, "f64 act local [1]", "dead");
    insert(&t, "template 1 ",
           "  {dead}[1] = fan_out {loss.scale}[1] phase input\n"
           "  {loss.scale}[1] = square_sum {norm.weight}[16] phase input\n");
    refuse(&t, "changes loss.scale, which has been read before", "square_sum");
}

// ---- values through which no gradient goes back

// An op that has no backward computes the product of a layer.
static void product_without_a_backward(void **unused) {
    (void)unused;
    struct text t = compiled(NULL);
    declare(&t, LOCAL_ROWS, "dead end");
    insert(&t, "template 1 ",
           "  {grad.layers.0.attention.qkv.weight}[768] = zero phase input\n"
           "  {grad.layers.0.attention.qkv.bias}[48] = zero phase input\n"
           "  {grad.layers.0.attention.out.weight}[256] = zero phase input\n"
           "  {grad.layers.0.attention_norm.weight}[16] = zero phase input\n"
           "  {grad.layers.0.attention_norm.bias}[16] = zero phase input\n");
    change_until(&t, "  {layers.0.attention.residual}[16,16] = ", "  {layers.0.mlp_norm}[16,16] ",
                 "  {dead end}[16,2,8] = attention_cached {layers.0.attention.heads}[16,2,8] "
                 "{layers.0.attention.out.weight}[16,2,8] {layers.0.attention.out.weight}[16,2,8] {starts}[1] "
                 "- scale 1 window 0 phase forward layer 0\n"
                 "  {layers.0.attention.residual}[16,16] = add_bias {dead end}[16,16] {embedding}[16,16] "
                 "{layers.0.attention.out.bias}[16] phase forward layer 0\n");
    change_until(&t, "  {d.layers.0.attention.heads}[16,16] = ", "  {grad.position.weight}",
                 "  {grad.layers.0.attention.out.bias}[16] = add_bias_dw {d.layers.0.attention.residual}[16,16] "
                 "phase weight layer 0 accumulate after_first\n");
    for (int k = 0; k < 2; k++)
        change(&t, "{d.embedding}[16,16] - phase", "{d.layers.0.attention.residual}[16,16] - phase");
    refuse(&t, "reads dead end, and no gradient goes back to what that is made of", "add_bias");
}

// Written through a slice, read as all of the buffer: zeros stand in for what the reader contributes to the gradient.
static void read_under_another_name(void **unused) {
    (void)unused;
    struct text t = compiled(NULL);
    declare(&t, ROWS, "root");
    declare(&t, ROWS " of {root}+0", "slice");
    declare(&t, LOCAL_ROWS " gradient {root}", "d.root");
    declare(&t, LOCAL_ROWS " of {d.root}+0 gradient {slice}", "d.slice");
    change(&t, "{layers.0.attention.heads}[2,8,2,8] {layers.0.attention.lse}[2,2,8] - = ",
           "{slice}[2,8,2,8] {layers.0.attention.lse}[2,2,8] - = ");
    change(&t, "= matmul {layers.0.attention.heads}[16,16]", "= matmul {root}[16,16]");
    change_until(&t, "  {d.layers.0.attention.heads}[16,16] =", "  {grad.layers.0.attention.out.weight}",
                 "  {d.slice}[256] = zero phase backward layer 0\n");
    change(&t, "= matmul_dw {layers.0.attention.heads}[16,16]", "= matmul_dw {root}[16,16]");
    change(&t,
           "{layers.0.attention.heads}[2,8,2,8] {layers.0.attention.lse}[2,2,8] "
           "{d.layers.0.attention.heads}[2,8,2,8]",
           "{slice}[2,8,2,8] {layers.0.attention.lse}[2,2,8] {d.slice}[2,8,2,8]");
    refuse(&t, "before all contributions are in (0 of 1)", "d.slice, the gradient of root");
}

// What a norm has measured besides its result would be the bias of a sum.
static void mean_as_a_bias(void **unused) {
    (void)unused;
    struct text t = compiled(NULL);
    declare(&t, LOCAL_ROWS, "product");
    declare(&t, "f64 act local [16] gradient {layers.0.attention_norm.mean}", "d.mean");
    change(&t, "  {layers.0.attention.residual}[16,16] = matmul", "  {product}[16,16] = matmul");
    change(&t, "{layers.0.attention.out.bias}[16] {embedding}[16,16] phase forward layer 0\n",
           "{layers.0.attention.out.bias}[16] - phase forward layer 0\n"
           "  {layers.0.attention.residual}[16,16] = add_bias {product}[16,16] {embedding}[16,16] "
           "{layers.0.attention_norm.mean}[16] phase forward layer 0\n");
    insert(&t, "  {d.layers.0.attention.heads}[16,16] =",
           "  {d.mean}[16] = add_bias_dw {d.layers.0.attention.residual}[16,16] phase backward layer 0\n");
    refuse(&t, "reads layers.0.attention_norm.mean, and no gradient goes back to what that is made of", "add_bias");
}

// So would the losses of other rows.
static void losses_as_a_bias(void **unused) {
    (void)unused;
    struct text t = compiled("training.logits_rows=5");
    declare(&t, "f64 act local [5,5]", "y");
    declare(&t, "f64 act local [5,5] gradient {y}", "d.y");
    declare(&t, "f64 act local [16] gradient {nll}", "d.nll");
    change_until(&t, "  {logits.rows5}[5,64] = matmul", "  {nll}[5]+5 ",
                 "  {y}[5,5] = matmul {norm.rows5}[5,16] {layers.0.attention.out.weight}[5,16] {nll}[5] - "
                 "phase forward\n"
                 "  {logits.rows5}[5,64] = matmul {y}[5,5] {embed.weight}[64,5](16,1) - - phase forward\n");
    change_until(&t, "  {d.norm.rows5}[5,16] = ", "  {logits.rows10}[5,64] =",
                 "  {d.y}[5,5] = matmul_dx {d.logits.rows5}[5,64] {embed.weight}[64,5](16,1) phase backward\n"
                 "  {d.norm.rows5}[5,16] = matmul_dx {d.y}[5,5] {layers.0.attention.out.weight}[5,16] phase backward\n"
                 "  {grad.embed.weight}[64,5](16,1) - = matmul_dw {y}[5,5] {d.logits.rows5}[5,64] phase weight "
                 "accumulate yes\n");
    insert(&t, "template 3 ",
           "  {d.nll}[16] = zero phase backward\n"
           "  {grad.layers.0.attention.out.weight}[5,16] {d.nll}[5] = matmul_dw {norm.rows5}[5,16] {d.y}[5,5] "
           "phase weight accumulate yes\n");
    refuse(&t, "reads nll, and no gradient goes back to what that is made of", "matmul");
}

// ---- gradients

// The residual's gradient is one more term of each row of a norm's.
static void refuse_halves(bool others, const char *what) {
    struct small_model small;
    small_model_create(&small, (const char *const[]){SMALL_GPT2, NULL}, false);
    struct program p = mutant_copy(&engine_compiled(&small.engine, PROGRAM_TRAIN)->program);
    mutant_halve(&p, OP_LAYERNORM, "layers.1.mlp_norm");
    mutant_halve(&p, OP_LAYERNORM, "layers.1.mlp_norm.again");
    struct instruction *half = mutant_halve(&p, OP_LAYERNORM_BWD, "d.layers.1.mlp_norm");
    if (others)
        half[0].in[5].offset = half[1].in[5].offset;
    half[1].in[5] = operand_none();
    assert_refused_anew(&p, small.engine.ops, what, "layernorm_bwd");
    mutant_release(&p);
    small_model_release(&small);
}

static void residual_of_other_rows(void **unused) {
    (void)unused;
    refuse_halves(true, "adds other elements of d.layers.1.residual than it makes of d.layers.1.attention.residual");
}

static void residual_of_half_of_the_rows(void **unused) {
    (void)unused;
    refuse_halves(false, "adds d.layers.1.residual to the gradient of layers.1.attention.residual, but no sum");
}

// Every microbatch would add its terms to a product that is none.
static void what_is_no_gradient_first(void **unused) {
    (void)unused;
    struct text t = compiled(NULL);
    insert(&t, "template 1 ",
           "  {grad.layers.0.attention.out.weight}[16,16] = logits_times {layers.0.attention.out.weight}[16,16] "
           "{layers.0.attention.out.weight}[16,16] phase input\n"
           "  {grad.layers.0.attention.out.bias}[16] = zero phase input\n");
    change(&t, "{d.layers.0.attention.residual}[16,16] phase weight layer 0 accumulate after_first",
           "{d.layers.0.attention.residual}[16,16] phase weight layer 0 accumulate yes");
    refuse(&t, "writes the gradient grad.layers.0.attention.out.weight, but does not make gradients", "logits_times");
}

// The loss counts the rows of a chunk, to which no gradient goes back.
static void chunk_without_a_gradient(void **unused) {
    (void)unused;
    struct text t = compiled("training.logits_rows=5");
    change_until(&t, "  {nll}[5]+5 {d.logits.rows5}[5,64] = ", "  {logits.rows10}[5,64] = ",
                 "  {nll}[5]+5 = cross_entropy {logits.rows5}[5,64] {targets}[5]+5 vocab 32 phase forward\n"
                 "  {d.norm.rows5}[80] = zero phase backward\n");
    refuse(&t, "the loss is made 4 times for rows of targets, but its gradient 3 times", "targets");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_in_turns),
        cmocka_unit_test(turns_that_may_be_skipped),
        cmocka_unit_test(made_again_without_a_term),
        cmocka_unit_test(made_again_with_a_term_twice),
        cmocka_unit_test(activation_of_the_forward_pass),
        cmocka_unit_test(activation_whose_memory_was_taken),
        cmocka_unit_test(gradient_made_by_two_templates),
        cmocka_unit_test(losses_made_by_two_templates),
        cmocka_unit_test(losses_of_an_evaluation),
        cmocka_unit_test(scale_of_an_evaluation),
        cmocka_unit_test(product_without_a_backward),
        cmocka_unit_test(read_under_another_name),
        cmocka_unit_test(mean_as_a_bias),
        cmocka_unit_test(losses_as_a_bias),
        cmocka_unit_test(residual_of_other_rows),
        cmocka_unit_test(residual_of_half_of_the_rows),
        cmocka_unit_test(what_is_no_gradient_first),
        cmocka_unit_test(chunk_without_a_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
