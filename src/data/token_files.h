// The files of Megatron's pair and what `prepare` puts beside them, which take the place of older ones together.
//
// To replace PREFIX.bin, PREFIX.sums, PREFIX.json, PREFIX.tokenizer (a directory) and PREFIX.idx by PREFIX.bin.tmp and
// so on, the old index is renamed to PREFIX.idx.old first, and the new one gets its name last. In between, each other
// file is renamed to *.old and the new one put in its place. So there is no index while old and new are mixed, and an
// old index beside none says that all that is called *.old belongs with it. At the end what is called *.old is removed.
#ifndef DATA_TOKEN_FILES_H
#define DATA_TOKEN_FILES_H

#include "base/base.h"

enum token_file {
    TOKEN_FILE_BIN,
    TOKEN_FILE_SUMS,
    TOKEN_FILE_MANIFEST,
    TOKEN_FILE_TOKENIZER, // a directory, of whose files each is written and synced by itself
    TOKEN_FILE_INDEX,
    TOKEN_FILES
};
extern const char *const TOKEN_FILE_ENDING[TOKEN_FILES]; // ".bin"

// Removes one of them, which need not be there.
void token_file_remove(const char *prefix, enum token_file file, const char *more);
// The path of one of them; `more`: ".tmp", ".old" or "". Caller frees.
char *token_file_path(const char *prefix, enum token_file file, const char *more);
// Puts the new files in place: those of `has` from their *.tmp, the others are absent then. When it fails, the old ones
// are back, or the message says what they are called.
trireme_status token_files_replace(const char *prefix, const bool has[TOKEN_FILES], trireme_error *error);
// Puts back the files that a replacement left as *.old which was cut short, unless it is still under way (BUSY). Does
// nothing where the files are as they should be. `trusting`: where files cannot be locked, none is under way.
trireme_status token_files_mend(const char *prefix, bool trusting, trireme_error *error);
// For who is about to replace them: removes what earlier replacements left as *.old after they were done.
void token_files_tidy(const char *prefix);

#endif
