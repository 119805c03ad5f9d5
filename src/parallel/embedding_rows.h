// Gradients of tables in which rows are looked up. A rank adds to such a gradient only as many rows as it has tokens,
// and the table may have many more. Then gathering these rows from all ranks moves far fewer bytes than an all_reduce
// of the table (Kim et al., "Parallax", EuroSys 2019, section 2). Internal to parallel/.
#ifndef PARALLEL_EMBEDDING_ROWS_H
#define PARALLEL_EMBEDDING_ROWS_H

#include "program/program.h"

// Rewrites templates so that each rank adds the rows of all ranks of `group` to such a gradient: one that is among
// `tables` [buffers], and whose rows are few, or any number with `always`. Returns for each buffer that exists
// afterwards whether it holds rows of all ranks; the caller frees it.
bool *rows_gather(struct program *program, const int *template, int templates, axis_set group, const bool *tables,
                  bool always);
// Whether the instruction adds rows of all ranks (`all`: rows_gather's result) to a gradient. Such a contribution is
// not to be reduced again.
bool rows_are_of_all(const struct instruction *instruction, const bool *all);

#endif
