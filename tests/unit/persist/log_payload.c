/* Payloads and frames of the log: decoding restores the encoded data, in the promised size, and accepts nothing
 * else. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "log_frame.h"
#include "log_history.h"
#include "log_payload.h"
#include "redisbloom.h"
#include "log_payload_internal.h"
#include "rng.h"

#define RECORDS 200

struct seen {
    struct log_control controls[RECORDS];
    uint64_t numbers[RECORDS];
    size_t ncontrols;
    struct {
        uint64_t id;
        unsigned layer;
        struct bloom_replay_item item;
    } adds[20000];
    size_t nadds;
};

static struct seen seen;

static int on_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    (void)ctx, (void)err;
    cr_assert_lt(seen.ncontrols, RECORDS);
    seen.numbers[seen.ncontrols] = number;
    seen.controls[seen.ncontrols++] = *control;
    return 0;
}

static int on_adds(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items, size_t n)
{
    (void)ctx;
    for (size_t i = 0; i < n; i++) {
        cr_assert_lt(seen.nadds, 20000u);
        seen.adds[seen.nadds].id = id;
        seen.adds[seen.nadds].layer = layer;
        seen.adds[seen.nadds++].item = items[i];
    }
    return 0;
}

static const struct log_visitor visitor = {.on_control = on_control, .on_adds = on_adds};

static uint64_t some_number(struct rng *rng)
{
    return rng_next(rng) >> rng_below(rng, 64);
}

static uint64_t some_id(struct rng *rng)
{
    return 1 + some_number(rng) % (LOG_NUMBER_END - 1);
}

/* Layers as log_payload.h has them: bits and counts of any kind. */
static size_t some_contents(struct rng *rng, unsigned char *at)
{
    const unsigned char *begin = at;
    unsigned nlayers = 1 + (unsigned)rng_below(rng, 3);

    unsigned char variant = (unsigned char)rng_below(rng, 3);

    *at++ = (unsigned char)nlayers;
    for (unsigned i = 0; i < nlayers; i++) {
        uint64_t nwords = 1 + rng_below(rng, 20);
        *at++ = (unsigned char)(1 + rng_below(rng, BLOOM_MAX_K));
        *at++ = variant;
        *at++ = (unsigned char)nwords;
        rng_fill(rng, at, nwords * 8);
        at = varint_put(at + nwords * 8, some_number(rng));
    }
    return (size_t)(at - begin);
}

#define CONTENTS_MAX 600

static struct bloom_shape some_shape(struct rng *rng)
{
    struct bloom_shape shape = {1 + rng_below(rng, BLOOM_MAX_WORDS), (uint8_t)(1 + rng_below(rng, BLOOM_MAX_K)),
                                (uint8_t)rng_below(rng, 3)};

    if (rng_below(rng, 2) &&
        redisbloom_size((unsigned)rng_below(rng, 2) ? REDISBLOOM_DEFAULT : 0, 1 + rng_below(rng, 1000000),
                        0.9 / (double)(1 + rng_next(rng)), &shape, NULL) == BLOOM_OK)
        shape.spare_bytes = shape.n2 ? 0 : (uint8_t)rng_below(rng, 8);
    return shape;
}

static void bf_options(struct bloom_params *params)
{
    params->redisbloom = params->expansion ? REDISBLOOM_DEFAULT : REDISBLOOM_DEFAULT | REDISBLOOM_NO_SCALING;
}

static void seeded(struct rng *rng, struct bloom_params *params)
{
    params->redisbloom = BLOOM_OPTION_VALKEY;
    params->expansion = (uint32_t)rng_next(rng);
    params->tightening = 0.5 / (double)(1 + rng_below(rng, 100));
    rng_fill(rng, &params->seed, BLOOM_SEED_BYTES);
}

static struct log_control some_control(struct rng *rng, const char *text)
{
    static unsigned char contents[RECORDS][CONTENTS_MAX]; /* as many as are checked together */
    static unsigned next;
    struct log_control c = {.kind = (enum log_control_kind)(1 + rng_below(rng, LOG_FILLED))};

    if (c.kind != LOG_CLEAR && c.kind != LOG_BREAK)
        c.id = some_id(rng);
    if (c.kind == LOG_CREATE || c.kind == LOG_LOADED || c.kind == LOG_RENAME || c.kind == LOG_FILLED)
        c.replaced_id = some_id(rng) - 1;
    if (c.kind == LOG_CREATE || c.kind == LOG_RENAME || c.kind == LOG_FILLED)
        c.name = text, c.name_len = rng_below(rng, 300);
    if (c.kind == LOG_CREATE || c.kind == LOG_EXPIRY || c.kind == LOG_FILLED)
        c.expires_ms = (int64_t)(some_number(rng) >> 1);
    if (c.kind == LOG_CREATE || c.kind == LOG_FILLED)
        c.params = (struct bloom_params){some_number(rng) | 1, 0.5 / (double)(1 + rng_below(rng, 1000000)),
                                         (uint32_t)rng_below(rng, BLOOM_MAX_EXPANSION + 1)};
    if (c.kind == LOG_CREATE || c.kind == LOG_GROW)
        c.shape = some_shape(rng);
    if ((c.kind == LOG_CREATE || c.kind == LOG_FILLED) && rng_below(rng, 2))
        bf_options(&c.params);
    if ((c.kind == LOG_CREATE || c.kind == LOG_FILLED) && rng_below(rng, 2))
        c.params.key = some_number(rng) | 1;
    else if ((c.kind == LOG_CREATE || c.kind == LOG_FILLED) && rng_below(rng, 2))
        seeded(rng, &c.params);
    if (c.kind == LOG_GROW)
        c.layer = (unsigned)rng_below(rng, BLOOM_MAX_LAYERS);
    if (c.kind == LOG_LOADED)
        c.record = text, c.record_len = rng_below(rng, 300);
    if (c.kind == LOG_FILLED) {
        unsigned char *bytes = contents[next++ % RECORDS];
        c.record_len = some_contents(rng, bytes);
        c.record = (const char *)bytes;
    }
    return c;
}

static void expect_same(const struct log_control *a, const struct log_control *b)
{
    cr_assert_eq(a->kind, b->kind);
    cr_assert_eq(a->id, b->id);
    cr_assert_eq(a->replaced_id, b->replaced_id);
    cr_assert_eq(a->name_len, b->name_len);
    cr_assert(a->name_len == 0 || memcmp(a->name, b->name, a->name_len) == 0);
    cr_assert_eq(a->expires_ms, b->expires_ms);
    cr_assert(memcmp(&a->params.capacity, &b->params.capacity, 8) == 0);
    cr_assert(a->params.error_rate == b->params.error_rate && a->params.expansion == b->params.expansion);
    cr_assert_eq(a->params.redisbloom, b->params.redisbloom);
    cr_assert_eq(a->params.key, b->params.key);
    cr_assert_eq(a->params.tightening, b->params.tightening);
    cr_assert(bloom_seed_equal(&a->params.seed, &b->params.seed));
    cr_assert(bloom_shape_equal(&a->shape, &b->shape));
    cr_assert_eq(a->layer, b->layer);
    cr_assert_eq(a->record_len, b->record_len);
    cr_assert(a->record_len == 0 || memcmp(a->record, b->record, a->record_len) == 0);
}

/* Control records of every kind and groups of adds of every size are restored unchanged. */
Test(log_payload, what_is_encoded_is_decoded)
{
    static char text[300];
    struct rng rng = {.state = {1, 2, 3, 4}};

    rng_fill(&rng, text, sizeof(text));
    for (int round = 0; round < 200; round++) {
        struct log_bytes records = {0}, payload = {0};
        struct log_control controls[RECORDS];
        struct bloom_replay_item items[3000];
        size_t ncontrols = rng_below(&rng, RECORDS), nadds = 0;
        uint64_t first = some_id(&rng);
        struct errbuf err = {""};

        for (size_t i = 0; i < ncontrols; i++) {
            controls[i] = some_control(&rng, text);
            cr_assert_eq(log_control_encode(&records, &controls[i]), 0);
        }
        if (ncontrols)
            cr_assert_eq(log_payload_controls(&payload, first, &records), 0);
        memset(&seen, 0, sizeof(seen));
        for (int group = 0; group < 5; group++) {
            size_t n = 1 + rng_below(&rng, group == 0 ? 1 : group == 1 ? 3000 : 60);
            for (size_t i = 0; i < n; i++)
                items[i] =
                    (struct bloom_replay_item){{rng_next(&rng), rng_next(&rng)}, some_number(&rng) & LOG_ORDINAL_MASK};
            cr_assert_eq(log_payload_adds(&payload, some_id(&rng), (unsigned)group, items, n), 0);
            nadds += n;
        }
        struct bloom_replay_item last = items[0];
        cr_assert_eq(log_payload_adds(&payload, 77, BLOOM_MAX_LAYERS - 1, &last, 1), 0);
        cr_assert_eq(log_payload_decode(payload.ptr, payload.len, ncontrols > 0, &visitor, &err), LOG_OK, "%s",
                     err.text);
        cr_assert_eq(seen.ncontrols, ncontrols);
        for (size_t i = 0; i < ncontrols; i++) {
            cr_assert_eq(seen.numbers[i], first + i);
            expect_same(&controls[i], &seen.controls[i]);
        }
        cr_assert_eq(seen.nadds, nadds + 1);
        cr_assert_eq(seen.adds[nadds].id, 77u);
        cr_assert_eq(seen.adds[nadds].layer, BLOOM_MAX_LAYERS - 1u);
        cr_assert(memcmp(&seen.adds[nadds].item, &last, sizeof(last)) == 0);
        log_bytes_deinit(&records);
        log_bytes_deinit(&payload);
    }
}

/* An item takes 24 bytes; the payload and a group have heads of 16. */
Test(log_payload, an_item_takes_few_bytes)
{
    struct log_bytes payload = {0};
    struct bloom_replay_item items[1000];

    for (size_t i = 0; i < 1000; i++)
        items[i] = (struct bloom_replay_item){{i, ~(uint64_t)i}, 1000000000 + i};
    cr_assert_eq(log_payload_adds(&payload, 1000000, 3, items, 1), 0);
    cr_assert_eq(payload.len, 16u + 16 + 24);
    payload.len = 0;
    cr_assert_eq(log_payload_adds(&payload, 1000000, 3, items, 1000), 0);
    cr_assert_eq(payload.len, 16u + 16 + 24000);
    log_bytes_deinit(&payload);
}

/* After any cut or change, decoding ends, reads its input only (checked by sanitizers), and names the reason. */
Test(log_payload, damaged_payloads_are_refused_or_harmless)
{
    static char text[300];
    struct rng rng = {.state = {5, 6, 7, 8}};
    struct log_bytes records = {0}, payload = {0};
    struct bloom_replay_item items[20] = {{{1, 2}, 3}};

    for (int i = 0; i < 30; i++) {
        struct log_control control = some_control(&rng, text);
        cr_assert_eq(log_control_encode(&records, &control), 0);
    }
    cr_assert_eq(log_payload_controls(&payload, 5, &records), 0);
    cr_assert_eq(log_payload_adds(&payload, 9, 1, items, 20), 0);
    for (size_t len = 0; len < payload.len; len++) {
        unsigned char *copy = malloc(len ? len : 1);
        struct errbuf err = {""};

        memcpy(copy, payload.ptr, len);
        memset(&seen, 0, sizeof(seen));
        int rc = log_payload_decode(copy, len, true, &visitor, &err);
        /* Without its group of adds the rest is whole. */
        cr_assert(rc == LOG_DAMAGED ? err.text[0] != '\0' : seen.nadds == 0);
        free(copy);
    }
    for (int i = 0; i < 5000; i++) {
        struct errbuf err = {""};
        size_t at = rng_below(&rng, payload.len);
        unsigned char before = payload.ptr[at];

        payload.ptr[at] = (unsigned char)rng_next(&rng);
        memset(&seen, 0, sizeof(seen));
        log_payload_decode(payload.ptr, payload.len, true, &visitor, &err);
        payload.ptr[at] = before;
    }
    log_bytes_deinit(&records);
    log_bytes_deinit(&payload);
}

static int decode_control(uint64_t first, const struct log_control *control)
{
    struct log_bytes records = {0}, payload = {0};
    struct errbuf err = {""};

    cr_assert_eq(log_control_encode(&records, control), 0);
    cr_assert_eq(log_payload_controls(&payload, first, &records), 0);
    memset(&seen, 0, sizeof(seen));
    int rc = log_payload_decode(payload.ptr, payload.len, true, &visitor, &err);
    log_bytes_deinit(&records);
    log_bytes_deinit(&payload);
    return rc;
}

static int decode_add(uint64_t id)
{
    const struct bloom_replay_item item = {{1, 2}, 3};
    struct log_bytes payload = {0};
    struct errbuf err = {""};

    cr_assert_eq(log_payload_adds(&payload, id, 0, &item, 1), 0);
    memset(&seen, 0, sizeof(seen));
    int rc = log_payload_decode(payload.ptr, payload.len, false, &visitor, &err);
    log_bytes_deinit(&payload);
    return rc;
}

/* Numbers that, counted on, no MANIFEST could state: a save that did so could not be read. */
Test(log_payload, numbers_that_no_manifest_takes_are_refused)
{
    const uint64_t end = LOG_NUMBER_END;

    cr_assert_eq(decode_control(5, &(struct log_control){.kind = LOG_DELETE, .id = end - 1}), LOG_OK);
    cr_assert_eq(decode_control(5, &(struct log_control){.kind = LOG_DELETE, .id = end}), LOG_DAMAGED);
    cr_assert_eq(decode_control(5, &(struct log_control){.kind = LOG_RENAME, .id = 1, .replaced_id = end - 1}), LOG_OK);
    cr_assert_eq(decode_control(5, &(struct log_control){.kind = LOG_RENAME, .id = 1, .replaced_id = end}),
                 LOG_DAMAGED);
    cr_assert_eq(decode_control(end - 1, &(struct log_control){.kind = LOG_DELETE, .id = 1}), LOG_OK);
    cr_assert_eq(decode_control(end, &(struct log_control){.kind = LOG_DELETE, .id = 1}), LOG_DAMAGED);
    cr_assert_eq(decode_add(end - 1), LOG_OK);
    cr_assert_eq(decode_add(end), LOG_DAMAGED);
}

Test(log_payload, unknown_kinds_variants_and_options_are_refused)
{
    struct log_control control = {.kind = LOG_KINDS_END, .id = 1};

    cr_assert_eq(decode_control(5, &control), LOG_DAMAGED);
    control = (struct log_control){.kind = LOG_GROW, .id = 1, .shape = {10, 7, BLOOM_VARIANTS}};
    cr_assert_eq(decode_control(5, &control), LOG_DAMAGED);
    control.shape.variant = BLOOM_NA;
    cr_assert_eq(decode_control(5, &control), LOG_OK);
    control.shape.k = 0;
    cr_assert_eq(decode_control(5, &control), LOG_DAMAGED);
    control = (struct log_control){.kind = LOG_CREATE,
                                   .id = 1,
                                   .name = "f",
                                   .name_len = 1,
                                   .params = {.capacity = 100, .error_rate = 0.01, .expansion = 2, .redisbloom = 33},
                                   .shape = {10, 7, BLOOM_NA}};
    cr_assert_eq(decode_control(5, &control), LOG_DAMAGED);
}

/* A record with invalid contents is not read at all. */
Test(log_payload, contents_that_are_none_are_refused)
{
    unsigned char contents[] = {1, 3, BLOOM_NA, 1, 0xff, 0, 0, 0, 0, 0, 0, 0, 8};
    struct log_control control = {.kind = LOG_FILLED,
                                  .id = 7,
                                  .name = "f",
                                  .name_len = 1,
                                  .params = {100, 0.01, 2},
                                  .record = (const char *)contents};

    control.record_len = sizeof(contents);
    cr_assert_eq(decode_control(5, &control), LOG_OK);
    control.record_len = sizeof(contents) - 1;
    cr_assert_eq(decode_control(5, &control), LOG_DAMAGED);
    control.record_len = 0;
    cr_assert_eq(decode_control(5, &control), LOG_DAMAGED);
    control.record_len = sizeof(contents);
    contents[3] = 2; /* words */
    cr_assert_eq(decode_control(5, &control), LOG_DAMAGED);
    contents[3] = 1;
    contents[1] = BLOOM_MAX_K + 1;
    cr_assert_eq(decode_control(5, &control), LOG_DAMAGED);
}

/* No process records layers of both kinds for one filter, but a forged log may have them. */
Test(log_payload, layers_and_turns_of_one_filter_may_be_mixed)
{
    const struct {
        enum log_control_kind kind;
        unsigned layer;
        uint64_t turn;
    } records[] = {{LOG_TURN, 0, 1}, {LOG_GROW, 100, 0}, {LOG_TURN, 90, 7}, {LOG_TURN, 90, 6}, {LOG_TURN, 1000, 8}};
    struct log_history *history;
    struct errbuf err = {""};

    cr_assert_eq(log_history_create(&history, &(struct log_history_options){.control = 0}), 0);
    for (size_t i = 0; i < sizeof(records) / sizeof(*records); i++) {
        const struct log_control control = {.kind = records[i].kind,
                                            .id = 1,
                                            .layer = records[i].layer,
                                            .shape = {.nwords = 1 + i, .k = 1},
                                            .turn = {.number = records[i].turn}};
        cr_assert_eq(log_history_control(history, 1 + i, &control, &err), 0, "%s", err.text);
    }
    const struct log_filter *filter = log_history_get(history, 1);
    cr_assert(filter && filter->turns && filter->ngrown > 1000);
    for (unsigned i = 0; i < filter->ngrown; i++) {
        uint64_t turn = i == 0 ? 1 : i == 90 ? 7 : i == 1000 ? 8 : 0;
        uint64_t nwords = i == 0 ? 1 : i == 100 ? 2 : i == 90 ? 3 : i == 1000 ? 5 : 0;
        cr_assert(filter->grown[i].turn.number == turn && filter->grown[i].shape.nwords == nwords, "layer %u", i);
    }
    log_history_destroy(history);
}

/* ---- frames ---- */

static size_t put_frame(unsigned char *at, uint64_t salt, uint64_t sequence, uint64_t synced, const void *payload,
                        size_t len)
{
    struct log_frame frame = {sequence, synced, false, payload, len};
    size_t n = log_frame_head(&frame, salt, at);

    memcpy(at + n, payload, len);
    return n + len;
}

/* A frame is accepted whole, at its number, with its salt; any changed bit, missing byte or other number is refused. */
Test(log_frame, only_what_was_written_is_valid)
{
    const size_t sizes[] = {0, 1, 27, 127, 128, 129, 5000};
    static unsigned char payload[5000], bytes[6000];
    struct rng rng = {.state = {9, 1, 1, 1}};

    rng_fill(&rng, payload, sizeof(payload));
    for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
        struct log_frame frame;
        size_t n = put_frame(bytes, 77, 70000, 69000, payload, sizes[s]);

        cr_assert_eq(log_frame_parse(bytes, n, 77, 70000, &frame), n);
        cr_assert_eq(frame.sequence, 70000u);
        cr_assert_eq(frame.synced, 69000u);
        cr_assert_eq(frame.payload_len, sizes[s]);
        cr_assert(memcmp(frame.payload, payload, sizes[s]) == 0);
        cr_assert_eq(log_frame_parse(bytes, n - 1, 77, 70000, &frame), 0u);
        cr_assert_eq(log_frame_parse(bytes, n, 78, 70000, &frame), 0u);
        cr_assert_eq(log_frame_parse(bytes, n, 77, 70001, &frame), 0u);
        cr_assert_eq(log_frame_parse(bytes, n, 77, 70000 + 65536, &frame), 0u);
        for (size_t bit = 0; bit < n * 8; bit += 1 + rng_below(&rng, n / 8 + 1)) {
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
            cr_assert_eq(log_frame_parse(bytes, n, 77, 70000, &frame), 0u, "bit %zu", bit);
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
    }
}

/* The next frame is found behind any garbage, at any position. */
Test(log_frame, frames_behind_garbage_are_found)
{
    static unsigned char bytes[70000];
    struct rng rng = {.state = {3, 1, 4, 1}};

    for (int round = 0; round < 300; round++) {
        struct log_frame frame;
        unsigned char payload[300];
        size_t garbage = rng_below(&rng, 3000), len = 1 + rng_below(&rng, 299), found_len;
        uint64_t sequence = 500 + rng_below(&rng, 60000);

        rng_fill(&rng, payload, sizeof(payload));
        memset(bytes, 0, sizeof(bytes));
        if (round % 3)
            rng_fill(&rng, bytes, garbage);
        size_t n = put_frame(bytes + garbage, 1, sequence, 499, payload, len);
        cr_assert_eq(log_frame_find(bytes, sizeof(bytes), 0, 1, 499, &frame, &found_len), garbage);
        cr_assert_eq(found_len, n);
        cr_assert_eq(frame.sequence, sequence);
        cr_assert_eq(log_frame_find(bytes, garbage + n - 1, 0, 1, 499, &frame, &found_len), garbage + n - 1);
    }
}

/* Items are random bytes: among the millions in a long frame that was cut, some look like a short frame. */
Test(log_frame, what_looks_like_a_frame_within_a_long_one_is_none)
{
    static unsigned char bytes[6000], payload[5000];
    struct rng rng = {.state = {2, 7, 1, 8}};
    struct log_frame frame;
    size_t found_len;

    rng_fill(&rng, payload, sizeof(payload));
    put_frame(payload + 1000, 1, 12, 11, payload, 20);
    size_t n = put_frame(bytes, 1, 10, 9, payload, sizeof(payload));
    size_t inner = n - sizeof(payload) + 1000;
    cr_assert_eq(log_frame_find(bytes, n, 1, 1, 10, &frame, &found_len), inner);
    cr_assert_eq(log_frame_skip(bytes, sizeof(bytes), 1, 10), n);
    cr_assert_eq(log_frame_skip(bytes, n - 1, 1, 10), n - 1, "torn: nothing of what is left is a frame");
    cr_assert_eq(log_frame_skip(bytes, n, 1, 11), 1, "it is not this one");
    bytes[7] ^= 1;
    cr_assert_eq(log_frame_skip(bytes, n, 1, 10), 1, "its length cannot be known");
    put_frame(bytes, 1, 10, 9, payload, 20);
    cr_assert_eq(log_frame_skip(bytes, n, 1, 10), 1, "nothing vouches for the length of a short one");
}

Test(log_frame, headers_and_names)
{
    unsigned char block[LOG_HEADER_BYTES];
    struct log_header header = {.number = 12,
                                .first = 345,
                                .salt = 678,
                                .process = 11,
                                .generation = 90,
                                .sealed = 400,
                                .previous = 9,
                                .ends_process = true},
                      again;
    struct errbuf err = {""};
    char name[LOG_FILE_NAME];

    log_header_encode(&header, block);
    cr_assert_eq(log_header_decode(block, &again, &err), LOG_OK);
    cr_assert(again.number == 12 && again.first == 345 && again.salt == 678 && again.process == 11 &&
              again.generation == 90 && again.sealed == 400 && again.previous == 9 && again.ends_process);
    for (size_t i = 0; i < 80; i++) {
        block[i] ^= 1;
        cr_assert_eq(log_header_decode(block, &again, &err), LOG_DAMAGED, "byte %zu", i);
        block[i] ^= 1;
    }
    header.process = 13;
    log_header_encode(&header, block);
    cr_assert_eq(log_header_decode(block, &again, &err), LOG_DAMAGED, "a process cannot begin after its own segment");
    header.process = 11;
    header.previous = 12;
    log_header_encode(&header, block);
    cr_assert_eq(log_header_decode(block, &again, &err), LOG_DAMAGED, "no segment follows itself");
    header.previous = 0;
    header.first = LOG_NUMBER_END;
    log_header_encode(&header, block);
    cr_assert_eq(log_header_decode(block, &again, &err), LOG_DAMAGED, "nobody has counted up to that");
    header.first = 345;
    header.sealed = LOG_NUMBER_END;
    log_header_encode(&header, block);
    cr_assert_eq(log_header_decode(block, &again, &err), LOG_DAMAGED, "nobody has counted up to that");
    log_file_name(12, LOG_SEGMENT, name);
    cr_assert_str_eq(name, "00000012.log");
    cr_assert_eq(log_file_number(name, LOG_SEGMENT), 12u);
    log_file_name(LOG_NUMBER_END - 1, LOG_SEGMENT, name);
    cr_assert_eq(log_file_number(name, LOG_SEGMENT), LOG_NUMBER_END - 1);
    log_file_name(LOG_NUMBER_END, LOG_SEGMENT, name);
    cr_assert_eq(log_file_number(name, LOG_SEGMENT), 0u);
    cr_assert_eq(log_file_number("12.log", LOG_SEGMENT), 0u);
    cr_assert_eq(log_file_number("00000000.log", LOG_SEGMENT), 0u);
    cr_assert_eq(log_file_number("00000012.log~", LOG_SEGMENT), 0u);
    cr_assert_eq(log_file_number("-0000012.log", LOG_SEGMENT), 0u);
    cr_assert_eq(log_file_number("00000012.log.new", LOG_SEGMENT), 0u);
    log_file_name(12, LOG_DRAFT, name);
    cr_assert_str_eq(name, "00000012.log.new");
    cr_assert_eq(log_file_number(name, LOG_DRAFT), 12u);
    cr_assert_eq(log_file_number("00000012.log", LOG_DRAFT), 0u);
    log_file_name(LOG_NUMBER_END, LOG_DRAFT, name);
    cr_assert_eq(log_file_number(name, LOG_DRAFT), 0u);
}
