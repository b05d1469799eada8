/* glob: patterns as in KEYS, SCAN MATCH and CONFIG GET, with the meaning they have in Redis:
 *
 *   *        any bytes, also none
 *   ?        one byte
 *   [abc]    one of these; [a-z] also ranges (in either order), [^...] one that is not among them. A ']' ends the set
 *            wherever it stands; a set that is not ended has the rest of the pattern in it
 *   \c       c itself, inside a set too; a '\' at the very end is itself
 *   other    itself
 *
 * Bytes, not characters. Neither recursion nor allocation, and the time is at most proportional to the product of the two
 * lengths, whatever the pattern. Thread: any. */
#ifndef BLOOMERY_GLOB_H
#define BLOOMERY_GLOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "resp_parse.h"

/* What a command should accept at most as a pattern, in bytes. Nobody needs more, and the time for a long hostile pattern
 * would be spent on a loop. */
#define GLOB_MAX_PATTERN 4096

/* Whether the whole text matches the pattern. ASCII case is ignored on request. */
bool glob_match(struct slice pattern, struct slice text, bool ignore_case);

/* A pattern made ready for many texts. One text then takes a few operations per byte, whatever the pattern. */
#define GLOB_COMPILED_MAX   256 /* bytes of such a pattern */
#define GLOB_COMPILED_WORDS ((GLOB_COMPILED_MAX + 1 + 63) / 64)

struct glob { /* fields are internal */
    unsigned nwords;
    unsigned nelements; /* stars not counted */
    uint64_t stars[GLOB_COMPILED_WORDS];
    uint64_t takes[256][GLOB_COMPILED_WORDS];
};

/* `pattern` of at most GLOB_COMPILED_MAX bytes; not needed any more afterwards. glob_test() then agrees with glob_match(). */
void glob_compile(struct glob *glob_out, struct slice pattern, bool ignore_case);
bool glob_test(const struct glob *glob, struct slice text);

#endif
