#include "base/amount.h"
#include "base/svg.h"
#include "mesh/mesh_view.h"

// All lengths are in pixels.
#define WIDTH 960.
#define EDGE 18.
#define CELL_WIDTH 30.
#define CELL_HEIGHT 17.
#define GAP 8.    // between frames
#define INSIDE 3. // between a frame and its cells
#define LABEL 13. // the height of a line of words

enum { FOLDED = -1, CELLS_MAX = 256 };
// How much of a folded axis is drawn: its first coordinates, dots, its last.
static const int FIRST_SHOWN[] = {3, 1};

#define OUTLINE 0x111111
static const int PALETTE[] = {0xc4def3, 0xf2b887, 0x0f4f5c, 0xf6e08a, 0xb34700, 0xcfe3b4, 0x5f3c7d, 0x9ed1cc};

// A part of the axes, whose coordinates lie along one direction of the picture, the first axis fastest.
struct line {
    axis_set axes;
    int slots; // along it
};

// The groups of a panel in the order in which they are first drawn: so neighbours differ in colour.
struct colours {
    VEC(int) number;
};

struct drawing {
    const struct mesh_view *view;
    int chosen; // the rank whose groups are outlined
    struct text *out;
    int shown[AXIS_COUNT]; // how many slots an axis takes: its degree, or fewer where it is folded
    struct line column, row, stage, outer;
    int digits;
};

static bool axis_is_folded(const struct drawing *d, int axis) {
    return d->shown[axis] < d->view->mesh.degree[axis];
}

// The coordinate that a slot of an axis stands for; FOLDED: dots.
static int slot_coordinate(const struct drawing *d, int axis, int slot) {
    if (!axis_is_folded(d, axis) || slot < d->shown[axis] - 2)
        return slot;
    return slot == d->shown[axis] - 1 ? d->view->mesh.degree[axis] - 1 : FOLDED;
}

static int cells_of(const struct drawing *d, axis_set set) {
    int cells = 1;
    FOR_AXES(a, set)
        cells *= d->shown[a];
    return cells;
}

// Folds the longest axis until the cells are few.
static void picture_fold(struct drawing *d) {
    for (int a = 0; a < AXIS_COUNT; a++)
        d->shown[a] = d->view->mesh.degree[a];
    for (size_t level = 0; level < ARRAY_LENGTH(FIRST_SHOWN); level++) {
        const int slots = FIRST_SHOWN[level] + 2;
        for (int longest = 0; cells_of(d, AXES_ALL) > CELLS_MAX && longest != AXIS_COUNT;) {
            longest = AXIS_COUNT;
            for (int a = 0; a < AXIS_COUNT; a++)
                if (d->shown[a] > slots && (longest == AXIS_COUNT || d->shown[a] >= d->shown[longest]))
                    longest = a;
            if (longest != AXIS_COUNT)
                d->shown[longest] = slots;
        }
    }
}

static struct line line_of(const struct drawing *d, axis_set axes) {
    const axis_set present = mesh_present(&d->view->mesh, axes);
    return (struct line){present, cells_of(d, present)};
}

// Within a stage, ranks that say most to each other lie side by side.
static void arrange(struct drawing *d) {
    const axis_set within = mesh_present(&d->view->mesh, AXES_ALL & ~AXES_OWN);
    axis_set columns = within & AXES_TENSOR;
    if (columns == AXES_NONE)
        columns = within & AXES(axes_first(within));
    d->column = line_of(d, columns);
    d->row = line_of(d, within & ~columns);
    d->stage = line_of(d, AXES_STAGE);
    d->outer = line_of(d, AXES_OWN & ~AXES_STAGE);
}

// Adds to a rank's number what a slot of a line says. False: it stands for dots.
static bool line_rank(const struct drawing *d, const struct line *line, int slot, int *rank) {
    FOR_AXES(a, line->axes) {
        const int coordinate = slot_coordinate(d, a, slot % d->shown[a]);
        if (coordinate == FOLDED)
            return false;
        *rank += coordinate * mesh_group_size(&d->view->mesh, AXES(a) - 1);
        slot /= d->shown[a];
    }
    return true;
}

static double frame_width(const struct drawing *d) {
    return d->column.slots * CELL_WIDTH + 2 * INSIDE;
}
static double frame_height(const struct drawing *d) {
    return d->row.slots * CELL_HEIGHT + 2 * INSIDE + LABEL;
}
static double panel_height(const struct drawing *d) {
    return d->outer.slots * (frame_height(d) + GAP) + 2 * LABEL;
}

// What the colour of a panel says of a rank: the number of its group; of the first panel where machines are known, its
// node.
static int panel_number(const struct drawing *d, axis_set group, int rank) {
    return group == AXES_NONE ? d->view->node[rank] : mesh_index(&d->view->mesh, rank, AXES_ALL & ~group);
}

static int colour_of(struct colours *colours, int number) {
    size_t i = 0;
    while (i < colours->number.count && colours->number.item[i] != number)
        i++;
    if (i == colours->number.count)
        VEC_PUSH(&colours->number, number);
    return PALETTE[i % ARRAY_LENGTH(PALETTE)];
}

static void draw_cell(const struct drawing *d, double x, double y, int colour, bool outlined, int rank) {
    char number[16];
    snprintf(number, sizeof number, "%d", rank);
    if (outlined)
        svg_box(d->out, x, y, CELL_WIDTH, CELL_HEIGHT, OUTLINE);
    const double inside = outlined ? 1.5 : .5;
    svg_box(d->out, x + inside, y + inside, CELL_WIDTH - 2 * inside, CELL_HEIGHT - 2 * inside, colour);
    text_add(d->out, "<g font-size=\"%s\"%s text-anchor=\"middle\">", d->digits > 4 ? "8" : "10",
             svg_is_dark(colour) ? " fill=\"#fff\"" : "");
    svg_text(d->out, x + CELL_WIDTH / 2, y + CELL_HEIGHT / 2 + 3.6, number);
    text_add(d->out, "</g>\n");
}

static void draw_cells(const struct drawing *d, axis_set group, struct colours *colours, double x, double y,
                       int first) {
    const int chosen = panel_number(d, group, d->chosen);
    for (int row = 0; row < d->row.slots; row++)
        for (int column = 0; column < d->column.slots; column++) {
            const double at = x + column * CELL_WIDTH, down = y + row * CELL_HEIGHT;
            int rank = first;
            if (line_rank(d, &d->row, row, &rank) && line_rank(d, &d->column, column, &rank)) {
                const int number = panel_number(d, group, rank);
                draw_cell(d, at, down, colour_of(colours, number), number == chosen, rank);
            } else {
                svg_text(d->out, at + CELL_WIDTH / 2 - 4, down + CELL_HEIGHT / 2 + 2, "...");
            }
        }
}

static char *frame_words(const struct drawing *d, int rank) {
    char axes[AXES_TEXT];
    struct text words = {0};
    if (d->outer.axes)
        text_add(&words, "%s %d%s", axes_print(d->outer.axes, axes), mesh_index(&d->view->mesh, rank, d->outer.axes),
                 d->stage.axes ? ", " : "");
    const int stage = mesh_index(&d->view->mesh, rank, AXES_STAGE);
    if (d->stage.axes)
        text_add(&words, "stage %d", stage);
    if (d->stage.axes && frame_width(d) > 110)
        text_add(&words, ": layers %s", d->view->stage[stage].layers);
    return words.length ? words.text : mem_strdup("");
}

static void draw_frame(const struct drawing *d, axis_set group, struct colours *colours, double x, double y, int rank) {
    char *words = frame_words(d, rank);
    svg_length(d->out, "<rect fill=\"none\" stroke=\"#777\" stroke-width=\".8\" x=\"", x);
    svg_length(d->out, "\" y=\"", y);
    svg_length(d->out, "\" width=\"", frame_width(d));
    svg_length(d->out, "\" height=\"", frame_height(d));
    text_add(d->out, "\"/>\n<g font-size=\"9\">");
    svg_text(d->out, x + INSIDE, y + LABEL - 3, words);
    text_add(d->out, "</g>\n");
    draw_cells(d, group, colours, x + INSIDE, y + LABEL + INSIDE, rank);
    free(words);
}

static char *panel_words(const struct drawing *d, axis_set group) {
    char axes[AXES_TEXT];
    return group == AXES_NONE ? mem_strdup("nodes")
                              : mem_printf("%s: %s of %d", axes_print(group, axes),
                                           counted(mesh_group_size(&d->view->mesh, AXES_ALL & ~group), "group").text,
                                           mesh_group_size(&d->view->mesh, group));
}

static void draw_panel(const struct drawing *d, axis_set group, double x, double y) {
    struct colours colours = {0};
    char *words = panel_words(d, group);
    text_add(d->out, "<g font-size=\"11\" font-weight=\"bold\">");
    svg_text(d->out, x, y + LABEL - 2, words);
    text_add(d->out, "</g>\n");
    for (int i = 0; i < d->outer.slots; i++)
        for (int s = 0; s < d->stage.slots; s++) {
            const double at = x + s * (frame_width(d) + GAP), down = y + LABEL + 4 + i * (frame_height(d) + GAP);
            int rank = 0;
            if (line_rank(d, &d->outer, i, &rank) && line_rank(d, &d->stage, s, &rank))
                draw_frame(d, group, &colours, at, down, rank);
            else
                svg_text(d->out, at + frame_width(d) / 2 - 4, down + frame_height(d) / 2, "...");
        }
    free(words);
    VEC_RELEASE(&colours.number);
}

// How far apart panels are: as wide as ranks and words are.
static double panel_pitch(const struct drawing *d, const axis_set *group, int panels) {
    double pitch = d->stage.slots * (frame_width(d) + GAP) + GAP;
    for (int p = 0; p < panels; p++) {
        char *words = panel_words(d, group[p]);
        pitch = MAX(pitch, 7. * (double)strlen(words));
        free(words);
    }
    return pitch + GAP;
}

void mesh_view_draw(const struct mesh_view *view, int rank, const char *title, struct text *out) {
    struct drawing d = {.view = view, .chosen = MAX(rank, 0), .out = out};
    axis_set group[MESH_GROUPS_MAX + 1] = {AXES_NONE};
    const int first = view->node ? 1 : 0, panels = first + mesh_view_groups(view, group + first);
    picture_fold(&d);
    arrange(&d);
    d.digits = snprintf(NULL, 0, "%d", mesh_ranks(&view->mesh) - 1);
    const double pitch = panel_pitch(&d, group, panels), top = 2 * LABEL + 20;
    const double width = MAX(WIDTH, pitch + 2 * EDGE);
    const int across = MAX(1, (int)((width - 2 * EDGE) / pitch)), rows = (panels + across - 1) / across;
    svg_begin(out, width, top + rows * panel_height(&d) + EDGE, EDGE, title);
    char *words =
        mem_printf("In each panel, ranks of one colour are of one group (later groups have the colours again); "
                   "that of rank %d is outlined.",
                   d.chosen);
    text_add(out, "<g font-size=\"10.5\" fill=\"#555\">");
    svg_text(out, EDGE, 36, words);
    text_add(out, "</g>\n");
    free(words);
    for (int p = 0; p < panels; p++)
        draw_panel(&d, group[p], EDGE + p % across * pitch, top + p / across * panel_height(&d));
    svg_end(out);
}
