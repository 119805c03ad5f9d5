// program/: the step program: what a rank does in one step, as data. Instruction and buffer tables, the table of ops,
// the text form, and the first check of a program: that its tables are well formed. Knows ops by their rows and streams
// by their names, but no kernel, no MPI and no model. Includes base/ and mesh/ only. Addresses come from memory/,
// proofs from verify/.
//
// A program is a set of *templates* (straight lists of instructions: one per phase and chunk) and a *schedule* that
// invokes them with a microbatch. A *chunk* is the part of the model that a microbatch passes through at a time: all of
// the rank's model, or one of the virtual stages that a rank of a pipeline has. Activations of a microbatch stay in a
// *slot* from its first pass through the chunk to its last; a *pool* is a number of slots, with the slot that each
// microbatch has. A template lists its instructions in an order in which they may be run one by one; instructions on
// different streams may overlap where no wait or stream order forbids it.
//
// A *buffer* is a name for memory. Its scope says how often it exists and where:
//   STATE       once, in the `state` arena, which programs share and which is kept between steps (state/state_table.h)
//   STEP        once per step, in the `step` arena, for the whole step
//   MICROBATCH  one instance per microbatch, for the whole step (inputs that the host writes before the step)
//   SLOT        one instance per slot of its pool; from first write to last read, across the templates of a microbatch
//   LOCAL       inside one invocation of one template
// A buffer with a parent is a contiguous slice of it (a tensor of a flat parameter unit, some rows of an activation).
// A buffer with an *extent* has as many indices of its first dim, its rows, as a scalar buffer says at run time; its
// own dims are those of the most that there may be, for which memory is planned. What lies behind the last row is
// neither written nor read. All that touches such a buffer also reads its extent. An *operand* is a strided view of a
// buffer. Ranks that differ only by coordinates run the same program: a view may therefore begin where the rank's index
// in a group says, and a peer is given by its distance along an axis.
//
// A buffer lies in a *space* (spaces.def): in the memory that kernels compute in, or elsewhere.
//
// Addresses (bytes), filled by program_plan, except those of STATE buffers. Each space has a state and a step arena:
//   step arena = [ fixed: STEP and MICROBATCH | scratch: LOCAL | slots of pool 0 | slots of pool 1 | ... ]; with one
//   slot in all, scratch and the slot share one region planned together. A buffer's offset counts from the start of the
//   state arena, of the step arena, of scratch or of its slot.
//   Where what a microbatch holds changes over time (backward in two parts, several chunks), slots of one size would
//   waste memory. There a pool has *parts*: buffers with slots of their own, which lie in scratch, each where it fits
//   while its microbatch uses it. Only what messages touch stays in the pool itself, or has one slot for all. Parts
//   are of the first space alone.
#ifndef PROGRAM_PROGRAM_H
#define PROGRAM_PROGRAM_H

#include "base/text.h"
#include "mesh/mesh.h"
#include "program/operands.h"
#include "program/ops.h"

enum { NONE = -1 };

enum buffer_kind {
    KIND_INPUT,  // written by the host before the program starts
    KIND_OUTPUT, // read by the host after it ends
    KIND_PARAM,  // parameters and constants of the model
    KIND_GRAD,   // accumulated gradients of parameters
    KIND_OPTIM,  // optimizer state
    KIND_CACHE,  // keys and values of generation
    KIND_ACT,    // activations and their gradients
    KIND_WORK,   // workspace of one instruction
    KIND_COUNT
};

enum buffer_scope { SCOPE_STATE, SCOPE_STEP, SCOPE_MICROBATCH, SCOPE_SLOT, SCOPE_LOCAL, SCOPE_COUNT };

enum memory_space {
#define SPACE(symbol, name, addressable) SPACE_##symbol,
#include "program/spaces.def"
#undef SPACE
    SPACE_COUNT
};
struct space_info {
    const char *name;
    bool addressable;
};
extern const struct space_info memory_spaces[SPACE_COUNT];

enum { BUFFER_ALIGNMENT = 64 }; // bytes: every root buffer's offset is a multiple of it

struct buffer {
    char *name; // unique in the program
    enum dtype dtype;
    enum buffer_kind kind;
    enum buffer_scope scope;
    enum memory_space space; // a slice's is its parent's
    int ndim;
    int64_t dim[OP_MAX_DIMS];
    int parent;            // NONE, or the buffer that this is a slice of
    int64_t parent_offset; // elements
    int gradient_of;       // NONE, or the buffer whose gradient this holds
    int recomputes;        // NONE, or the buffer whose value this holds once more
    char as[12];           // the only operand of ops.def's rows that it may be used as ("m"); empty: it may be any
    int pool;              // SLOT: the pool whose slots it is in
    int belongs_to;        // OPTIM: the parameters whose state this is, NONE for what all updates share
    int extent;            // NONE, or one i32: how many rows there are, up to dim[0]
    int64_t expect;        // with `extent`: how many there usually are, for times and operations; else dim[0]
    int64_t offset;        // bytes (see above); -1 until planned
    // STATE: between steps only the rank's own part of the buffer is current, by its index along these axes; a step has
    // to gather the rest before it reads it (AXES_NONE: all of it is current).
    axis_set own;
    // What ranks along each axis hold (PLACE_*), for buffers that no instruction of this program writes first: inputs,
    // parameters, states, what is received. For the others it follows from the rows of ops.def.
    int8_t placement[AXIS_COUNT];
};

// Along one axis: every rank has the same (0), rank i has the i-th part along a dim (1 + dim), or the value is the sum
// or the maximum of what the ranks have. OneFlow's SBP (Yuan et al. 2021, section 3.1). Along AXES_OWN a buffer may
// also be each stage's or island's own, part of no whole (PLACE_OWN).
enum { PLACE_REPLICATE = 0, PLACE_SUM = -1, PLACE_MAX = -2, PLACE_OWN = -3 };
#define PLACE_SHARD(dim) ((int8_t)(1 + (dim)))

struct operand {
    int buffer;     // NONE for an absent optional operand
    int64_t offset; // elements
    int ndim;
    int64_t dim[OP_MAX_DIMS], stride[OP_MAX_DIMS]; // elements
    axis_set along;                                // with `step`: the view begins index * step elements further on,
    int64_t step;                                  // where index is the rank's in its group along these axes
};

// Whether an instruction adds its outputs to what is there.
enum accumulate {
    ACCUMULATE_NO,
    ACCUMULATE_YES,
    ACCUMULATE_AFTER_FIRST // overwrite in invocations that are `first`, add in the others
};

// In which invocations of its template an instruction runs; it is skipped in the others. Work that differs in the last
// invocation is two neighbouring instructions with the same outputs: WHEN_NOT_LAST, then WHEN_LAST.
enum when { WHEN_ALWAYS, WHEN_LAST, WHEN_NOT_LAST, WHEN_COUNT };

enum phase { PHASE_INPUT, PHASE_FORWARD, PHASE_BACKWARD, PHASE_WEIGHT, PHASE_OPTIMIZER, PHASE_COUNT };

// Each stream runs in order. Communication has streams of its own, so that it may run beside arithmetic. A program
// lists its streams; whoever adds communication declares the stream that it goes on (program_stream). All programs of a
// run have the same list, so that a number means one stream on all ranks. The first is compute.
//
// Messages between ranks travel on *channels*. Each end of a channel is a stream, so that a message that is not taken
// yet does not keep others from coming in: the one that receives follows the one that sends.
enum { STREAM_COMPUTE, STREAMS_MAX = 24, STREAM_NAME = 24 }; // names: bytes, with the 0

enum stream_property {
    STREAM_PROMPT = 1 << 0,   // compute has little else to do than to wait for what is on it
    STREAM_BULK = 1 << 1,     // what replicas exchange: with others of this kind, it shares links rather than overlaps
    STREAM_LINGERS = 1 << 2,  // other templates may wait for it: what it touches may need memory of its own
    STREAM_APART = 1 << 3,    // what it makes for a microbatch is for that microbatch alone to wait for (WAIT_OWN)
    STREAM_SENDS = 1 << 4,    // an end of a channel,
    STREAM_RECEIVES = 1 << 5, // and the other one
    STREAM_PROPERTIES = 6
};

struct stream {
    char *name;
    unsigned properties;
};

// Waits (struct instruction): how many of a stream's latest instructions one may leave out; the one for what earlier
// invocations have done for the same microbatch; and the one for the microbatch that had the slot before.
enum { WAIT_MAX_LAG = 1 << 14, WAIT_OWN = UINT16_MAX - 1, WAIT_SLOT = UINT16_MAX };

struct instruction {
    enum op op;
    enum phase phase;
    int layer; // NONE outside layers
    int stream;
    enum accumulate accumulate;
    int inputs, outputs;
    // Owned by the program. A copy of an instruction shares them: if both stay and the operands of one are to change,
    // it must first be given its own (program_give_operands).
    struct operand *in, *out;
    enum when when;
    axis_set group; // communication: between the ranks of this group
    // The distance to another rank: its coordinate along the group's one axis minus this rank's, wrapping around. send,
    // receive: to the other end; reduce, broadcast: to the root; other communication: to the one rank of the group that
    // takes part besides this one, or 0: all do.
    int peer;
    // Of messages: the distance does not wrap around. A rank whose peer would lie beyond the ends of the group sends
    // nothing, or receives nothing and must not look at what it would have.
    bool open;
    int workspace; // NONE, or a LOCAL buffer of kind WORK that only this instruction uses
    union attribute attribute[OP_MAX_ATTRIBUTES];
    int predicate; // NONE, or an i32[1] buffer: the instruction is skipped where it holds 0
    int set;       // 0, or the number of the set of instructions that it belongs to, which together stand for a row
    enum op stands_for; // in a set: that row
    int passes;         // 0, or 1 + the input whose value the first output has where the instruction is skipped
    // What of each stream must be done before this instruction begins. 0: nothing. 1 + k: all of the stream's
    // instructions that come before this one in the order of schedule and list, except the last k. WAIT_OWN: all up to
    // the end of the latest earlier invocation for the same microbatch whose template has some of them. WAIT_SLOT: all
    // up to the end of the last invocation for the microbatch that had this one's slot before, in the first output's
    // pool; only templates of the pool's chunk that use the pool count.
    uint16_t wait[STREAMS_MAX];
};

// Whether a wait is for all of a stream's instructions so far, but the last wait_lag ones; and such a wait. One that
// would leave out more than WAIT_MAX_LAG leaves out so many: it waits for more than it must.
static inline bool wait_counts(int wait) {
    return wait > 0 && wait < WAIT_OWN;
}
static inline int wait_lag(int wait) {
    return wait - 1;
}
static inline uint16_t wait_for_all_but(int lag) {
    return (uint16_t)(1 + MIN(lag, WAIT_MAX_LAG));
}

struct template {
    char *name;
    enum phase phase;
    int chunk;
    VEC(struct instruction) instructions;
};

struct invocation {
    int template;
    int microbatch;   // NONE: the template sees all microbatches at once
    bool first, last; // it is the first, the last, of the step's microbatches in this chunk and phase
};

struct pool {
    int chunk;   // whose passes take and leave its slots; pool c is chunk c's own
    int part_of; // NONE, or the pool some of whose buffers have slots of their own here: made by program_plan
    int slots;
    int *slot; // [microbatches]: the slot of each
    // [slots]: bytes from the start of each space's step arena, filled by program_plan
    int64_t *base[SPACE_COUNT];
};

// The arenas of one space: sizes in bytes, and where in the step arena scratch begins.
struct arena {
    int64_t state_bytes, fixed_bytes, scratch_base, scratch_bytes, step_bytes;
};

// The loss of a step is the sum of its terms: the mean of a term's losses over its targets, times its weight. A term
// is known by its scale, weight / targets, which multiplies its losses and their gradients.
struct loss_term {
    int scale; // buffer
    double weight;
};

struct program {
    char *name; // train, evaluate, ...
    struct mesh mesh;
    int microbatches;
    VEC(struct stream) streams; // at least compute
    VEC(struct pool) pools;     // at least one
    VEC(struct buffer) buffers;
    VEC(struct loss_term) terms;
    int sets; // the largest number of a set
    VEC(struct template) templates;
    VEC(struct invocation) schedule;
    // Operands of instructions, in blocks that never move; the last block has room for `operands_left` more.
    VEC(struct operand *) operands;
    size_t operands_left;
    struct arena arena[SPACE_COUNT]; // filled by program_plan
    bool hurried; // a search that takes long, and may find a smaller plan, was left out (program_shrink)
};

// The instructions of all templates, in the order of the tables; `break` only leaves the template at hand.
#define FOR_INSTRUCTIONS(i, program)                                                   \
    for (size_t t_##i = 0; t_##i < (program)->templates.count; t_##i++)                \
        for (const struct instruction *i = TEMPLATE_INSTRUCTIONS(program, t_##i).item; \
             i && i < TEMPLATE_INSTRUCTIONS(program, t_##i).item + TEMPLATE_INSTRUCTIONS(program, t_##i).count; i++)
#define TEMPLATE_INSTRUCTIONS(program, t) ((program)->templates.item[t].instructions)

// Makes an empty program with one chunk, whose pool has one slot.
void program_init(struct program *program, const char *name, int microbatches);
void program_release(struct program *program);

// ---- streams

// Declares a stream, or finds the one of that name, which must have the same properties; returns its number.
int program_stream(struct program *program, const char *name, unsigned properties);
// The same for a channel: returns the stream that sends; the next one receives.
int program_channel(struct program *program, const char *sends, const char *receives, unsigned properties);
int program_find_stream(const struct program *program, const char *name); // NONE when absent
static inline bool stream_is(const struct program *program, int stream, unsigned property) {
    return program->streams.item[stream].properties & property;
}
static inline bool stream_is_end(const struct program *program, int stream) {
    return stream_is(program, stream, STREAM_SENDS | STREAM_RECEIVES);
}
// The channel that a stream belongs to, which is known by its sending end. A stream that is no end stands for itself.
static inline int stream_channel(const struct program *program, int stream) {
    return stream - stream_is(program, stream, STREAM_RECEIVES);
}
// The stream on which the other ranks have their side of what is on this one.
static inline int stream_other_end(const struct program *program, int stream) {
    return stream + stream_is(program, stream, STREAM_SENDS) - stream_is(program, stream, STREAM_RECEIVES);
}
// Whether two programs have the same streams.
bool program_streams_equal(const struct program *a, const struct program *b);

// ---- building (build.c)

// Adds a buffer and returns its number. `name` is copied; the verifier refuses a name that is there twice.
int program_buffer(struct program *program, const char *name, enum dtype dtype, enum buffer_kind kind,
                   enum buffer_scope scope, int ndim, const int64_t *dim);
// Adds a buffer that is a slice of `parent`, `offset` elements from its start; scope, kind and dtype are the parent's.
int program_slice(struct program *program, int parent, const char *name, int64_t offset, int ndim, const int64_t *dim);
// Adds NAME.again, which holds the value of buffer NAME once more. If NAME is no slice, `parent` is NONE and the new
// buffer LOCAL; else it is the same slice of `parent` that NAME is of its root.
int program_again(struct program *program, int buffer, int parent);
// Declares that each rank along `along` holds a part of the buffer's rows; axes of one rank are left out.
void program_split_rows(struct program *program, int buffer, axis_set along);
// The same for any dim.
void program_split(struct program *program, int buffer, int dim, axis_set along);
// Declares what a buffer means outside the program, where it is known by name: instructions may use it only as the
// operand `as` of their rows. An optimizer's state belongs to parameters, or to all updates (NONE).
void program_declare(struct program *program, int buffer, const char *as, int belongs_to);
// Declares that the buffer, which is no slice and has none, has only as many rows as `extent` says, `expect` as a rule.
void program_bound(struct program *program, int buffer, int extent, int64_t expect);
// The number of a new set of instructions.
int program_set(struct program *program);
// Declares a term of the loss.
void program_term(struct program *program, int scale, double weight);
int program_find(const struct program *program, const char *name);      // NONE when absent
int program_root(const struct program *program, int buffer);            // the outermost parent
int64_t program_root_offset(const struct program *program, int buffer); // elements from the root's start
int64_t buffer_count(const struct buffer *buffer);                      // elements of one instance
int64_t buffer_bytes(const struct buffer *buffer);
int64_t align_up(int64_t bytes); // to BUFFER_ALIGNMENT
// Elements from one instance of a MICROBATCH buffer to the next.
int64_t buffer_microbatch_stride(const struct buffer *buffer);
// The whole buffer as an operand.
struct operand operand_whole(const struct program *program, int buffer);
// All instances of a MICROBATCH buffer, [microbatches, elements of one]: for templates invoked without a microbatch.
struct operand operand_microbatches(const struct program *program, int buffer);
// The same elements in another row-major shape, with the same `along` and `step`; for contiguous operands only.
struct operand operand_shape(struct operand operand, int ndim, const int64_t *dim);
// The operand as a matrix: the first `rows` of its dims are the rows, the others the columns. False where it is no view
// of two strides.
bool operand_matrix(const struct operand *operand, int rows, struct operand *matrix);
// The rank's own part, as [count], of a contiguous operand whose elements are divided evenly among the ranks of the
// group along `along`.
struct operand operand_part(const struct program *program, struct operand operand, axis_set along);
// An operand that is absent.
struct operand operand_none(void);
bool operand_equal(const struct operand *a, const struct operand *b);
int64_t operand_count(const struct operand *operand);
// How many indices of the operand's first dim make up one row of its buffer, which has an extent: the operand has all
// rows or, where it has not, this is 0.
int64_t operand_per_row(const struct program *program, const struct operand *operand);

// The k-th of an instruction's inputs and outputs.
static inline const struct operand *instruction_operand_at(const struct instruction *instruction, int k) {
    return k < instruction->inputs ? &instruction->in[k] : &instruction->out[k - instruction->inputs];
}
// The instruction's input, or output, of that meaning; NULL where its op has none, or the instruction leaves it out.
static inline const struct operand *instruction_input(const struct op_table *ops, const struct instruction *instruction,
                                                      enum op_meaning meaning) {
    const int i = ops->op[instruction->op].input_of[meaning];
    return i < 0 || instruction->in[i].buffer == NONE ? NULL : &instruction->in[i];
}
static inline const struct operand *instruction_output(const struct op_table *ops,
                                                       const struct instruction *instruction, enum op_meaning meaning) {
    const int o = ops->op[instruction->op].output_of[meaning];
    return o < 0 || instruction->out[o].buffer == NONE ? NULL : &instruction->out[o];
}
// The scalar that says how many rows the k-th operand has; NONE: it has all of them, or is absent.
static inline int instruction_extent_at(const struct program *program, const struct instruction *instruction, int k) {
    const int buffer = instruction_operand_at(instruction, k)->buffer;
    return buffer == NONE ? NONE : program->buffers.item[buffer].extent;
}
// How many buffers it may touch: those of its operands, their extents, workspace and predicate; and the k-th of them,
// or NONE.
static inline int instruction_buffers(const struct instruction *instruction) {
    return 2 * (instruction->inputs + instruction->outputs) + 2;
}
static inline int instruction_buffer_at(const struct program *program, const struct instruction *instruction, int k) {
    const int operands = instruction->inputs + instruction->outputs;
    return k < operands        ? instruction_operand_at(instruction, k)->buffer
           : k < 2 * operands  ? instruction_extent_at(program, instruction, k - operands)
           : k == 2 * operands ? instruction->workspace
                               : instruction->predicate;
}

// Sets a pool's slots; a pool number one past the last adds a pool. slot[microbatches] is copied.
void program_pool(struct program *program, int pool, int chunk, int slots, const int *slot);
// The pool that this one is part of, else the pool itself.
int program_whole_pool(const struct program *program, int pool);
// Removes the parts of pools: their buffers are in the whole pools again.
void program_join_pools(struct program *program);
// Removes all pools but the first `count`.
void program_drop_pools(struct program *program, size_t count);
// The buffer that first held the value of this one (`recomputes`), or the buffer itself.
int program_original(const struct program *program, int buffer);
// Whether LOCAL buffers and the only slot of pool 0 share one region of memory, as they do where there is one chunk.
bool program_shares_region(const struct program *program);
int program_template(struct program *program, const char *name, enum phase phase, int chunk); // adds an empty one
// Appends an instruction to a template, on the compute stream, without workspace, predicate or waits. The pointer that
// it returns is valid until the template's next instruction. `attribute` is [OP_MAX_ATTRIBUTES], or NULL: zeros.
struct instruction *program_emit(struct program *program, int template, enum op op, enum phase phase, int layer,
                                 int inputs, const struct operand *in, int outputs, const struct operand *out,
                                 const union attribute *attribute);
// Gives an instruction, of the program or to be added to it, a copy of these operands, which may be its present ones.
void program_give_operands(struct program *program, struct instruction *instruction, int inputs,
                           const struct operand *in, int outputs, const struct operand *out);
// Appends communication over `group` on `stream`; `in` and `out` (operand_none: absent) are taken as [elements].
struct instruction *program_communicate(struct program *program, int template, enum op op, enum phase phase, int stream,
                                        axis_set group, struct operand in, struct operand out);
void program_invoke(struct program *program, int template, int microbatch, bool first, bool last);
// Whether a collective is between the rank and its peer alone, though the group may be larger.
bool instruction_is_pair(const struct instruction *instruction);
// Whether other templates than its own may wait for the instruction: what it touches may need memory of its own.
bool instruction_lingers(const struct program *program, const struct instruction *instruction);
// Whether its output comes from another rank, which writes it as soon as it has it and the slot is free.
bool instruction_arrives(const struct instruction *instruction);
// Whether it is a reduce_scatter or all_gather in which each rank's part is its own part of the whole.
bool instruction_own_part(const struct instruction *instruction);
// Whether it gathers parts in the place where they lie, so that it makes no new value.
bool instruction_completes(const struct instruction *instruction);
// Whether only another rank has what it makes.
bool instruction_leaves(const struct instruction *instruction);
// The input whose value the first output has where the instruction is skipped; NONE: none.
static inline int instruction_otherwise(const struct instruction *instruction) {
    return instruction->passes - 1;
}
// Whether output `out` holds a value even where the instruction is skipped: that of an input, or what it held
// before. What communication makes in place is not what was there before.
bool instruction_holds_when_skipped(const struct op_table *table, const struct instruction *instruction, int out);
// Whether the instruction adds to its outputs in that invocation.
bool instruction_accumulates(const struct instruction *instruction, const struct invocation *invocation);
// Whether the invocation skips instructions with this `when`.
static inline bool when_skips(enum when when, const struct invocation *invocation) {
    return when == (invocation->last ? WHEN_NOT_LAST : WHEN_LAST);
}

// What waits come to as numbers of instructions, in particular WAIT_OWN and WAIT_SLOT.
struct slot_waits {
    int columns, column[STREAMS_MAX]; // each stream that the program uses has a column below, others NONE
    int64_t *before; // [schedule + 1][columns]: how many instructions of the stream come before the invocation
    int64_t *own;    // [schedule][columns]: how many come up to the end of the latest earlier invocation for the same
                     // microbatch that has some. NULL: no WAIT_OWN
    int **previous;  // [pools][schedule]: the last invocation of the microbatch that had the slot before; NONE: nobody
                     // had it. A pool without WAIT_SLOT has NULL
    size_t pools;
};
void slot_waits_create(struct slot_waits *waits, const struct program *program);
void slot_waits_release(struct slot_waits *waits);
// How many instructions of the stream come before the invocation; schedule.count as `invocation`: how many in all.
static inline int64_t slot_waits_before(const struct slot_waits *waits, size_t invocation, int stream) {
    int column = waits->column[stream];
    return column == NONE ? 0 : waits->before[invocation * (size_t)waits->columns + (size_t)column];
}
// How many instructions of `stream`, from the step's start, must be done before `instruction`, which waits for it, may
// begin. `before`: how many of them come before it in the order of schedule and list.
int64_t slot_waits_count(const struct slot_waits *waits, const struct program *program, size_t invocation,
                         const struct instruction *instruction, int stream, int64_t before);

// A hash of what the program does: of operations, their order, streams and operands; not of addresses, nor of
// workspaces, which may depend on the processor (program_hash.c).
uint64_t program_hash(const struct program *program);
// The number of instructions in a step, over the schedule.
int64_t program_length(const struct program *program);
// Floating-point operations of one invocation of `instruction`, from its row of ops.def; of as many rows as there
// usually are, as are the bytes below.
double instruction_flops(const struct program *program, const struct op_table *table,
                         const struct instruction *instruction);
// Bytes that one invocation moves if no cache holds any of its operands: each operand is read or written once, outputs
// that are added to are read as well, and of a table whose rows are chosen by indices only as many rows count as there
// are indices.
double instruction_bytes(const struct program *program, const struct op_table *table,
                         const struct instruction *instruction, const struct invocation *invocation);
// Extent of each dim letter of the row's signature ('A'..'z', indexed by the letter), -1 where not bound.
// False when two operands disagree; *what then names the operand.
bool instruction_extents(const struct op_table *table, const struct instruction *instruction,
                         int64_t extent[DIM_LETTERS], const char **what);
// The same of a well-formed instruction, with as many rows as there usually are; and the elements of an operand then.
void instruction_expected(const struct program *program, const struct op_table *table,
                          const struct instruction *instruction, int64_t extent[DIM_LETTERS]);
int64_t operand_expected(const struct program *program, const struct operand *operand);

// ---- text (print.c, parse.c): program_parse(program_print(p)) is p.

void program_print(const struct program *program, const struct op_table *table, struct text *out);
trireme_status program_parse(struct program *program, const struct op_table *table, const char *text, size_t length,
                             trireme_error *error);

#endif
