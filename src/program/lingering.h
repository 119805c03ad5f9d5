// What needs memory of its own, since communication may use it when others would have it. Internal to program/.
#ifndef PROGRAM_LINGERING_H
#define PROGRAM_LINGERING_H

#include "program/program.h"

// [instructions], which the caller frees: the instruction of the template at which compute has waited for each, NONE
// where others have to; itself, where compute runs that.
int *template_waits(const struct template *template);
// [allocations], which the caller frees. An allocation lingers if compute does not know, when it uses it last, that
// other streams are done with it; if another rank may write it early; or if the only template that uses it begins with
// the communication that writes it, which then need not wait for who had the memory before. allocation[buffers]: whose
// memory each root has, or NONE.
bool *find_lingering(const struct program *program, const int *allocation, size_t allocations);

#endif
