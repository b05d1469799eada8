#include "log_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "log_append.h"

#define FRAMES_MAX 4096
#define ADDS_MAX   40
#define ADDS_LARGE 4200 /* more than the space that a segment prepares for frames */

static size_t adds_of(uint64_t number)
{
    if (number % 32 == 31)
        return ADDS_LARGE;
    return 1 + (number * UINT64_C(0x9e3779b97f4a7c15) >> 40) % ADDS_MAX;
}

static bool has_control(uint64_t number)
{
    return number % 5 == 0;
}

static void log_rig_payload(uint64_t number, struct log_bytes *payload, bool *has_controls_out)
{
    struct bloom_replay_item items[ADDS_LARGE];
    size_t n = adds_of(number);

    payload->len = 0;
    *has_controls_out = has_control(number);
    if (has_control(number)) {
        struct log_control control = {.kind = LOG_EXPIRY, .id = number, .expires_ms = 1};
        struct log_bytes records = {0};
        CHECK(log_control_encode(&records, &control) == 0);
        CHECK(log_payload_controls(payload, number, &records) == 0);
        log_bytes_deinit(&records);
    }
    for (size_t i = 0; i < n; i++)
        items[i] = (struct bloom_replay_item){{number, i * UINT64_C(0x123456789abcdef)},
                                              (number + i) | ~LOG_ORDINAL_MASK}; /* as with a check */
    CHECK(log_payload_adds(payload, number, (unsigned)(number % BLOOM_MAX_LAYERS), items, n) == 0);
}

int log_rig_append(struct log_writer *writer, uint64_t number, struct errbuf *err)
{
    struct log_bytes payload = {0};
    bool has_controls;

    log_rig_payload(number, &payload, &has_controls);
    int rc = log_append(writer, has_controls, &payload, err);
    log_bytes_deinit(&payload);
    return rc;
}

int log_rig_repair(struct log_writer *writer, uint64_t last, struct errbuf *err)
{
    struct log_writer_info info;
    int rc = log_writer_repair(writer, err);

    for (log_writer_info(writer, &info); rc == 0 && info.sequence < last; info.sequence++)
        rc = log_rig_append(writer, info.sequence + 1, err);
    return rc != 0 ? rc : log_writer_sync(writer, err);
}

struct tally {
    struct log_rig_read *read;
    uint64_t adds[FRAMES_MAX];
    uint64_t controls[FRAMES_MAX];
    uint64_t last_control;
    bool wrong;
};

static int on_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    struct tally *tally = ctx;

    (void)err;
    tally->wrong |=
        control->kind != LOG_EXPIRY || control->id != number || number >= FRAMES_MAX || number <= tally->last_control;
    tally->last_control = number;
    if (number < FRAMES_MAX)
        tally->controls[number]++;
    return 0;
}

static int on_adds(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items, size_t n)
{
    struct tally *tally = ctx;

    tally->wrong |= id >= FRAMES_MAX || layer != id % BLOOM_MAX_LAYERS;
    for (size_t i = 0; i < n && id < FRAMES_MAX; i++) { /* those of a large frame come in several calls */
        uint64_t place = tally->adds[id]++;
        tally->wrong |= items[i].hash.h1 != id || items[i].ordinal != id + place ||
                        items[i].hash.h2 != place * UINT64_C(0x123456789abcdef);
    }
    return 0;
}

static void on_report(void *ctx, enum store_severity severity, const char *text)
{
    struct log_rig_read *read = ctx;
    size_t used = strlen(read->reports);

    (void)severity;
    snprintf(read->reports + used, sizeof(read->reports) - used, "%s\n", text);
}

static bool frame_is_there(const struct tally *tally, uint64_t number)
{
    return tally->adds[number] == adds_of(number) && tally->controls[number] == has_control(number);
}

static bool frame_is_absent(const struct tally *tally, uint64_t number)
{
    return tally->adds[number] == 0 && tally->controls[number] == 0;
}

static void compare(const struct tally *tally, struct log_rig_read *read)
{
    uint64_t n = 1;

    while (n < FRAMES_MAX && frame_is_there(tally, n))
        n++;
    read->frames = n - 1;
    read->first_missing = n;
    read->exact = !tally->wrong;
    for (; n < FRAMES_MAX; n++)
        read->exact &= frame_is_absent(tally, n);
}

void log_rig_read(const struct fsops *fs, uint64_t from, bool accept_loss, struct log_rig_read *read_out)
{
    log_rig_read_save(
        fs, &(struct log_reader_options){.from = from, .on_damage = accept_loss ? LOG_ACCEPT : LOG_REFUSE}, read_out);
}

void log_rig_read_save(const struct fsops *fs, const struct log_reader_options *save, struct log_rig_read *read_out)
{
    struct tally *tally = calloc(1, sizeof(*tally));
    struct log_reader *reader = NULL;
    struct log_reader_options options = *save;

    options.fs = fs;
    options.dir = LOG_RIG_DIR;
    options.report = on_report;
    options.report_ctx = read_out;
    options.on_control = on_control;
    options.ctx = tally;

    CHECK(tally != NULL);
    memset(read_out, 0, sizeof(*read_out));
    read_out->options = options;
    read_out->status = log_reader_open(&options, &reader, &read_out->summary, &read_out->err);
    for (size_t i = 0; read_out->status == 0 && i < log_reader_parts(reader); i++)
        read_out->status = log_reader_adds(reader, i, on_adds, tally, &read_out->err);
    if (read_out->status == 0)
        compare(tally, read_out);
    log_reader_close(reader);
    free(tally);
}

struct log_writer *log_rig_writer(const struct fsops *fs, const struct log_rig_read *read)
{
    struct log_writer_options options = {
        .fs = fs,
        .dir = LOG_RIG_DIR,
        .next_segment = read->summary.next_segment,
        .previous_segment = read->summary.last_segment,
        .next_sequence = read->summary.next_sequence,
        .salt = 42 + read->summary.next_sequence,
        .generation = read->summary.next_sequence,
        .segment_bytes = 16384,
        .unsynced_bytes = 6000,
    };
    struct log_reader_options again = read->options;
    struct log_reader_summary summary;
    struct log_reader *reader;
    struct log_writer *writer;
    struct errbuf err = {""};

    CHECK(log_writer_create(&options, &writer) == 0);
    again.report = NULL;
    again.on_control = NULL;
    if (read->summary.unsettled) {
        CHECK(log_reader_open(&again, &reader, &summary, &err) == 0);
        CHECK(log_reader_settle(reader, NULL, &err) == 0);
        log_reader_close(reader);
    }
    return writer;
}
