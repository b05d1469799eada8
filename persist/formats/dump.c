/* Encoding is straight-line. Decoding trusts no input: lengths follow from the header alone, never from a chunk, and
 * the checksum of a chunk is verified before any other field. The checksum is not secret: forged bytes can have a valid
 * one, so every field is checked as if there was no checksum. */
#include "dump.h"

#include <string.h>
#include <xxhash.h>

#include "bytes.h"
#include "clock.h"
#include "bloom_layout.h"

/* A frame: magic, kind, identity, number, digest of the chunks before it; the content; XXH3-128 of all that. */
#define HEAD_BYTES   32
#define SUM_BYTES    16
#define AT_KIND      5
#define AT_RESERVED  6
#define AT_IDENTITY  8
#define AT_NUMBER    16
#define AT_COUNT     20
#define AT_CHAIN     24
#define AT_RESERVED2 28

_Static_assert(HEAD_BYTES + SUM_BYTES == DUMP_FRAME_BYTES, "the header says so");

static const unsigned char magic[5] = {'B', 'L', 'M', 'Y', 1}; /* the last byte is the version */

enum kind { KIND_HEADER = 'H', KIND_DATA = 'D', KIND_END = 'E' };

/* The content of a header: parameters, then 16 bytes for each layer. RedisBloom's layout adds 24 bytes for each layer,
 * and a window 24 bytes and 16 for each layer. A KEYED filter ends with the id of its key, one in valkey-bloom's layout
 * with its tightening ratio and its seed. */
#define PARAMS_BYTES 40
#define LAYER_BYTES  16
#define OWN_BYTES    24
#define COUNT_BYTES  8
#define AT_LEVEL     13 /* of a layer's bytes */
#define AT_FLAGS     15
#define HAS_WINDOW   1
#define HAS_KEY      2
#define HAS_SEED     4
#define KEY_BYTES    8
#define SEED_BYTES   (8 + BLOOM_SEED_BYTES)
#define AT_NONCE     32

#define CHAIN_BITS  21
#define NUMBER_BITS 22
#define LAYERS_BITS 10

_Static_assert(DUMP_MAX_CHUNKS == UINT32_C(1) << NUMBER_BITS, "an iterator has the number of the next chunk");
_Static_assert(BLOOM_MAX_LAYERS <= 1 << LAYERS_BITS, "an iterator has the number of layers");
_Static_assert(CHAIN_BITS + NUMBER_BITS + LAYERS_BITS == 53, "clients keep iterators in a double");

/* ---- plans ---- */

void dump_plan_of(const struct bloom_filter *filter, unsigned nlayers, struct dump_plan *plan_out)
{
    const struct bloom_params *params = bloom_filter_params(filter);
    int64_t now_us = 0;

    *plan_out = (struct dump_plan){.params = *params, .nlayers = nlayers};
    if (bloom_params_is_window(params)) {
        bloom_window_forget((struct bloom_filter *)filter);
        now_us = bloom_window_now_us(filter);
        plan_out->taken_ms = clock_unix_ms();
    }
    for (unsigned i = 0; i < nlayers; i++) {
        struct bloom_layer_view view;

        bloom_filter_layer(filter, i, &view);
        plan_out->shapes[i] = view.shape;
        plan_out->bytes += view.shape.nwords * 8;
        if (view.turn == 0)
            continue;
        int64_t age_us = now_us - view.started_us; /* of a forgotten part, too: its age shows that */
        plan_out->turns[i] = (struct dump_turn){view.turn, age_us > 0 ? (uint64_t)age_us : 0}; /* a new part */
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

static unsigned flags_of(const struct bloom_params *params)
{
    return (bloom_params_is_window(params) ? HAS_WINDOW : 0) | (params->key ? HAS_KEY : 0) |
           (bloom_params_have_seed(params) ? HAS_SEED : 0);
}

static size_t window_bytes(unsigned nlayers, unsigned flags)
{
    return flags & HAS_WINDOW ? DUMP_WINDOW_BYTES + (size_t)nlayers * DUMP_TURN_BYTES : 0;
}

/* `variant`: of the layers. */
static size_t header_bytes(unsigned nlayers, unsigned variant, unsigned flags)
{
    size_t bytes = PARAMS_BYTES + (size_t)nlayers * LAYER_BYTES + (flags & HAS_KEY ? KEY_BYTES : 0) +
                   (flags & HAS_SEED ? SEED_BYTES : 0);

    return bytes + window_bytes(nlayers, flags) +
           (bloom_layout_of(variant)->own_numbers ? (size_t)nlayers * OWN_BYTES : 0);
}

static size_t plan_bytes(const struct dump_plan *plan)
{
    return header_bytes(plan->nlayers, plan->shapes[0].variant, flags_of(&plan->params));
}

/* Bytes of bits in data chunk `index`; they begin at *offset_out. */
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
        return DUMP_FRAME_BYTES + plan_bytes(plan);
    case KIND_DATA:
        return DUMP_FRAME_BYTES + data_bytes(plan, index, &offset);
    default:
        return DUMP_FRAME_BYTES + (size_t)plan->nlayers * COUNT_BYTES;
    }
}

/* The fields of layers that state their own numbers. */
static void write_own(const struct dump_plan *plan, unsigned char *at)
{
    for (unsigned i = 0; i < plan->nlayers; i++) {
        at = le64_put(at, plan->shapes[i].capacity);
        at = le_double_put(at, plan->shapes[i].error_rate);
        at = le_double_put(at, plan->shapes[i].bpe);
    }
}

static void write_plan(const struct dump_plan *plan, uint64_t nonce, unsigned char *out)
{
    le64_put(out, plan->params.capacity);
    le_double_put(out + 8, plan->params.error_rate);
    le32_put(out + 16, plan->params.expansion);
    le32_put(out + 20, plan->nlayers);
    le64_put(out + 24, plan->bytes);
    le64_put(out + AT_NONCE, nonce);
    for (unsigned i = 0; i < plan->nlayers; i++) {
        unsigned char *at = out + PARAMS_BYTES + (size_t)i * LAYER_BYTES;

        memset(at, 0, LAYER_BYTES);
        le64_put(at, plan->shapes[i].nwords);
        at[8] = plan->shapes[i].k;
        at[9] = plan->shapes[i].variant;
        at[10] = plan->shapes[i].n2;
        at[11] = plan->shapes[i].spare_bytes;
        at[12] = plan->params.redisbloom;
        le16_put(at + AT_LEVEL, plan->shapes[i].level);
        at[AT_FLAGS] = (unsigned char)flags_of(&plan->params);
    }
    unsigned char *behind = out + PARAMS_BYTES + (size_t)plan->nlayers * LAYER_BYTES;
    if (bloom_params_is_window(&plan->params))
        dump_write_window(plan, behind);
    if (bloom_layout_of(plan->shapes[0].variant)->own_numbers)
        write_own(plan, behind + window_bytes(plan->nlayers, flags_of(&plan->params)));
    if (plan->params.key)
        le64_put(out + plan_bytes(plan) - KEY_BYTES, plan->params.key);
    if (bloom_params_have_seed(&plan->params))
        memcpy(le_double_put(out + plan_bytes(plan) - SEED_BYTES, plan->params.tightening), &plan->params.seed,
               BLOOM_SEED_BYTES);
}

/* The layers of a plan. DUMP_OK or DUMP_BAD. */
static int read_layers(const unsigned char *at, struct dump_plan *plan, struct errbuf *err)
{
    const unsigned char *own =
        at + (size_t)plan->nlayers * LAYER_BYTES + window_bytes(plan->nlayers, flags_of(&plan->params));
    bool window = bloom_params_is_window(&plan->params);
    uint64_t bytes = 0;

    for (unsigned i = 0; i < plan->nlayers; i++, at += LAYER_BYTES, own += OWN_BYTES) {
        struct bloom_shape *shape = &plan->shapes[i];

        *shape = (struct bloom_shape){.nwords = le64_get(at),
                                      .k = at[8],
                                      .variant = at[9],
                                      .n2 = at[10],
                                      .spare_bytes = at[11],
                                      .level = le16_get(at + AT_LEVEL)};
        if (bloom_layout_of(shape->variant)->own_numbers && shape->variant == plan->shapes[0].variant) {
            shape->capacity = le64_get(own);
            shape->error_rate = le_double_get(own + 8);
            shape->bpe = le_double_get(own + 16);
        }
        if (at[AT_FLAGS] != flags_of(&plan->params) || (shape->level && !window) || at[12] != plan->params.redisbloom ||
            shape->variant != plan->shapes[0].variant || bloom_layout_of(shape->variant)->slots ||
            !bloom_shape_valid(shape, NULL))
            return errbuf_fail(err, DUMP_BAD, "layer %u is not valid", i);
        bytes += shape->nwords * 8;
    }
    if (bytes != plan->bytes)
        return errbuf_fail(err, DUMP_BAD, "the layers have %llu bytes, the header says %llu", (unsigned long long)bytes,
                           (unsigned long long)plan->bytes);
    return DUMP_OK;
}

/* Reads a plan from the `len` bytes at `in`, of which it may use a part; its length is then plan_bytes(). */
static int read_plan(const unsigned char *in, size_t len, struct dump_plan *plan, struct errbuf *err)
{
    if (len < PARAMS_BYTES + LAYER_BYTES)
        return errbuf_fail(err, DUMP_BAD, "the header is too short");
    *plan = (struct dump_plan){
        .params = {.capacity = le64_get(in), .error_rate = le_double_get(in + 8), .expansion = le32_get(in + 16)},
        .nlayers = le32_get(in + 20),
        .bytes = le64_get(in + 24)};
    plan->params.redisbloom = in[PARAMS_BYTES + 12];
    unsigned flags = in[PARAMS_BYTES + AT_FLAGS], variant = in[PARAMS_BYTES + 9];
    bool window = flags & HAS_WINDOW;
    if (plan->nlayers < 1 || plan->nlayers > BLOOM_MAX_LAYERS || len < header_bytes(plan->nlayers, variant, flags))
        return errbuf_fail(err, DUMP_BAD, "invalid number of layers: %u", plan->nlayers);
    if (flags & HAS_KEY)
        plan->params.key = le64_get(in + header_bytes(plan->nlayers, variant, flags) - KEY_BYTES);
    if (flags & HAS_SEED) {
        const unsigned char *at = in + header_bytes(plan->nlayers, variant, flags) - SEED_BYTES;
        plan->params.tightening = le_double_get(at);
        memcpy(&plan->params.seed, at + 8, BLOOM_SEED_BYTES);
    }
    const unsigned char *behind = in + PARAMS_BYTES + (size_t)plan->nlayers * LAYER_BYTES;
    if (window)
        dump_read_window(behind, &plan->params);
    if (!bloom_params_valid(&plan->params, NULL) || window != bloom_params_is_window(&plan->params))
        return errbuf_fail(err, DUMP_BAD, "the parameters are not valid");
    if (plan->params.expansion == 0 && plan->nlayers > 1 && !window)
        return errbuf_fail(err, DUMP_BAD, "invalid number of layers: %u", plan->nlayers);
    if (read_layers(in + PARAMS_BYTES, plan, err) != DUMP_OK)
        return DUMP_BAD;
    return window ? dump_read_turns(behind, plan, err) : DUMP_OK;
}

/* ---- bits and counts ---- */

/* A layer of a window that belongs to no part: it has no bits and no items, even if its memory still holds some. */
static bool is_unused(const struct dump_plan *plan, unsigned i)
{
    return bloom_params_is_window(&plan->params) && plan->turns[i].number == 0;
}

/* Walks `len` bytes of the bits from `offset` on, both multiples of 8, layer by layer. Calls `fn` with each run of
 * words, NULL for an unused layer, and its bytes. */
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
            fn(is_unused(plan, i) ? NULL : view.words + (offset - start) / 8, run / 8, bytes);
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
        le64_put(bytes + 8 * i, words ? atomic_load_explicit(&words[i], memory_order_relaxed) : 0);
}

/* Zero words are left alone: untouched memory costs nothing. */
static void copy_in(_Atomic uint64_t *words, size_t nwords, unsigned char *bytes)
{
    for (size_t i = 0; words && i < nwords; i++) {
        uint64_t word = le64_get(bytes + 8 * i);

        if (word != 0)
            atomic_store_explicit(&words[i], word, memory_order_relaxed);
    }
}

static void write_counts(const struct dump_plan *plan, const struct bloom_filter *filter, unsigned char *out)
{
    for (unsigned i = 0; i < plan->nlayers; i++) {
        struct bloom_layer_view view;

        bloom_filter_layer(filter, i, &view);
        uint64_t items = bloom_layer_placed(&view);
        if (is_unused(plan, i))
            items = 0;
        le64_put(out + (size_t)i * COUNT_BYTES, items < view.capacity ? items : view.capacity);
    }
}

/* The capacity of layer i; saturates, as no filter that exists can have more. */
static uint64_t layer_capacity(const struct dump_plan *plan, unsigned i)
{
    uint64_t capacity = plan->params.capacity;
    double rate;

    if (bloom_params_is_window(&plan->params))
        return bloom_window_level(&plan->params, plan->shapes[i].level, &capacity, &rate, NULL) == BLOOM_OK ? capacity
                                                                                                            : 0;
    if (bloom_layout_of(plan->shapes[i].variant)->own_numbers)
        return plan->shapes[i].capacity;
    for (; i > 0; i--)
        if (__builtin_mul_overflow(capacity, (uint64_t)plan->params.expansion, &capacity))
            return UINT64_MAX;
    return capacity;
}

static int check_counts(const struct dump_plan *plan, const unsigned char *in, struct errbuf *err)
{
    for (unsigned i = 0; i < plan->nlayers; i++)
        if (le64_get(in + (size_t)i * COUNT_BYTES) > layer_capacity(plan, i))
            return errbuf_fail(err, DUMP_BAD, "layer %u would hold more items than its capacity", i);
    return DUMP_OK;
}

/* ---- frames ---- */

struct frame {
    enum kind kind;
    uint64_t identity;
    uint32_t number, count, chain;
};

static void write_frame(const struct frame *frame, unsigned char *out, size_t len)
{
    XXH128_canonical_t sum;

    memcpy(out, magic, sizeof(magic));
    out[AT_KIND] = (unsigned char)frame->kind;
    memset(out + AT_RESERVED, 0, 2);
    le64_put(out + AT_IDENTITY, frame->identity);
    le32_put(out + AT_NUMBER, frame->number);
    le32_put(out + AT_COUNT, frame->count);
    le32_put(out + AT_CHAIN, frame->chain);
    le32_put(out + AT_RESERVED2, 0);
    XXH128_canonicalFromHash(&sum, XXH3_128bits(out, len - SUM_BYTES));
    memcpy(out + len - SUM_BYTES, sum.digest, SUM_BYTES);
}

/* Verifies checksum and form; the caller checks the fields. */
static int read_frame(const unsigned char *data, size_t len, struct frame *frame_out, struct errbuf *err)
{
    XXH128_canonical_t sum;

    if (len < sizeof(magic) - 1 || memcmp(data, magic, sizeof(magic) - 1) != 0)
        return errbuf_fail(err, DUMP_FOREIGN,
                           "not a dump of Bloomery; a dump of RedisBloom begins with its header, iterator 1");
    if (len < DUMP_FRAME_BYTES)
        return errbuf_fail(err, DUMP_BAD, "%zu bytes are too few", len);
    XXH128_canonicalFromHash(&sum, XXH3_128bits(data, len - SUM_BYTES));
    if (memcmp(sum.digest, data + len - SUM_BYTES, SUM_BYTES) != 0)
        return errbuf_fail(err, DUMP_BAD, "the checksum is wrong");
    if (data[sizeof(magic) - 1] != magic[sizeof(magic) - 1])
        return errbuf_fail(err, DUMP_BAD, "version %u of the format is unknown", data[sizeof(magic) - 1]);
    if (!bytes_are_zero(data + AT_RESERVED, 2) || !bytes_are_zero(data + AT_RESERVED2, 4))
        return errbuf_fail(err, DUMP_BAD, "reserved bytes are in use");
    *frame_out = (struct frame){
        .kind = (enum kind)data[AT_KIND],
        .identity = le64_get(data + AT_IDENTITY),
        .number = le32_get(data + AT_NUMBER),
        .count = le32_get(data + AT_COUNT),
        .chain = le32_get(data + AT_CHAIN),
    };
    return DUMP_OK;
}

/* ---- places ---- */

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

/* A chunk contains the digest before it, so its checksum covers all earlier chunks, too. */
static void move_on(struct dump_place *place, const unsigned char *chunk, size_t len)
{
    place->chain = le32_get(chunk + len - SUM_BYTES) & ((1u << CHAIN_BITS) - 1);
    place->next++;
}

/* ---- chunks ---- */

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
        for_each_run(plan, filter, offset, len - DUMP_FRAME_BYTES, out + HEAD_BYTES, copy_out);
        break;
    default:
        write_counts(plan, filter, out + HEAD_BYTES);
        break;
    }
    write_frame(&frame, out, len);
    move_on(place, out, len);
}

static int check_iterator(const struct dump_place *place, const int64_t *iterator, struct errbuf *err)
{
    if (!iterator || dump_iterator(place) == *iterator)
        return DUMP_OK;
    return errbuf_fail(err, DUMP_BAD, "the iterator is not the one that came with this chunk");
}

bool dump_is_header(const void *data, size_t len)
{
    return len > AT_KIND && memcmp(data, magic, sizeof(magic)) == 0 &&
           ((const unsigned char *)data)[AT_KIND] == KIND_HEADER;
}

int dump_load_begin(struct dump_load *load, const int64_t *iterator, const void *data, size_t len, struct errbuf *err)
{
    struct frame frame;
    TRY(read_frame(data, len, &frame, err));
    if (frame.kind != KIND_HEADER || frame.number != 0 || frame.chain != 0)
        return errbuf_fail(err, DUMP_BAD, "a dump begins with its first chunk");
    TRY(read_plan((const unsigned char *)data + HEAD_BYTES, len - DUMP_FRAME_BYTES, &load->plan, err));
    if (len != dump_chunk_bytes(&load->plan, 0) || frame.count != dump_chunks(&load->plan))
        return errbuf_fail(err, DUMP_BAD, "the length of the header or the number of chunks does not fit the layers");
    load->identity = frame.identity;
    load->nonce = le64_get((const unsigned char *)data + HEAD_BYTES + AT_NONCE);
    load->place = (struct dump_place){.nlayers = load->plan.nlayers};
    move_on(&load->place, data, len);
    return check_iterator(&load->place, iterator, err);
}

/* Whether this is the expected chunk; moves the place on after it. */
static int check_chunk(struct dump_load *load, const int64_t *iterator, const void *data, size_t len,
                       struct frame *frame_out, struct errbuf *err)
{
    const struct dump_plan *plan = &load->plan;
    struct frame frame;

    if (read_frame(data, len, &frame, err) != DUMP_OK)
        return DUMP_BAD;
    if (frame.identity != load->identity)
        return errbuf_fail(err, DUMP_BAD, "the chunk is from another dump");
    if (frame.number != load->place.next)
        return errbuf_fail(err, DUMP_BAD, "chunk %u came, expected chunk %u", frame.number, load->place.next);
    if (frame.chain != load->place.chain || frame.kind != chunk_kind(plan, frame.number) ||
        frame.count != dump_chunks(plan) || len != dump_chunk_bytes(plan, frame.number))
        return errbuf_fail(err, DUMP_BAD, "chunk %u does not continue what came before it", frame.number);
    move_on(&load->place, data, len);
    *frame_out = frame;
    return check_iterator(&load->place, iterator, err);
}

int dump_load_chunk(struct dump_load *load, struct bloom_filter *filter, const int64_t *iterator, const void *data,
                    size_t len, bool *complete_out, struct errbuf *err)
{
    const struct dump_plan *plan = &load->plan;
    const unsigned char *content = (const unsigned char *)data + HEAD_BYTES;
    struct frame frame;
    uint64_t offset;

    TRY(check_chunk(load, iterator, data, len, &frame, err));
    *complete_out = frame.kind == KIND_END;
    if (frame.kind == KIND_DATA) {
        data_bytes(plan, frame.number, &offset);
        for_each_run(plan, filter, offset, len - DUMP_FRAME_BYTES, (unsigned char *)(uintptr_t)content,
                     copy_in); /* which only reads there */
        return DUMP_OK;
    }
    TRY(check_counts(plan, content, err));
    for (unsigned i = 0; i < plan->nlayers; i++)
        bloom_filter_set_items(filter, i, is_unused(plan, i) ? 0 : le64_get(content + (size_t)i * COUNT_BYTES));
    if (bloom_params_is_window(&plan->params))
        dump_take_turns(plan, filter);
    return DUMP_OK;
}
