#include "generate/token_choice.h"

#include "base/math.h"

// The penalty of CTRL (Keskar et al. 2019): it makes tokens of the text less likely, whatever the sign of their logits.
static double penalised(double logit, bool seen, double penalty) {
    return !seen ? logit : logit < 0 ? logit * penalty : logit / penalty;
}

// The value of the place `rank`, counted from 0 in descending order, by Hoare's selection, which orders item[count] no
// further than it must.
static double select_rank(double *item, int64_t count, int64_t rank) {
    int64_t low = 0, high = count - 1;
    while (low < high) {
        const double pivot = item[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (item[i] > pivot)
                i++;
            while (item[j] < pivot)
                j--;
            if (i <= j) {
                const double moved = item[i];
                item[i++] = item[j];
                item[j--] = moved;
            }
        }
        if (rank <= j)
            high = j;
        else if (rank >= i)
            low = i;
        else
            break;
    }
    return item[rank];
}

// Drops what is below a weight.
static void chances_cut(struct token_chances *c, double least) {
    size_t kept = 0;
    for (size_t i = 0; i < c->count; i++)
        if (c->item[i].weight >= least)
            c->item[kept++] = c->item[i];
    c->count = kept;
}

static int compare_chances(const void *a, const void *b) {
    const struct token_chance *x = a, *y = b;
    return COMPARE(y->weight, x->weight) ?: COMPARE(x->token, y->token);
}

// Nucleus sampling (Holtzman et al. 2020): keeps the fewest of the likeliest tokens that together reach `share`.
static void chances_keep_nucleus(struct token_chances *c, double share) {
    double total = 0, sum = 0;
    for (size_t i = 0; i < c->count; i++)
        total += c->item[i].weight;
    // All that are below this weigh less than what may go: they need no sorting.
    chances_cut(c, MIN(1, (1 - share) * total / (double)c->count));
    qsort(c->item, c->count, sizeof *c->item, compare_chances);
    for (size_t i = 0; i < c->count; i++) {
        sum += c->item[i].weight;
        if (sum >= share * total)
            c->count = i + 1;
    }
}

void token_chances_make(struct token_chances *c, const struct config_generate *how, const double *logits, int32_t count,
                        const bool *seen) {
    int32_t best = 0;
    VEC_RESERVE(c, (size_t)count);
    VEC_RESERVE(&c->logits, (size_t)count);
    for (int32_t i = 0; i < count; i++) {
        c->logits.item[i] = penalised(logits[i], seen[i], how->repetition_penalty);
        c->item[i] = (struct token_chance){c->logits.item[i], i};
        if (c->item[i].weight > c->item[best].weight)
            best = i;
    }
    const struct token_chance likeliest = {1, best};
    const double greatest = c->item[best].weight;
    c->count = (size_t)count;
    if (how->temperature == 0) {
        c->item[0] = likeliest;
        c->count = 1;
        return;
    }
    if (how->top_k > 0 && how->top_k < count)
        chances_cut(c, select_rank(c->logits.item, count, how->top_k - 1));
    for (size_t i = 0; i < c->count; i++)
        c->item[i].weight = math_exp((c->item[i].weight - greatest) / how->temperature);
    if (how->top_p < 1)
        chances_keep_nucleus(c, how->top_p);
    if (how->min_p > 0)
        chances_cut(c, how->min_p);
}

int32_t token_chances_take(const struct token_chances *c, double uniform) {
    double total = 0;
    for (size_t i = 0; i < c->count; i++)
        total += c->item[i].weight;
    double at = uniform * total;
    for (size_t i = 0; i < c->count; i++) {
        at -= c->item[i].weight;
        if (at < 0)
            return c->item[i].token;
    }
    return c->item[c->count - 1].token;
}

void token_chances_release(struct token_chances *c) {
    VEC_RELEASE(c);
    VEC_RELEASE(&c->logits);
}
