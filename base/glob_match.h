/* glob: patterns as in KEYS, SCAN MATCH and CONFIG GET, with the meaning they have in Redis:
 *
 *   *        any bytes, also none
 *   ?        one byte
 *   [abc]    one of these; [a-z] also ranges (in either order), [^...] any other byte. The first ']' ends the set;
 *            a set without an end contains the rest of the pattern
 *   \c       c itself, inside a set too; a '\' at the very end is itself
 *   other    itself
 *
 * Bytes, not characters. Neither recursion nor allocation, and the time is at most proportional to the product of the
 * two lengths, for any pattern. Thread: any. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "slice.h"

/* The longest pattern that a command should accept, in bytes: a hostile one would block the loop. */
#define GLOB_MAX_PATTERN 4096

/* Whether the whole text matches the pattern. ASCII case is ignored on request. */
bool glob_match(struct slice pattern, struct slice text, bool ignore_case);

/* Whether the pattern has none of the special characters, so that it matches itself only. */
bool glob_is_literal(struct slice pattern);

/* Writes the common prefix of all matches to prefix_out, which has room for pattern.len bytes, and returns the rest of
 * the pattern. If the rest is empty, only the prefix itself matches. */
struct slice glob_prefix(struct slice pattern, char *prefix_out, size_t *len_out);

/* A pattern compiled for many texts: a few operations per byte of a text, for any pattern. */
#define GLOB_COMPILED_MAX   256 /* bytes of a compiled pattern */
#define GLOB_COMPILED_WORDS ((GLOB_COMPILED_MAX + 1 + 63) / 64)

struct glob { /* fields are internal */
    unsigned nwords;
    unsigned nelements; /* stars not counted */
    uint64_t stars[GLOB_COMPILED_WORDS];
    uint64_t takes[256][GLOB_COMPILED_WORDS];
};

/* `pattern` has at most GLOB_COMPILED_MAX bytes and is borrowed for the call. glob_test() agrees with glob_match(). */
void glob_compile(struct glob *glob_out, struct slice pattern, bool ignore_case);
bool glob_test(const struct glob *glob, struct slice text);
