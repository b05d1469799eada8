/* A search for a floating part compares one of its bytes, at eight positions at a time: x has a zero byte where the
 * text has it, and (x - 1...) & ~x & 0x80... marks the zero bytes. It may also mark bytes above one; each place is
 * compared anyway. A part without such a byte has an x of zeros, so that each place is compared.
 *
 * The place found first is as good as any later one, because it leaves the most to the parts behind. */
#include "glob_parts.h"

#include <stdlib.h>

#include "glob_match.h"

#define WORD  sizeof(uint64_t)
#define EACH  UINT64_C(0x0101010101010101)
#define HIGHS (EACH << 7)

_Static_assert(GLOB_MAX_PATTERN <= GLOB_PARTS_MAX_TEXT, "a pattern takes no more bytes than it has");

struct glob_words {
    uint64_t want, mask;
};

struct glob_set {
    size_t at; /* in its part */
    uint64_t bytes[4];
};

/* The pattern between two stars, or between a star and an end. */
struct glob_part {
    size_t len;
    struct glob_words *words; /* cover it; masks are 0 after its end */
    size_t nwords;
    struct glob_set *sets;
    size_t nsets;
    bool whole;    /* it fits into the first word */
    size_t anchor; /* the byte that the search looks for */
    uint64_t anchor_want, anchor_mask;
};

/* ---- making ---- */

/* How much a pattern needs, so that one allocation holds all. */
struct counts {
    size_t parts, words, sets;
};

/* Skips the element at `*at`, which is not a star. True if it is a set. */
static bool skip_element(struct slice pattern, size_t *at)
{
    bool is_set = pattern.ptr[*at] == '[';
    (void)glob_element(pattern, at, '\0', false);
    return is_set;
}

static size_t skip_stars(struct slice pattern, size_t at)
{
    while (at < pattern.len && pattern.ptr[at] == '*')
        at++;
    return at;
}

static struct counts count(struct slice pattern)
{
    struct counts n = {.parts = 1};
    size_t len = 0;
    for (size_t at = 0; at < pattern.len;) {
        if (pattern.ptr[at] == '*') {
            at = skip_stars(pattern, at);
            n.parts++;
            len = 0;
            continue;
        }
        n.words += len++ % WORD == 0;
        n.sets += skip_element(pattern, &at);
    }
    return n;
}

static void add_set(struct glob_part *part, struct slice pattern, size_t *at)
{
    struct glob_set *set = &part->sets[part->nsets++];
    size_t behind = *at;
    *set = (struct glob_set){.at = part->len};
    for (unsigned byte = 0; byte < 256; byte++) {
        behind = *at;
        if (glob_element(pattern, &behind, (char)byte, false))
            set->bytes[byte / 64] |= UINT64_C(1) << byte % 64;
    }
    *at = behind;
}

/* The byte is a literal one of the part. */
static void add_byte(struct glob_part *part, uint8_t byte)
{
    struct glob_words *words = &part->words[part->len / WORD];
    unsigned shift = 8 * (part->len % WORD);
    words->want |= (uint64_t)byte << shift;
    words->mask |= UINT64_C(0xff) << shift;
    if (part->anchor_mask == 0) {
        part->anchor = part->len;
        part->anchor_want = byte * EACH;
        part->anchor_mask = UINT64_MAX;
    }
}

/* Reads a part up to the next star; returns where that is. */
static size_t make_part(struct glob_part *part, struct slice pattern, size_t at)
{
    for (; at < pattern.len && pattern.ptr[at] != '*'; part->len++) {
        if (part->len % WORD == 0)
            part->words[part->nwords++] = (struct glob_words){0, 0};
        if (pattern.ptr[at] == '[') {
            add_set(part, pattern, &at);
        } else {
            if (pattern.ptr[at] == '\\' && pattern.len - at >= 2)
                at++;
            else if (pattern.ptr[at] == '?') {
                at++;
                continue;
            }
            add_byte(part, (uint8_t)pattern.ptr[at++]);
        }
    }
    return at;
}

/* The fields that decide most texts. */
static void summarize(struct glob_parts *glob)
{
    const struct glob_part *first = &glob->parts[0], *last = &glob->parts[glob->n - 1];
    if (first->len > 0) {
        glob->head = first->words[0].want;
        glob->mask = first->words[0].mask;
    }
    if (glob->n > 1 && last->len > 0 && last->len <= WORD) {
        glob->tail = last->words[0].want << 8 * (WORD - last->len);
        glob->tail_mask = last->words[0].mask << 8 * (WORD - last->len);
    }
    glob->more = glob->n > 1 ? GLOB_PARTS_MAX_TEXT - glob->min : 0; /* shorter texts give a difference below 0 */
    glob->whole_ends = first->whole && last->whole;
    glob->whole = first->whole && (glob->n == 1 || (glob->n == 2 && last->len == 0));
}

bool glob_parts_make(struct glob_parts *glob_out, struct slice pattern)
{
    struct counts n = count(pattern);
    struct glob_parts glob = {.n = n.parts};
    glob.bytes =
        n.parts * sizeof(struct glob_part) + n.words * sizeof(struct glob_words) + n.sets * sizeof(struct glob_set);
    glob.parts = malloc(glob.bytes);
    if (!glob.parts)
        return false;
    struct glob_words *words = (struct glob_words *)(glob.parts + n.parts);
    struct glob_set *sets = (struct glob_set *)(words + n.words);
    size_t at = 0;
    for (size_t i = 0; i < n.parts; i++) {
        struct glob_part *part = &glob.parts[i];
        *part = (struct glob_part){.words = words, .sets = sets};
        at = skip_stars(pattern, make_part(part, pattern, at));
        words += part->nwords;
        sets += part->nsets;
        part->whole = part->nwords <= 1 && part->nsets == 0;
        glob.min += part->len;
    }
    summarize(&glob);
    *glob_out = glob;
    return true;
}

void glob_parts_clear(struct glob_parts *glob)
{
    free(glob->parts);
    glob->parts = NULL;
}

/* ---- matching ---- */

/* In all of this the eight bytes before the end of a text may be read, also if the text has fewer. */

static inline uint64_t load(const char *bytes)
{
    uint64_t word;
    memcpy(&word, bytes, WORD);
    return word;
}

/* Eight bytes of a text, padded with zeros. `at` is before its end. */
static inline uint64_t word_at(const char *at, const char *end)
{
    size_t left = (size_t)(end - at);
    return left >= WORD ? load(at) : load(end - WORD) >> 8 * (WORD - left);
}

/* Whether the part, except for the first `words` of its words, fits at a place that leaves enough of the text for it.
 * Rare cases have functions of their own, so that they take no registers from the rest. */
static __attribute__((noinline)) bool words_fit(const struct glob_part *part, size_t words, const char *at,
                                                const char *end)
{
    for (size_t i = words; i < part->nwords; i++) {
        if ((word_at(at + i * WORD, end) ^ part->words[i].want) & part->words[i].mask)
            return false;
    }
    return true;
}

static inline bool fits(const struct glob_part *part, size_t words, const char *at, const char *end)
{
    if (part->nwords > words && !words_fit(part, words, at, end))
        return false;
    for (const struct glob_set *set = part->sets, *behind = set + part->nsets; set < behind; set++) {
        uint8_t byte = (uint8_t)at[set->at];
        if (!(set->bytes[byte / 64] >> byte % 64 & 1))
            return false;
    }
    return true;
}

static __attribute__((noinline)) bool fits_behind_word(const struct glob_part *part, const char *at, const char *end)
{
    return fits(part, 1, at, end);
}

/* The end of the first place between `at` and `last` where the part fits. NULL: none. */
static inline const char *find(const struct glob_part *part, const char *at, const char *last, const char *end)
{
    if (at > last)
        return NULL;
    for (;; at += WORD) {
        uint64_t x = (word_at(at + part->anchor, end) ^ part->anchor_want) & part->anchor_mask;
        for (uint64_t marks = (x - EACH) & ~x & HIGHS; marks; marks &= marks - 1) {
            const char *place = at + (size_t)__builtin_ctzll(marks) / 8;
            if (place > last)
                return NULL;
            if (((word_at(place, end) ^ part->words->want) & part->words->mask) == 0 &&
                (part->whole || fits_behind_word(part, place, end)))
                return place + part->len;
        }
        if ((size_t)(last - at) < WORD)
            return NULL;
    }
}

/* Whether the parts between the first and the last one are in the text. */
static __attribute__((noinline)) bool find_all(const struct glob_parts *glob, const char *text, const char *end)
{
    const struct glob_part *part = glob->parts, *last = part + glob->n - 1;
    const char *at = text + part->len;
    while (at && ++part < last)
        at = find(part, at, end - last->len - part->len, end);
    return at;
}

static __attribute__((noinline)) bool match_parts(const struct glob_parts *glob, const char *text, const char *end)
{
    const struct glob_part *first = &glob->parts[0], *last = &glob->parts[glob->n - 1];
    return fits(first, 1, text, end) && fits(last, last->len <= WORD, end - last->len, end) &&
           (glob->n <= 2 || find_all(glob, text, end));
}

static inline bool match(const struct glob_parts *glob, const char *text, const char *end)
{
    if ((load(end - WORD) ^ glob->tail) & glob->tail_mask)
        return false;
    if (!glob->whole_ends)
        return match_parts(glob, text, end);
    return glob->n <= 2 || find_all(glob, text, end);
}

static __attribute__((noinline)) bool match_short(const struct glob_parts *glob, struct slice text)
{
    char room[2 * WORD] = {0};
    if (text.len > 0)
        memcpy(room + WORD, text.ptr, text.len);
    return match(glob, room + WORD, room + WORD + text.len);
}

bool glob_parts_match_rest(const struct glob_parts *glob, struct slice text)
{
    return text.len < WORD ? match_short(glob, text) : match(glob, text.ptr, text.ptr + text.len);
}
