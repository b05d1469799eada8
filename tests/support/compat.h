/* compat: the table of meant differences from Redis with RedisBloom, tests/golden/corpus/DIFFERENCES.md, as the corpus
 * test reads it.
 *
 * A row of the table is `| files | command | reason |`: the numbers of the corpus files it is about, separated by
 * spaces; a line of those files in backticks, exactly as it stands there, or its beginning and `*`; the reason. Other
 * lines of the document are prose. A row that explains no difference in one of its files is out of date. Thread: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum compat_kind {
    COMPAT_ANY,        /* the reply may be any other */
    COMPAT_ONE_NUMBER, /* reason "one number: ...": the same form, and one number in it is another */
    COMPAT_DUMP,       /* reason "a dump: ...": other bytes, iterators and numbers of chunks; the rest is the same */
    COMPAT_MORE_WORDS, /* reason "more words: ...": the same error, ": " and an explanation */
};

struct compat_row {
    char *command; /* without the '*' of a prefix */
    bool prefix;
    enum compat_kind kind;
    bool used;
    unsigned line; /* in the document */
};

struct compat {
    struct compat_row *rows;
    size_t count;
};

/* Reads the rows about one corpus file ("09"). Fails the test when the document cannot be read or a row is malformed.
 */
void compat_load(struct compat *compat, const char *path, const char *file);

/* Adds rows, those below the heading `section` ("## Filters") only; NULL: all. */
void compat_add(struct compat *compat, const char *path, const char *section, const char *file);
void compat_deinit(struct compat *compat);

/* The row about this line of a corpus file (an exact one first, then the longest prefix), or NULL. The caller notes in
 * it when it explains a difference. */
struct compat_row *compat_find(struct compat *compat, const char *command);
