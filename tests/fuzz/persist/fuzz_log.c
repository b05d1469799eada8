/* The log's reader. The input is tried unchanged: as a segment's header, as a payload, and as a segment's frames,
 * with the search after damage. Then with right checksums, so that the code after them is reached: as the fields of
 * a header, and as the payload of valid frames. Accepted input has the same meaning when it is encoded again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "bytes.h"
#include "check.h"
#include "log_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct again {
    struct log_bytes records;
    struct log_bytes adds;
    uint64_t first_number;
    uint64_t id;
    unsigned layer;
    uint64_t ncontrols, nadds;
};

static int on_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    struct again *again = ctx;

    (void)err;
    if (again->ncontrols++ == 0)
        again->first_number = number;
    CHECK(log_control_encode(&again->records, control) == 0);
    return 0;
}

static int on_adds(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items, size_t n)
{
    struct again *again = ctx;

    CHECK(id != 0 && layer < BLOOM_MAX_LAYERS && n > 0 && n <= LOG_ADDS_BATCH);
    again->nadds += n;
    CHECK(log_payload_adds(&again->adds, id, layer, items, n) == 0);
    return 0;
}

static void try_payload(const uint8_t *data, size_t size, bool has_controls, bool old)
{
    struct again again = {.ncontrols = 0}, second = {.ncontrols = 0};
    const struct log_visitor visitor = {on_control, on_adds, NULL, &again},
                             checker = {on_control, on_adds, NULL, &second};
    struct log_bytes payload = {0};
    struct errbuf err = {{0}};
    int rc = (old ? log_old_decode : log_payload_decode)(data, size, has_controls, &visitor, &err);

    CHECK((rc == LOG_OK) == (err.text[0] == '\0'));
    if (rc == LOG_OK) {
        if (again.ncontrols)
            CHECK(log_payload_controls(&payload, again.first_number, &again.records) == 0);
        if (again.adds.len && payload.len) /* without a head of their own */
            CHECK(log_bytes_append(&payload, again.adds.ptr + sizeof(struct log_payload_head),
                                   again.adds.len - sizeof(struct log_payload_head)) == 0);
        else if (again.adds.len)
            CHECK(log_bytes_append(&payload, again.adds.ptr, again.adds.len) == 0);
        if (payload.len)
            CHECK(log_payload_decode(payload.ptr, payload.len, again.ncontrols > 0, &checker, &err) == LOG_OK);
        CHECK(second.ncontrols == again.ncontrols && second.nadds == again.nadds);
        CHECK(second.records.len == again.records.len &&
              (second.records.len == 0 || memcmp(second.records.ptr, again.records.ptr, second.records.len) == 0));
    }
    log_bytes_deinit(&again.records);
    log_bytes_deinit(&again.adds);
    log_bytes_deinit(&second.records);
    log_bytes_deinit(&second.adds);
    log_bytes_deinit(&payload);
}

static void try_frames(const uint8_t *data, size_t size)
{
    struct log_frame frame;
    size_t n, at = 0, found = 0;

    while ((at = log_frame_find(data, size, at, 1, found, &frame, &n)) < size) {
        CHECK(n > 0 && n <= size - at && frame.synced < frame.sequence && frame.sequence > found);
        found = frame.sequence;
        at += n;
    }
}

/* The framed input is found, whole, behind bytes that are no frame. */
static void try_framed(const uint8_t *data, size_t size)
{
    struct log_frame frame = {.sequence = 9,
                              .synced = 7,
                              .has_controls = size & 1,
                              .payload = data,
                              .payload_len = size},
                     got;
    unsigned char *bytes = malloc(size + LOG_FRAME_HEAD_MAX + 8);
    size_t n;

    CHECK(bytes != NULL);
    memset(bytes, 0, 8);
    size_t head = log_frame_head(&frame, 42, bytes + 8);
    if (size)
        memcpy(bytes + 8 + head, data, size);
    CHECK(log_frame_find(bytes, 8 + head + size, 0, 42, 8, &got, &n) == 8 && n == head + size);
    CHECK(got.payload_len == size && got.has_controls == frame.has_controls && got.synced == 7);
    try_payload(got.payload, got.payload_len, got.has_controls, false);
    free(bytes);
}

#define HEADER_FIELDS 16 /* where they begin, after the magic and the version */
#define HEADER_SUMMED 80

/* The first bytes of the input are the fields. */
static void try_header(const uint8_t *data, size_t size)
{
    unsigned char bytes[LOG_HEADER_BYTES], again[LOG_HEADER_BYTES];
    struct log_header header = {.number = 1};
    struct errbuf err = {{0}};

    log_header_encode(&header, bytes);
    memcpy(bytes + HEADER_FIELDS, data, size < HEADER_SUMMED - HEADER_FIELDS ? size : HEADER_SUMMED - HEADER_FIELDS);
    le64_put(bytes + HEADER_SUMMED, XXH3_64bits(bytes, HEADER_SUMMED));
    if (log_header_decode(bytes, &header, &err) != LOG_OK) {
        CHECK(err.text[0] != '\0');
        return;
    }
    CHECK(header.number != 0 && header.first != 0 && header.previous < header.number);
    log_header_encode(&header, again);
    CHECK(log_header_decode(again, &header, &err) == LOG_OK);
    log_header_encode(&header, bytes);
    CHECK(memcmp(bytes, again, LOG_HEADER_BYTES) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct log_header header;
    struct errbuf err = {{0}};

    if (size >= LOG_HEADER_BYTES && log_header_decode(data, &header, &err) == LOG_OK)
        CHECK(header.number != 0 && header.first != 0);
    try_header(data, size);
    for (int old = 0; old < 2; old++) {
        try_payload(data, size, false, old);
        try_payload(data, size, true, old);
    }
    try_frames(data, size);
    try_framed(data, size);
    return 0;
}
