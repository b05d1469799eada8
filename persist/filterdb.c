/* In memory the words are little-endian bytes with bit i at byte i / 8, value 1 << (i % 8): the NEW body as it is. The
 * OLD body has the eight bytes of every word reversed. The header is big-endian in both. */
#include "filterdb.h"

#include <stdbool.h>
#include <string.h>

#include "check.h"

#define RUN_WORDS 64 /* looked at together when decoding: less than a page, so that no page is touched for nothing */

static void put_be32(unsigned char *out, uint32_t value)
{
    out[0] = (unsigned char)(value >> 24);
    out[1] = (unsigned char)(value >> 16);
    out[2] = (unsigned char)(value >> 8);
    out[3] = (unsigned char)value;
}

static uint32_t get_be32(const unsigned char *in)
{
    return (uint32_t)in[0] << 24 | (uint32_t)in[1] << 16 | (uint32_t)in[2] << 8 | in[3];
}

void filterdb_encode_header(const struct bloom_shape *shape, unsigned char out[FILTERDB_HEADER_BYTES])
{
    CHECK(shape->k >= 1 && shape->k <= BLOOM_MAX_K && shape->nwords >= 1 && shape->nwords <= BLOOM_MAX_WORDS);
    put_be32(out, shape->k);
    put_be32(out + 4, (uint32_t)shape->nwords);
}

static int check_size(uint64_t nwords, uint64_t file_size, struct errbuf *err)
{
    uint64_t body = file_size - FILTERDB_HEADER_BYTES;

    if (body / 8 < nwords) {
        errbuf_set(err, "announces %llu words but holds %llu", (unsigned long long)nwords,
                   (unsigned long long)(body / 8));
        if (body % 8 != 0)
            errbuf_set(err, "announces %llu words but holds %llu and %llu bytes", (unsigned long long)nwords,
                       (unsigned long long)(body / 8), (unsigned long long)(body % 8));
        return FILTERDB_MALFORMED;
    }
    if (body > 8 * nwords) {
        errbuf_set(err, "%llu bytes behind the %llu words it announces", (unsigned long long)(body - 8 * nwords),
                   (unsigned long long)nwords);
        return FILTERDB_MALFORMED;
    }
    return FILTERDB_OK;
}

int filterdb_decode_header(const unsigned char *bytes, uint64_t file_size, enum bloom_variant variant,
                           struct bloom_shape *shape_out, struct errbuf *err)
{
    if (file_size < FILTERDB_HEADER_BYTES) {
        errbuf_set(err, file_size == 0 ? "empty file" : "%llu bytes, shorter than the header of 8",
                   (unsigned long long)file_size);
        return FILTERDB_MALFORMED;
    }
    int32_t k = (int32_t)get_be32(bytes);
    int32_t nwords = (int32_t)get_be32(bytes + 4);
    if (k < 1 || k > BLOOM_MAX_K) {
        errbuf_set(err, "hash count %d is not in 1..%d", k, BLOOM_MAX_K);
        return FILTERDB_MALFORMED;
    }
    if (nwords < 1) {
        errbuf_set(err, "word count %d is not in 1..%llu", nwords, (unsigned long long)BLOOM_MAX_WORDS);
        return FILTERDB_MALFORMED;
    }
    if (check_size((uint64_t)nwords, file_size, err) != FILTERDB_OK)
        return FILTERDB_MALFORMED;
    *shape_out = (struct bloom_shape){.nwords = (uint64_t)nwords, .k = (uint8_t)k, .variant = (uint8_t)variant};
    return FILTERDB_OK;
}

void filterdb_encode_words(enum bloom_variant variant, const _Atomic uint64_t *words, size_t nwords, unsigned char *bytes)
{
    if (variant == BLOOM_NA) {
        for (size_t i = 0; i < nwords; i++) {
            uint64_t word = atomic_load_explicit(&words[i], memory_order_relaxed);
            memcpy(bytes + 8 * i, &word, 8);
        }
        return;
    }
    for (size_t i = 0; i < nwords; i++) {
        uint64_t word = __builtin_bswap64(atomic_load_explicit(&words[i], memory_order_relaxed));
        memcpy(bytes + 8 * i, &word, 8);
    }
}

static bool all_zero(const unsigned char *bytes, size_t nwords)
{
    uint64_t any = 0;

    for (size_t i = 0; i < nwords; i++) {
        uint64_t word;
        memcpy(&word, bytes + 8 * i, 8);
        any |= word;
    }
    return any == 0;
}

static void decode_run(enum bloom_variant variant, const unsigned char *bytes, size_t nwords, _Atomic uint64_t *words)
{
    for (size_t i = 0; i < nwords; i++) {
        uint64_t word;
        memcpy(&word, bytes + 8 * i, 8);
        atomic_store_explicit(&words[i], variant == BLOOM_NA ? word : __builtin_bswap64(word), memory_order_relaxed);
    }
}

void filterdb_decode_words(enum bloom_variant variant, const unsigned char *bytes, size_t nwords, _Atomic uint64_t *words)
{
    for (size_t i = 0; i < nwords; i += RUN_WORDS) {
        size_t n = nwords - i < RUN_WORDS ? nwords - i : RUN_WORDS;
        /* Fresh words are zero already, and not yet in memory: a sparse filter stays small. */
        if (!all_zero(bytes + 8 * i, n))
            decode_run(variant, bytes + 8 * i, n, words + i);
    }
}

void filterdb_turn_words(enum bloom_variant variant, _Atomic uint64_t *words, size_t nwords)
{
    if (variant == BLOOM_NA)
        return;
    for (size_t i = 0; i < nwords; i++) {
        uint64_t word = atomic_load_explicit(&words[i], memory_order_relaxed);
        atomic_store_explicit(&words[i], __builtin_bswap64(word), memory_order_relaxed);
    }
}

static const char *const variant_names[] = {[BLOOM_NA] = "na", [BLOOM_ME] = "me", [BLOOM_KA] = "ka"};

const char *filterdb_variant_name(enum bloom_variant variant)
{
    return variant_names[variant];
}

int filterdb_variant_parse(const char *text, size_t len, enum bloom_variant *variant_out)
{
    for (int i = BLOOM_NA; i <= BLOOM_KA; i++) {
        if (len == 2 && memcmp(text, variant_names[i], 2) == 0) {
            *variant_out = (enum bloom_variant)i;
            return FILTERDB_OK;
        }
    }
    return FILTERDB_MALFORMED;
}
