// Which allocations need memory of their own, since communication may still, or already, use them when others would be
// given their memory. Internal to memory/.
#ifndef MEMORY_LINGERING_H
#define MEMORY_LINGERING_H

#include "program/program.h"

// [instructions], which the caller frees: for each instruction the one of the template at which compute has waited for
// it; itself if compute runs it; NONE if compute does not wait for it in this template.
int *template_waits(const struct template *template);
// [allocations], which the caller frees. An allocation lingers if compute does not know, when it uses it last, that
// other streams are done with it; if another rank may write it early; or if the only template that uses it begins with
// the communication that writes it, which then need not wait for what used the memory before. allocation[buffers]: the
// allocation of each root buffer, or NONE.
bool *find_lingering(const struct program *program, const int *allocation, size_t allocations);

#endif
