// Runs a set and the row that it stands for side by side. Extents are small and random: a letter of the row, and what
// of the set's instructions is tied to it by their operands, gets a new one; a dim of which `first` says where the
// rank's part begins is divided among the ranks. Other extents, such as numbers of ranks, stay. Values travel as they
// are, whatever they are narrowed to on the wire, and are exchanged between the ranks in memory. Codes are the values
// that were encoded, with a note of the encoder.
//
// Of a collective each rank has an input of its own; the row is what exchanging these gives. A message that is received
// is the first of its channel that the peer has sent and that nothing else has received.
#include "verify/sets.h"

#include "base/rng.h"
#include "kernels/kernels.h"
#include "program/channels.h"
#include "program/footprint.h"
#include "program/places.h"

#include <math.h>

enum { TRIALS = 3, DRAWS = 64, EXTENT_KEPT_MOST = 64, RANKS_MOST = 2048 };

// What the ranks have of a range of a buffer.
struct value {
    int root;
    int64_t begin, count;   // in the program
    struct operand strided; // an output of the row that is no block; buffer NONE: it is a block
    int ndim;
    int64_t dim[OP_MAX_DIMS], small; // in the trial
    enum op coder;                   // what has encoded it; OP_COUNT: nothing has
    double *data;                    // [ranks][small]
};

// What the ranks have sent of a range of a buffer, until it is received.
struct sent {
    const struct instruction *instruction;
    double *data; // [ranks][of all its values]
    bool taken;
};

struct trial {
    const struct set *set;
    const struct program *program;
    const struct op_table *table;
    const struct op_info *row;
    int ranks;
    uint64_t key, drawn; // of random numbers; how many have been drawn
    bool split[DIM_LETTERS];
    int64_t extent[DIM_LETTERS]; // of the row's letters
    union attribute attribute[OP_MAX_ATTRIBUTES];
    struct tensor in[OP_MAX_IN], out[OP_MAX_OUT]; // of the row; of a collective, what the ranks have, one after another
    VEC(struct value) values;
    VEC(struct sent) sent;
    struct places places; // of rows that attend over parts
    size_t member;
    trireme_error *error;
};

static struct site trial_site(const struct trial *t) {
    const struct set_member *m = &t->set->members.item[t->member];
    return program_site(t->program, t->table, m->template, m->index, NONE);
}

static double draw(struct trial *t) {
    return rng_uniform(t->key, 0, t->drawn++);
}

static int64_t draw_between(struct trial *t, int64_t least, int64_t most) {
    return least + (int64_t)(draw(t) * (double)(most - least + 1));
}

static int64_t elements(int ndim, const int64_t *dim) {
    int64_t n = 1;
    for (int d = 0; d < ndim; d++)
        n *= dim[d];
    return n;
}

// A contiguous tensor; it owns its data.
static struct tensor tensor_new(enum dtype dtype, int ndim, const int64_t *dim) {
    struct tensor tensor = {.dtype = dtype, .ndim = ndim};
    int64_t stride = 1;
    for (int d = ndim; d-- > 0;) {
        tensor.dim[d] = dim[d];
        tensor.stride[d] = stride;
        stride *= dim[d];
    }
    tensor.data = mem_alloc((size_t)(stride * dtype_size(dtype)));
    return tensor;
}

// ---- the row

// What begins somewhere for each rank is divided among them; so are rows that need one another, whatever of them
// travels.
static void find_trial_splits(struct trial *t) {
    if (t->row->together)
        t->split[(int)t->row->together] = true;
    for (size_t k = 0; k < t->set->members.count; k++) {
        const struct instruction *i = t->set->members.item[k].instruction;
        const struct op_info *info = &t->table->op[i->op];
        if (!instruction_input(t->table, i, MEANING_FIRST))
            continue;
        const char begins = info->in[info->input_of[MEANING_FIRST]].begins;
        for (int n = 0; n < i->inputs; n++) {
            const int of = set_row_input(t->set, t->table, i, n);
            for (int d = 0; of != NONE && d < MIN(info->in[n].ndim, t->row->in[of].ndim); d++)
                t->split[(int)t->row->in[of].dim[d]] |=
                    info->in[n].dim[d] == begins && !set_is_internal(t->set, t->program, k, &i->in[n]);
        }
    }
    for (int k = 0; k < t->row->inputs + t->row->outputs; k++) {
        const struct op_operand *operand = op_operand_at(t->row, k);
        for (int d = 0; d < operand->ndim; d++)
            t->split[(int)operand->dim[d]] |= operand->follows[d] && t->split[(int)operand->follows[d]];
    }
}

// Rows that attend over parts: few of them, in the layout of the program, and a window with which as many parts reach
// one another as there.
static trireme_status draw_places(struct trial *t) {
    trireme_error *error = t->error;
    const int parts = op_attribute_find(t->row, "parts"), layout = op_attribute_find(t->row, "layout"),
              window = op_attribute_find(t->row, "window");
    const union attribute *real = t->set->row.attribute;
    if (parts < 0)
        return TRIREME_OK;
    if (real[parts].i != t->ranks)
        REFUSE("%s: stands for a row of %lld parts, but exchanges between %d ranks", trial_site(t).text,
               (long long)real[parts].i, t->ranks);
    t->places =
        (struct places){layout < 0 ? PLACES_CONTIGUOUS : MIN(real[layout].i, draw_between(t, 1, 2)), t->ranks, 0};
    t->places.rows = places_step(t->places.layout) * draw_between(t, 1, 3);
    t->extent['t'] = t->ranks * t->places.rows;
    t->attribute[parts].i = t->ranks;
    if (layout < 0)
        return TRIREME_OK; // neighbours, of which each sees all that come before
    const struct places there = {real[layout].i, t->ranks, t->set->in[0].dim[1]};
    const int64_t reach = places_reach(&there, real[window].i);
    t->attribute[layout].i = t->places.layout;
    t->attribute[window].i = real[window].i ? t->extent['t'] : 0;
    while (t->attribute[window].i > 1 && places_reach(&t->places, t->attribute[window].i) > reach)
        t->attribute[window].i--;
    return TRIREME_OK;
}

// Draws extents and attributes until they meet the row's conditions. Of what a collective gathers or scatters, a rank's
// part has one letter and the whole another.
static trireme_status draw_extents(struct trial *t) {
    trireme_error *error = t->error;
    if (set_communicates(t->set)) {
        const struct op_traffic *traffic = &op_traffic[t->row->op];
        const int64_t part = draw_between(t, 2, 5);
        memcpy(t->attribute, t->set->row.attribute, sizeof t->attribute);
        t->extent[(int)t->row->in[0].dim[0]] = part * (traffic->takes == HOLDING_PART ? 1 : t->ranks);
        t->extent[(int)t->row->out[0].dim[0]] = part * (traffic->gives == HOLDING_PART ? 1 : t->ranks);
        return TRIREME_OK;
    }
    char broken[OP_CONDITION_TEXT];
    for (int attempt = 0; attempt < DRAWS; attempt++) {
        int64_t largest = 1;
        for (int k = 0; k < t->row->inputs + t->row->outputs; k++)
            for (int d = 0; d < op_operand_at(t->row, k)->ndim; d++) {
                const int letter = op_operand_at(t->row, k)->dim[d];
                t->extent[letter] = letter == '1' ? 1 : draw_between(t, 2, 5) * (t->split[letter] ? t->ranks : 1);
                largest = MAX(largest, t->extent[letter]);
            }
        for (int a = 0; a < t->row->attributes; a++) {
            t->attribute[a] = t->set->row.attribute[a];
            if (!t->row->attribute[a].is_float && t->attribute[a].i > 0)
                t->attribute[a].i = draw_between(t, 1, MIN(t->attribute[a].i, largest));
        }
        TRY(draw_places(t));
        if (op_fits(t->row, t->extent, t->attribute, broken))
            return TRIREME_OK;
    }
    REFUSE("%s: no small extents were found for which %s holds, so %s cannot be compared with its set",
           trial_site(t).text, broken, t->row->name);
}

// Where the documents begin that the tokens of each sequence are in.
static void draw_starts(struct trial *t, const struct tensor *starts) {
    const int64_t rows = t->extent['t'];
    int32_t *at = starts->data, *of_place = mem_alloc((size_t)rows * sizeof *of_place);
    for (int64_t b = 0; b < starts->dim[0]; b++, at += rows) {
        for (int64_t place = 1; place < rows; place++)
            of_place[place] = draw(t) < 0.2 ? (int32_t)place : of_place[place - 1];
        for (int64_t row = 0; row < rows; row++)
            at[row] = of_place[place_of(&t->places, row / t->places.rows, row % t->places.rows)];
    }
    free(of_place);
}

static struct tensor row_tensor(const struct trial *t, const struct op_operand *operand) {
    int64_t dim[OP_MAX_DIMS];
    for (int d = 0; d < operand->ndim; d++)
        dim[d] = t->extent[(int)operand->dim[d]] * (set_communicates(t->set) ? t->ranks : 1);
    return tensor_new(operand->dtype == 'I' ? DTYPE_I32 : DTYPE_F64, operand->ndim, dim);
}

static trireme_status draw_inputs(struct trial *t) {
    trireme_error *error = t->error;
    const int vocab = op_attribute_find(t->row, "vocab");
    for (int n = 0; n < t->row->inputs; n++) {
        const struct op_operand *operand = &t->row->in[n];
        if (t->set->in[n].buffer == NONE || n == t->row->input_of[MEANING_FIRST])
            continue;
        if (t->places.parts && operand->dtype == 'I') {
            t->in[n] = row_tensor(t, operand);
            draw_starts(t, &t->in[n]);
            continue;
        }
        bool known =
            operand->dtype == 'I' ? n == t->row->input_of[MEANING_TARGETS] && vocab >= 0 : operand->dtype != 'U';
        if (!known)
            REFUSE("%s: nothing is known of the values of %s, so %s cannot be compared with its set",
                   trial_site(t).text, operand->name, t->row->name);
        t->in[n] = row_tensor(t, operand);
        for (int64_t k = 0; k < elements(t->in[n].ndim, t->in[n].dim); k++)
            if (operand->dtype == 'I')
                ((int32_t *)t->in[n].data)[k] = (int32_t)draw_between(t, -1, t->attribute[vocab].i - 1);
            else
                ((double *)t->in[n].data)[k] = 4 * draw(t) - 2;
    }
    return TRIREME_OK;
}

static trireme_status run_kernel(const struct trial *t, struct call *call) {
    const struct kernel kernel = kernel_find(call->op, DTYPE_F64, KERNELS_REFERENCE);
    call->threads = 1;
    if (kernel.prepare)
        TRY(kernel.prepare(call, &call->prepared, &call->workspace_bytes, t->error));
    call->workspace = call->workspace_bytes ? mem_alloc((size_t)call->workspace_bytes) : NULL;
    kernel.run(call);
    free(call->workspace);
    if (kernel.release)
        kernel.release(call->prepared);
    return TRIREME_OK;
}

// What a rank gets of [ranks][count] elements; `gets` of them.
static void exchange_for(enum op op, bool maximum, int ranks, int rank, int64_t count, int64_t gets, const double *all,
                         double *out) {
    if (op == OP_ALL_GATHER) {
        memcpy(out, all, (size_t)gets * sizeof *out);
        return;
    }
    const int64_t piece = count / ranks;
    if (op == OP_ALL_TO_ALL) {
        for (int r = 0; r < ranks; r++)
            memcpy(out + r * piece, all + r * count + rank * piece, (size_t)piece * sizeof *out);
        return;
    }
    const int64_t from = op == OP_REDUCE_SCATTER ? rank * gets : 0;
    for (int64_t k = 0; k < gets; k++) {
        out[k] = all[from + k];
        for (int r = 1; r < ranks; r++) {
            const double term = all[r * count + from + k];
            out[k] = maximum ? MAX(out[k], term) : out[k] + term;
        }
    }
}

static bool takes_maximum(enum op op, const union attribute *attribute) {
    return op == OP_ALL_REDUCE && attribute[ATTRIBUTE(ALL_REDUCE, max)].i;
}

static void run_trial_collective(struct trial *t) {
    const int64_t count = t->in[0].dim[0] / t->ranks, gets = t->out[0].dim[0] / t->ranks;
    for (int rank = 0; rank < t->ranks; rank++)
        exchange_for(t->row->op, takes_maximum(t->row->op, t->attribute), t->ranks, rank, count, gets, t->in[0].data,
                     (double *)t->out[0].data + rank * gets);
}

static trireme_status run_trial_row(struct trial *t) {
    struct call call = {.op = t->row->op, .inputs = t->row->inputs, .outputs = t->row->outputs};
    memcpy(call.attribute, t->attribute, sizeof call.attribute);
    for (int n = 0; n < t->row->outputs; n++)
        t->out[n] = row_tensor(t, &t->row->out[n]);
    if (set_communicates(t->set)) {
        run_trial_collective(t);
        return TRIREME_OK;
    }
    memcpy(call.in, t->in, sizeof call.in);
    memcpy(call.out, t->out, sizeof call.out);
    return run_kernel(t, &call);
}

// ---- values

static struct value *find_value(struct trial *t, const struct operand *operand) {
    const int root = program_root(t->program, operand->buffer);
    const int64_t begin = program_root_offset(t->program, operand->buffer) + operand->offset;
    for (size_t k = 0; k < t->values.count; k++) {
        struct value *v = &t->values.item[k];
        if (v->root == root && v->begin == begin && v->count == operand_count(operand) &&
            (v->strided.buffer == NONE || operand_equal(&v->strided, operand)))
            return v;
    }
    return NULL;
}

static bool value_overlaps(const struct trial *t, const struct value *value, const struct operand *operand) {
    struct footprint x, y;
    if (value->strided.buffer == NONE)
        return false; // a value that is no block leaves the set, whose blocks are all its own
    return !footprint_of(t->program, &value->strided, &x) || !footprint_of(t->program, operand, &y) ||
           footprint_overlap(&x, &y);
}

static bool is_output(const struct trial *t, const struct operand *operand) {
    for (int n = 0; n < t->row->outputs; n++)
        if (t->set->out[n].buffer != NONE && operand_equal(&t->set->out[n], operand))
            return true;
    return false;
}

// The value that an operand becomes, anew or again.
static trireme_status make_value(struct trial *t, const struct operand *operand, int ndim, const int64_t *dim,
                                 struct value **out) {
    trireme_error *error = t->error;
    const struct operand block = operand_shape(*operand, operand->ndim, operand->dim);
    struct value value = {.root = program_root(t->program, operand->buffer),
                          .begin = program_root_offset(t->program, operand->buffer) + operand->offset,
                          .count = operand_count(operand),
                          .ndim = ndim,
                          .small = elements(ndim, dim),
                          .strided = operand_none(),
                          .coder = OP_COUNT};
    memcpy(value.dim, dim, (size_t)ndim * sizeof *dim);
    const char *name = program_buffer_name(t->program, operand->buffer);
    *out = find_value(t, operand);
    if (*out && (*out)->small != value.small)
        REFUSE("%s: makes %s with other extents than it had", trial_site(t).text, name);
    if (*out)
        return TRIREME_OK;
    const bool strided = !operand_equal(operand, &block);
    if (operand->along || (strided && !is_output(t, operand)))
        REFUSE("%s: %s is no contiguous value of a set", trial_site(t).text, name);
    if (strided)
        value.strided = *operand;
    for (size_t k = 0; k < t->values.count; k++) {
        const struct value *v = &t->values.item[k];
        const bool near =
            v->root == value.root && v->begin < value.begin + value.count && value.begin < v->begin + v->count;
        if (v->root == value.root && (strided ? value_overlaps(t, v, operand) : near))
            REFUSE("%s: makes part of %s, which is a whole to its set", trial_site(t).text, name);
    }
    value.data = mem_alloc((size_t)(t->ranks * value.small) * sizeof *value.data);
    VEC_PUSH(&t->values, value);
    *out = &t->values.item[t->values.count - 1];
    return TRIREME_OK;
}

// The next of the values that lie one after another in the operand, from *at on, which it moves; NULL: none does.
static struct value *next_value(struct trial *t, const struct operand *operand, int64_t *at) {
    const int root = program_root(t->program, operand->buffer);
    const int64_t begin = program_root_offset(t->program, operand->buffer) + operand->offset;
    for (size_t k = 0; k < t->values.count; k++) {
        struct value *v = &t->values.item[k];
        if (v->root == root && v->begin == begin + *at && *at + v->count <= operand_count(operand)) {
            *at += v->count;
            return v;
        }
    }
    return NULL;
}

// Elements of the values that make up an operand; NONE where there are none, or some are missing.
static int64_t small_count(struct trial *t, const struct operand *operand) {
    int64_t small = 0;
    for (int64_t at = 0; at < operand_count(operand);) {
        const struct value *v = next_value(t, operand, &at);
        if (!v)
            return NONE;
        small += v->small;
    }
    return small;
}

// What has encoded the values that make up an operand; OP_COUNT: nothing has, or not all of them.
static enum op coder_of(struct trial *t, const struct operand *operand) {
    enum op coder = OP_COUNT;
    for (int64_t at = 0; at < operand_count(operand);) {
        const bool first = at == 0;
        const struct value *v = next_value(t, operand, &at);
        coder = first || coder == v->coder ? v->coder : OP_COUNT;
    }
    return coder;
}

// Copies one rank's values to or from `flat`.
static void copy_flat(struct trial *t, const struct operand *operand, int rank, double *flat, bool to_flat) {
    for (int64_t at = 0; at < operand_count(operand);) {
        const struct value *v = next_value(t, operand, &at);
        double *data = v->data + rank * v->small;
        const size_t bytes = (size_t)v->small * sizeof *data;
        memcpy(to_flat ? flat : data, to_flat ? data : flat, bytes);
        flat += v->small;
    }
}

// Values are doubles: integers become such, and are what they were where an instruction takes them. One that is NaN
// becomes the least, by which queries see the most: a place where a document begins.
static void integers_from_flat(struct tensor *tensor) {
    const struct tensor flat = *tensor;
    *tensor = tensor_new(DTYPE_I32, flat.ndim, flat.dim);
    for (int64_t k = 0; k < elements(flat.ndim, flat.dim); k++)
        ((int32_t *)tensor->data)[k] = (int32_t)fmax(((const double *)flat.data)[k], 0);
    free(flat.data);
}

static void flat_from_integers(struct tensor *tensor) {
    const struct tensor integers = *tensor;
    *tensor = tensor_new(DTYPE_F64, integers.ndim, integers.dim);
    for (int64_t k = 0; k < elements(integers.ndim, integers.dim); k++)
        ((double *)tensor->data)[k] = ((const int32_t *)integers.data)[k];
    free(integers.data);
}

// ---- members

static trireme_status bind_extent(const struct trial *t, int64_t extent[DIM_LETTERS], int letter, int64_t value) {
    trireme_error *error = t->error;
    if (letter != '1' && extent[letter] >= 0 && extent[letter] != value)
        REFUSE("%s: its %c has one extent by one operand and another by another", trial_site(t).text, letter);
    if (letter == '1' && value != 1)
        REFUSE("%s: takes several elements for one", trial_site(t).text);
    extent[letter] = value;
    return TRIREME_OK;
}

static trireme_status bind_to_row(const struct trial *t, int64_t extent[DIM_LETTERS], const struct op_operand *operand,
                                  const struct op_operand *of) {
    trireme_error *error = t->error;
    if (operand->ndim != of->ndim)
        REFUSE("%s: its %s has other dims than that of %s", trial_site(t).text, operand->name, t->row->name);
    for (int d = 0; d < of->ndim; d++) {
        const int letter = of->dim[d];
        TRY(bind_extent(t, extent, operand->dim[d], t->extent[letter] / (t->split[letter] ? t->ranks : 1)));
    }
    return TRIREME_OK;
}

// Attributes of the row stand in all of its set.
static void member_attributes(const struct trial *t, const struct instruction *i, union attribute *attribute) {
    const struct op_info *info = &t->table->op[i->op];
    memcpy(attribute, i->attribute, sizeof i->attribute);
    for (int a = 0; a < info->attributes; a++) {
        const int of = op_attribute_find(t->row, info->attribute[a].name);
        if (of >= 0)
            attribute[a] = t->attribute[of];
    }
}

// What nothing ties to the row stays as it is, or is what the member's conditions make of all else.
static trireme_status bind_untied(const struct trial *t, const struct instruction *i, const bool *untied,
                                  int64_t extent[DIM_LETTERS]) {
    trireme_error *error = t->error;
    const struct op_info *info = &t->table->op[i->op];
    union attribute attribute[OP_MAX_ATTRIBUTES];
    char broken[OP_CONDITION_TEXT];
    member_attributes(t, i, attribute);
    for (int letter = 0; letter < DIM_LETTERS; letter++) {
        if (!untied[letter])
            continue;
        const int64_t actual = extent[letter];
        for (int64_t other = 1; other <= EXTENT_KEPT_MOST && !op_fits(info, extent, attribute, broken); other++)
            extent[letter] = other;
        if (!op_fits(info, extent, attribute, broken))
            extent[letter] = actual;
        if (extent[letter] > EXTENT_KEPT_MOST)
            REFUSE("%s: nothing ties its %c to %s, and it is too large to be kept", trial_site(t).text, letter,
                   t->row->name);
    }
    return TRIREME_OK;
}

// What letters of a member are in the trial: by the row's operands, by the values that it reads, by conditions.
static trireme_status bind_member(struct trial *t, const struct instruction *i, const bool *internal,
                                  int64_t extent[DIM_LETTERS]) {
    bool untied[DIM_LETTERS] = {false};
    const struct op_info *info = &t->table->op[i->op];
    for (int l = 0; l < DIM_LETTERS; l++)
        extent[l] = -1;
    for (int n = 0; n < info->inputs; n++) {
        const int of = set_row_input(t->set, t->table, i, n);
        const struct value *v = i->in[n].buffer != NONE && internal[n] ? find_value(t, &i->in[n]) : NULL;
        if (i->in[n].buffer != NONE && !internal[n] && of != NONE)
            TRY(bind_to_row(t, extent, &info->in[n], &t->row->in[of]));
        const int last = info->in[n].ndim - 1;
        const bool row = v && v->ndim == 1 && i->in[n].dim[last] == operand_count(&i->in[n]);
        for (int d = 0; v && v->ndim == info->in[n].ndim && d < v->ndim; d++)
            TRY(bind_extent(t, extent, info->in[n].dim[d], v->dim[d]));
        for (int d = 0; row && v->ndim < info->in[n].ndim && d <= last; d++) // all of it is one row
            TRY(bind_extent(t, extent, info->in[n].dim[d], d < last ? 1 : v->small));
    }
    for (int n = 0; n < info->outputs; n++)
        for (int of = 0; of < t->row->outputs && i->out[n].buffer != NONE; of++)
            if (strcmp(t->row->out[of].name, info->out[n].name) == 0 && operand_equal(&t->set->out[of], &i->out[n]) &&
                info->out[n].ndim == t->row->out[of].ndim)
                TRY(bind_to_row(t, extent, &info->out[n], &t->row->out[of]));
    for (int k = 0; k < info->inputs + info->outputs; k++)
        for (int d = 0; d < op_operand_at(info, k)->ndim && instruction_operand_at(i, k)->buffer != NONE; d++) {
            const int letter = op_operand_at(info, k)->dim[d];
            const int64_t actual = instruction_operand_at(i, k)->dim[d];
            if (extent[letter] >= 0)
                continue;
            extent[letter] = actual;
            untied[letter] = true;
        }
    return bind_untied(t, i, untied, extent);
}

// A rank's block of an input of the row.
static struct tensor block_of(const struct trial *t, int of, int rank) {
    const struct tensor *whole = &t->in[of];
    int64_t dim[OP_MAX_DIMS], from = 0;
    if (set_communicates(t->set)) {
        const int64_t own = whole->dim[0] / t->ranks;
        struct tensor block = tensor_new(DTYPE_F64, 1, &own);
        memcpy(block.data, (const double *)whole->data + rank * own, (size_t)own * sizeof(double));
        return block;
    }
    for (int d = 0; d < whole->ndim; d++) {
        const bool split = t->split[(int)t->row->in[of].dim[d]];
        dim[d] = whole->dim[d] / (split ? t->ranks : 1);
        from += split ? rank * dim[d] * whole->stride[d] : 0;
    }
    struct tensor block = tensor_new(whole->dtype, whole->ndim, dim);
    const int64_t size = dtype_size(whole->dtype);
    for (int64_t k = 0; k < elements(block.ndim, block.dim); k++) {
        int64_t at = from;
        for (int d = 0; d < block.ndim; d++)
            at += k / block.stride[d] % block.dim[d] * whole->stride[d];
        memcpy((char *)block.data + k * size, (const char *)whole->data + at * size, (size_t)size);
    }
    return block;
}

static trireme_status member_input(struct trial *t, const struct instruction *i, int n, bool internal,
                                   const int64_t extent[DIM_LETTERS], int rank, struct tensor *out) {
    trireme_error *error = t->error;
    const struct op_info *info = &t->table->op[i->op];
    int64_t dim[OP_MAX_DIMS];
    for (int d = 0; d < info->in[n].ndim; d++)
        dim[d] = info->in[n].dim[d] == '1' ? 1 : extent[(int)info->in[n].dim[d]];
    if (!internal && n == info->input_of[MEANING_FIRST]) {
        *out = tensor_new(DTYPE_I32, info->in[n].ndim, dim);
        *(int32_t *)out->data = (int32_t)(rank * MAX(extent[(int)info->in[n].begins], 0));
        return TRIREME_OK;
    }
    if (!internal) {
        *out = block_of(t, set_row_input(t->set, t->table, i, n), rank);
        return TRIREME_OK;
    }
    const int64_t small = small_count(t, &i->in[n]);
    if (info->in[n].dtype == 'U' || small != elements(info->in[n].ndim, dim))
        REFUSE("%s: its %s is not a value that its set has made", trial_site(t).text, info->in[n].name);
    if (coder_of(t, &i->in[n]) != OP_COUNT)
        REFUSE("%s: takes codes of %s as its %s", trial_site(t).text, t->table->op[coder_of(t, &i->in[n])].name,
               info->in[n].name);
    *out = tensor_new(DTYPE_F64, info->in[n].ndim, dim);
    copy_flat(t, &i->in[n], rank, out->data, true);
    if (info->in[n].dtype == 'I')
        integers_from_flat(out);
    return TRIREME_OK;
}

static trireme_status run_member_of(struct trial *t, const struct instruction *i, const bool *internal,
                                    const int64_t extent[DIM_LETTERS], int rank, struct call *call) {
    trireme_error *error = t->error;
    const struct op_info *info = &t->table->op[i->op];
    char broken[OP_CONDITION_TEXT];
    member_attributes(t, i, call->attribute);
    if (!op_fits(info, extent, call->attribute, broken))
        REFUSE("%s: %s does not hold for small extents", trial_site(t).text, broken);
    for (int n = 0; n < info->inputs; n++)
        if (i->in[n].buffer != NONE)
            TRY(member_input(t, i, n, internal[n], extent, rank, &call->in[n]));
    struct value *made[OP_MAX_OUT] = {NULL};
    for (int n = 0; n < info->outputs; n++) {
        int64_t dim[OP_MAX_DIMS];
        for (int d = 0; d < info->out[n].ndim; d++)
            dim[d] = info->out[n].dim[d] == '1' ? 1 : extent[(int)info->out[n].dim[d]];
        if (i->out[n].buffer == NONE)
            continue;
        if (info->out[n].dtype == 'U')
            REFUSE("%s: its %s is no number that could be compared", trial_site(t).text, info->out[n].name);
        TRY(make_value(t, &i->out[n], info->out[n].ndim, dim, &made[n]));
        call->out[n] = tensor_new(info->out[n].dtype == 'I' ? DTYPE_I32 : DTYPE_F64, info->out[n].ndim, dim);
    }
    TRY(run_kernel(t, call));
    for (int n = 0; n < info->outputs; n++) {
        if (i->out[n].buffer == NONE)
            continue;
        if (info->out[n].dtype == 'I')
            flat_from_integers(&call->out[n]);
        copy_flat(t, &i->out[n], rank, call->out[n].data, false);
    }
    return TRIREME_OK;
}

static trireme_status run_member(struct trial *t, const struct instruction *i) {
    bool internal[OP_MAX_IN] = {false};
    int64_t extent[DIM_LETTERS];
    trireme_status status = TRIREME_OK;
    for (int n = 0; n < i->inputs; n++)
        internal[n] = i->in[n].buffer != NONE && set_is_internal(t->set, t->program, t->member, &i->in[n]);
    TRY(bind_member(t, i, internal, extent));
    for (int rank = 0; rank < t->ranks && status == TRIREME_OK; rank++) {
        struct call call = {.op = i->op, .inputs = i->inputs, .outputs = i->outputs};
        status = run_member_of(t, i, internal, extent, rank, &call);
        for (int n = 0; n < i->inputs; n++)
            free(call.in[n].data);
        for (int n = 0; n < i->outputs; n++)
            free(call.out[n].data);
    }
    return status;
}

// ---- codecs

// The decoder makes of codes the values that its encoder was given.
static trireme_status run_codec(struct trial *t, const struct instruction *i) {
    trireme_error *error = t->error;
    const struct op_info *info = &t->table->op[i->op];
    const struct operand *in = &i->in[0], *out = &i->out[0];
    const bool internal = set_is_internal(t->set, t->program, t->member, in), encodes = info->role == ROLE_ENCODE;
    const int64_t count = internal ? small_count(t, in) : t->extent[(int)t->row->in[0].dim[0]];
    if (count == NONE || (!internal && (!encodes || !set_communicates(t->set))))
        REFUSE("%s: its %s is not a value that its set has made", trial_site(t).text, info->in[0].name);
    const enum op coder = internal ? coder_of(t, in) : OP_COUNT;
    if (encodes && coder != OP_COUNT)
        REFUSE("%s: encodes codes of %s", trial_site(t).text, t->table->op[coder].name);
    if (!encodes && (coder == OP_COUNT || t->table->op[coder].decoder != i->op))
        REFUSE("%s: decodes %s, which is not made by its encoder", trial_site(t).text,
               program_buffer_name(t->program, in->buffer));
    struct value *made;
    TRY(make_value(t, out, 1, &count, &made));
    made->coder = encodes ? i->op : OP_COUNT;
    double *flat = mem_alloc((size_t)count * sizeof *flat);
    for (int rank = 0; rank < t->ranks; rank++) {
        if (internal)
            copy_flat(t, in, rank, flat, true);
        else
            memcpy(flat, (const double *)t->in[0].data + rank * count, (size_t)count * sizeof *flat);
        copy_flat(t, out, rank, flat, false);
    }
    free(flat);
    return TRIREME_OK;
}

// ---- exchange

// The values that an exchange makes: pieces stand for themselves, so that they may be used one by one.
static trireme_status make_exchanged(struct trial *t, const struct operand *out, int pieces, int64_t gets,
                                     enum op coder) {
    trireme_error *error = t->error;
    const struct operand block = operand_shape(*out, out->ndim, out->dim);
    struct operand piece = operand_shape(*out, 1, (int64_t[]){operand_count(out)});
    piece.dim[0] /= pieces;
    if (operand_count(out) % pieces || !operand_equal(out, &block))
        REFUSE("%s: %s does not lie in pieces", trial_site(t).text, program_buffer_name(t->program, out->buffer));
    const int64_t small = gets / pieces;
    for (int k = 0; k < pieces; k++, piece.offset += piece.dim[0]) {
        struct value *made;
        TRY(make_value(t, &piece, 1, &small, &made));
        made->coder = coder;
    }
    return TRIREME_OK;
}

// One value of each rank, one after another, is a value whose outermost dim is as much longer.
static trireme_status make_gathered(struct trial *t, const struct operand *out, const struct value *of) {
    const enum op coder = of->coder;
    int64_t dim[OP_MAX_DIMS];
    const int ndim = of->ndim;
    memcpy(dim, of->dim, sizeof dim);
    dim[0] *= t->ranks;
    struct value *made;
    TRY(make_value(t, out, ndim, dim, &made));
    made->coder = coder;
    return TRIREME_OK;
}

static trireme_status run_send(struct trial *t, const struct instruction *i) {
    trireme_error *error = t->error;
    const int64_t count = small_count(t, &i->in[0]);
    if (count == NONE || !set_is_internal(t->set, t->program, t->member, &i->in[0]))
        REFUSE("%s: does not send values that its set has made", trial_site(t).text);
    struct sent sent = {i, mem_alloc((size_t)(t->ranks * count) * sizeof(double)), false};
    for (int rank = 0; rank < t->ranks; rank++)
        copy_flat(t, &i->in[0], rank, sent.data + rank * count, true);
    VEC_PUSH(&t->sent, sent);
    return TRIREME_OK;
}

static bool is_other_end(const struct trial *t, const struct instruction *a, const struct instruction *b) {
    const int size = mesh_group_size(&t->program->mesh, a->group);
    return a->group == b->group && a->open == b->open &&
           (a->open ? a->peer + b->peer : (a->peer + b->peer) % size) == 0;
}

// The rank at the other end, along the message's group, of one of the ranks of the set's; NONE: there is none.
static int other_rank(const struct trial *t, const struct instruction *i, int rank) {
    const struct mesh *mesh = &t->program->mesh;
    const int here = mesh_member(mesh, 0, t->set->group, rank);
    if (!message_is_of(mesh, i, here))
        return NONE;
    return mesh_index(mesh, mesh_peer(mesh, here, i->group, i->peer), t->set->group);
}

// What is received is what the rank on the other side was the first to send of what has not been received: the same
// values, which lie alike. A rank that receives nothing has NaN, so that nothing is right that is made of it.
static trireme_status run_receive(struct trial *t, const struct instruction *i) {
    trireme_error *error = t->error;
    const struct operand *out = &i->out[0];
    size_t k = 0;
    while (k < t->sent.count &&
           (t->sent.item[k].taken || !is_other_end(t, t->sent.item[k].instruction, i) ||
            stream_channel(t->program, t->sent.item[k].instruction->stream) != stream_channel(t->program, i->stream)))
        k++;
    if (k == t->sent.count || operand_count(&t->sent.item[k].instruction->in[0]) != operand_count(out))
        REFUSE("%s: nothing like %s was sent to it", trial_site(t).text, program_buffer_name(t->program, out->buffer));
    struct sent *sent = &t->sent.item[k];
    const struct operand *in = &sent->instruction->in[0];
    const int64_t count = small_count(t, in);
    for (int64_t at = 0; at < operand_count(in);) {
        struct operand piece = operand_shape(*out, 1, (int64_t[]){operand_count(out)});
        piece.offset += at;
        const struct value from = *next_value(t, in, &at);
        piece.dim[0] = from.count;
        struct value *made;
        TRY(make_value(t, &piece, from.ndim, from.dim, &made));
        made->coder = from.coder;
    }
    double *nothing = mem_alloc((size_t)count * sizeof *nothing);
    for (int64_t n = 0; n < count; n++)
        nothing[n] = NAN;
    for (int rank = 0; rank < t->ranks; rank++) {
        const int other = other_rank(t, i, rank);
        copy_flat(t, out, rank, other == NONE ? nothing : sent->data + other * count, false);
    }
    free(nothing);
    sent->taken = true;
    return TRIREME_OK;
}

static trireme_status run_exchange(struct trial *t, const struct instruction *i) {
    trireme_error *error = t->error;
    if (op_is_message(i->op))
        return op_gives_away(i->op) ? run_send(t, i) : run_receive(t, i);
    if (i->op != OP_ALL_REDUCE && i->op != OP_ALL_GATHER && i->op != OP_REDUCE_SCATTER && i->op != OP_ALL_TO_ALL)
        REFUSE("%s: no set is known to exchange so", trial_site(t).text);
    const struct operand *in = &i->in[0], *out = &i->out[0];
    const int64_t count = small_count(t, in);
    const bool cuts = i->op == OP_REDUCE_SCATTER || i->op == OP_ALL_TO_ALL;
    if (count == NONE || !set_is_internal(t->set, t->program, t->member, in) || (cuts && count % t->ranks) ||
        instruction_is_pair(i))
        REFUSE("%s: does not exchange values that its set has made", trial_site(t).text);
    const enum op coder = coder_of(t, in);
    if (coder != OP_COUNT && op_traffic[i->op].takes == HOLDING_SUM)
        REFUSE("%s: adds up codes of %s", trial_site(t).text, t->table->op[coder].name);
    const int64_t gets = i->op == OP_ALL_GATHER       ? count * t->ranks
                         : i->op == OP_REDUCE_SCATTER ? count / t->ranks
                                                      : count;
    if (small_count(t, out) != gets)
        TRY(i->op == OP_ALL_GATHER && find_value(t, in)
                ? make_gathered(t, out, find_value(t, in))
                : make_exchanged(t, out, i->op == OP_ALL_TO_ALL ? t->ranks : 1, gets, coder));
    const bool maximum = takes_maximum(i->op, i->attribute);
    double *all = mem_alloc((size_t)(t->ranks * count) * sizeof *all), *got = mem_alloc((size_t)gets * sizeof *got);
    for (int rank = 0; rank < t->ranks; rank++)
        copy_flat(t, in, rank, all + rank * count, true);
    for (int rank = 0; rank < t->ranks; rank++) {
        exchange_for(i->op, maximum, t->ranks, rank, count, gets, all, got);
        copy_flat(t, out, rank, got, false);
    }
    free(all);
    free(got);
    return TRIREME_OK;
}

// ---- comparison

static bool is_near(double got, double expected) {
    return fabs(got - expected) <= 1e-9 * (1 + fabs(expected));
}

// Whether each rank has what the collective gives it.
static trireme_status compare_exchanged(struct trial *t) {
    trireme_error *error = t->error;
    const int64_t gets = t->out[0].dim[0] / t->ranks;
    bool same = small_count(t, &t->set->out[0]) == gets && coder_of(t, &t->set->out[0]) == OP_COUNT;
    double *got = mem_alloc((size_t)gets * sizeof *got);
    for (int rank = 0; rank < t->ranks && same; rank++) {
        copy_flat(t, &t->set->out[0], rank, got, true);
        for (int64_t k = 0; k < gets; k++)
            same &= is_near(got[k], ((const double *)t->out[0].data)[rank * gets + k]);
    }
    free(got);
    if (!same)
        REFUSE("%s: its set does not make the %s of %s", trial_site(t).text, t->row->out[0].name, t->row->name);
    return TRIREME_OK;
}

// Whether each rank has its block of the row's output, all of it, or a term of it.
static trireme_status compare_output(struct trial *t, int n) {
    trireme_error *error = t->error;
    const struct tensor *whole = &t->out[n];
    const struct value *v = find_value(t, &t->set->out[n]);
    int64_t dim[OP_MAX_DIMS];
    bool split = false;
    for (int d = 0; d < whole->ndim; d++) {
        const bool here = t->split[(int)t->row->out[n].dim[d]];
        dim[d] = whole->dim[d] / (here ? t->ranks : 1);
        split |= here;
    }
    bool same = v && v->small == elements(whole->ndim, dim), sum = same && !split;
    for (int64_t k = 0; (same || sum) && k < v->small; k++) {
        double total = 0;
        int64_t at = 0;
        for (int rank = 0; rank < t->ranks; rank++) {
            int64_t rest = k;
            at = 0;
            for (int d = whole->ndim; d-- > 0; rest /= dim[d])
                at += (rest % dim[d] + (dim[d] < whole->dim[d] ? rank * dim[d] : 0)) * whole->stride[d];
            const double got = v->data[rank * v->small + k];
            same &= is_near(got, ((const double *)whole->data)[at]);
            total += got;
        }
        sum &= is_near(total, ((const double *)whole->data)[at]);
    }
    if (!same && !sum)
        REFUSE("%s: its set does not make the %s of %s", trial_site(t).text, t->row->out[n].name, t->row->name);
    return TRIREME_OK;
}

static trireme_status trial_run(struct trial *t) {
    trireme_error *error = t->error;
    if (t->ranks > RANKS_MOST)
        REFUSE("%s: its set exchanges between %d ranks, more than the %d that can be compared", trial_site(t).text,
               t->ranks, RANKS_MOST);
    find_trial_splits(t);
    TRY(draw_extents(t));
    TRY(draw_inputs(t));
    TRY(run_trial_row(t));
    for (t->member = 0; t->member < t->set->members.count; t->member++) {
        const struct instruction *i = t->set->members.item[t->member].instruction;
        const enum op_role role = t->table->op[i->op].role;
        TRY(role == ROLE_COMMUNICATION                   ? run_exchange(t, i)
            : role == ROLE_ENCODE || role == ROLE_DECODE ? run_codec(t, i)
                                                         : run_member(t, i));
    }
    t->member = 0;
    if (set_communicates(t->set))
        return compare_exchanged(t);
    for (int n = 0; n < t->row->outputs; n++)
        if (t->set->out[n].buffer != NONE)
            TRY(compare_output(t, n));
    return TRIREME_OK;
}

static trireme_status set_try(const struct set *set, const struct program *p, const struct op_table *table,
                              uint64_t key, trireme_error *error) {
    struct trial t = {.set = set,
                      .program = p,
                      .table = table,
                      .row = &table->op[set->row.op],
                      .ranks = mesh_group_size(&p->mesh, set->group),
                      .key = key,
                      .error = error};
    trireme_status status = trial_run(&t);
    for (int n = 0; n < OP_MAX_IN; n++)
        free(t.in[n].data);
    for (int n = 0; n < OP_MAX_OUT; n++)
        free(t.out[n].data);
    for (size_t k = 0; k < t.values.count; k++)
        free(t.values.item[k].data);
    for (size_t k = 0; k < t.sent.count; k++)
        free(t.sent.item[k].data);
    VEC_RELEASE(&t.values);
    VEC_RELEASE(&t.sent);
    return status;
}

// ---- sets that are made alike

// How a set is made: its instructions, and for each of their operands which of the set's ranges it is.
static char *describe_set(const struct set *set, const struct program *p, const struct op_table *table) {
    struct text text = {0};
    VEC(struct operand) seen = {0};
    text_add(&text, "%s", table->op[set->row.op].name);
    for (int a = 0; a < OP_MAX_ATTRIBUTES && table->op[set->row.op].together; a++)
        text_add(&text, " %lld", (long long)set->row.attribute[a].i);
    for (size_t k = 0; k < set->members.count; k++) {
        const struct instruction *i = set->members.item[k].instruction;
        const struct op_info *info = &table->op[i->op];
        text_add(&text, ";%s %d%s %u", info->name, i->peer, i->open ? " open" : "", (unsigned)i->group);
        for (int a = 0; a < info->attributes; a++)
            if (op_attribute_find(&table->op[set->row.op], info->attribute[a].name) < 0)
                text_add(&text, " %lld", (long long)i->attribute[a].i);
        for (int n = 0; n < i->inputs + i->outputs; n++) {
            struct operand operand = *instruction_operand_at(i, n);
            if (operand.buffer == NONE) {
                text_add(&text, " -");
                continue;
            }
            operand.offset += program_root_offset(p, operand.buffer);
            operand.buffer = program_root(p, operand.buffer);
            size_t which = 0;
            while (which < seen.count && !operand_equal(&seen.item[which], &operand))
                which++;
            if (which == seen.count)
                VEC_PUSH(&seen, operand);
            text_add(&text, " %zu", which);
            for (int d = 0; d < operand.ndim; d++)
                text_add(&text, ",%lld", (long long)MIN(operand.dim[d], EXTENT_KEPT_MOST + 1));
        }
    }
    for (int n = 0; n < OP_MAX_OUT; n++)
        text_add(&text, " %d", set->out[n].buffer != NONE);
    VEC_RELEASE(&seen);
    return text.text;
}

trireme_status verify_sets(const struct sets *sets, const struct program *p, const struct op_table *table,
                           trireme_error *error) {
    VEC(char *) tried = {0};
    trireme_status status = TRIREME_OK;
    for (size_t k = 0; k < sets->count && status == TRIREME_OK; k++) {
        char *how = describe_set(&sets->item[k], p, table);
        bool known = false;
        for (size_t n = 0; n < tried.count && !known; n++)
            known = strcmp(tried.item[n], how) == 0;
        VEC_PUSH(&tried, how);
        for (int trial = 0; trial < TRIALS && !known && status == TRIREME_OK; trial++)
            status = set_try(&sets->item[k], p, table, rng_stream(how) + (uint64_t)trial, error);
    }
    for (size_t n = 0; n < tried.count; n++)
        free(tried.item[n]);
    VEC_RELEASE(&tried);
    return status;
}
