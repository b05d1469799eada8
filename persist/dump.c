/* Encoding is straight-line. Decoding trusts nothing: lengths follow from the header alone, never from what a chunk
 * says of itself, and the checksum of a chunk is verified before anything else in it is looked at. That checksum is no
 * secret: bytes that somebody made up can have a right one, so every field is checked as if there was none. */
#include "dump.h"

#include <string.h>
#include <xxhash.h>

#include "check.h"

/* A frame: magic, kind, identity, number, digest of the chunks before it; the content; XXH3-128 of all that. */
#define HEAD_BYTES 32
#define SUM_BYTES  16
#define AT_KIND     5
#define AT_RESERVED 6
#define AT_IDENTITY 8
#define AT_NUMBER   16
#define AT_COUNT    20
#define AT_CHAIN    24
#define AT_RESERVED2 28

_Static_assert(HEAD_BYTES + SUM_BYTES == DUMP_FRAME_BYTES, "the header says so");

static const unsigned char magic[5] = {'B', 'L', 'M', 'Y', 1}; /* the last byte is the version */

enum kind { KIND_HEADER = 'H', KIND_DATA = 'D', KIND_END = 'E', KIND_WHOLE = 'W' };

/* The content of a header: parameters, then 16 bytes for each layer. */
#define PARAMS_BYTES 40
#define LAYER_BYTES  16
#define COUNT_BYTES  8

#define CHAIN_BITS  23
#define NUMBER_BITS 24
#define LAYERS_BITS 6

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* Words in memory are little-endian (bloom_geometry.c asserts it), and so is everything here. */
static void put32(unsigned char *at, uint32_t value)
{
    memcpy(at, &value, sizeof(value));
}

static void put64(unsigned char *at, uint64_t value)
{
    memcpy(at, &value, sizeof(value));
}

static uint32_t get32(const unsigned char *at)
{
    uint32_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

static uint64_t get64(const unsigned char *at)
{
    uint64_t value;

    memcpy(&value, at, sizeof(value));
    return value;
}

static bool all_zero(const unsigned char *at, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (at[i] != 0)
            return false;
    }
    return true;
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

void dump_plan_of(const struct bloom_filter *filter, unsigned nlayers, struct dump_plan *plan_out)
{
    *plan_out = (struct dump_plan){.params = *bloom_filter_params(filter), .nlayers = nlayers};
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view view;

        bloom_filter_layer(filter, i, &view);
        plan_out->shapes[i] = view.shape;
        plan_out->bytes += view.shape.nwords * 8;
    }
}

static uint64_t data_chunks(const struct dump_plan *plan)
{
    return (plan->bytes + DUMP_DATA_BYTES - 1) / DUMP_DATA_BYTES;
}

uint32_t dump_chunks(const struct dump_plan *plan)
{
    return (uint32_t)data_chunks(plan) + 2; /* at most 64 layers of 16 GB: 2^21 chunks */
}

static size_t plan_bytes(unsigned nlayers)
{
    return PARAMS_BYTES + (size_t)nlayers * LAYER_BYTES;
}

/* Bytes of bits in data chunk `index`, which are those from *offset_out on. */
static size_t data_bytes(const struct dump_plan *plan, uint32_t index, uint64_t *offset_out)
{
    uint64_t offset = (uint64_t)(index - 1) * DUMP_DATA_BYTES;
    uint64_t left = plan->bytes - offset;

    *offset_out = offset;
    return left < DUMP_DATA_BYTES ? (size_t)left : DUMP_DATA_BYTES;
}

static enum kind chunk_kind(const struct dump_plan *plan, uint32_t index)
{
    if (index == 0)
        return KIND_HEADER;
    return index <= data_chunks(plan) ? KIND_DATA : KIND_END;
}

size_t dump_chunk_bytes(const struct dump_plan *plan, uint32_t index)
{
    uint64_t offset;

    switch (chunk_kind(plan, index)) {
    case KIND_HEADER:
        return DUMP_FRAME_BYTES + plan_bytes(plan->nlayers);
    case KIND_DATA:
        return DUMP_FRAME_BYTES + data_bytes(plan, index, &offset);
    default:
        return DUMP_FRAME_BYTES + (size_t)plan->nlayers * COUNT_BYTES;
    }
}

static void write_plan(const struct dump_plan *plan, uint64_t nonce, unsigned char *out)
{
    uint64_t rate;

    memcpy(&rate, &plan->params.error_rate, sizeof(rate));
    put64(out, plan->params.capacity);
    put64(out + 8, rate);
    put32(out + 16, plan->params.expansion);
    put32(out + 20, plan->nlayers);
    put64(out + 24, plan->bytes);
    put64(out + 32, nonce);
    for (unsigned i = 0; i < plan->nlayers; i++) {
        unsigned char *at = out + PARAMS_BYTES + (size_t)i * LAYER_BYTES;

        memset(at, 0, LAYER_BYTES);
        put64(at, plan->shapes[i].nwords);
        at[8] = plan->shapes[i].k;
        at[9] = plan->shapes[i].variant;
    }
}

/* The layers of a plan. DUMP_OK or DUMP_BAD. */
static int read_layers(const unsigned char *at, struct dump_plan *plan, struct errbuf *err)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < plan->nlayers; i++, at += LAYER_BYTES) {
        struct bloom_shape *shape = &plan->shapes[i];

        *shape = (struct bloom_shape){.nwords = get64(at), .k = at[8], .variant = at[9]};
        if (!all_zero(at + 10, LAYER_BYTES - 10) || shape->nwords < 1 || shape->nwords > BLOOM_MAX_WORDS ||
            shape->k < 1 || shape->k > BLOOM_MAX_K || shape->variant > BLOOM_KA ||
            shape->variant != plan->shapes[0].variant) {
            errbuf_set(err, "layer %u is not one that a filter can have", i);
            return DUMP_BAD;
        }
        bytes += shape->nwords * 8;
    }
    if (bytes != plan->bytes) {
        errbuf_set(err, "the layers have %llu bytes, the header says %llu", (unsigned long long)bytes,
                   (unsigned long long)plan->bytes);
        return DUMP_BAD;
    }
    return DUMP_OK;
}

/* Reads a plan from the `len` bytes at `in`, of which it may use a part; its length is then plan_bytes(). */
static int read_plan(const unsigned char *in, size_t len, struct dump_plan *plan, struct errbuf *err)
{
    uint64_t rate;

    if (len < PARAMS_BYTES + LAYER_BYTES) {
        errbuf_set(err, "the header is too short");
        return DUMP_BAD;
    }
    *plan = (struct dump_plan){.params = {.capacity = get64(in), .expansion = get32(in + 16)},
                               .nlayers = get32(in + 20),
                               .bytes = get64(in + 24)};
    rate = get64(in + 8);
    memcpy(&plan->params.error_rate, &rate, sizeof(rate));
    if (plan->params.capacity < 1 || !(plan->params.error_rate > 0 && plan->params.error_rate < 1) ||
        plan->params.expansion > BLOOM_MAX_EXPANSION) {
        errbuf_set(err, "the parameters are not those of a filter");
        return DUMP_BAD;
    }
    if (plan->nlayers < 1 || plan->nlayers > BLOOM_MAX_LAYERS || len < plan_bytes(plan->nlayers) ||
        (plan->params.expansion == 0 && plan->nlayers > 1)) {
        errbuf_set(err, "the number of layers, %u, cannot be", plan->nlayers);
        return DUMP_BAD;
    }
    return read_layers(in + PARAMS_BYTES, plan, err);
}

/* ---- bits and counts --------------------------------------------------------------------------------------------- */

/* Walks the `len` bytes of bits from `offset` on, both multiples of 8, layer by layer: each run of words is handed to
 * `fn` with the bytes that stand for it. */
static void for_each_run(const struct dump_plan *plan, const struct bloom_filter *filter, uint64_t offset, size_t len,
                         unsigned char *bytes, void (*fn)(_Atomic uint64_t *words, size_t nwords, unsigned char *bytes))
{
    uint64_t start = 0; /* of the layer */

    for (unsigned i = 0; i < plan->nlayers && len > 0; i++) {
        uint64_t layer_bytes = plan->shapes[i].nwords * 8;

        if (offset < start + layer_bytes) {
            struct bloom_layer_view view;
            uint64_t left = start + layer_bytes - offset;
            size_t run = left < len ? (size_t)left : len;

            bloom_filter_layer(filter, i, &view);
            fn(view.words + (offset - start) / 8, run / 8, bytes);
            offset += run;
            bytes += run;
            len -= run;
        }
        start += layer_bytes;
    }
}

static void copy_out(_Atomic uint64_t *words, size_t nwords, unsigned char *bytes)
{
    for (size_t i = 0; i < nwords; i++)
        put64(bytes + 8 * i, atomic_load_explicit(&words[i], memory_order_relaxed));
}

/* Zero words are left alone: memory that nobody has written costs nothing. */
static void copy_in(_Atomic uint64_t *words, size_t nwords, unsigned char *bytes)
{
    for (size_t i = 0; i < nwords; i++) {
        uint64_t word = get64(bytes + 8 * i);

        if (word != 0)
            atomic_store_explicit(&words[i], word, memory_order_relaxed);
    }
}

static void write_bits(const struct dump_plan *plan, const struct bloom_filter *filter, uint64_t offset, size_t len,
                       unsigned char *out)
{
    for_each_run(plan, filter, offset, len, out, copy_out);
}

static void read_bits(const struct dump_plan *plan, struct bloom_filter *filter, uint64_t offset, size_t len,
                      const unsigned char *in)
{
    for_each_run(plan, filter, offset, len, (unsigned char *)(uintptr_t)in, copy_in); /* copy_in only reads there */
}

static void write_counts(const struct dump_plan *plan, const struct bloom_filter *filter, unsigned char *out)
{
    for (unsigned i = 0; i < plan->nlayers; i++) {
        struct bloom_layer_view view;

        bloom_filter_layer(filter, i, &view);
        put64(out + (size_t)i * COUNT_BYTES, view.items < view.capacity ? view.items : view.capacity);
    }
}

/* The capacity of layer i; saturates, as no filter that exists can have more. */
static uint64_t layer_capacity(const struct bloom_params *params, unsigned i)
{
    uint64_t capacity = params->capacity;

    for (; i > 0; i--) {
        if (__builtin_mul_overflow(capacity, (uint64_t)params->expansion, &capacity))
            return UINT64_MAX;
    }
    return capacity;
}

static int check_counts(const struct dump_plan *plan, const unsigned char *in, struct errbuf *err)
{
    for (unsigned i = 0; i < plan->nlayers; i++) {
        if (get64(in + (size_t)i * COUNT_BYTES) > layer_capacity(&plan->params, i)) {
            errbuf_set(err, "layer %u would hold more items than its capacity", i);
            return DUMP_BAD;
        }
    }
    return DUMP_OK;
}

static void read_counts(const struct dump_plan *plan, struct bloom_filter *filter, const unsigned char *in)
{
    for (unsigned i = 0; i < plan->nlayers; i++)
        bloom_filter_set_items(filter, i, get64(in + (size_t)i * COUNT_BYTES));
}

/* ---- frames ------------------------------------------------------------------------------------------------------ */

struct frame {
    enum kind kind;
    uint64_t identity;
    uint32_t number, count;
    uint32_t chain;
};

static void write_frame(const struct frame *frame, unsigned char *out, size_t len)
{
    XXH128_canonical_t sum;

    memcpy(out, magic, sizeof(magic));
    out[AT_KIND] = (unsigned char)frame->kind;
    memset(out + AT_RESERVED, 0, 2);
    put64(out + AT_IDENTITY, frame->identity);
    put32(out + AT_NUMBER, frame->number);
    put32(out + AT_COUNT, frame->count);
    put32(out + AT_CHAIN, frame->chain);
    put32(out + AT_RESERVED2, 0);
    XXH128_canonicalFromHash(&sum, XXH3_128bits(out, len - SUM_BYTES));
    memcpy(out + len - SUM_BYTES, sum.digest, SUM_BYTES);
}

/* RedisBloom's own, to say more than "bad data" to somebody who moves: the header of its dumps is 20 bytes and 53 for
 * each of its filters, whose number is the third word; DUMP of a module's value begins with 7. */
static void explain_foreign(const unsigned char *data, size_t len, struct errbuf *err)
{
    bool redisbloom = len >= 20 && (len - 20) % 53 == 0 && len > 20 && get32(data + 8) == (len - 20) / 53;
    bool redis = len > 10 && (data[0] == 7 || data[0] == 6);

    if (redisbloom || redis)
        errbuf_set(err, "this is a dump of RedisBloom, whose filters have other bits for the same items; "
                        "reserve a filter and add the items again");
    else
        errbuf_set(err, "this is no dump of Bloomery");
}

/* Verifies checksum and form; what the fields say is for the caller. */
static int read_frame(const unsigned char *data, size_t len, struct frame *frame_out, struct errbuf *err)
{
    XXH128_canonical_t sum;

    if (len < sizeof(magic) - 1 || memcmp(data, magic, sizeof(magic) - 1) != 0) {
        explain_foreign(data, len, err);
        return DUMP_FOREIGN;
    }
    if (len < DUMP_FRAME_BYTES) {
        errbuf_set(err, "%zu bytes are too few", len);
        return DUMP_BAD;
    }
    XXH128_canonicalFromHash(&sum, XXH3_128bits(data, len - SUM_BYTES));
    if (memcmp(sum.digest, data + len - SUM_BYTES, SUM_BYTES) != 0) {
        errbuf_set(err, "the checksum is wrong");
        return DUMP_BAD;
    }
    if (data[sizeof(magic) - 1] != magic[sizeof(magic) - 1]) {
        errbuf_set(err, "version %u of the format is not known here", data[sizeof(magic) - 1]);
        return DUMP_BAD;
    }
    if (!all_zero(data + AT_RESERVED, 2) || !all_zero(data + AT_RESERVED2, 4)) {
        errbuf_set(err, "reserved bytes are in use");
        return DUMP_BAD;
    }
    *frame_out = (struct frame){
        .kind = (enum kind)data[AT_KIND],
        .identity = get64(data + AT_IDENTITY),
        .number = get32(data + AT_NUMBER),
        .count = get32(data + AT_COUNT),
        .chain = get32(data + AT_CHAIN),
    };
    return DUMP_OK;
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

int64_t dump_iterator(const struct dump_place *place)
{
    return (int64_t)((uint64_t)(place->nlayers - 1) << (CHAIN_BITS + NUMBER_BITS) |
                     (uint64_t)place->next << CHAIN_BITS | place->chain);
}

bool dump_place_from(int64_t iterator, struct dump_place *place_out)
{
    uint64_t bits = (uint64_t)iterator;

    *place_out = (struct dump_place){
        .nlayers = (unsigned)(bits >> (CHAIN_BITS + NUMBER_BITS) & ((1u << LAYERS_BITS) - 1)) + 1,
        .next = (uint32_t)(bits >> CHAIN_BITS & ((1u << NUMBER_BITS) - 1)),
        .chain = (uint32_t)(bits & ((1u << CHAIN_BITS) - 1)),
    };
    return iterator > 0 && bits >> (CHAIN_BITS + NUMBER_BITS + LAYERS_BITS) == 0 && place_out->next > 0;
}

/* A chunk contains the digest before it, so its checksum stands for all that came until then. */
static void move_on(struct dump_place *place, const unsigned char *chunk, size_t len)
{
    place->chain = get32(chunk + len - SUM_BYTES) & ((1u << CHAIN_BITS) - 1);
    place->next++;
}

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

void dump_write_chunk(const struct dump_plan *plan, const struct bloom_filter *filter, uint64_t identity,
                      uint64_t nonce, struct dump_place *place, unsigned char *out)
{
    struct frame frame = {chunk_kind(plan, place->next), identity, place->next, dump_chunks(plan), place->chain};
    size_t len = dump_chunk_bytes(plan, place->next);
    uint64_t offset;

    switch (frame.kind) {
    case KIND_HEADER:
        write_plan(plan, nonce, out + HEAD_BYTES);
        break;
    case KIND_DATA:
        data_bytes(plan, place->next, &offset);
        write_bits(plan, filter, offset, len - DUMP_FRAME_BYTES, out + HEAD_BYTES);
        break;
    default:
        write_counts(plan, filter, out + HEAD_BYTES);
        break;
    }
    write_frame(&frame, out, len);
    move_on(place, out, len);
}

static int check_iterator(const struct dump_place *place, int64_t iterator, struct errbuf *err)
{
    if (dump_iterator(place) == iterator)
        return DUMP_OK;
    errbuf_set(err, "the iterator is not the one that came with this chunk");
    return DUMP_BAD;
}

int dump_load_begin(struct dump_load *load, int64_t iterator, const void *data, size_t len, struct errbuf *err)
{
    struct frame frame;
    int rc = read_frame(data, len, &frame, err);

    if (rc != DUMP_OK)
        return rc;
    if (frame.kind != KIND_HEADER || frame.number != 0 || frame.chain != 0) {
        errbuf_set(err, frame.kind == KIND_WHOLE ? "this is the result of DUMP, for RESTORE"
                                                 : "a dump begins with its first chunk");
        return DUMP_BAD;
    }
    rc = read_plan((const unsigned char *)data + HEAD_BYTES, len - DUMP_FRAME_BYTES, &load->plan, err);
    if (rc != DUMP_OK)
        return rc;
    if (len != dump_chunk_bytes(&load->plan, 0) || frame.count != dump_chunks(&load->plan)) {
        errbuf_set(err, "the header does not have the length, or the dump not the chunks, that its layers need");
        return DUMP_BAD;
    }
    load->identity = frame.identity;
    load->place = (struct dump_place){.nlayers = load->plan.nlayers};
    move_on(&load->place, data, len);
    return check_iterator(&load->place, iterator, err);
}

int dump_load_chunk(struct dump_load *load, struct bloom_filter *filter, int64_t iterator, const void *data, size_t len,
                    bool *complete_out, struct errbuf *err)
{
    const struct dump_plan *plan = &load->plan;
    const unsigned char *content;
    struct frame frame;
    uint64_t offset;

    if (read_frame(data, len, &frame, err) != DUMP_OK)
        return DUMP_BAD;
    if (frame.identity != load->identity) {
        errbuf_set(err, "the chunk is from another dump");
        return DUMP_BAD;
    }
    if (frame.number != load->place.next) {
        errbuf_set(err, "chunk %u came where %u had to come", frame.number, load->place.next);
        return DUMP_BAD;
    }
    if (frame.chain != load->place.chain || frame.kind != chunk_kind(plan, frame.number) ||
        frame.count != dump_chunks(plan) || len != dump_chunk_bytes(plan, frame.number)) {
        errbuf_set(err, "chunk %u does not continue what came before it", frame.number);
        return DUMP_BAD;
    }
    move_on(&load->place, data, len);
    if (check_iterator(&load->place, iterator, err) != DUMP_OK)
        return DUMP_BAD;

    content = (const unsigned char *)data + HEAD_BYTES;
    *complete_out = frame.kind == KIND_END;
    if (frame.kind == KIND_DATA) {
        data_bytes(plan, frame.number, &offset);
        read_bits(plan, filter, offset, len - DUMP_FRAME_BYTES, content);
        return DUMP_OK;
    }
    if (check_counts(plan, content, err) != DUMP_OK)
        return DUMP_BAD;
    read_counts(plan, filter, content);
    return DUMP_OK;
}

/* ---- one piece --------------------------------------------------------------------------------------------------- */

size_t dump_whole_bytes(const struct dump_plan *plan)
{
    return DUMP_FRAME_BYTES + plan_bytes(plan->nlayers) + (size_t)plan->bytes + (size_t)plan->nlayers * COUNT_BYTES;
}

void dump_write_whole(const struct dump_plan *plan, const struct bloom_filter *filter, unsigned char *out)
{
    struct frame frame = {.kind = KIND_WHOLE, .count = 1};
    unsigned char *at = out + HEAD_BYTES;

    write_plan(plan, 0, at);
    at += plan_bytes(plan->nlayers);
    write_bits(plan, filter, 0, (size_t)plan->bytes, at);
    write_counts(plan, filter, at + plan->bytes);
    write_frame(&frame, out, dump_whole_bytes(plan));
}

int dump_read_plan(const void *data, size_t len, struct dump_plan *plan_out, struct errbuf *err)
{
    const unsigned char *content;
    struct frame frame;
    int rc = read_frame(data, len, &frame, err);

    if (rc != DUMP_OK)
        return rc;
    content = (const unsigned char *)data + HEAD_BYTES;
    if (frame.kind != KIND_WHOLE || frame.identity != 0 || frame.number != 0 || frame.count != 1 || frame.chain != 0) {
        errbuf_set(err, "this is a chunk of BF.SCANDUMP, for BF.LOADCHUNK");
        return DUMP_BAD;
    }
    rc = read_plan(content, len - DUMP_FRAME_BYTES, plan_out, err);
    if (rc != DUMP_OK)
        return rc;
    if (len != dump_whole_bytes(plan_out)) {
        errbuf_set(err, "%zu bytes, where the layers need %zu", len, dump_whole_bytes(plan_out));
        return DUMP_BAD;
    }
    return check_counts(plan_out, content + plan_bytes(plan_out->nlayers) + plan_out->bytes, err);
}

void dump_read_whole(const struct dump_plan *plan, const void *data, struct bloom_filter *filter)
{
    const unsigned char *bits = (const unsigned char *)data + HEAD_BYTES + plan_bytes(plan->nlayers);

    read_bits(plan, filter, 0, (size_t)plan->bytes, bits);
    read_counts(plan, filter, bits + plan->bytes);
}
