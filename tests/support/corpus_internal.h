/* Shared by the files of the corpus. Internal. */
#pragma once

#include <stdbool.h>

#include "corpus.h"

/* The text after the prefix; NULL if it does not begin with it. */
const char *corpus_behind(const char *text, const char *prefix);

/* Replies are lines with their marks. */
bool corpus_same(const struct lines *recorded, const struct lines *got);

/* Whether it is the reply of TTL within a minute after the recorded one: a busy machine asks later. */
bool corpus_is_later(const char *command, const struct lines *recorded, const struct lines *got);

/* Whether the row, which may be NULL, allows a difference. */
bool corpus_is_meant(const struct compat_row *row, const struct lines *recorded, const struct lines *got);

/* Plays `@each` from after the directive. */
void corpus_each(struct wire *wire, const char *text, const char *mark, struct lines *out);
