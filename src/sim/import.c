// Reads figures that other programs measured.
#include "base/utf8.h"
#include "sim/cost.h"
#include "sim/fit.h"

#include <ctype.h>
#include <math.h>
#include <strings.h>

enum { WORDS_MAX = 32 };
// Times of a product above HOST_SECONDS plus SLOWEST times what it takes by the peaks are refused.
#define HOST_SECONDS .1
#define SLOWEST 1e3

struct line {
    int number;
    size_t words;
    char *word[WORDS_MAX];
};

struct lines {
    const char *name;
    char *text, *at;
    int number;
};

// Splits the next line, in place, into words that `separators` divide; false at the end. Blanks around words are left
// out, so where blanks separate, any number of them is one separator; where a tab alone separates, each one counts.
static bool next_line(struct lines *l, const char *separators, struct line *out) {
    if (!*l->at)
        return false;
    const char *blanks = strcmp(separators, "\t") == 0 ? " \r" : " \t\r";
    char *at = l->at, *next = at + strcspn(at, "\n");
    l->at = *next ? next + 1 : next;
    *next = '\0';
    *out = (struct line){.number = ++l->number};
    if (!at[strspn(at, " \t\r")])
        return true;
    while (*at && out->words < WORDS_MAX) {
        at += strspn(at, blanks);
        char *word = at + (*at == '"');
        if (word > at)
            at = word + strcspn(word, "\"");
        at += strcspn(at, separators);
        if (at == word && !*at)
            break;
        out->word[out->words++] = word;
        bool more = *at != '\0';
        *at = '\0';
        for (char *end = at; end > word && strchr(" \t\r\"", end[-1]);)
            *--end = '\0';
        at += more;
    }
    return true;
}

static bool import_read_number(const char *text, double *out) {
    char *end;
    *out = strtod(text, &end);
    return end != text && !*end && isfinite(*out);
}

#define REFUSE(...) FAIL(TRIREME_ERROR_USAGE, __VA_ARGS__)

// ---- matrix products

enum column { COLUMN_M, COLUMN_N, COLUMN_K, COLUMN_DTYPE, COLUMN_TIME, COLUMN_RATE, COLUMNS };

// Times of a product and rates beside them may differ by this factor: rates are often rounded to few digits.
#define ROUNDED 1.2

struct csv {
    size_t columns;
    int at[COLUMNS]; // of each column; NONE. A table has times, rates, or both.
    double seconds;  // of one unit of time
    double flops;    // of one unit of rate
};

static trireme_status import_read_header(struct csv *csv, const char *name, const struct line *line,
                                         trireme_error *error) {
    static const struct {
        const char *name;
        enum column column;
        double unit; // seconds, or operations a second
    } NAMES[] = {{"m", COLUMN_M, 0},
                 {"n", COLUMN_N, 0},
                 {"k", COLUMN_K, 0},
                 {"dtype", COLUMN_DTYPE, 0},
                 {"seconds", COLUMN_TIME, 1},
                 {"s", COLUMN_TIME, 1},
                 {"ms", COLUMN_TIME, 1e-3},
                 {"us", COLUMN_TIME, 1e-6},
                 {"tflops", COLUMN_RATE, 1e12},
                 {"TFLOP/s", COLUMN_RATE, 1e12},
                 {"gflops", COLUMN_RATE, 1e9},
                 {"GFLOP/s", COLUMN_RATE, 1e9}};
    static const char *const WANTED[] = {"m", "n", "k", "dtype", "seconds, ms, us, tflops or gflops"};
    csv->columns = line->words;
    for (int i = 0; i < COLUMNS; i++)
        csv->at[i] = NONE;
    for (size_t w = 0; w < line->words; w++)
        for (size_t i = 0; i < ARRAY_LENGTH(NAMES); i++) {
            int *at = &csv->at[NAMES[i].column];
            if (strcasecmp(line->word[w], NAMES[i].name) != 0)
                continue;
            if (*at != NONE)
                REFUSE("%s:%d: two columns %s%s%s", name, line->number, line->word[*at],
                       strcasecmp(line->word[*at], line->word[w]) ? " and " : "",
                       strcasecmp(line->word[*at], line->word[w]) ? line->word[w] : "");
            *at = (int)w;
            *(NAMES[i].column == COLUMN_RATE ? &csv->flops : &csv->seconds) = NAMES[i].unit;
        }
    for (int i = 0; i <= COLUMN_TIME; i++)
        if (csv->at[i] == NONE && (i < COLUMN_TIME || csv->at[COLUMN_RATE] == NONE))
            REFUSE("%s:%d: neither the output of nccl-tests nor a table of matrix products: no column %s", name,
                   line->number, WANTED[i]);
    return TRIREME_OK;
}

// By the names that other programs use; half precision counts as bf16, which is equally fast.
static bool import_read_dtype(const char *text, enum dtype *out) {
    static const struct {
        const char *name;
        enum dtype dtype;
    } NAMES[] = {{"f32", DTYPE_F32},       {"fp32", DTYPE_F32},  {"float32", DTYPE_F32}, {"float", DTYPE_F32},
                 {"bf16", DTYPE_BF16},     {"fp16", DTYPE_BF16}, {"f16", DTYPE_BF16},    {"float16", DTYPE_BF16},
                 {"bfloat16", DTYPE_BF16}, {"half", DTYPE_BF16}, {"f64", DTYPE_F64},     {"float64", DTYPE_F64},
                 {"double", DTYPE_F64}};
    for (size_t i = 0; i < ARRAY_LENGTH(NAMES); i++)
        if (strcasecmp(text, NAMES[i].name) == 0) {
            *out = NAMES[i].dtype;
            return true;
        }
    return false;
}

// The time of a product of so many operations, from its time, its rate, or both.
static trireme_status read_time(const struct csv *csv, const char *name, const struct line *line, double flops,
                                double *out, trireme_error *error) {
    double by[COLUMNS] = {0};
    for (int i = COLUMN_TIME; i <= COLUMN_RATE; i++)
        if (csv->at[i] != NONE && (!import_read_number(line->word[csv->at[i]], &by[i]) || by[i] <= 0))
            REFUSE("%s:%d: given \"%.40s\" as %s, expected a number above 0", name, line->number,
                   line->word[csv->at[i]], i == COLUMN_TIME ? "time" : "rate");
    by[COLUMN_TIME] *= csv->seconds;
    if (csv->at[COLUMN_RATE] != NONE)
        by[COLUMN_RATE] = flops / (by[COLUMN_RATE] * csv->flops);
    *out = by[csv->at[COLUMN_TIME] != NONE ? COLUMN_TIME : COLUMN_RATE];
    if (csv->at[COLUMN_RATE] != NONE && !(*out < ROUNDED * by[COLUMN_RATE] && by[COLUMN_RATE] < ROUNDED * *out))
        REFUSE("%s:%d: %.4g operations in %.4g s are not the rate beside it, which would take %.4g s", name,
               line->number, flops, *out, by[COLUMN_RATE]);
    return TRIREME_OK;
}

static trireme_status read_product(const struct csv *csv, const struct device *d, const char *name,
                                   const struct line *line, struct fit_sample *out, trireme_error *error) {
    double extent[3];
    *out = (struct fit_sample){.op = OP_MATMUL, .T = -1};
    for (int i = 0; i < COLUMNS; i++)
        if (csv->at[i] >= (int)line->words) // a last column that does not count here may be empty
            REFUSE("%s:%d: fewer columns than the first line has", name, line->number);
    if (line->words > csv->columns)
        REFUSE("%s:%d: more columns than the first line has", name, line->number);
    for (int i = 0; i < 3; i++) {
        const char *word = line->word[csv->at[i]];
        if (!import_read_number(word, &extent[i]) || extent[i] < 1 || extent[i] > 1e9 || extent[i] != floor(extent[i]))
            REFUSE("%s:%d: %c: given \"%.40s\", expected a whole number from 1", name, line->number, "mnk"[i], word);
    }
    if (!import_read_dtype(line->word[csv->at[COLUMN_DTYPE]], &out->dtype))
        REFUSE("%s:%d: dtype: given \"%.40s\", expected f32, bf16, fp16 or f64", name, line->number,
               line->word[csv->at[COLUMN_DTYPE]]);
    out->m = (int64_t)extent[0];
    out->n = (int64_t)extent[1];
    out->k = (int64_t)extent[2];
    out->flops = 2 * extent[0] * extent[1] * extent[2];
    out->bytes = product_bytes(extent[0], extent[1], extent[2], out->dtype);
    TRY(read_time(csv, name, line, out->flops, &out->seconds, error));
    if (d->peak[out->dtype] <= 0)
        REFUSE("%s:%d: %s has no peak of %s", name, line->number, d->name, dtype_name(out->dtype));
    if (out->flops / out->seconds > 1.05 * d->peak[out->dtype])
        REFUSE("%s:%d: %.4g TFLOP/s, more than the peak of %s, %.4g", name, line->number,
               1e-12 * out->flops / out->seconds, d->name, 1e-12 * d->peak[out->dtype]);
    // Catches a unit other than the header says. (A small product takes as long as a host needs to issue it.)
    const double ideal = out->flops / d->peak[out->dtype] + out->bytes / d->bandwidth;
    if (out->seconds > HOST_SECONDS + SLOWEST * ideal)
        REFUSE("%s:%d: %.4g s for what takes %s %.4g s at best: is the unit another one?", name, line->number,
               out->seconds, d->name, ideal);
    return TRIREME_OK;
}

// The separator that comes first in the first line that is not a comment.
static const char *separator_of(const char *text) {
    while (*(text += strspn(text, " \t\r\n")) == '#')
        text += strcspn(text, "\n");
    switch (text[strcspn(text, ",;\t\n")]) {
    case ';':
        return ";";
    case '\t':
        return "\t";
    default:
        return ",";
    }
}

static trireme_status import_products(struct cluster *c, const struct op_table *table, struct lines *l,
                                      trireme_error *error) {
    struct line line;
    struct csv csv = {0};
    struct device *d = &c->devices.item[c->groups.item[0].device];
    struct fit_samples samples = {0};
    bool header = false;
    const char *separator = separator_of(l->at);
    trireme_status status = TRIREME_OK;
    while (status == TRIREME_OK && next_line(l, separator, &line)) {
        if (line.words == 0 || line.word[0][0] == '#')
            continue;
        struct fit_sample sample;
        if (!header)
            status = import_read_header(&csv, l->name, &line, error);
        else
            status = read_product(&csv, d, l->name, &line, &sample, error);
        if (header && status == TRIREME_OK)
            VEC_PUSH(&samples, sample);
        header = true;
    }
    if (status == TRIREME_OK && samples.count == 0)
        status = error_set(error, TRIREME_ERROR_USAGE, "%s: no matrix products in it", l->name);
    if (status == TRIREME_OK)
        fit_device(d, table, &samples, false);
    VEC_RELEASE(&samples);
    return status;
}

// ---- collectives

struct collective {
    int ranks;
    VEC(struct link_point) points;
    double ratio; // of bus bandwidth to algorithm bandwidth, for the largest size
    bool reduces, rooted;
    enum op named; // by the output's first lines; OP_COUNT: they do not name it
};

// The programs of nccl-tests whose figures are used, by name, which a suffix may follow. Those of a reduce are not: it
// is made as an all_reduce.
static const struct {
    const char *name;
    enum op op;
    bool reduces, rooted;
} TESTS[] = {{"all_reduce_perf", OP_ALL_REDUCE, true, false},
             {"reduce_scatter_perf", OP_REDUCE_SCATTER, true, false},
             {"all_gather_perf", OP_ALL_GATHER, false, false},
             {"sendrecv_perf", OP_SEND, false, false},
             {"broadcast_perf", OP_BROADCAST, false, true}};

// The share of its bytes that an op moves: all_reduce 2 (n - 1) / n, all_gather and reduce_scatter (n - 1) / n,
// messages and ops with a root all (nccl-tests, doc/PERFORMANCE.md).
static double share_moved(enum op op, double n) {
    double part = (n - 1) / n;
    return op == OP_ALL_REDUCE ? 2 * part : op == OP_ALL_GATHER || op == OP_REDUCE_SCATTER ? part : 1;
}

// Finds the op that moves the share that was measured: by its name, or, where the output does not name it, by whether
// it reduces or has a root. alltoall then counts as all_gather. (sendrecv has a reduction in its lines and does not
// reduce.)
static bool find_op(const struct collective *c, enum op *out) {
    double least = 0.02;
    *out = OP_COUNT;
    for (size_t i = 0; i < ARRAY_LENGTH(TESTS); i++) {
        bool alike = c->rooted == TESTS[i].rooted && (c->reduces == TESTS[i].reduces || TESTS[i].op == OP_SEND);
        double off = fabs(c->ratio - share_moved(TESTS[i].op, c->ranks));
        if (off >= least || (c->named == OP_COUNT ? !alike : c->named != TESTS[i].op))
            continue;
        least = off;
        *out = TESTS[i].op;
    }
    return *out != OP_COUNT;
}

// # Collective test starting: all_reduce_perf
static trireme_status read_name(const char *file, const struct line *line, enum op *out, trireme_error *error) {
    if (line->words < 5 || strcmp(line->word[1], "Collective") != 0 || strcmp(line->word[3], "starting:") != 0)
        return TRIREME_OK;
    const char *name = line->word[4];
    for (size_t i = 0; i < ARRAY_LENGTH(TESTS); i++)
        if (strncmp(name, TESTS[i].name, strlen(TESTS[i].name)) == 0) {
            *out = TESTS[i].op;
            return TRIREME_OK;
        }
    struct text names = {0};
    for (size_t i = 0; i < ARRAY_LENGTH(TESTS); i++)
        text_add(&names, "%s%s", i ? ", " : "", TESTS[i].name);
    error_set(error, TRIREME_ERROR_USAGE, "%s:%d: %.40s is not used here, but %s", file, line->number, name,
              names.text);
    text_release(&names);
    return TRIREME_ERROR_USAGE;
}

// Whether bytes and microseconds agree with the GB/s beside them, as far as figures of few digits tell.
static bool fits_rate(double bytes, double time, double rate) {
    double own = 1e-3 * bytes / time;
    return own < 1 ? rate < 2 : rate > own / 2 && rate < own * 2;
}

static trireme_status import_read_collectives(struct lines *l, struct collective *out, trireme_error *error) {
    struct line line;
    double largest = 0;
    while (next_line(l, " \t", &line)) {
        const bool rank = line.words > 2 && strcmp(line.word[0], "#") == 0 && strcmp(line.word[1], "Rank") == 0;
        if (rank && out->points.count)
            REFUSE("%s:%d: a second run begins: each needs a file of its own", l->name, line.number);
        out->ranks += rank;
        TRY(read_name(l->name, &line, &out->named, error));
        // size count type redop root time algbw busbw #wrong ...
        if (line.words == 0 || !isdigit((unsigned char)line.word[0][line.word[0][0] == '-']))
            continue;
        double bytes, time, algorithm, bus;
        if (line.words < 8 || !import_read_number(line.word[0], &bytes) || !import_read_number(line.word[5], &time) ||
            !import_read_number(line.word[6], &algorithm) || !import_read_number(line.word[7], &bus))
            REFUSE("%s:%d: expected size, count, type, redop, root, time, algbw and busbw", l->name, line.number);
        if (bytes == 0)
            continue;
        if (!(bytes > 0 && time > 0) || !fits_rate(bytes, time, algorithm))
            REFUSE("%s:%d: %s bytes in %s us are not %s GB/s", l->name, line.number, line.word[0], line.word[5],
                   line.word[6]);
        // "N/A": not checked. Older versions print the largest error there, in scientific notation.
        const char *wrong = line.words > 8 ? line.word[8] : "0";
        if (!wrong[strspn(wrong, "0123456789")] && wrong[strspn(wrong, "0")])
            REFUSE("%s:%d: %s elements came out wrong: what does not work is not used", l->name, line.number, wrong);
        VEC_PUSH(&out->points, (struct link_point){.bytes = bytes, .seconds = 1e-6 * time});
        if (bytes >= largest && algorithm > 0) {
            largest = bytes;
            out->ratio = bus / algorithm;
            out->reduces = strcmp(line.word[3], "none") != 0;
            out->rooted = line.word[4][0] != '-';
        }
    }
    if (out->ranks < 2 || out->points.count == 0)
        REFUSE("%s: output of nccl-tests has a line \"# Rank\" for each of at least two ranks, and one for each size; "
               "this has %d and %zu",
               l->name, out->ranks, out->points.count);
    return TRIREME_OK;
}

// A level of links that is fitted to a collective.
struct level_fit {
    struct cluster *cluster;
    struct route *route;
    int level;
    double share; // of the level's bandwidth, which the route has
    const struct collective *collective;
    enum op op;
};

static void set_level(const struct level_fit *f, const double parameter[2]) {
    struct link_level *level = &f->cluster->level[f->level];
    level->latency = parameter[0];
    level->bandwidth = parameter[1];
    f->route->bandwidth[f->level] = f->share * level->bandwidth;
}

static double level_error(const void *fit, const double *parameter) {
    const struct level_fit *f = fit;
    double sum = 0;
    set_level(f, parameter);
    for (size_t i = 0; i < f->collective->points.count; i++) {
        const struct link_point *p = &f->collective->points.item[i];
        sum += fabs(log(cost_communicate(f->cluster, f->route, f->op, p->bytes) / p->seconds));
    }
    return sum;
}

// Fits latency and bandwidth of the outermost level that joins the ranks.
static void import_fit_level(struct cluster *c, struct route *route, const struct collective *collective, enum op op) {
    int outer = c->levels - 1;
    while (outer > 0 && route->parts[outer] < 2)
        outer--;
    const struct link_level *level = &c->level[outer];
    const struct level_fit fit = {c, route, outer, route->bandwidth[outer] / level->bandwidth, collective, op};
    double parameter[2] = {MAX(level->latency, 1e-9), level->bandwidth};
    fit_descend(parameter, 2, level_error, &fit);
    set_level(&fit, parameter);
}

// Keeps the measured points where one level alone joins the ranks.
static void import_add_points(struct cluster *c, const struct route *route, const struct collective *collective,
                              enum op op) {
    int only = route_only_level(c, route);
    if (only == NONE)
        return;
    struct link_level *level = &c->level[only];
    size_t kept = 0;
    for (size_t i = 0; i < level->points.count; i++)
        if (level->points.item[i].op != op || level->points.item[i].ranks != collective->ranks)
            level->points.item[kept++] = level->points.item[i];
    level->points.count = kept;
    for (size_t i = 0; i < collective->points.count; i++) {
        struct link_point point = collective->points.item[i];
        point.op = op;
        point.ranks = collective->ranks;
        bool again = false;
        for (size_t k = kept; k < level->points.count; k++)
            again |= level->points.item[k].bytes == point.bytes;
        if (!again)
            VEC_PUSH(&level->points, point);
    }
    VEC_SORT(&level->points, link_point_compare);
}

static trireme_status use_collective(struct cluster *c, const struct collective *collective, enum op op,
                                     trireme_error *error) {
    struct mesh mesh = mesh_single();
    mesh.degree[AXIS_DP] = collective->ranks;
    struct link_use use = {AXES(AXIS_DP), op == OP_SEND ? 1 : 0, op == OP_SEND};
    struct topology topology;
    TRY(topology_create(&topology, c, &mesh, &use, 1, error));
    struct route route = topology.route[0][0];
    topology_release(&topology);
    if (op == OP_ALL_REDUCE) {
        size_t points[CLUSTER_LEVELS_MAX];
        for (int i = 0; i < c->levels; i++) {
            points[i] = c->level[i].points.count;
            c->level[i].points.count = 0; // the fit is for sizes without points
        }
        import_fit_level(c, &route, collective, op);
        for (int i = 0; i < c->levels; i++)
            c->level[i].points.count = points[i];
    }
    if (op != OP_SEND || collective->ranks == 2)
        import_add_points(c, &route, collective, op);
    return TRIREME_OK;
}

trireme_status fit_links(struct cluster *cluster, const struct link_point *points, size_t count, trireme_error *error) {
    struct collective one = {0};
    trireme_status status = TRIREME_OK;
    for (size_t i = 0; i < count && status == TRIREME_OK; i++) {
        VEC_PUSH(&one.points, points[i]);
        one.ranks = points[i].ranks;
        if (i + 1 < count && points[i + 1].op == points[i].op && points[i + 1].ranks == points[i].ranks)
            continue;
        status = use_collective(cluster, &one, points[i].op, error);
        one.points.count = 0;
    }
    VEC_RELEASE(&one.points);
    return status;
}

static trireme_status use_collectives(struct cluster *c, const char *name, const struct collective *collective,
                                      trireme_error *error) {
    enum op op;
    if (!find_op(collective, &op))
        REFUSE("%s: busbw is %.3g of algbw among %d ranks, as of no collective that is used here", name,
               collective->ratio, collective->ranks);
    trireme_status status = use_collective(c, collective, op, error);
    return status == TRIREME_OK ? status : error_prefix(error, status, "%s", name);
}

static trireme_status import_collectives(struct cluster *c, struct lines *l, trireme_error *error) {
    struct collective collective = {.named = OP_COUNT};
    trireme_status status = import_read_collectives(l, &collective, error);
    if (status == TRIREME_OK)
        status = use_collectives(c, l->name, &collective, error);
    VEC_RELEASE(&collective.points);
    return status;
}

trireme_status fit_import(struct cluster *cluster, const struct op_table *table, const char *name, const char *text,
                          size_t length, trireme_error *error) {
    if (memchr(text, '\0', length))
        REFUSE("%s: not a text", name);
    struct lines lines = {.name = name, .text = mem_alloc(length + 1)};
    memcpy(lines.text, text, length);
    lines.at = lines.text + utf8_mark(text, length); // spreadsheets write a mark
    bool nccl = strstr(lines.text, "busbw") != NULL;
    trireme_status status =
        nccl ? import_collectives(cluster, &lines, error) : import_products(cluster, table, &lines, error);
    free(lines.text);
    return status;
}
