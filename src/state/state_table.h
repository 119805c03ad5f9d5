// state/: what a rank keeps between steps, as a list that is made before any program is compiled: parameters,
// constants, gradients, optimizer states, caches, and whatever else programs hand to one another. Programs refer to its
// entries: a STATE buffer is declared by state_buffer, has its entry's name and lies where its entry lies. So programs
// share memory because they share the list, whatever entries each of them uses. Includes program/ and the folders
// before it.
#ifndef STATE_STATE_TABLE_H
#define STATE_STATE_TABLE_H

#include "program/program.h"

// What an entry is to the programs that use it.
enum state_role {
    STATE_PARAMETERS, // trained
    STATE_FROZEN,     // parameters that are not trained
    STATE_CONSTANT,   // follows from model and rank, is not saved
    STATE_GRADIENTS,  // made anew in each step
    STATE_OPTIMIZER,
    STATE_SHARED, // as STATE_OPTIMIZER; all islands have the same
    STATE_CACHE,  // keys and values of generation
    STATE_ROLES
};

struct state_entry {
    const char *name; // unique; state_add copies it
    enum dtype dtype;
    enum state_role role;
    enum memory_space space; // each has an arena of its own
    int ndim;
    int64_t dim[OP_MAX_DIMS]; // of what one rank keeps
    // As in struct buffer: the only operand that it may be used as (NULL: any), what ranks along each axis hold, and
    // along which axes only the rank's own part is current between steps.
    const char *as;
    int8_t placement[AXIS_COUNT];
    axis_set own;
    int owner;      // GRADIENTS, OPTIMIZER, SHARED: the entry of the parameters that it belongs to; NONE: all of them
    int64_t offset; // bytes from the start of the space's arena, a multiple of BUFFER_ALIGNMENT; set by state_add
};

struct state_table {
    VEC(struct state_entry) entries;
    int64_t bytes[SPACE_COUNT]; // of each arena; STATE_TOO_LARGE: more than any address space has
};

static const int64_t STATE_TOO_LARGE = INT64_MAX / 4 / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;

// Appends an entry behind those that its space has, and returns its number. Entries never move.
int state_add(struct state_table *table, const struct state_entry *entry);
// The same for an entry that lies where another one does, which is as large: programs that keep the one know nothing of
// the other.
int state_add_over(struct state_table *table, const struct state_entry *entry, int other);
int state_find(const struct state_table *table, const char *name); // NONE when absent
int64_t state_entry_bytes(const struct state_entry *entry);        // without padding
void state_table_release(struct state_table *table);
// Declares in the program the STATE buffer of an entry, and returns the buffer. `belongs_to` is for optimizer states:
// the program's buffer of the entry's owner, NONE where it has no owner, or the program not that.
int state_buffer(const struct state_table *table, struct program *program, int entry, int belongs_to);
// Refuses a program whose STATE buffers are not entries of the table, as they stand there: the host, which finds values
// by the table, would take something else for them.
trireme_status state_check(const struct state_table *table, const struct program *program, trireme_error *error);

#endif
