// program/: the step program: what a rank does in one step, as data. Instruction and buffer tables, their text form,
// the memory plan and the verifier. Knows no arithmetic, no MPI, no model. Includes base/ and mesh/ only.
//
// A program is a set of *templates* (straight lists of instructions: one per phase and chunk) and a *schedule* that
// invokes them with a microbatch. A *chunk* is what of the model a microbatch passes through at a time: all of it, or
// one of the virtual stages that a rank of a pipeline has. Activations of a microbatch stay in a *slot* from its first
// pass through the chunk to its last; a *pool* is a number of slots, and which of them each microbatch has. The list
// order of a template's instructions is an order in which they may be run one by one; instructions on different streams
// may overlap where no wait or stream order forbids it.
//
// A *buffer* is a name for memory. Its scope says how often it exists and where:
//   STATE       once, in the `state` arena, shared by all programs of a run and kept between steps
//   STEP        once per step, in the `step` arena, for the whole step
//   MICROBATCH  one instance per microbatch, for the whole step (inputs that the host writes before the step)
//   SLOT        one instance per slot of its pool; from first write to last read, across the templates of a microbatch
//   LOCAL       inside one invocation of one template
// A buffer with a parent is a contiguous slice of it (a tensor of a flat parameter unit, some rows of an activation).
// An *operand* is a strided view of a buffer. On many ranks, all that differ only by coordinates run the same program:
// a view may then begin where its rank's index in a group says, and a peer is told by its distance along an axis.
//
// Addresses (bytes), filled by program_plan:
//   step arena = [ fixed: STEP and MICROBATCH | scratch: LOCAL | slots of pool 0 | slots of pool 1 | ... ]; with one
//   slot in all, scratch and the slot share one region planned together. A buffer's offset counts from the start of the
//   state arena, of the step arena, of scratch or of its slot.
//   Where microbatches do not hold as much at all times (backward in two parts, several chunks), slots of one size
//   would be a waste. There a pool has *parts*: buffers that have slots of their own, which lie in scratch, each where
//   it fits while its microbatch uses it. Only what messages touch stays in the pool itself, or has one slot for all.
#ifndef PROGRAM_PROGRAM_H
#define PROGRAM_PROGRAM_H

#include "base/text.h"
#include "mesh/mesh.h"
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

enum { BUFFER_ALIGNMENT = 64 }; // bytes: every root buffer's offset is a multiple of it

struct buffer {
    char *name; // unique in the program
    enum dtype dtype;
    enum buffer_kind kind;
    enum buffer_scope scope;
    int ndim;
    int64_t dim[OP_MAX_DIMS];
    int parent;            // NONE, or the buffer that this is a slice of
    int64_t parent_offset; // elements
    int gradient_of;       // NONE, or the buffer whose gradient this holds
    int recomputes;        // NONE, or the buffer whose value this holds once more
    char as[12];           // the operand of ops.def's rows that this stands as wherever it is touched ("m"), or empty
    int pool;              // SLOT: whose slots
    int belongs_to;        // OPTIM: the parameters whose state this is, NONE for what all updates share
    int64_t offset;        // bytes (see above); -1 until planned
    // STATE: between steps each rank has only its own part of the buffer, by its index along these axes, and the step
    // has to gather the rest before it looks at it (AXES_NONE: it is all there).
    axis_set own;
    // What ranks along each axis hold, of buffers that no instruction of this program writes first: inputs, parameters,
    // states, what is received. That of others follows from the rows of ops.def.
    int8_t placement[AXIS_COUNT];
};

// Along one axis: every rank has the same (0), rank i has the i-th part along a dim (1 + dim), or the value is the sum
// or the maximum of what the ranks have. OneFlow's SBP (Yuan et al. 2021, section 3.1). Along pp also: each stage has
// something of its own, part of no whole.
enum { PLACE_REPLICATE = 0, PLACE_SUM = -1, PLACE_MAX = -2, PLACE_STAGE = -3 };
#define PLACE_SHARD(dim) ((int8_t)(1 + (dim)))

struct operand {
    int buffer;     // NONE for an absent optional operand
    int64_t offset; // elements
    int ndim;
    int64_t dim[OP_MAX_DIMS], stride[OP_MAX_DIMS]; // elements
    axis_set along;                                // with `step`: the view begins index * step elements further on,
    int64_t step;                                  // `index` the rank's in its group along these axes
};

// Whether outputs are added to what is there.
enum accumulate {
    ACCUMULATE_NO,
    ACCUMULATE_YES,
    ACCUMULATE_AFTER_FIRST // overwrite in invocations that are `first`, add in the others
};

// In which invocations of its template an instruction runs; it is skipped in the others. What a kernel does otherwise
// in the last one is two instructions, WHEN_NOT_LAST and right behind it WHEN_LAST, with the same outputs.
enum when { WHEN_ALWAYS, WHEN_LAST, WHEN_NOT_LAST, WHEN_COUNT };

enum phase { PHASE_INPUT, PHASE_FORWARD, PHASE_BACKWARD, PHASE_WEIGHT, PHASE_OPTIMIZER, PHASE_COUNT };

// Each runs in order. Communication has streams of its own, so that it may run beside arithmetic. Messages between the
// ranks of a pipeline travel on four *channels*: activations and their gradients, to the next rank and to the previous
// one. The two ends of a channel are streams, too, so that a message that nobody takes yet keeps none from coming in.
enum stream {
    STREAM_COMPUTE,
    STREAM_TENSOR,   // within a layer
    STREAM_GATHER,   // parameters
    STREAM_REDUCE,   // gradients
    STREAM_REPLICAS, // parts of them, between replicas of the ranks that each have one
    STREAM_EMBED, // where the vocabulary is spread over stages: embeddings, their gradients, what the head takes, and
    STREAM_EMBED_GRADIENT,
    STREAM_HEAD,
    STREAM_LOSS, // what the loss needs
    STREAM_MESSAGES,
    STREAM_COUNT = STREAM_MESSAGES + 8
};

// The stream of one end of a channel, and which channel a stream belongs to (of no message: the stream itself).
static inline int stream_of_channel(bool gradients, bool to_previous, bool receives) {
    return STREAM_MESSAGES + 4 * gradients + 2 * to_previous + receives;
}
static inline int stream_channel(int stream) {
    return stream < STREAM_MESSAGES ? stream : stream - (stream - STREAM_MESSAGES) % 2;
}
// The stream on which others meet what is on this one.
static inline int stream_other_end(int stream) {
    return stream < STREAM_MESSAGES ? stream : 2 * stream_channel(stream) + 1 - stream;
}

// Where the vocabulary's communication is, and the arithmetic in it.
static inline bool stream_is_vocabulary(int stream) {
    return stream >= STREAM_EMBED && stream < STREAM_MESSAGES;
}

// How many of another stream's latest instructions a wait may leave out; a wait for what other templates have done for
// the same microbatch; and one for the end of the last microbatch that had the slot.
enum { WAIT_MAX_LAG = 1 << 14, WAIT_OWN = UINT16_MAX - 1, WAIT_SLOT = UINT16_MAX };

struct instruction {
    enum op op;
    enum phase phase;
    int layer; // NONE outside layers
    int stream;
    enum accumulate accumulate;
    int inputs, outputs;
    // The program's. What is copied from an instruction has the same ones, and where both stay and one is to have
    // others, it is first given its own (program_give_operands).
    struct operand *in, *out;
    enum when when;
    axis_set group; // communication: between the ranks of this group
    // Send and receive: the other's coordinate along the group's one axis, less one's own (it wraps); reduce and
    // broadcast: the root's. Other communication with a peer leaves out the rest of the group.
    int peer;
    int workspace; // NONE, or a LOCAL buffer of kind WORK that only this instruction uses
    union attribute attribute[OP_MAX_ATTRIBUTES];
    int predicate; // NONE, or an i32[1] buffer: the instruction is skipped where it holds 0
    // For each stream 0, or 1 + k: all of its instructions that come before this one, in the order of schedule and
    // list, must be done but the last k. Or WAIT_OWN: all up to the end of the last invocation before for the
    // same microbatch, whose template has some. Or WAIT_SLOT: all up to the end of the last invocation, of a template
    // of its chunk that uses the first output's pool, for another microbatch that had this one's slot there.
    uint16_t wait[STREAM_COUNT];
};

struct template {
    char *name;
    enum phase phase;
    int chunk;
    VEC(struct instruction) instructions;
};

struct invocation {
    int template;
    int microbatch;   // NONE: the template sees all microbatches at once
    bool first, last; // of the step's microbatches in this chunk and phase
};

struct pool {
    int chunk;   // whose passes take and leave its slots; pool c is chunk c's own
    int part_of; // NONE, or the pool some of whose buffers have slots of their own here: made by program_plan
    int slots;
    int *slot;     // of each microbatch
    int64_t *base; // of each slot: bytes from the start of the step arena, filled by program_plan
};

struct program {
    char *name; // train, evaluate, ...
    struct mesh mesh;
    int microbatches;
    VEC(struct pool) pools; // at least one
    VEC(struct buffer) buffers;
    VEC(struct template) templates;
    VEC(struct invocation) schedule;
    // Operands of instructions, in blocks that stay where they are; of the last one so many are still free.
    VEC(struct operand *) operands;
    size_t operands_left;
    // Filled by program_plan, in bytes.
    int64_t state_bytes, fixed_bytes, scratch_base, scratch_bytes, step_bytes;
    bool hurried; // what takes long was left out, and may find less
};

// The instructions of all templates, in the order of the tables; `break` leaves those of one template alone.
#define FOR_INSTRUCTIONS(i, program)                                                   \
    for (size_t t_##i = 0; t_##i < (program)->templates.count; t_##i++)                \
        for (const struct instruction *i = TEMPLATE_INSTRUCTIONS(program, t_##i).item; \
             i && i < TEMPLATE_INSTRUCTIONS(program, t_##i).item + TEMPLATE_INSTRUCTIONS(program, t_##i).count; i++)
#define TEMPLATE_INSTRUCTIONS(program, t) ((program)->templates.item[t].instructions)

// With one chunk and its pool of one slot.
void program_init(struct program *program, const char *name, int microbatches);
void program_release(struct program *program);

// ---- building (build.c)

// Adds a buffer and returns its number. `name` is copied; the verifier refuses a name that is there twice.
int program_buffer(struct program *program, const char *name, enum dtype dtype, enum buffer_kind kind,
                   enum buffer_scope scope, int ndim, const int64_t *dim);
// Adds a buffer that is the slice of `parent` that starts `offset` elements in; scope, kind and dtype are the parent's.
int program_slice(struct program *program, int parent, const char *name, int64_t offset, int ndim, const int64_t *dim);
// Adds NAME.again, which holds the value of buffer NAME once more: LOCAL, or the slice of `parent` that NAME is of its
// root (NONE: it is no slice).
int program_again(struct program *program, int buffer, int parent);
// Says that of a buffer ranks along those of the axes that have several each hold a part of the rows.
void program_split_rows(struct program *program, int buffer, axis_set along);
// Says what a buffer means to those outside the program, who know it by name: instructions may touch it as the operand
// `as` of their rows only. An optimizer's state belongs to parameters, or to all updates (NONE).
void program_declare(struct program *program, int buffer, const char *as, int belongs_to);
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
// The same elements, or rank's own ones, under another shape (row-major, contiguous operands only).
struct operand operand_shape(struct operand operand, int ndim, const int64_t *dim);
// A view `count` elements long of a contiguous operand, as [count], the rank's own part along `along`: count times the
// group's size is the operand's.
struct operand operand_part(const struct program *program, struct operand operand, axis_set along);
// Absent.
struct operand operand_none(void);
bool operand_equal(const struct operand *a, const struct operand *b);
int64_t operand_count(const struct operand *operand);

// The k-th of an instruction's inputs and outputs.
static inline const struct operand *instruction_operand_at(const struct instruction *instruction, int k) {
    return k < instruction->inputs ? &instruction->in[k] : &instruction->out[k - instruction->inputs];
}
// How many buffers it may touch: those of its operands, then workspace and predicate; and the k-th of them, or NONE.
static inline int instruction_buffers(const struct instruction *instruction) {
    return instruction->inputs + instruction->outputs + 2;
}
static inline int instruction_buffer_at(const struct instruction *instruction, int k) {
    int operands = instruction->inputs + instruction->outputs;
    return k < operands    ? instruction_operand_at(instruction, k)->buffer
           : k == operands ? instruction->workspace
                           : instruction->predicate;
}

// Gives the pool, which may be the one after the last, its slots; slot[microbatches] is copied.
void program_pool(struct program *program, int pool, int chunk, int slots, const int *slot);
// The pool, or the one that it is part of.
int program_whole_pool(const struct program *program, int pool);
// Takes the parts off, so that their buffers are of the whole pools again; and all pools but the first `count`.
void program_join_pools(struct program *program);
void program_drop_pools(struct program *program, size_t count);
// Whether LOCAL buffers and the only slot of pool 0 are one region of memory: where there is but one chunk.
bool program_shares_region(const struct program *program);
int program_template(struct program *program, const char *name, enum phase phase, int chunk); // adds an empty one
// Appends an instruction without workspace, predicate or waits to a template and returns it (valid until the next).
struct instruction *program_emit(struct program *program, int template, enum op op, enum phase phase, int layer,
                                 int inputs, const struct operand *in, int outputs, const struct operand *out,
                                 const union attribute *attribute);
// Gives an instruction, of the program or soon to be, these operands, which are copied and may be some that it has.
void program_give_operands(struct program *program, struct instruction *instruction, int inputs,
                           const struct operand *in, int outputs, const struct operand *out);
// Appends communication over `group` on its stream, `in` and `out` (NONE: absent) as [elements].
struct instruction *program_communicate(struct program *program, int template, enum op op, enum phase phase,
                                        enum stream stream, axis_set group, struct operand in, struct operand out);
void program_invoke(struct program *program, int template, int microbatch, bool first, bool last);
// Whether communication is between the rank and its peer alone, of a larger group perhaps.
bool instruction_is_pair(const struct instruction *instruction);
// Whether others than its own template may wait for the instruction, so that what it touches may need memory of its
// own.
bool instruction_lingers(const struct instruction *instruction);
// Whether its output comes from another rank, as soon as that has it and the slot is free.
bool instruction_arrives(const struct instruction *instruction);
// Whether it gathers parts where they lie, so that nothing new is made.
bool instruction_completes(const struct instruction *instruction);
// Whether what it makes is another rank's alone.
bool instruction_leaves(const struct instruction *instruction);
// Whether the instruction adds to its outputs in such an invocation.
bool instruction_accumulates(const struct instruction *instruction, const struct invocation *invocation);
// Whether such an invocation skips what runs then.
static inline bool when_skips(enum when when, const struct invocation *invocation) {
    return when == (invocation->last ? WHEN_NOT_LAST : WHEN_LAST);
}

// What waits count up to, WAIT_OWN and WAIT_SLOT among them.
struct slot_waits {
    int columns, column[STREAM_COUNT]; // of what follows: each stream that the program uses has one, others NONE
    int64_t *before; // instructions of the streams that come before each invocation, [schedule + 1][columns]
    int64_t *own;    // those to the end of the last one for its microbatch that has some, [schedule][columns]; NULL:
                     // nobody waits
    int **previous;  // [pools][schedule]: the last invocation by the slot's last tenant, NONE: none. NULL: nobody waits
    size_t pools;
};
void slot_waits_create(struct slot_waits *waits, const struct program *program);
void slot_waits_release(struct slot_waits *waits);
// Instructions of the stream that come before the invocation; of one behind the last: all.
static inline int64_t slot_waits_before(const struct slot_waits *waits, size_t invocation, int stream) {
    int column = waits->column[stream];
    return column == NONE ? 0 : waits->before[invocation * (size_t)waits->columns + (size_t)column];
}
// How many instructions of the stream must be done for the instruction that waits for it, behind `before` of them.
int64_t slot_waits_count(const struct slot_waits *waits, const struct program *program, size_t invocation,
                         const struct instruction *instruction, int stream, int64_t before);

// Instructions that a step runs (over the schedule).
int64_t program_length(const struct program *program);
// Floating-point operations of one invocation of `instruction`, from its row of ops.def.
double instruction_flops(const struct op_table *table, const struct instruction *instruction);
// Bytes that one invocation moves if nothing of its operands lies in a cache: each read or written once, what outputs
// are added to is read, too, and of a table that indices choose rows from only so many rows.
double instruction_bytes(const struct program *program, const struct op_table *table,
                         const struct instruction *instruction, const struct invocation *invocation);
// Extent of each dim letter of the row's signature ('A'..'z', indexed by the letter), -1 where not bound.
// False when two operands disagree; *what then names the operand.
bool instruction_extents(const struct op_table *table, const struct instruction *instruction, int64_t extent[128],
                         const char **what);

// ---- text (print.c, parse.c): program_parse(program_print(p)) is p.

void program_print(const struct program *program, const struct op_table *table, struct text *out);
trireme_status program_parse(struct program *program, const struct op_table *table, const char *text, size_t length,
                             trireme_error *error);

// ---- memory plan (plan.c)

// Gives every buffer its offset. STATE buffers keep the order in which they were added, so that programs that add the
// same ones first share the arena. Both arenas that take no more than `room` bytes need not be smaller, which is sooner
// found; 0: as small as can be. Negative: so many bytes, without what takes long and rarely finds less; ROOM_SOON: as
// small as is found so. Refuses tables that are not well formed or an offset that would not fit 63 bits.
#define ROOM_SOON (-1)
trireme_status program_plan(struct program *program, const struct op_table *table, int64_t room, trireme_error *error);
// Plans a hurried program as program_plan does it where nothing is left out. False where that would take the program as
// it was before: then nothing changes.
bool program_shrink(struct program *program, const struct op_table *table, int64_t room);

// One moment of the step: bytes of the step arena that hold live buffers while an instruction runs.
struct memory_moment {
    int invocation, instruction;
    int64_t live;
};
// A root buffer, and the bytes that it has of the arena: of all microbatches, where it has those of all; of memory that
// buffers take over from one another all, and the last of them stands for it.
struct memory_holder {
    int buffer;
    int64_t bytes;
};
struct memory_profile {
    VEC(struct memory_moment) moments; // one per instruction run, schedule order
    size_t peak;                       // index of the largest
    VEC(struct memory_holder) at_peak; // live there, largest first; the rest is other microbatches'
};
void program_memory_profile(const struct program *program, const struct op_table *table,
                            struct memory_profile *profile);
void memory_profile_release(struct memory_profile *profile);
// Bytes that the first microbatch holds in chunk 0, but for messages, when its template of the phase has run: what was
// in use before then and will be again.
int64_t program_held_bytes(const struct program *program, const struct op_table *table, enum phase phase);

// ---- verifier (verify*.c)

// Proves the planned program sound or refuses it, naming template, instruction and buffer:
//   memory     every read has a write before it; no buffer is overwritten or its memory reused while it is needed, and
//              in training none changes once it has been read; what other streams touch is ordered by waits; shapes
//              and dtypes obey ops.def
//   placement  on many ranks: partial sums are reduced once, over the right axes, before anything but sums takes them;
//              what is split is split alike where it meets; every parameter ends as it began
//   gradients  the backward pass is the transpose of the forward pass: each use of each tensor contributes exactly once
//              per microbatch, and no gradient is read before it is complete
//   update     the loss is the mean over all targets of the global batch; the norm counts every gradient once; each
//              parameter is updated exactly once, from its own gradient and states, clipped by that norm
trireme_status program_verify(const struct program *program, const struct op_table *table, trireme_error *error);
// Proves the programs of all ranks of a mesh, each sound by itself, sound together; ranks that share a program share
// the pointer. In every group all members make the same calls in the same order, with equal counts and types; sends
// meet receives of as much, placed alike; the whole set runs to its end. Else names the rank, the instruction, the
// buffer, the group and the other rank.
trireme_status programs_meet(const struct program *const *program_of_rank, int ranks, const struct op_table *table,
                             trireme_error *error);
// The same where ranks that differ along AXIS_PP alone have other programs: one for each coordinate there.
trireme_status stage_programs_meet(const struct program *const *program_of_stage, const struct op_table *table,
                                   trireme_error *error);
// program_verify of each program, and programs_meet.
trireme_status programs_verify(const struct program *const *program_of_rank, int ranks, const struct op_table *table,
                               trireme_error *error);

#endif
