// trireme simulate schedule=NAME: what a pipeline schedule costs by itself.
#include "base/amount.h"
#include "base/json.h"
#include "cli/command_simulate.h"
#include "pipeline/schedule.h"
#include "sim/picture.h"

enum { TIMELINE_WIDTH = 100, TIMELINE_ROWS = 32, TABLE_ROWS = 64 };

struct schedule_report {
    const char *name;
    struct schedule schedule;
    struct schedule_times times;
    struct schedule_cost cost;
    double weight_share; // that activations are counted with
    double *activations; // of each rank, in microbatches of a whole stage
};

// ---- what is asked for

static int integer_of(const struct command_value *values, enum simulate_key key) {
    return (int)values[key].integer;
}

static trireme_status read_times(const struct command_value *v, struct schedule_times *times, trireme_error *error) {
    int given = !!v[SIMULATE_FORWARD].given + !!v[SIMULATE_BACKWARD_INPUT].given + !!v[SIMULATE_BACKWARD_WEIGHT].given;
    *times = (struct schedule_times){.forward = v[SIMULATE_FORWARD].number,
                                     .backward_input = v[SIMULATE_BACKWARD_INPUT].number,
                                     .backward_weight = v[SIMULATE_BACKWARD_WEIGHT].number,
                                     .latency = v[SIMULATE_LATENCY].number,
                                     .embed = v[SIMULATE_EMBED].number,
                                     .loss = v[SIMULATE_LOSS].number,
                                     .loss_weight = v[SIMULATE_LOSS_WEIGHT].number,
                                     .embed_weight = v[SIMULATE_EMBED_WEIGHT].number};
    if (given == 0)
        times->forward = times->backward_input = times->backward_weight = 1;
    else if (given < 3)
        FAIL(TRIREME_ERROR_USAGE, "%s is missing: give all of forward, backward_input and backward_weight, or none (1)",
             !v[SIMULATE_FORWARD].given          ? "forward"
             : !v[SIMULATE_BACKWARD_INPUT].given ? "backward_input"
                                                 : "backward_weight");
    else if (schedule_chunk_time(times) <= 0)
        FAIL(TRIREME_ERROR_USAGE, "forward, backward_input and backward_weight are all 0: one must be above");
    return TRIREME_OK;
}

static bool gives_vocabulary(const struct command_value *v) {
    return v[SIMULATE_EMBED].given || v[SIMULATE_LOSS].given || v[SIMULATE_LOSS_WEIGHT].given ||
           v[SIMULATE_EMBED_WEIGHT].given;
}

static trireme_status schedule_load_file(const struct command_value *v, struct schedule_report *out,
                                         trireme_error *error) {
    struct schedule_options o = {
        .chunks = integer_of(v, SIMULATE_CHUNKS),
        .waves = integer_of(v, SIMULATE_WAVES),
        .activation_limit = integer_of(v, SIMULATE_ACTIVATION_LIMIT),
    };
    TRY(read_times(v, &out->times, error));
    o.times = out->times;
    out->name = v[SIMULATE_SCHEDULE].given;
    if (schedule_kind(out->name)) {
        const enum simulate_key needed[] = {SIMULATE_STAGES, SIMULATE_MICROBATCHES};
        for (size_t i = 0; i < ARRAY_LENGTH(needed); i++)
            if (!v[needed[i]].given)
                FAIL(TRIREME_ERROR_USAGE,
                     "%s is missing: schedule=%s needs stages= and microbatches=", i ? "microbatches" : "stages",
                     out->name);
    } else if (v[SIMULATE_WAVES].given || v[SIMULATE_ACTIVATION_LIMIT].given) {
        FAIL(TRIREME_ERROR_USAGE,
             "schedule=%s is not hanayo, which has waves=, nor auto, which has activation_limit=", out->name);
    }
    trireme_status status = schedule_load(&out->schedule, out->name, integer_of(v, SIMULATE_STAGES),
                                          integer_of(v, SIMULATE_MICROBATCHES), &o, error);
    if (status == TRIREME_OK) {
        status = schedule_check_messages(&out->schedule, error);
        if (status != TRIREME_OK)
            schedule_release(&out->schedule);
    }
    if (status == TRIREME_OK) {
        if (gives_vocabulary(v) && !out->schedule.vocabulary)
            schedule_spread_vocabulary(&out->schedule, &out->times);
        return TRIREME_OK;
    }
    error_prefix(error, status, "schedule=%s", out->name);
    error->status = TRIREME_ERROR_USAGE; // nothing was started
    return TRIREME_ERROR_USAGE;
}

// Counts activations whole. If auto exceeds its limit that way, it was searched with a microbatch counted for less
// between its two backward passes, and is counted so.
static void count_activations(struct schedule_report *s, int limit) {
    int ranks = s->schedule.stages;
    bool is_searched = strcmp(s->name, "auto") == 0;
    s->activations = mem_alloc((size_t)ranks * sizeof *s->activations);
    s->weight_share = 1;
    for (int pass = 0; pass < 2; pass++) {
        double most = 0;
        for (int r = 0; r < ranks; r++) {
            s->activations[r] = schedule_activations(&s->schedule, r, s->weight_share);
            most = MAX(most, s->activations[r]);
        }
        if (!is_searched || most <= (limit ? limit : 2 * ranks))
            return;
        s->weight_share = SCHEDULE_WEIGHT_SHARE;
    }
}

// ---- what is printed

static double most_activations(const struct schedule_report *s) {
    double most = 0;
    for (int r = 0; r < s->schedule.stages; r++)
        most = MAX(most, s->activations[r]);
    return most;
}

static void schedule_print_json(const struct schedule_report *s, struct text *out) {
    json_begin_object(out, NULL);
    json_add_path(out, "schedule", s->name);
    json_add_integer(out, "stages", s->schedule.stages);
    json_add_integer(out, "microbatches", s->schedule.microbatches);
    json_add_integer(out, "chunks", s->schedule.chunks);
    json_add_number(out, "cost", s->cost.cost);
    json_add_number(out, "bubble", s->cost.bubble);
    json_begin_array(out, "peak_activations");
    for (int r = 0; r < s->schedule.stages; r++)
        json_add_number(out, NULL, s->activations[r]);
    json_end_array(out);
    if (s->weight_share < 1)
        json_add_number(out, "weight_share", s->weight_share);
    json_end_object(out);
    text_add(out, "\n");
}

// A column of the timeline: the letter of the kind that takes most of it.
static char schedule_column(const struct schedule_report *s, int rank, size_t *next, double begin, double end) {
    static const char LETTERS[PASS_KINDS + 1] = "FBIWELTG";
    const struct schedule_rank *list = &s->schedule.rank[rank];
    const struct schedule_span *span = s->cost.pass[rank];
    double share[PASS_KINDS] = {0}, idle = end - begin;
    while (*next < list->count && span[*next].end <= begin)
        ++*next;
    for (size_t i = *next; i < list->count && span[i].start < end; i++) {
        double part = MIN(end, span[i].end) - MAX(begin, span[i].start);
        share[list->item[i].kind] += part;
        idle -= part;
    }
    int best = 0;
    for (int k = 1; k < PASS_KINDS; k++)
        if (share[k] > share[best])
            best = k;
    return share[best] >= idle && share[best] > 0 ? LETTERS[best] : '.';
}

static void print_timeline(const struct schedule_report *s, struct text *out) {
    int ranks = s->schedule.stages, step = divide_up(ranks, TIMELINE_ROWS);
    double last = 0;
    for (int r = 0; r < ranks; r++)
        last = MAX(last, s->cost.rank[r].end);
    text_add(out, "\n%4s  0%*.6g\n", "rank", TIMELINE_WIDTH - 1, last);
    for (int r = 0; r < ranks; r += step) {
        char line[TIMELINE_WIDTH + 1];
        size_t next = 0;
        for (int i = 0; i < TIMELINE_WIDTH; i++)
            line[i] = schedule_column(s, r, &next, last * i / TIMELINE_WIDTH, last * (i + 1) / TIMELINE_WIDTH);
        line[TIMELINE_WIDTH] = '\0';
        text_add(out, "%4d  %s\n", r, line);
    }
    text_add(out, "F forward, B backward (I its part for the input, W for the weights), %s. idle%s\n",
             s->schedule.vocabulary ? "E embedding (G its weights), L head and loss (T its weights), " : "",
             step > 1 ? "; some of the ranks" : "");
}

static void schedule_print_table(const struct schedule_report *s, struct text *out) {
    const struct schedule *schedule = &s->schedule;
    double work = schedule_work(schedule, &s->times);
    text_add_line(out, s->name); // perhaps a path
    text_add(out, ": %s, %d microbatch%s, %s a rank\n", counted(schedule->stages, "stage").text, schedule->microbatches,
             schedule->microbatches == 1 ? "" : "es", counted(schedule->chunks, "chunk").text);
    const double most = most_activations(s);
    text_add(out, "cost %.6g, bubble %.4f, activations of at most %.4g microbatch%s", s->cost.cost, s->cost.bubble,
             most, most == 1 ? "" : "es");
    if (s->weight_share < 1)
        text_add(out, " (%g of each between its two backward passes)", s->weight_share);
    text_add(out, "\n\n%4s %12s %12s %12s %12s\n", "rank", "begin", "end", "idle", "activations");
    int rows = MIN(schedule->stages, TABLE_ROWS);
    for (int r = 0; r < rows; r++) {
        const struct schedule_span *span = &s->cost.rank[r];
        text_add(out, "%4d %12.6g %12.6g %12.6g %12.4g\n", r, span->start, span->end,
                 MAX(0, span->end - span->start - work), s->activations[r]);
    }
    if (rows < schedule->stages)
        text_add(out, "and %d more: --json has all\n", schedule->stages - rows);
    print_timeline(s, out);
}

static struct picture_row picture_row(const struct schedule_report *s, int rank) {
    static const enum picture_kind KINDS[PASS_KINDS] = {
        PICTURE_FORWARD, PICTURE_BACKWARD, PICTURE_BACKWARD_INPUT, PICTURE_BACKWARD_WEIGHT,
        PICTURE_OTHER,   PICTURE_OTHER,    PICTURE_OTHER,          PICTURE_OTHER};
    const struct schedule_rank *list = &s->schedule.rank[rank];
    struct picture_row row = {.count = list->count, .label = rank};
    row.box = mem_alloc(list->count * sizeof *row.box);
    for (size_t i = 0; i < list->count; i++) {
        const struct pass *pass = &list->item[i];
        const struct schedule_span *span = &s->cost.pass[rank][i];
        row.box[i] = (struct picture_box){span->start, span->end, KINDS[pass->kind], pass->chunk, pass->microbatch};
    }
    return row;
}

static trireme_status schedule_draw(const struct schedule_report *s, const char *path, trireme_error *error) {
    const struct schedule *schedule = &s->schedule;
    size_t boxes = 0;
    for (int r = 0; r < schedule->stages; r++)
        boxes += schedule->rank[r].count;
    if (boxes > PICTURE_BOXES_MAX)
        FAIL(TRIREME_ERROR_USAGE, "svg=%s: %zu passes are too many for a picture, which has %zu at most", path, boxes,
             PICTURE_BOXES_MAX);
    char chunks[32] = "";
    if (schedule->chunks > 1)
        snprintf(chunks, sizeof chunks, ", %d chunks a rank", schedule->chunks);
    char *title =
        mem_printf("%s: %s, %d microbatch%s%s, bubble %.1f%%", s->name, counted(schedule->stages, "stage").text,
                   schedule->microbatches, schedule->microbatches == 1 ? "" : "es", chunks, 100 * s->cost.bubble);
    struct picture picture = {
        .title = title, .unit = "", .rows_are = "rank", .rows = schedule->stages, .chunks = schedule->chunks};
    picture.row = mem_alloc((size_t)picture.rows * sizeof *picture.row);
    for (int r = 0; r < picture.rows; r++)
        picture.row[r] = picture_row(s, r);
    struct text svg = {0};
    picture_print(&picture, &svg);
    trireme_status status = file_write_atomic(path, svg.text, svg.length, error);
    text_release(&svg);
    for (int r = 0; r < picture.rows; r++)
        free(picture.row[r].box);
    free(picture.row);
    free(title);
    return status;
}

// Writes the schedule as a file that can be read again.
static trireme_status schedule_save(const struct schedule *schedule, const char *path, trireme_error *error) {
    struct text text = {0};
    schedule_print(schedule, &text);
    trireme_status status = file_write_atomic(path, text.text, text.length, error);
    text_release(&text);
    return status;
}

trireme_status simulate_schedule(const struct command_value *values, bool json, trireme_error *error) {
    struct schedule_report s = {0};
    TRY(schedule_load_file(values, &s, error));
    schedule_cost(&s.schedule, &s.times, &s.cost);
    count_activations(&s, integer_of(values, SIMULATE_ACTIVATION_LIMIT));
    struct text out = {0};
    if (json)
        schedule_print_json(&s, &out);
    else
        schedule_print_table(&s, &out);
    trireme_status status = TRIREME_OK;
    if (values[SIMULATE_SVG].given)
        status = schedule_draw(&s, values[SIMULATE_SVG].given, error);
    if (status == TRIREME_OK && values[SIMULATE_SAVE].given)
        status = schedule_save(&s.schedule, values[SIMULATE_SAVE].given, error);
    if (status == TRIREME_OK)
        status = print_text(&out, error);
    text_release(&out);
    free(s.activations);
    schedule_cost_release(&s.cost);
    schedule_release(&s.schedule);
    return status;
}
