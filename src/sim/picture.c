#include "sim/picture.h"

#include "base/svg.h"

#include <math.h>

// All lengths are in pixels of 1/96 inch: 10 inches wide before it is scaled.
#define WIDTH 960.
#define LEFT 46.
#define RIGHT 18.
#define TOP 48.
#define BOTTOM 40.

// Colours of chunks, from the first to the last; a single chunk takes one between.
struct shades {
    const char *name;
    int first, last; // 0xRRGGBB
};

static const struct shades SHADES[PICTURE_KINDS] = {
    [PICTURE_FORWARD] = {"forward", 0x6aaee0, 0xc4def3},
    [PICTURE_BACKWARD] = {"backward", 0xb34700, 0xeead7c},
    [PICTURE_BACKWARD_INPUT] = {"backward, input", 0xc4590f, 0xf2b887},
    [PICTURE_BACKWARD_WEIGHT] = {"backward, weights", 0x0f4f5c, 0x78aeb4},
    [PICTURE_OPTIMIZER] = {"optimizer", 0x5f3c7d, 0x5f3c7d},
    [PICTURE_OTHER] = {"other", 0x8a8a8a, 0x8a8a8a},
};
#define SINGLE_CHUNK .35
#define IDLE "#f0f0f0"

static int shade(enum picture_kind kind, int chunk, int chunks) {
    double part = chunks > 1 ? (double)MIN(chunk, chunks - 1) / (chunks - 1) : SINGLE_CHUNK;
    int result = 0;
    for (int shift = 16; shift >= 0; shift -= 8) {
        int first = SHADES[kind].first >> shift & 255, last = SHADES[kind].last >> shift & 255;
        result |= (int)lround(first + part * (last - first)) << shift;
    }
    return result;
}

struct canvas {
    const struct picture *picture;
    struct text *out;
    double end, scale;        // of time; pixels of a unit of time
    double pitch, row_height; // pixels from row to row; of a box
    double height;
    int digits; // of the longest microbatch's number
};

static double row_top(const struct canvas *c, int row) {
    return TOP + c->pitch * row;
}

static double at_time(const struct canvas *c, double time) {
    return LEFT + c->scale * time;
}

// ---- boxes

// Leaves a blank line before the next box, which is thin where boxes are thin.
static double box_width(const struct canvas *c, const struct picture_box *box) {
    double width = c->scale * (box->end - box->begin);
    return width - MIN(.7, .1 * width);
}

// One path for each colour of a row, so that thousands of boxes take few bytes each.
static void add_boxes(const struct canvas *c, int row) {
    const struct picture_row *r = &c->picture->row[row];
    for (int kind = 0; kind < PICTURE_KINDS; kind++)
        for (int chunk = 0; chunk < c->picture->chunks; chunk++) {
            bool any = false;
            for (size_t i = 0; i < r->count; i++) {
                const struct picture_box *box = &r->box[i];
                if ((int)box->kind != kind || box->chunk != chunk || !(box->end > box->begin))
                    continue;
                if (!any)
                    text_add(c->out, "<path fill=\"#%06x\" d=\"", shade(box->kind, chunk, c->picture->chunks));
                any = true;
                svg_length(c->out, "M", at_time(c, box->begin));
                svg_length(c->out, " ", row_top(c, row));
                svg_length(c->out, "h", box_width(c, box));
                svg_length(c->out, "v", c->row_height);
                svg_length(c->out, "h", -box_width(c, box));
                text_add(c->out, "z");
            }
            if (any)
                text_add(c->out, "\"/>\n");
        }
}

// Whether the longest of all numbers fits into a box: so either all boxes of one size have their number or none has.
static bool number_fits(const struct picture_box *box, const struct canvas *c, double size) {
    return box->microbatch >= 0 && .6 * size * c->digits + 1.5 <= box_width(c, box);
}

// The size of the largest digits that fit into nearly all boxes, or if there are none, into half of them; 0 where no
// readable size fits.
static double number_size(const struct canvas *c) {
    static const double SIZES[] = {10.5, 9.5, 8.5, 7.5, 6.5, 5.5}, SHARES[] = {.9, .5};
    for (size_t n = 0; n < ARRAY_LENGTH(SHARES); n++)
        for (size_t k = 0; k < ARRAY_LENGTH(SIZES); k++) {
            size_t fitting = 0, all = 0;
            for (int r = 0; r < c->picture->rows; r++)
                for (size_t i = 0; i < c->picture->row[r].count; i++) {
                    all += c->picture->row[r].box[i].microbatch >= 0;
                    fitting += number_fits(&c->picture->row[r].box[i], c, SIZES[k]);
                }
            if (fitting > 0 && (double)fitting >= SHARES[n] * (double)all && SIZES[k] <= .8 * c->row_height)
                return SIZES[k];
        }
    return 0;
}

static void add_numbers(const struct canvas *c, int row, double size) {
    const struct picture_row *r = &c->picture->row[row];
    for (size_t i = 0; i < r->count; i++) {
        const struct picture_box *box = &r->box[i];
        if (!number_fits(box, c, size))
            continue;
        svg_length(c->out, "<text x=\"", at_time(c, box->begin) + box_width(c, box) / 2);
        svg_length(c->out, "\" y=\"", row_top(c, row) + c->row_height / 2 + .36 * size);
        text_add(c->out, "\"%s>%d</text>\n",
                 svg_is_dark(shade(box->kind, box->chunk, c->picture->chunks)) ? " fill=\"#fff\"" : "",
                 box->microbatch);
    }
}

static void picture_add_rows(const struct canvas *c) {
    const struct picture *p = c->picture;
    double bottom = row_top(c, p->rows) - (c->pitch - c->row_height), size = number_size(c);
    text_add(c->out, "<g shape-rendering=\"geometricPrecision\">\n<path fill=\"" IDLE "\" d=\"");
    for (int i = 0; i < p->rows; i++) {
        svg_length(c->out, "M", LEFT);
        svg_length(c->out, " ", row_top(c, i));
        svg_length(c->out, "h", WIDTH - LEFT - RIGHT);
        svg_length(c->out, "v", c->row_height);
        svg_length(c->out, "H", LEFT);
        text_add(c->out, "z");
    }
    text_add(c->out, "\"/>\n");
    for (int i = 0; i < p->rows; i++)
        add_boxes(c, i);
    text_add(c->out, "</g>\n");
    if (size > 0) {
        svg_length(c->out, "<g text-anchor=\"middle\" font-size=\"", size);
        text_add(c->out, "\">\n");
        for (int i = 0; i < p->rows; i++)
            add_numbers(c, i, size);
        text_add(c->out, "</g>\n");
    }
    int step = 1;
    while (step * c->pitch < 11)
        step *= 2;
    text_add(c->out, "<g text-anchor=\"end\" font-size=\"10.5\">\n");
    for (int i = 0; i < p->rows; i += step) {
        svg_length(c->out, "<text x=\"", LEFT - 5);
        svg_length(c->out, "\" y=\"", row_top(c, i) + c->row_height / 2 + 3.7);
        text_add(c->out, "\">%d</text>\n", p->row[i].label);
    }
    text_add(c->out, "</g>\n<text font-size=\"10.5\" text-anchor=\"middle\" transform=\"translate(12 ");
    svg_length(c->out, "", (TOP + bottom) / 2);
    text_add(c->out, ") rotate(-90)\">");
    svg_words(c->out, p->rows_are);
    text_add(c->out, "</text>\n");
}

// ---- around them

// The distance of ticks, 1, 2 or 5 times a power of 10, for about `count` of them.
static double tick_step(double end, int count) {
    double step = pow(10, floor(log10(end / count)));
    while (step * count < end)
        step *= step * 2.5 * count >= end && step * 2 * count < end ? 2.5 : 2;
    double power = pow(10, floor(log10(step) + 1e-9)), lead = step / power;
    return power * (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10);
}

static void add_axis(const struct canvas *c) {
    double y = row_top(c, c->picture->rows) + 1, step = tick_step(c->end, 8);
    text_add(c->out, "<g font-size=\"10.5\" text-anchor=\"middle\">\n");
    for (int i = 0; i * step <= c->end * (1 + 1e-9); i++) {
        double x = at_time(c, i * step);
        svg_length(c->out, "<path stroke=\"#222\" stroke-width=\".8\" d=\"M", x);
        svg_length(c->out, " ", y);
        svg_length(c->out, "v4\"/><text x=\"", x);
        svg_length(c->out, "\" y=\"", y + 15);
        text_add(c->out, "\">%.6g</text>\n", i * step);
    }
    svg_length(c->out, "<path stroke=\"#222\" stroke-width=\".8\" d=\"M", LEFT);
    svg_length(c->out, " ", y);
    svg_length(c->out, "H", WIDTH - RIGHT);
    svg_length(c->out, "\"/>\n<text x=\"", (LEFT + WIDTH - RIGHT) / 2);
    svg_length(c->out, "\" y=\"", y + 29);
    text_add(c->out, "\">time");
    if (*c->picture->unit) {
        text_add(c->out, " (");
        svg_words(c->out, c->picture->unit);
        text_add(c->out, ")");
    }
    text_add(c->out, "</text>\n</g>\n");
}

static void add_swatch(const struct canvas *c, double x, const char *fill, const char *name) {
    svg_length(c->out, "<rect x=\"", x);
    text_add(c->out, "\" y=\"30\" width=\"11\" height=\"10\" fill=\"%s\"/>", fill);
    svg_length(c->out, "<text x=\"", x + 15);
    text_add(c->out, "\" y=\"38.8\">%s</text>\n", name);
}

// The legend: the kinds of boxes that there are, each in the colours of all chunks side by side.
static void add_legend(const struct canvas *c) {
    const struct picture *p = c->picture;
    bool is_there[PICTURE_KINDS] = {0};
    for (int r = 0; r < p->rows; r++)
        for (size_t i = 0; i < p->row[r].count; i++)
            is_there[p->row[r].box[i].kind] = true;
    text_add(c->out, "<g font-size=\"10.5\">\n");
    double x = LEFT;
    for (int kind = 0; kind < PICTURE_KINDS; kind++) {
        if (!is_there[kind])
            continue;
        int shown = SHADES[kind].first == SHADES[kind].last ? 1 : MIN(p->chunks, 4);
        for (int i = 0; i < shown; i++, x += 11) {
            char fill[8];
            int chunk = shown > 1 ? i * (p->chunks - 1) / (shown - 1) : 0;
            snprintf(fill, sizeof fill, "#%06x", shade((enum picture_kind)kind, chunk, p->chunks));
            add_swatch(c, x, fill, i + 1 < shown ? "" : SHADES[kind].name);
        }
        x += 20 + 5.6 * (double)strlen(SHADES[kind].name);
    }
    add_swatch(c, x, IDLE, "idle");
    if (p->chunks > 1) {
        svg_length(c->out, "<text x=\"", x + 52);
        text_add(c->out, "\" y=\"38.8\" fill=\"#555\">later chunks of a rank are lighter</text>\n");
    }
    text_add(c->out, "</g>\n");
}

void picture_print(const struct picture *picture, struct text *svg) {
    struct canvas c = {.picture = picture, .out = svg};
    for (int r = 0; r < picture->rows; r++)
        for (size_t i = 0; i < picture->row[r].count; i++) {
            const struct picture_box *box = &picture->row[r].box[i];
            c.end = MAX(c.end, box->end);
            c.digits = MAX(c.digits, snprintf(NULL, 0, "%d", box->microbatch));
        }
    CHECK(c.end > 0);
    c.scale = (WIDTH - LEFT - RIGHT) / c.end;
    c.pitch = MAX(4, MIN(24, 640. / picture->rows));
    c.row_height = c.pitch - (c.pitch > 8 ? 2 : .2 * c.pitch);
    c.height = row_top(&c, picture->rows) + BOTTOM;
    svg_begin(svg, WIDTH, c.height, LEFT, picture->title);
    add_legend(&c);
    picture_add_rows(&c);
    add_axis(&c);
    svg_end(svg);
}
