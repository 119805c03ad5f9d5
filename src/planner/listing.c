#include "planner/listing.h"

#include "base/clock.h"

// For the sake of the list, at most ROUNDS times OTHERS plans are simulated.
enum { OTHERS = 16, ROUNDS = 4 };

static int compare_families(const struct plan_choice *a, const struct plan_choice *b) {
    int order = COMPARE(a->tensor, b->tensor)
                    ?: COMPARE(a->stages, b->stages) ?: COMPARE(a->micro_batch_size, b->micro_batch_size);
    return order || a->stages == 1 ? order : strcmp(a->schedule, b->schedule);
}

void listing_note(struct search *s, const struct plan_answer *answer) {
    if (answer->memory > answer->room)
        return;
    for (size_t i = 0; i < s->found.count; i++)
        if (is_same_plan(&s->found.item[i], answer))
            return;
    VEC_PUSH(&s->found, *answer);
}

// ---- lines of the list

struct lines {
    struct plan_answer *line[PLAN_ANSWERS];
    int count;
};

// Equal ones in the order in which they were found.
static int listing_by_seconds(const void *x, const void *y) {
    const struct plan_answer *a = *(struct plan_answer *const *)x, *b = *(struct plan_answer *const *)y;
    return COMPARE(a->seconds, b->seconds) ?: COMPARE(a, b);
}

static int64_t free_bytes(const struct plan_answer *a) {
    return a->room - a->memory;
}

// The last line of a plan's family that is not slower than the plan; or NONE.
static int listing_line_of(const struct lines *lines, const struct plan_answer *a) {
    for (int i = lines->count - 1; i >= 0; i--)
        if (lines->line[i]->seconds <= a->seconds && compare_families(&lines->line[i]->choice, &a->choice) == 0)
            return i;
    return NONE;
}

// Whether a plan becomes a line. Nothing is listed for taking less memory than a line before that line's least memory
// is known.
static bool is_line(const struct lines *lines, const struct plan_answer *a, bool trades) {
    int last = listing_line_of(lines, a);
    return last == NONE || (trades && lines->line[last]->least_memory &&
                            (double)(free_bytes(a) - free_bytes(lines->line[last])) >= PLAN_TRADE * (double)a->room);
}

static struct lines choose_lines(struct search *s, bool trades) {
    struct lines lines = {.count = 0};
    struct plan_answer **order = mem_alloc((s->found.count + 1) * sizeof *order);
    for (size_t i = 0; i < s->found.count; i++)
        order[i] = &s->found.item[i];
    qsort(order, s->found.count, sizeof *order, listing_by_seconds);
    for (size_t i = 0; i < s->found.count && lines.count < PLAN_ANSWERS; i++)
        if (is_line(&lines, order[i], trades))
            lines.line[lines.count++] = order[i];
    free(order);
    return lines;
}

// ---- other families

// Puts plans of a family next to one another.
static int by_family(const void *x, const void *y) {
    const struct candidate *a = *(struct candidate *const *)x, *b = *(struct candidate *const *)y;
    return compare_families(&a->choice, &b->choice) ?: COMPARE(a, b);
}

static bool is_found(const struct search *s, const struct plan_choice *c) {
    for (size_t i = 0; i < s->found.count; i++)
        if (compare_families(&s->found.item[i].choice, c) == 0)
            return true;
    return false;
}

// Takes the most promising candidate of each family in which nothing was found yet, and of those candidates the OTHERS
// most promising, in order.
static int choose_others(struct search *s, struct candidate **sorted, size_t count, struct candidate **others) {
    double seconds[OTHERS + 1];
    struct candidate *kept[OTHERS + 1];
    int many = 0;
    for (size_t i = 0, next; i < count; i = next) {
        struct candidate *best = NULL;
        double least = 0;
        for (next = i; next < count && compare_families(&sorted[i]->choice, &sorted[next]->choice) == 0; next++) {
            double time = learnt_seconds(&s->learnt, sorted[next]);
            if (sorted[next]->done || (best && time >= least) || !learnt_may_fit(&s->learnt, sorted[next]))
                continue;
            least = time;
            best = sorted[next];
        }
        if (!best || (many == OTHERS && least >= seconds[OTHERS - 1]) || is_found(s, &best->choice))
            continue;
        int at = many;
        for (; at > 0 && seconds[at - 1] > least; at--) {
            seconds[at] = seconds[at - 1];
            kept[at] = kept[at - 1];
        }
        seconds[at] = least;
        kept[at] = best;
        many = MIN(many + 1, (int)OTHERS);
    }
    memcpy(others, kept, (size_t)many * sizeof *others);
    return many;
}

// Whether no family in which nothing was found yet can be among the lines.
static bool are_enough(struct search *s, const struct candidate *next) {
    struct lines lines = choose_lines(s, false);
    return lines.count == PLAN_ANSWERS &&
           learnt_seconds(&s->learnt, next) * learnt_slack(&s->learnt, next) > lines.line[PLAN_ANSWERS - 1]->seconds;
}

static void search_others(struct search *s, const struct candidates *all) {
    struct candidate **sorted = mem_alloc((all->count + 1) * sizeof *sorted), *others[OTHERS];
    for (size_t i = 0; i < all->count; i++)
        sorted[i] = &all->item[i];
    qsort(sorted, all->count, sizeof *sorted, by_family);
    for (int round = 0; round < ROUNDS && !(s->until > 0 && clock_now() > s->until); round++) {
        int count = choose_others(s, sorted, all->count, others);
        if (count == 0 || are_enough(s, others[0]))
            break;
        run_batch(s, others, count);
    }
    free(sorted);
}

static bool was_tried(const struct search *s, const struct plan_answer *a) {
    for (size_t i = 0; i < s->out->answers.count; i++)
        if (is_same_plan(&s->out->answers.item[i], a))
            return true;
    return false;
}

// Tries tensor parallel lines in the ways that the space leaves out, as the search did for the best.
static void search_ways(struct search *s) {
    struct lines lines = choose_lines(s, false);
    struct candidate other[2 * PLAN_ANSWERS], *batch[2 * PLAN_ANSWERS];
    int count = 0;
    for (int i = 0; i < lines.count; i++)
        for (int way = 0; way < 2; way++) {
            const struct plan_answer *a = lines.line[i];
            if (was_tried(s, a) ||
                !(way ? search_may_have_whole_rows(s, &a->choice) : search_may_overlap(s, &a->choice)))
                continue;
            other[count] = (struct candidate){.choice = a->choice, .estimate.seconds = a->estimate, .outside = true};
            if (way)
                other[count].choice.sequence = false;
            else
                other[count].choice.overlap = true;
            batch[count] = &other[count];
            count++;
        }
    if (count)
        run_batch(s, batch, count);
}

// ---- the list

// Chooses lines until the memory of all of them is planned as `train` does; that may add some that trade.
static struct lines measure_lines(struct search *s) {
    for (;;) {
        struct lines lines = choose_lines(s, true);
        struct plan_answer *unknown[PLAN_ANSWERS];
        int count = 0;
        for (int i = 0; i < lines.count; i++)
            if (!lines.line[i]->least_memory)
                unknown[count++] = lines.line[i];
        if (count == 0)
            return lines;
        answers_measure_memory(s, unknown, count);
    }
}

// Counts for each line the plans that it stands for and that are nearly as fast.
static void count_variants(const struct search *s, const struct lines *lines) {
    for (int i = 0; i < lines->count; i++) {
        struct lines before = *lines;
        before.count = i;
        lines->line[i]->traded = listing_line_of(&before, lines->line[i]);
    }
    for (size_t i = 0; i < s->found.count; i++) {
        const struct plan_answer *a = &s->found.item[i];
        const int last = listing_line_of(lines, a);
        struct plan_answer *line = last == NONE ? NULL : lines->line[last];
        bool is_line = false;
        for (int k = 0; k < lines->count; k++)
            is_line |= lines->line[k] == a;
        if (is_line || !line || a->seconds > (1 + PLAN_NEAR) * line->seconds)
            continue;
        line->variants++;
        line->within = MAX(line->within, a->seconds / line->seconds - 1);
    }
}

void listing_fill(struct search *s, const struct candidates *all) {
    bool complete = s->out->complete; // says something about the best, which this does not change
    search_others(s, all);
    search_ways(s);
    s->out->complete = complete;
    struct lines lines = measure_lines(s);
    count_variants(s, &lines);
    s->out->answers.count = 0;
    for (int i = 0; i < lines.count; i++)
        VEC_PUSH(&s->out->answers, *lines.line[i]);
}
