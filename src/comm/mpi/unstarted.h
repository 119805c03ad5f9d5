// For when MPI does not start.
#ifndef COMM_MPI_UNSTARTED_H
#define COMM_MPI_UNSTARTED_H

#include <stddef.h>

// Writes to text[limit] "rank 1 (process 123) is stopped" or the like for each rank of this machine that keeps the
// others waiting, or that it is not known which rank does.
void unstarted_print(char *text, size_t limit);

#endif
