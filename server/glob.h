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

#include "resp_parse.h"

/* What a command should accept at most as a pattern, in bytes. Nobody needs more, and the time for a long hostile pattern
 * would be spent on a loop. */
#define GLOB_MAX_PATTERN 4096

/* Whether the whole text matches the pattern. ASCII case is ignored on request. */
bool glob_match(struct slice pattern, struct slice text, bool ignore_case);

#endif
