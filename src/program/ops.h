// What an op is, read from ops.def. Nothing else lists the ops by hand.
#ifndef PROGRAM_OPS_H
#define PROGRAM_OPS_H

#include "base/base.h"

enum op {
#define OP(id, name, signature, adjoint, attributes, flops, inplace, kernel) OP_##id,
#include "program/ops.def"
#undef OP
    OP_COUNT
};

enum dtype { DTYPE_F32, DTYPE_BF16, DTYPE_F64, DTYPE_I32, DTYPE_U16, DTYPE_U8, DTYPE_COUNT };

int64_t dtype_size(enum dtype dtype); // bytes
const char *dtype_name(enum dtype dtype);
bool dtype_parse(const char *name, enum dtype *out);
// Whether values of the dtype have gradients.
bool dtype_is_real(enum dtype dtype);
// What sums of `model` values are held in: f64 for f64, else f32.
enum dtype dtype_accumulate(enum dtype model);

enum { OP_MAX_IN = 9, OP_MAX_OUT = 4, OP_MAX_ATTRIBUTES = 8, OP_MAX_DIMS = 4 };
enum { OP_NAME = 32, OP_CONDITION_TEXT = 32 };

// One operand of a row's signature.
struct op_operand {
    char name[12];
    char dtype; // P A S I U B X
    bool optional;
    bool adds; // outputs: an instruction may add to what is there (its `accumulate`)
    int ndim;
    char dim[OP_MAX_DIMS];     // letters; '1' for the extent one
    char begins;               // the letter of which the rank's part begins at this number, or 0
    char follows[OP_MAX_DIMS]; // the letter that this one is split with (`f~c`), or 0
    char belongs[OP_MAX_DIMS]; // the letter with which this one may be split (`g^m`), or 0
    char counts;               // the letter of whose rows these are the numbers (`=m`), or 0
};

// A reference inside an adjoint: input or output `index` of the forward op; its gradient if `gradient`;
// a gradient to be added if `pass`.
struct op_reference {
    bool output, gradient, pass;
    int index;
};

// From the adjoint column, which ops.def explains.
enum op_role {
    ROLE_FORWARD,
    ROLE_BACKWARD,
    ROLE_COMMUNICATION, // in either pass
    ROLE_TRANSFER,      // anywhere: makes no value of its own
    ROLE_ENCODE,
    ROLE_DECODE,
    ROLE_SUM,
    ROLE_LOSS,
    ROLE_AID,
    ROLE_ZERO,
    ROLE_COUNT,
    ROLE_SCALE,
    ROLE_TOTAL,
    ROLE_NORM,
    ROLE_NORM_SUM,
    ROLE_CLIP,
    ROLE_TAKE,
    ROLE_COMPRESS,
    ROLE_WEIGH,
    ROLE_EAGER,
    ROLE_OUTER,
    ROLE_STALENESS,
    ROLE_SETTLE,
    ROLE_DERIVE,
    ROLE_UPDATE,
};

// What an operand is to code that is about all ops of a role, by the name that the operand has in each row.
#define OP_MEANINGS(MEANING)                                                          \
    MEANING(FIRST, "first")     /* where the rank's part of a dim begins */           \
    MEANING(TARGETS, "targets") /* of each row, -1: none */                           \
    MEANING(LOGITS, "logits")                                                         \
    MEANING(NLL, "nll")       /* the loss of each row */                              \
    MEANING(COUNT, "count")   /* how many targets there are */                        \
    MEANING(SCALE, "scale")   /* what losses and their gradients are multiplied by */ \
    MEANING(LOSS, "loss")     /* of a step */                                         \
    MEANING(SUM, "sum")       /* of squares */                                        \
    MEANING(FACTOR, "factor") /* what gradients are multiplied by, to clip them */    \
    MEANING(FINITE, "finite") /* whether updates are done */                          \
    MEANING(PARAMETER, "p")                                                           \
    MEANING(RATE, "lr")                                                               \
    MEANING(UPDATES, "t") /* how many have been done */
enum op_meaning {
#define MEANING(id, name) MEANING_##id,
    OP_MEANINGS(MEANING)
#undef MEANING
        MEANINGS
};

struct op_attribute {
    char name[16];
    bool is_float;
    bool optional; // 0 means that it is not there: not printed then
};

union attribute {
    int64_t i;
    double f;
};

// How a step's time is broken down: matrix products, attention, each with the ops that are like it, and the rest.
enum op_family { FAMILY_MATMUL, FAMILY_ATTENTION, FAMILY_REST, FAMILY_COUNT };

struct op_info {
    enum op op;
    const char *name;
    enum op_role role;
    int inputs, outputs;
    struct op_operand in[OP_MAX_IN], out[OP_MAX_OUT];
    const char *conditions; // for op_fits, as they stand in the row
    char together;          // the letter whose rows need one another (`together=t`), or 0
    int attributes;
    struct op_attribute attribute[OP_MAX_ATTRIBUTES];
    bool identity[OP_MAX_IN]; // forward ops: input enters output 0 by plain addition; sums: so do all
    bool transposes;          // backward and communication ops: computes a gradient,
    enum op forward;          // that of this op
    bool fused;               // backward ops: contributes all that several others do
    struct op_reference reads[OP_MAX_IN], contributes[OP_MAX_OUT];
    enum op decoder; // of codes: the op that makes values of what this one makes of them
    bool exact;      // codecs: codes are the bits of the values, as many bytes
    bool maximum;    // a split letter leaves partial maxima in the outputs, not partial sums
    bool tallies;    // adds up numbers of rows: the sum of all of them is an extent
    int8_t input_of[MEANINGS], output_of[MEANINGS]; // the operand of that meaning, or -1
    int8_t gradient;            // updates and derivations: the input that is a gradient, or made of one; else -1
    enum op derived_by;         // what makes that input, OP_COUNT where it is the gradient itself
    bool same;                  // derivations: the output is that input, in another place
    int8_t inplace[OP_MAX_OUT]; // input whose memory the output may take, or -1
    char flops[32];
    enum op like; // the op of a lower number whose rates this one has, unless its own are known; or itself
    enum op_family family;
};

// The rows of ops.def, parsed. Build once with op_table_create and share; immutable afterwards.
struct op_table {
    struct op_info op[OP_COUNT];
};

// The k-th of a row's inputs and outputs.
static inline const struct op_operand *op_operand_at(const struct op_info *info, int k) {
    return k < info->inputs ? &info->in[k] : &info->out[k - info->inputs];
}

// What a communication row says of the call (ops.def explains the words).
enum op_call { CALL_NONE, CALL_COLLECTIVE, CALL_ROOTED, CALL_MESSAGE };
enum op_holding { HOLDING_SAME, HOLDING_SUM, HOLDING_PART, HOLDING_BAND, HOLDING_ROWS };
enum op_moves { MOVES_INPUT, MOVES_OUTPUT };
struct op_traffic {
    enum op_call call; // CALL_NONE: the row is none of communication
    enum op_holding takes, gives;
    enum op_moves moves;
    int times;
    enum op like;
};
extern const struct op_traffic op_traffic[OP_COUNT];

// Whether ops of that role make gradients of what they belong to, a microbatch.
static inline bool op_role_makes_gradients(enum op_role role) {
    return role == ROLE_BACKWARD || role == ROLE_SUM || role == ROLE_LOSS;
}
// Whether an op is one end of a message; whether only one rank of its group, the root, has its input or its output.
static inline bool op_is_message(enum op op) {
    return op_traffic[op].call == CALL_MESSAGE;
}
static inline bool op_is_rooted(enum op op) {
    return op_traffic[op].call == CALL_ROOTED;
}
// Whether what another rank has is the op's output; whether another rank has what it makes of its input.
static inline bool op_takes_in(enum op op) {
    return op_traffic[op].call != CALL_NONE && op_traffic[op].moves == MOVES_OUTPUT;
}
static inline bool op_gives_away(enum op op) {
    return op_traffic[op].call != CALL_NONE && op_traffic[op].moves == MOVES_INPUT;
}
// Which attribute of a communication row is `wire`; -1: it has none.
int op_wire(enum op op);

// The caller frees it with free(). A malformed row is a bug.
struct op_table *op_table_create(void);
// OP_COUNT when there is none of that name.
enum op op_find(const struct op_table *table, const char *name);
// The number of the op's attribute of that name; -1 where it has none.
int op_attribute_find(const struct op_info *info, const char *name);
// Arrays that are indexed by the letter of a dim (ASCII) have so many elements.
enum { DIM_LETTERS = 128 };
// Whether extents, indexed by the letter, and attributes meet the conditions of the row; if not, `broken` is the text
// of the first that they do not meet.
bool op_fits(const struct op_info *info, const int64_t extent[DIM_LETTERS], const union attribute *attribute,
             char broken[OP_CONDITION_TEXT]);

#endif
