// The text form of schedules, which schedule.h describes. Reading is bounded by the length of the text;
// schedule_verify, which also names lines, checks that what was read makes sense.
#include "pipeline/schedule.h"

#include "base/json.h"
#include "base/utf8.h"

static const char PLACEMENT[] = "placement";

// ---- printing

// Whether a text without a line "placement" means this.
static bool is_placed_plainly(const struct schedule *s) {
    if (s->chunks > 1)
        return false;
    for (int i = 0; i < s->stages; i++)
        if (s->place[i].rank != i)
            return false;
    return true;
}

void schedule_print(const struct schedule *s, struct text *text) {
    if (!is_placed_plainly(s)) {
        text_add(text, "%s", PLACEMENT);
        for (int i = 0; i < s->stages * s->chunks; i++)
            text_add(text, " %d", s->place[i].rank);
        text_add(text, "\n");
    }
    char pass[PASS_TEXT];
    for (int r = 0; r < s->stages; r++) {
        for (size_t i = 0; i < s->rank[r].count; i++)
            text_add(text, "%s%s", i ? " " : "", pass_print(s, s->rank[r].item[i], pass));
        text_add(text, "\n");
    }
}

// ---- reading

struct parser {
    const char *at, *end; // within the current line, without comment and line end
    int line;
    int stages, chunks; // as the line "placement" says; 0 without one
    VEC(int) placement;
    VEC(struct schedule_rank) rank;
    size_t passes;
    int microbatches;
    bool vocabulary; // some pass is on the vocabulary
    trireme_error *error;
};

// A word of the text: up to the next blank.
struct token {
    const char *at, *end;
};

static bool token_next(struct parser *p, struct token *token) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t'))
        p->at++;
    token->at = p->at;
    while (p->at < p->end && *p->at != ' ' && *p->at != '\t')
        p->at++;
    token->end = p->at;
    return token->at < token->end;
}

#define FAIL_LINE(p, format, ...) \
    return error_set((p)->error, TRIREME_ERROR_CORRUPT, "line %d: " format, (p)->line, __VA_ARGS__)

static trireme_status text_bad(struct parser *p, struct token token, const char *expected) {
    char found[JSON_EXCERPT_BYTES];
    FAIL_LINE(p, "expected %s, found %s", expected,
              json_excerpt_bytes(token.at, (size_t)(token.end - token.at), found));
}

// Takes digits off the front of the token: a number below SCHEDULE_PASSES_MAX.
static bool token_number(struct token *token, int *out) {
    size_t value = 0;
    const char *start = token->at;
    for (; token->at < token->end && *token->at >= '0' && *token->at <= '9'; token->at++) {
        value = 10 * value + (size_t)(*token->at - '0');
        if (value >= SCHEDULE_PASSES_MAX)
            return false;
    }
    *out = (int)value;
    return token->at > start;
}

static trireme_status text_parse_placement(struct parser *p) {
    if (p->stages || p->rank.count)
        FAIL_LINE(p, "\"%s\" comes once, before the ranks", PLACEMENT);
    int most = -1;
    for (struct token token; token_next(p, &token);) {
        struct token rest = token;
        int rank;
        if (!token_number(&rest, &rank) || rest.at != rest.end)
            return text_bad(p, token, "the rank of a virtual stage");
        VEC_PUSH(&p->placement, rank);
        most = MAX(most, rank);
    }
    int count = (int)p->placement.count;
    if (count == 0)
        FAIL_LINE(p, "\"%s\" needs the rank of each virtual stage", PLACEMENT);
    if (most >= count)
        FAIL_LINE(p, "%d virtual stages do not reach rank %d", count, most);
    int ranks = most + 1, share = count / ranks, rank = 0;
    int *held = mem_alloc((size_t)ranks * sizeof *held);
    for (int i = 0; i < count; i++)
        held[p->placement.item[i]]++;
    while (rank < ranks && held[rank] == share)
        rank++;
    int has = rank < ranks ? held[rank] : share;
    free(held);
    if (has != share)
        FAIL_LINE(p, "rank %d has %d of %d virtual stages; each of %d ranks needs as many", rank, has, count, ranks);
    p->stages = ranks;
    p->chunks = share;
    return TRIREME_OK;
}

static trireme_status parse_pass(struct parser *p, struct token token, struct pass *pass) {
    struct token rest = token;
    bool many = p->chunks > 1;
    const char *expected = many ? "a pass such as F0.0, B0.0, I0.0 or W0.0" : "a pass such as F0, B0, I0 or W0";
    const char *letters = PASS_LETTERS, *letter = memchr(letters, *rest.at++, PASS_KINDS);
    *pass = (struct pass){0};
    if (!letter || !token_number(&rest, &pass->microbatch))
        return text_bad(p, token, expected);
    pass->kind = (enum pass_kind)(letter - letters);
    if (pass->kind >= PASS_EMBED) {
        p->vocabulary = true;
        return rest.at == rest.end ? TRIREME_OK : text_bad(p, token, "a pass of no chunk, such as E0, L0, T0 or G0");
    }
    bool has_chunk = rest.at < rest.end && *rest.at == '.';
    if (has_chunk) {
        rest.at++;
        if (!token_number(&rest, &pass->chunk))
            return text_bad(p, token, expected);
    }
    if (rest.at != rest.end || (many && !has_chunk))
        return text_bad(p, token, expected);
    if (has_chunk && !many)
        return text_bad(p, token,
                        p->stages
                            ? "passes without chunks, since a rank has but one"
                            : "passes without chunks, or before the ranks a line \"placement\" with the rank of each "
                              "virtual stage");
    return TRIREME_OK;
}

static trireme_status text_parse_line(struct parser *p) {
    struct token token;
    if (!token_next(p, &token))
        return TRIREME_OK;
    if ((size_t)(token.end - token.at) == strlen(PLACEMENT) && memcmp(token.at, PLACEMENT, strlen(PLACEMENT)) == 0)
        return text_parse_placement(p);
    if (p->stages && (int)p->rank.count == p->stages)
        FAIL_LINE(p, "a line too many: \"%s\" names %d ranks, one line each", PLACEMENT, p->stages);
    VEC_PUSH(&p->rank, (struct schedule_rank){.line = p->line});
    struct schedule_rank *rank = &p->rank.item[p->rank.count - 1];
    do {
        struct pass pass;
        TRY(parse_pass(p, token, &pass));
        if (p->passes++ == SCHEDULE_PASSES_MAX)
            FAIL_LINE(p, "more than %zu passes", SCHEDULE_PASSES_MAX);
        VEC_PUSH(rank, pass);
        p->microbatches = MAX(p->microbatches, pass.microbatch + 1);
    } while (token_next(p, &token));
    return TRIREME_OK;
}

static trireme_status parse_lines(struct parser *p, const char *text, size_t length) {
    const char *end = text + length;
    for (const char *at = text + utf8_mark(text, length); at < end;) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        if (!line_end)
            line_end = end;
        const char *comment = memchr(at, '#', (size_t)(line_end - at));
        p->line++;
        p->at = at;
        p->end = comment ? comment : line_end > at && line_end[-1] == '\r' ? line_end - 1 : line_end;
        TRY(text_parse_line(p));
        at = line_end < end ? line_end + 1 : end;
    }
    if (p->rank.count == 0)
        return error_set(p->error, TRIREME_ERROR_CORRUPT,
                         "a pipeline schedule without passes: one line per rank is expected");
    if (p->stages && (int)p->rank.count < p->stages)
        FAIL_LINE(p, "the text ends after %d of %d ranks", (int)p->rank.count, p->stages);
    return TRIREME_OK;
}

trireme_status schedule_parse(struct schedule *schedule, const char *text, size_t length, trireme_error *error) {
    struct parser p = {.error = error};
    struct schedule parsed = {0};
    trireme_status status;
    if (length > SCHEDULE_BYTES_MAX)
        FAIL(TRIREME_ERROR_CORRUPT, "a pipeline schedule of %zu bytes, more than %zu", length, SCHEDULE_BYTES_MAX);
    status = parse_lines(&p, text, length);
    if (status != TRIREME_OK)
        goto release_parser;
    bool placed = p.stages > 0;
    schedule_begin(&parsed, (int)p.rank.count, p.microbatches, placed ? p.chunks : 1, placed ? p.placement.item : NULL);
    parsed.vocabulary = p.vocabulary;
    memcpy(parsed.rank, p.rank.item, p.rank.count * sizeof *p.rank.item);
    p.rank.count = 0; // the table owns the lists now
    status = schedule_verify(&parsed, error);
    if (status == TRIREME_OK) {
        schedule_count_on_way(&parsed);
        *schedule = parsed;
    } else {
        schedule_release(&parsed);
    }
release_parser:
    for (size_t i = 0; i < p.rank.count; i++)
        free(p.rank.item[i].item);
    VEC_RELEASE(&p.rank);
    VEC_RELEASE(&p.placement);
    return status;
}
