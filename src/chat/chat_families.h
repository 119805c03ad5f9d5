// Chat templates that have names, written anew from how each family of models writes chats. All mark answers.
#ifndef CHAT_CHAT_FAMILIES_H
#define CHAT_CHAT_FAMILIES_H

#include "base/text.h"

// The family's template in Jinja; NULL: there is none of that name.
const char *chat_family(const char *name);
// Appends "chatml, gemma, ...".
void chat_families_list(struct text *out);
// The family whose name is nearest to a misspelt one; NULL: none is near.
const char *chat_family_nearest(const char *name);

#endif
