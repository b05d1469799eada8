/* glob_parts: a pattern taken apart at its stars, for patterns that are kept and texts of which each is seen once, such
 * as the names that a user may use. The meaning is that of glob_match(), case counts;
 * but texts have a length that they may have at most.
 *
 * What stands between two stars takes a fixed number of bytes: it is compared eight bytes at a time, under a mask that
 * leaves '?' and sets out. The first part stands at the beginning of a text, the last one at its end, and each of the
 * others is looked for behind the one before. Of most texts the first eight bytes and the length say everything.
 *
 * Never changes once it is made. Neither recursion nor allocation in a match, and the time is at most proportional to
 * the product of the two lengths. Thread: any. */
#ifndef BLOOMERY_GLOB_PARTS_H
#define BLOOMERY_GLOB_PARTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "slice.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the first byte in memory is the lowest of a word");

/* A longer text matches nothing. No filter has so long a name and no channel either, and to compare tens of megabytes
 * with hundreds of patterns would take the loop's time. */
#define GLOB_PARTS_MAX_TEXT ((size_t)128 * 1024)

struct glob_part; /* internal */

struct glob_parts {      /* fields are internal but for the last */
    uint64_t head, mask; /* the first eight bytes of a text that matches, of those that the mask has */
    size_t min, more;    /* bytes that a text has at least, and at most besides */
    bool whole;          /* there is nothing more to compare */
    bool whole_ends;     /* nor at the ends, but for the last eight bytes: */
    uint64_t tail, tail_mask;
    struct glob_part *parts;
    size_t n;
    size_t bytes; /* of the memory at `parts`: for everyone */
};

/* Makes it of a pattern of at most GLOB_MAX_PATTERN bytes, which is borrowed for the call. False without memory; then
 * there is nothing to clear. */
bool glob_parts_make(struct glob_parts *glob_out, struct slice pattern);
void glob_parts_clear(struct glob_parts *glob);

/* The first eight bytes of a text, with zeros behind a shorter one: for glob_parts_match(). */
static inline uint64_t glob_parts_head(struct slice text);

/* Whether a text with this head may match: the first thing to ask where there are many patterns. */
static inline bool glob_parts_may_match(const struct glob_parts *glob, uint64_t head)
{
    return ((head ^ glob->head) & glob->mask) == 0;
}

/* Whether the whole text matches. `head` is that of the text. */
static inline bool glob_parts_match(const struct glob_parts *glob, uint64_t head, struct slice text);

/* ---- internal ---- */

/* What the head and the length do not say. */
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
