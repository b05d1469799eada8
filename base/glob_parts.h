/* glob_parts: a compiled pattern, split at its stars, for patterns that are kept and matched against many texts (the
 * names that a user may use). It agrees with glob_match(), case-sensitive, except that texts have a maximum length.
 *
 * A part, the pattern between two stars, has a fixed number of bytes. It is compared eight bytes at a time, under a
 * mask that skips '?' and sets. The first part is at the beginning of a text, the last one at its end; each of the
 * others is searched for after the one before. For most texts, the first eight bytes and the length decide.
 *
 * Immutable. A match neither recurses nor allocates; its time is at most proportional to the product of the two
 * lengths. Thread: any. */
#ifndef BLOOMERY_GLOB_PARTS_H
#define BLOOMERY_GLOB_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "slice.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first byte in memory is the lowest of a word");

/* A longer text matches nothing. No filter or channel has such a long name, and comparing megabytes with hundreds of
 * patterns would block the loop. */
#define GLOB_PARTS_MAX_TEXT ((size_t)128 * 1024)

struct glob_part; /* internal */

struct glob_parts {      /* all fields but the last are internal */
    uint64_t head, mask; /* the first eight bytes of every matching text, under the mask */
    size_t min, more;    /* the minimum length of a text, and how much longer it may be */
    bool whole;          /* there is nothing more to compare */
    bool whole_ends;     /* nor at the ends, except the last eight bytes: */
    uint64_t tail, tail_mask;
    struct glob_part *parts;
    size_t n;
    size_t bytes; /* allocated at `parts`; public */
};

/* Compiles a pattern of at most GLOB_MAX_PATTERN bytes, which is borrowed for the call. False if memory runs out; then
 * there is nothing to clear. */
bool glob_parts_make(struct glob_parts *glob_out, struct slice pattern);
void glob_parts_clear(struct glob_parts *glob);

/* The first eight bytes of a text, padded with zeros; for glob_parts_match(). */
static inline uint64_t glob_parts_head(struct slice text);

/* Whether a text with this head may match: a quick test where there are many patterns. */
static inline bool glob_parts_may_match(const struct glob_parts *glob, uint64_t head)
{
    return ((head ^ glob->head) & glob->mask) == 0;
}

/* Whether the whole text matches. `head` is that of the text. */
static inline bool glob_parts_match(const struct glob_parts *glob, uint64_t head, struct slice text);

/* ---- internal ---- */

/* The rest of a match, after the head and the length. */
bool glob_parts_match_rest(const struct glob_parts *glob, struct slice text);

/* Fewer than eight bytes as a word: two loads that may overlap, or three. */
static inline uint64_t glob_parts_short(const char *bytes, size_t len)
{
    uint32_t first, last;
    if (len >= sizeof(first)) {
        memcpy(&first, bytes, sizeof(first));
        memcpy(&last, bytes + len - sizeof(last), sizeof(last));
        return first | (uint64_t)last << 8 * (len - sizeof(last));
    }
    if (len == 0)
        return 0;
    return (uint64_t)(uint8_t)bytes[0] | (uint64_t)(uint8_t)bytes[len / 2] << 8 * (len / 2) |
           (uint64_t)(uint8_t)bytes[len - 1] << 8 * (len - 1);
}

static inline uint64_t glob_parts_head(struct slice text)
{
    uint64_t word;
    if (__builtin_expect(text.len < sizeof(word), false))
        return glob_parts_short(text.ptr, text.len);
    memcpy(&word, text.ptr, sizeof(word));
    return word;
}

static inline bool glob_parts_match(const struct glob_parts *glob, uint64_t head, struct slice text)
{
    return glob_parts_may_match(glob, head) && text.len - glob->min <= glob->more && /* also if it is shorter */
           (glob->whole || glob_parts_match_rest(glob, text));
}

#endif
