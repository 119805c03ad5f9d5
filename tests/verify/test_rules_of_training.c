// Rules of the verifier about loss, norm and updates, each with a whole training step of one small product, of which
// nothing else is wrong.
#include "exec/executor.h"
#include "memory/memory_plan.h"
#include "support/by_hand.h"
#include "support/test.h"
#include "verify/verify.h"

// Buffers of a step: the weights of a classifier of 6 rows, and a second product's.
#define BUFFERS                                                         \
    "buffer %0 f32 param state [4,8] \"w\"\n"                           \
    "buffer %1 f32 grad state [4,8] gradient %0 \"gw\"\n"               \
    "buffer %2 f32 optim state [32] as m for %0 \"w.m\"\n"              \
    "buffer %3 f64 optim state [1] as decayed for %0 \"w.decayed\"\n"   \
    "buffer %4 f64 optim state [1] as t \"t\"\n"                        \
    "buffer %5 f32 input microbatch [6,8] \"x\"\n"                      \
    "buffer %6 i32 input microbatch [6] as targets \"targets\"\n"       \
    "buffer %7 f64 input step [1] as lr \"lr\"\n"                       \
    "buffer %8 f64 act step [1] \"count\"\n"                            \
    "buffer %9 f64 act step [1] \"scale\"\n"                            \
    "buffer %10 f32 act local [6,4] \"logits\"\n"                       \
    "buffer %11 f32 act local [6,4] gradient %10 \"dlogits\"\n"         \
    "buffer %12 f32 act local [6] \"nll\"\n"                            \
    "buffer %13 f64 output step [1] as loss \"loss\"\n"                 \
    "buffer %14 f64 act local [1] \"squares\"\n"                        \
    "buffer %15 f64 output step [1] as norm \"norm\"\n"                 \
    "buffer %16 f64 output step [1] as factor \"factor\"\n"             \
    "buffer %17 i32 output step [1] as finite \"finite\"\n"             \
    "buffer %18 f32 param state [8,8] \"v\"\n"                          \
    "buffer %19 f32 grad state [8,8] gradient %18 \"gv\"\n"             \
    "buffer %20 f32 optim state [64] as m for %18 \"v.m\"\n"            \
    "buffer %21 f64 optim state [1] as decayed for %18 \"v.decayed\"\n" \
    "buffer %22 f32 act local [6,8] \"h\"\n"                            \
    "buffer %23 f32 act local [6,8] gradient %22 \"dh\"\n"
#define INPUT_TEMPLATE "term %9 weight 1\n" COUNT_TARGETS
#define COUNT_TARGETS                                     \
    "template 0 input \"input\"\n"                        \
    "  %8[1] = targets_count %6[1,6](16,1) phase input\n" \
    "  %9[1] = reciprocal %8[1] weight 1 phase input\n"
#define PASSES                                                                            \
    "template 1 forward \"passes\"\n"                                                     \
    "  %22[6,8] = matmul %5[6,8] %18[8,8] - - phase forward\n"                            \
    "  %10[6,4] = matmul %22[6,8] %0[4,8] - - phase forward\n"                            \
    "  %12[6] %11[6,4] = cross_entropy_grad %10[6,4] %6[6] %9[1] vocab 4 phase forward\n" \
    "  %13[1] = loss_sum %12[6] %9[1] phase forward accumulate after_first\n"             \
    "  %23[6,8] = matmul_dx %11[6,4] %0[4,8] phase backward\n"                            \
    "  %1[4,8] - = matmul_dw %22[6,8] %11[6,4] phase weight accumulate after_first\n"     \
    "  %19[8,8] - = matmul_dw %5[6,8] %23[6,8] phase weight accumulate after_first\n"
#define SQUARES "template 2 optimizer \"optimizer\"\n  %14[1] = square_sum %1[32] phase optimizer\n"
#define MORE_SQUARES "  %14[1] = square_sum %19[64] phase optimizer accumulate yes\n"
#define CLIP "  %15[1] %16[1] %17[1] = clip %14[1] %13[1] max_norm 1 phase optimizer\n"
#define RAISE "  %4[1] = increment %4[1] phase optimizer if %17\n"
#define SGD " momentum 0.9 weight_decay 0 phase optimizer if %17\n"
#define UPDATE_W "  %0[32] - %2[32] = sgd %0[32] - %1[32] %2[32] %7[1] %16[1] %3[1]" SGD
#define UPDATE_V "  %18[64] - %20[64] = sgd %18[64] - %19[64] %20[64] %7[1] %16[1] %21[1]" SGD
#define OPTIMIZER SQUARES MORE_SQUARES CLIP RAISE UPDATE_W UPDATE_V

static struct program read_step(const struct op_table *ops, const char *body) {
    struct text text = {0};
    struct program p;
    trireme_error error = {0};
    text_add(&text, "program step microbatches 1\narena state 0 fixed 0 scratch 0+0 step 0\npool 0 chunk 0 at 0: 0\n");
    text_add(&text, "%sinvoke 0\ninvoke 1 microbatch 0 first last\ninvoke 2\n", body);
    if (program_parse(&p, ops, text.text, text.length, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    text_release(&text);
    return p;
}

static void accept(const char *body) {
    struct op_table *ops = op_table_create();
    struct program p = read_step(ops, body);
    trireme_error error = {0};
    place_state(&p);
    if (program_plan(&p, ops, NULL, &error) != TRIREME_OK || program_verify(&p, ops, &error) != TRIREME_OK)
        fail_msg("%s", error.message);
    check_round_trip(&p, ops);
    program_release(&p);
    free(ops);
}

static void refuse(const char *body, const char *what, const char *name) {
    struct op_table *ops = op_table_create();
    struct program p = read_step(ops, body);
    assert_program_refused(&p, ops, what, name);
    free(ops);
}

static void a_whole_step(void **unused) {
    (void)unused;
    accept(BUFFERS INPUT_TEMPLATE PASSES OPTIMIZER);
    refuse(BUFFERS INPUT_TEMPLATE PASSES SQUARES CLIP RAISE UPDATE_W UPDATE_V, "the norm leaves out", "gv");
    refuse(BUFFERS INPUT_TEMPLATE PASSES SQUARES MORE_SQUARES CLIP RAISE UPDATE_W, "parameter v is never updated", "v");
}

// Sums of squares are joined in any number of steps, each once.
#define CLASSES                                    \
    BUFFERS "buffer %24 f64 act local [1] \"a\"\n" \
            "buffer %25 f64 act local [1] \"b\"\n" \
            "buffer %26 f64 act local [1] \"c\"\n" INPUT_TEMPLATE PASSES SQUARES
#define OTHER_CLASS "  %24[1] = square_sum %19[64] phase optimizer\n"
#define CLIP_OF(sum) \
    "  %15[1] %16[1] %17[1] = clip " sum "[1] %13[1] max_norm 1 phase optimizer\n" RAISE UPDATE_W UPDATE_V

static void classes_of_gradients(void **unused) {
    (void)unused;
    accept(CLASSES OTHER_CLASS "  %25[1] = norm_sum %14[1] - - - phase optimizer\n"
                               "  %26[1] = norm_sum %25[1] - - %24[1] phase optimizer\n" CLIP_OF("%26"));
    refuse(CLASSES OTHER_CLASS "  %25[1] = norm_sum %14[1] %24[1] - - phase optimizer\n"
                               "  %26[1] = norm_sum %25[1] - - %24[1] phase optimizer\n" CLIP_OF("%26"),
           "which is in a norm already", "a");
    refuse(CLASSES OTHER_CLASS "  %25[1] = norm_sum %14[1] %24[1] - - phase optimizer\n"
                               "  %26[1] = norm_sum %25[1] %25[1] - - phase optimizer\n" CLIP_OF("%26"),
           "is in a norm twice", "norm_sum");
    refuse(CLASSES OTHER_CLASS "  %25[1] = norm_sum %14[1] %24[1] - - phase optimizer\n"
                               "  %26[1] = norm_sum %14[1] - - - phase optimizer\n" CLIP_OF("%25"),
           "adds to no norm", "norm_sum");
    refuse(CLASSES OTHER_CLASS "  %25[1] = norm_sum %14[1] - - - phase optimizer\n" CLIP_OF("%25"),
           "does not add to a sum of which a norm is made", "square_sum");
    // A sum without squares is only for ranks of which others have some.
    refuse(CLASSES MORE_SQUARES "  %24[1] = zero phase optimizer\n"
                                "  %25[1] = norm_sum %14[1] %24[1] - - phase optimizer\n" CLIP_OF("%25"),
           "no squares are summed in a", "a");
}

// Two norms, each of some gradients, by which these are clipped.
#define TWO_CLIPS                                                                                                    \
    BUFFERS "buffer %24 f64 act local [1] \"a\"\n"                                                                   \
            "buffer %25 f64 output step [1] as norm \"norm.v\"\n"                                                    \
            "buffer %26 f64 output step [1] as factor \"factor.v\"\n"                                                \
            "buffer %27 i32 output step [1] as finite \"finite.v\"\n" INPUT_TEMPLATE PASSES SQUARES CLIP OTHER_CLASS \
            "  %25[1] %26[1] %27[1] = clip %24[1] %13[1] max_norm 2 phase optimizer\n" RAISE UPDATE_W
#define UPDATE_V_BY(factor, finite)                                                                               \
    "  %18[64] - %20[64] = sgd %18[64] - %19[64] %20[64] %7[1] " factor "[1] %21[1] momentum 0.9 weight_decay 0 " \
    "phase optimizer if " finite "\n"

static void clips_of_some_gradients(void **unused) {
    (void)unused;
    accept(TWO_CLIPS UPDATE_V_BY("%26", "%27"));
    refuse(TWO_CLIPS UPDATE_V_BY("%16", "%17"), "which is not that of the norm that counts gv", "factor");
    refuse(TWO_CLIPS UPDATE_V_BY("%26", "%17"), "is not skipped when the norm is not finite", "sgd");
}

// Units, and parts of one, may be updated in different ways, but each element once.
#define HALF(first)                                                                                      \
    "  %18[32]+" first " - %20[32]+" first " = sgd %18[32]+" first " - %19[32]+" first " %20[32]+" first \
    " %7[1] %16[1] %21[1]" SGD

static void updates_of_parts(void **unused) {
    (void)unused;
    accept(BUFFERS INPUT_TEMPLATE PASSES SQUARES MORE_SQUARES CLIP RAISE UPDATE_W HALF("0") HALF("32"));
    refuse(BUFFERS INPUT_TEMPLATE PASSES SQUARES MORE_SQUARES CLIP RAISE UPDATE_W HALF("0"),
           "parameter v is never updated", "v");
    refuse(BUFFERS INPUT_TEMPLATE PASSES SQUARES MORE_SQUARES CLIP RAISE UPDATE_W HALF("0") HALF("16"),
           "belongs to another update", "v");
    refuse(BUFFERS INPUT_TEMPLATE PASSES SQUARES MORE_SQUARES CLIP RAISE UPDATE_W
           "  %18[64] - %20[64] = lion %18[64] - %1[64] %20[64] %7[1] %16[1] %21[1] beta1 0.9 beta2 0.9 weight_decay 0 "
           "phase optimizer if %17\n",
           "reaches element", "gw");
    accept(BUFFERS INPUT_TEMPLATE PASSES SQUARES MORE_SQUARES CLIP RAISE UPDATE_W
           "  %18[64] - %20[64] = lion %18[64] - %19[64] %20[64] %7[1] %16[1] %21[1] beta1 0.9 beta2 0.9 "
           "weight_decay 0 phase optimizer if %17\n");
    // the gradient of the first half for the second
    refuse(BUFFERS INPUT_TEMPLATE PASSES SQUARES MORE_SQUARES CLIP RAISE UPDATE_W HALF(
               "0") "  %18[32]+32 - %20[32]+32 = sgd %18[32]+32 - %19[32] %20[32]+32 %7[1] %16[1] %21[1]" SGD,
           "is not the gradient of v", "gv");
}

// An update of several steps: momentum, the matrix made orthogonal, and the update by that.
#define MUON_BUFFERS                                \
    BUFFERS "buffer %24 f32 act local [64] \"u\"\n" \
            "buffer %25 f32 act local [1,8,8] \"o\"\n" INPUT_TEMPLATE PASSES SQUARES MORE_SQUARES CLIP RAISE UPDATE_W
#define MOMENTUM(gradient, factor) \
    "  %24[64] %20[64] = muon_momentum " gradient "[64] %20[64] " factor "[1] momentum 0.9 phase optimizer if %17\n"
#define ORTHOGONAL(from, to, condition) \
    "  %25[1,8,8]" to " = newton_schulz %24[1,8,8]" from " iterations 5 scale 1 phase optimizer" condition "\n"
#define MUON(from) "  %18[64] - = muon %18[64] - " from "[64] %7[1] %21[1] weight_decay 0 phase optimizer if %17\n"

static void updates_of_several_steps(void **unused) {
    (void)unused;
    accept(MUON_BUFFERS MOMENTUM("%19", "%16") ORTHOGONAL("", "", " if %17") MUON("%25"));
    refuse(MUON_BUFFERS MOMENTUM("%19", "%16") ORTHOGONAL("", "", "") MUON("%25"),
           "reads u, which is made only if finite is not 0", "newton_schulz");
    refuse(MUON_BUFFERS MOMENTUM("%19", "%14") ORTHOGONAL("", "", " if %17") MUON("%25"),
           "which is not that of the norm that counts gv", "muon_momentum");
    refuse(MUON_BUFFERS MOMENTUM("%18", "%16") ORTHOGONAL("", "", " if %17") MUON("%25"),
           "v is not a gradient, nor derived from one alone", "muon_momentum");
    refuse(MUON_BUFFERS MOMENTUM("%19", "%16") ORTHOGONAL("", "", " if %17"), "no update uses what it makes", "muon");
    refuse(MUON_BUFFERS MOMENTUM("%19", "%16") ORTHOGONAL("", "", " if %17") MUON("%25") MUON("%25"),
           "belongs to another update", "v");
    // what others add to on the way
    refuse(MUON_BUFFERS MOMENTUM("%19", "%16")
               ORTHOGONAL("", "", " if %17") "  %25[1,8,8] = newton_schulz %25[1,8,8] iterations 5 scale 1 phase "
                                             "optimizer if %17\n" MUON("%25"),
           "which the step has made before", "o");
    // of w by the gradient of v
    refuse(MUON_BUFFERS MOMENTUM("%19", "%16") ORTHOGONAL("", "", " if %17")
               MUON("%25") "  %0[32] - = muon %0[32] - %25[32] %7[1] %3[1] weight_decay 0 phase optimizer if %17\n",
           "o is not the gradient of w", "muon");
    // with a step left out, or one too many
    refuse(MUON_BUFFERS MOMENTUM("%19", "%16") MUON("%24"), "u is what muon_momentum makes, expected newton_schulz",
           "muon");
    refuse(MUON_BUFFERS MUON("%19"), "gv is a gradient, expected what newton_schulz makes", "muon");
    refuse(MUON_BUFFERS MOMENTUM("%19", "%16") ORTHOGONAL(
               "", "", " if %17") "  %18[64] - %20[64] = sgd %18[64] - %25[64] %20[64] %7[1] %16[1] %21[1]" SGD,
           "o is what newton_schulz makes, expected a gradient", "sgd");
}

// What is made of one gradient may be made in pieces, and moved: each element has to come back to its place.
#define PIECES                                         \
    BUFFERS "buffer %24 f32 act local [64] \"u\"\n"    \
            "buffer %25 f32 act local [64] \"o\"\n"    \
            "buffer %26 f32 act local [64] \"back\"\n" \
            "buffer %27 f32 act local [32] \"half\"\n" INPUT_TEMPLATE PASSES SQUARES MORE_SQUARES CLIP RAISE UPDATE_W
#define ORTHOGONAL_HALF(at, of)                                                                      \
    "  %25[1,4,8]+" at " = newton_schulz %24[1,4,8]+" of " iterations 5 scale 1 phase optimizer if " \
    "%17\n"
#define COPY(to, from) "  " to " = copy_derived " from " phase optimizer if %17\n"
#define BY(buffer) "  %18[64] - = muon %18[64] - " buffer "[64] %7[1] %21[1] weight_decay 0 phase optimizer if %17\n"
#define BY_FIRST(buffer) \
    "  %18[32] - = muon %18[32] - " buffer "[32] %7[1] %21[1] weight_decay 0 phase optimizer if %17\n"
#define BOTH_HALVES PIECES MOMENTUM("%19", "%16") ORTHOGONAL_HALF("0", "0") ORTHOGONAL_HALF("32", "32")

static void updates_by_pieces(void **unused) {
    (void)unused;
    accept(BOTH_HALVES BY("%25"));
    accept(BOTH_HALVES COPY("%26[1,1,64]", "%25[1,1,64]") BY("%26"));
    accept(BOTH_HALVES COPY("%26[1,1,32]", "%25[1,1,32]") COPY("%26[1,4,8]+32", "%25[1,4,8]+32") BY("%26"));
    accept(BOTH_HALVES COPY("%26[1,1,32]", "%25[1,1,32]") COPY("%27[1,4,8]", "%25[1,4,8]+32")
               COPY("%26[1,4,8]+32", "%27[1,4,8]") BY("%26"));
    refuse(BOTH_HALVES COPY("%26[1,1,32]", "%25[1,1,32]+32") COPY("%26[1,1,32]+32", "%25[1,1,32]") BY("%26"),
           "in other places too", "gv");
    refuse(BOTH_HALVES COPY("%26[1,1,32]", "%25[1,1,32]+32") BY_FIRST("%26"),
           "is not the gradient of v, but of other elements", "gv");
    refuse(BOTH_HALVES COPY("%26[1,1,32]", "%25[1,1,32]") COPY("%26[1,1,32]+32", "%25[1,1,32]") BY("%26"),
           "in other places too", "o");
    refuse(PIECES MOMENTUM("%19", "%16") ORTHOGONAL_HALF("0", "32") ORTHOGONAL_HALF("32", "0") BY("%25"),
           "in other places too", "gv");
    // a part that is not derived at all
    refuse(PIECES MOMENTUM("%19", "%16")
               ORTHOGONAL_HALF("0", "0") "  %25[32]+32 = zero phase optimizer if %17\n" BY("%25"),
           "not a gradient, nor derived from one alone", "o");
    refuse(PIECES MOMENTUM("%19", "%16") ORTHOGONAL_HALF("0", "0") BY("%25"), "before it is written", "o");
}

// A second term of the loss, of other targets and with a weight: its own count, scale, losses and gradients.
#define TWO_TERMS                                                        \
    BUFFERS "buffer %24 i32 input microbatch [6] as targets \"later\"\n" \
            "buffer %25 f64 act step [1] \"later.count\"\n"              \
            "buffer %26 f64 act step [1] \"later.scale\"\n"              \
            "buffer %27 f32 act local [6] \"later.nll\"\n"               \
            "buffer %28 f32 act local [6,4] \"later.logits\"\n"          \
            "buffer %29 f32 act local [6,4] gradient %28 \"later.dlogits\"\n"
#define COUNT_LATER(weight)                                 \
    "  %25[1] = targets_count %24[1,6](16,1) phase input\n" \
    "  %26[1] = reciprocal %25[1] weight " weight " phase input\n"
#define TERMS(weight) "term %9 weight 1\nterm %26 weight " weight "\n"
#define LATER(gradient, total, sum)                                                                  \
    "template 1 forward \"passes\"\n"                                                                \
    "  %22[6,8] = matmul %5[6,8] %18[8,8] - - phase forward\n"                                       \
    "  %10[6,4] = matmul %22[6,8] %0[4,8] - - phase forward\n"                                       \
    "  %12[6] %11[6,4] = cross_entropy_grad %10[6,4] %6[6] %9[1] vocab 4 phase forward\n"            \
    "  %13[1] = loss_sum %12[6] %9[1] phase forward accumulate after_first\n"                        \
    "  %28[6,4] = matmul %22[6,8] %0[4,8] - - phase forward\n"                                       \
    "  %27[6] %29[6,4] = cross_entropy_grad %28[6,4] %24[6] " gradient "[1] vocab 4 phase forward\n" \
    "  %13[1] = loss_sum %27[6] " total "[1] phase forward" sum "\n"                                 \
    "  %23[6,8] = matmul_dx %11[6,4] %0[4,8] phase backward\n"                                       \
    "  %23[6,8] = matmul_dx %29[6,4] %0[4,8] phase backward accumulate yes\n"                        \
    "  %1[4,8] - = matmul_dw %22[6,8] %11[6,4] phase weight accumulate after_first\n"                \
    "  %1[4,8] - = matmul_dw %22[6,8] %29[6,4] phase weight accumulate yes\n"                        \
    "  %19[8,8] - = matmul_dw %5[6,8] %23[6,8] phase weight accumulate after_first\n"

static void terms_of_the_loss(void **unused) {
    (void)unused;
    accept(TWO_TERMS TERMS("0.3") COUNT_TARGETS COUNT_LATER("0.3") LATER("%26", "%26", " accumulate yes") OPTIMIZER);
    refuse(TWO_TERMS TERMS("0.3") COUNT_TARGETS COUNT_LATER("0.5") LATER("%26", "%26", " accumulate yes") OPTIMIZER,
           "the weight of its term is declared 0.3", "reciprocal");
    refuse(TWO_TERMS "term %9 weight 1\n" COUNT_TARGETS COUNT_LATER("0.3") LATER("%26", "%26", " accumulate yes")
               OPTIMIZER,
           "makes the scale of no term", "reciprocal");
    refuse(TWO_TERMS TERMS("0.3") COUNT_TARGETS COUNT_LATER("0.3") LATER("%9", "%26", " accumulate yes") OPTIMIZER,
           "expected the same rows of targets and nll", "later");
    refuse(TWO_TERMS TERMS("0.3") COUNT_TARGETS COUNT_LATER("0.3") LATER("%26", "%9", " accumulate yes") OPTIMIZER,
           "the loss leaves out rows of later.nll", "loss_sum");
    refuse(TWO_TERMS TERMS("0.3") COUNT_TARGETS COUNT_LATER("0.3") LATER("%25", "%26", " accumulate yes") OPTIMIZER,
           "wrong denominator: scales gradients by later.count", "cross_entropy_grad");
    refuse(TWO_TERMS TERMS("0.3") COUNT_TARGETS
           "  %26[1] = reciprocal %8[1] weight 0.3 phase input\n" LATER("%26", "%26", " accumulate yes") OPTIMIZER,
           "expected the same rows of targets", "later");
    refuse(TWO_TERMS TERMS("0.3") COUNT_TARGETS COUNT_LATER("0.3") LATER("%26", "%26", " accumulate after_first")
               OPTIMIZER,
           "loss", "loss_sum");
    refuse(TWO_TERMS TERMS("0.3") COUNT_TARGETS COUNT_LATER("0.3") PASSES OPTIMIZER,
           "the loss is summed 0 times, expected once in each of 1 microbatches", "loss");
    refuse(BUFFERS "term %9 weight 1\nterm %9 weight 1\n" COUNT_TARGETS PASSES OPTIMIZER,
           "two terms of the loss have the scale scale", "scale");
    refuse(BUFFERS "term %9 weight 1\nterm %16 weight 1\n" COUNT_TARGETS PASSES OPTIMIZER,
           "is made 0 times, expected once", "factor");
}

// A block that may be skipped: h goes on unchanged, in both directions.
#define BLOCK_BUFFERS                                              \
    BUFFERS "buffer %24 f32 act local [6,8] \"n\"\n"               \
            "buffer %25 f32 act local [6] \"rstd\"\n"              \
            "buffer %26 f32 act local [6,8] \"y\"\n"               \
            "buffer %27 f32 act local [6,8] gradient %26 \"dy\"\n" \
            "buffer %28 f32 param state [8] \"gain\"\n"            \
            "buffer %29 i32 input microbatch [1] \"keep\"\n"       \
            "buffer %30 i32 input microbatch [1] \"other\"\n" INPUT_TEMPLATE
#define BLOCK(norm, add, back)                                                                  \
    "template 1 forward \"passes\"\n"                                                           \
    "  %22[6,8] = matmul %5[6,8] %18[8,8] - - phase forward\n"                                  \
    "  %24[6,8] %25[6] = rmsnorm %22[6,8] %28[8] eps 1e-5 phase forward" norm "\n"              \
    "  %26[6,8] = add %22[6,8] %24[6,8] phase forward" add "\n"                                 \
    "  %10[6,4] = matmul %26[6,8] %0[4,8] - - phase forward\n"                                  \
    "  %12[6] %11[6,4] = cross_entropy_grad %10[6,4] %6[6] %9[1] vocab 4 phase forward\n"       \
    "  %13[1] = loss_sum %12[6] %9[1] phase forward accumulate after_first\n"                   \
    "  %27[6,8] = matmul_dx %11[6,4] %0[4,8] phase backward\n"                                  \
    "  %1[4,8] - = matmul_dw %26[6,8] %11[6,4] phase weight accumulate after_first\n"           \
    "  %23[6,8] = rmsnorm_dx %22[6,8] %28[8] %25[6] %27[6,8] %27[6,8] phase backward" back "\n" \
    "  %19[8,8] - = matmul_dw %5[6,8] %23[6,8] phase weight accumulate after_first\n"
#define SKIPPED BLOCK(" if %29", " if %29 else a", " if %29 else res")

static void blocks_that_are_skipped(void **unused) {
    (void)unused;
    accept(BLOCK_BUFFERS BLOCK("", "", "") OPTIMIZER);
    accept(BLOCK_BUFFERS SKIPPED OPTIMIZER);
    refuse(BLOCK_BUFFERS BLOCK(" if %29", "", "") OPTIMIZER, "reads n, which is made only if keep is not 0", "add");
    refuse(BLOCK_BUFFERS BLOCK(" if %29", " if %29", " if %29 else res") OPTIMIZER,
           "reads y, which is made only if keep is not 0", "matmul");
    refuse(BLOCK_BUFFERS BLOCK(" if %29", " if %29 else b", " if %29 else res") OPTIMIZER,
           "reads n, which is made only if keep is not 0", "add");
    refuse(BLOCK_BUFFERS BLOCK(" if %29", " if %30 else a", " if %29 else res") OPTIMIZER,
           "reads n, which is made only if keep is not 0", "add");
    refuse(BLOCK_BUFFERS BLOCK(" if %29", " if %29 else a", " if %29") OPTIMIZER,
           "reads dh, which is made only if keep is not 0", "matmul_dw");
    refuse(BLOCK_BUFFERS BLOCK(" if %29", " if %29 else a", " if %29 else dy") OPTIMIZER,
           "is not what rmsnorm passes back", "rmsnorm_dx");
    refuse(BLOCK_BUFFERS BLOCK(" if %29", " if %29 else a", " if %30 else res") OPTIMIZER,
           "reads rstd, which is made only if keep is not 0", "rmsnorm_dx");
    // n is made in any case, but added only sometimes
    refuse(BLOCK_BUFFERS BLOCK("", " if %29 else a", "") OPTIMIZER, "mismatch: dy", "rmsnorm_dx");
    refuse(BLOCK_BUFFERS BLOCK("", " if %29 else a", " if %29 else res") OPTIMIZER, "mismatch: predicate",
           "rmsnorm_dx");
    refuse(BLOCK_BUFFERS BLOCK("", "", " if %29 else res") OPTIMIZER, "mismatch: predicate", "rmsnorm_dx");
    refuse(BLOCK_BUFFERS BLOCK("", " else a", "") OPTIMIZER, "is never skipped", "add");
    refuse(BLOCK_BUFFERS BLOCK(" if %29 else w", "", "") OPTIMIZER, "which has another shape", "gain");
    refuse(BLOCK_BUFFERS BLOCK(" if %9", "", "") OPTIMIZER, "is not one i32", "rmsnorm");
}

// ---- running what is skipped

static void *memory(int64_t bytes) {
    size_t rounded = round_up((size_t)MAX(bytes, 1), BUFFER_ALIGNMENT);
    return memset(aligned_alloc(BUFFER_ALIGNMENT, rounded), 0, rounded);
}

// Runs a step, with that value in `keep` if there is one; `result` gets the weights, 32 and 64 elements.
static void run_step(const char *body, int32_t keep, float result[32 + 64]) {
    struct op_table *ops = op_table_create();
    struct program p = read_step(ops, body);
    struct executor *executor;
    trireme_error error = {0};
    place_state(&p);
    assert_int_equal(program_plan(&p, ops, NULL, &error), TRIREME_OK);
    assert_int_equal(program_verify(&p, ops, &error), TRIREME_OK);
    void *state = memory(p.arena[SPACE_DEVICE].state_bytes), *step = memory(p.arena[SPACE_DEVICE].step_bytes);
    struct streams *streams = streams_create(NULL, 1);
    assert_int_equal(executor_create(&executor, streams, &p, ops, KERNELS_REFERENCE, state, step, &error), TRIREME_OK);
#define FILL(name, type, value)                                                                             \
    for (int64_t k = 0, b = program_find(&p, name); b != NONE && k < buffer_count(&p.buffers.item[b]); k++) \
    ((type *)executor_address(executor, (int)b, 0))[k] = (type)(value)
    FILL("w", float, (k * 7 % 13) / 13.0 - 0.5);
    FILL("v", float, (k * 5 % 17) / 17.0 - 0.5);
    FILL("x", float, (k * 3 % 11) / 11.0 - 0.5);
    FILL("gain", float, 1 + k / 8.0);
    FILL("targets", int32_t, k % 4);
    FILL("lr", double, 0.5);
    FILL("keep", int32_t, keep);
#undef FILL
    assert_int_equal(executor_run(executor, NULL, &error), TRIREME_OK);
    memcpy(result, executor_address(executor, program_find(&p, "w"), 0), 32 * sizeof *result);
    memcpy(result + 32, executor_address(executor, program_find(&p, "v"), 0), 64 * sizeof *result);
    executor_free(executor);
    streams_free(streams);
    program_release(&p);
    free(ops);
    free(state);
    free(step);
}

// With the block skipped a step is that of the model without it, and else that of the model with it.
static void a_block_that_is_skipped_is_not_there(void **unused) {
    (void)unused;
    float with[96], without[96], kept[96], skipped[96];
    run_step(BLOCK_BUFFERS BLOCK("", "", "") OPTIMIZER, 0, with);
    run_step(BUFFERS INPUT_TEMPLATE PASSES OPTIMIZER, 0, without);
    run_step(BLOCK_BUFFERS SKIPPED OPTIMIZER, 1, kept);
    run_step(BLOCK_BUFFERS SKIPPED OPTIMIZER, 0, skipped);
    assert_memory_equal(kept, with, sizeof with);
    assert_memory_equal(skipped, without, sizeof without);
    assert_memory_not_equal(with, without, sizeof with);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_step),
        cmocka_unit_test(classes_of_gradients),
        cmocka_unit_test(clips_of_some_gradients),
        cmocka_unit_test(updates_of_parts),
        cmocka_unit_test(updates_of_several_steps),
        cmocka_unit_test(updates_by_pieces),
        cmocka_unit_test(terms_of_the_loss),
        cmocka_unit_test(blocks_that_are_skipped),
        cmocka_unit_test(a_block_that_is_skipped_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
