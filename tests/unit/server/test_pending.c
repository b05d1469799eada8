/* The file of pending records, after a kill of the process at any moment, and after a power failure. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "journal_ring.h"
#include "log_reader.h"
#include "rng.h"
#include "tmpdir.h"

#define RINGS    2
#define CONTROLS RINGS /* the stream of control records */
#define FIRST    7     /* number of the first control record */
#define PAGE     4096

static char dir[TMPDIR_SIZE];
static struct log_pending *pending;
static struct journal_ring *rings[RINGS];
static struct journal_controls controls;
static uint64_t added[RINGS]; /* records in each ring; record n of ring r is item (r, n) of filter 1 + r */
static uint64_t frame;

/* What the log has: its last frame, and how far it goes. */
static struct log_place known_places[RINGS + 1];
static struct pending_known known;

static void setup(void)
{
    tmpdir_create(dir);
    const struct log_pending_options options = {.fs = fsops_posix(),
                                                .dir = dir,
                                                .process = 3,
                                                .generation = 5,
                                                .salt = 99,
                                                .nstreams = RINGS + 1,
                                                .frame = 10,
                                                .control = FIRST};
    cr_assert_eq(log_pending_create(&pending, &options), 0);
    for (unsigned i = 0; i < RINGS; i++)
        cr_assert_eq(ring_create(&rings[i], pending, i), 0);
    controls_init(&controls, pending, CONTROLS, FIRST);
    frame = 10;
    known = (struct pending_known){.frame = frame};
    memset(added, 0, sizeof(added));
}

static void teardown(void)
{
    for (unsigned i = 0; i < RINGS; i++)
        ring_destroy(rings[i]);
    controls_deinit(&controls);
    log_pending_destroy(pending, true);
    tmpdir_remove(dir);
}

TestSuite(pending, .init = setup, .fini = teardown, .timeout = 3000);

/* Some of them are pairs of a claim, at any place of a run and of a chunk. */
static void add(unsigned ring, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++, added[ring]++) {
        uint64_t number = added[ring];
        unsigned layer = (unsigned)(number / 100 % 3);
        const struct bloom_hash hash[2] = {{ring, number}, {ring, number + 1}};
        cr_assert_eq(ring_reserve(rings[ring], 4), 0);
        if (i + 1 == n || number % 7 > 2 || number % 100 == 99) {
            ring_add(rings[ring], 1 + ring, hash[0], layer, number + 1);
            continue;
        }
        ring_add_both(rings[ring], 1 + ring, hash, layer, number + 1);
        i++, added[ring]++;
    }
}

/* A control record with a name of this length; its id is its number. */
static void note(size_t name_len)
{
    static char name[60000];
    memset(name, 'x', sizeof(name));
    const struct log_control control = {
        .kind = LOG_RENAME, .id = controls.end.number, .name = name, .name_len = name_len};
    cr_assert_eq(controls_reserve(&controls, name_len + 256), 0);
    cr_assert_eq(controls_put(&controls, &control), 0);
}

static void note_known(uint64_t last, const struct log_place places[RINGS + 1])
{
    memcpy(known_places, places, sizeof(known_places));
    known = (struct pending_known){
        .frame = last, .places = known_places, .nplaces = RINGS + 1, .control = controls.end.number};
}

/* Like the log thread: takes everything. */
static void make_frame(void)
{
    struct log_place places[RINGS + 1];
    for (unsigned i = 0; i < RINGS; i++) {
        struct ring_mark mark = ring_snapshot(rings[i]);
        struct ring_place place = rings[i]->written;
        while (ring_next(rings[i], &place, &mark).n)
            ;
        ring_written(rings[i], &place);
        places[i] = ring_place_of(&place, i);
    }
    places[CONTROLS] = ring_place_of(&controls.end, CONTROLS);
    controls_written(&controls, &controls.end);
    note_known(++frame, places);
}

static void sync_frames(void)
{
    struct log_place places[RINGS + 1];
    for (unsigned i = 0; i < RINGS; i++) {
        rings[i]->synced = rings[i]->written;
        places[i] = ring_place_of(&rings[i]->synced, i);
    }
    controls.synced = controls.written;
    places[CONTROLS] = ring_place_of(&controls.synced, CONTROLS);
    log_pending_synced(pending, frame, controls.synced.number, places);
    for (unsigned i = 0; i < RINGS; i++)
        ring_release(rings[i]);
    controls_release(&controls);
}

/* ---- contents after a start ---- */

struct found {
    bool fits;
    uint64_t first[RINGS], adds[RINGS]; /* numbers first .. first + adds - 1, each once */
    uint64_t first_control, controls;
};

static int on_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    struct found *found = ctx;
    (void)err;
    cr_assert_eq(control->id, number);
    if (!found->controls++)
        found->first_control = number;
    return 0;
}

static int on_adds(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items, size_t n)
{
    struct found *found = ctx;
    cr_assert(id >= 1 && id <= RINGS);
    for (size_t i = 0; i < n; i++) {
        uint64_t number = items[i].hash.h2;
        cr_assert_eq(items[i].hash.h1, id - 1);
        cr_assert_eq(items[i].ordinal, number + 1);
        cr_assert_eq(layer, number / 100 % 3);
        if (!found->adds[id - 1]++)
            found->first[id - 1] = number;
        cr_assert_eq(number, found->first[id - 1] + found->adds[id - 1] - 1, "each once, in order");
    }
    return 0;
}

static struct errbuf why;

static struct found read_path(const char *path)
{
    struct found found = {0};
    struct pending_found file;
    struct errbuf err = {""};
    int status = log_pending_read(fsops_posix(), path, &known, &file, &err);
    cr_assert(status == 0 || status == LOG_DAMAGED, "%d: %s", status, err.text);
    why = err;
    if (status)
        return found;
    cr_assert(file.process == 3 && file.generation == 5);
    found.fits = file.fits;
    const struct log_visitor visitor = {.on_control = on_control, .on_adds = on_adds, .ctx = &found};
    if (file.payload.len)
        cr_assert_eq(log_payload_decode(file.payload.ptr, file.payload.len, file.has_controls, &visitor, &err), LOG_OK,
                     "%s", err.text);
    log_bytes_deinit(&file.payload);
    return found;
}

#define PENDING (tmp_path(dir, "log/00000003.pending").text)

static struct found read_now(void)
{
    return read_path(PENDING);
}

/* After a kill, everything since the last frame in the log is found, in any amount. */
Test(pending, all_that_the_log_has_not_got_is_there)
{
    struct rng rng;
    rng_init(&rng, 1);
    uint64_t before[RINGS] = {0}, controls_before = FIRST;
    for (int round = 0; round < 60; round++) {
        for (unsigned i = 0; i < RINGS; i++)
            add(i, rng_below(&rng, rng_below(&rng, 4) ? 50 : 9000));
        for (uint64_t n = rng_below(&rng, 4); n > 0; n--)
            note(rng_below(&rng, 5) ? 10 : 59000);
        struct found found = read_now();
        cr_assert(found.fits, "%s", why.text);
        for (unsigned i = 0; i < RINGS; i++) {
            cr_assert_eq(found.adds[i], added[i] - before[i]);
            cr_assert(!found.adds[i] || found.first[i] == before[i]);
        }
        cr_assert_eq(found.controls, controls.end.number - controls_before);
        cr_assert(!found.controls || found.first_control == controls_before);
        make_frame();
        found = read_now();
        cr_assert(found.fits && !found.adds[0] && !found.adds[1] && !found.controls, "%s", why.text);
        if (round % 3 == 0)
            sync_frames();
        found = read_now();
        cr_assert(found.fits && !found.adds[0] && !found.adds[1] && !found.controls, "%s", why.text);
        for (unsigned i = 0; i < RINGS; i++)
            before[i] = added[i];
        controls_before = controls.end.number;
    }
}

/* Until a sync the file has what a frame has, too: the log may lose it. Afterwards the log must have it. */
Test(pending, a_log_that_lacks_synced_frames_is_known)
{
    struct pending_known at_first = known;
    add(0, 10);
    note(10);
    make_frame();
    add(0, 20000);
    make_frame();
    struct pending_known later = known;
    known = at_first;
    struct found found = read_now();
    cr_assert(found.fits && found.adds[0] == 20010 && found.controls == 1);
    sync_frames();
    add(1, 5);
    cr_assert(!read_now().fits);
    known = later;
    found = read_now();
    cr_assert(found.fits && found.adds[0] == 0 && found.adds[1] == 5 && found.controls == 0);
    /* A save has deleted the segments with these frames: the file knows the places itself. */
    known = (struct pending_known){.frame = later.frame};
    found = read_now();
    cr_assert(found.fits && found.adds[0] == 0 && found.adds[1] == 5 && found.controls == 0);
}

static void expect_loss(const unsigned char *bytes, size_t len, const char *what, size_t at)
{
    struct pending_found file;
    struct errbuf err = {""};
    FILE *out = fopen(PENDING, "r+b");
    cr_assert(out && fwrite(bytes, 1, len, out) == len && fclose(out) == 0);
    cr_assert_eq(truncate(PENDING, (off_t)len), 0);
    cr_assert_eq(log_pending_read(fsops_posix(), PENDING, &known, &file, &err), LOG_DAMAGED, "%s %zu", what, at);
}

Test(pending, what_is_cut_or_changed_after_a_kill_is_missed)
{
    size_t len;
    add(0, 3000);
    note(10);
    make_frame();
    sync_frames();
    add(0, 3000);
    add(1, 10);
    note(10);
    note(20);
    unsigned char *bytes = file_read(PENDING, &len);
    cr_assert(read_now().fits, "%s", why.text);
    const struct pending_chunk *last[] = {rings[0]->tail, rings[1]->tail, controls.end.chunk};
    for (size_t at = 0; at < len; at += PENDING_CHUNK_BYTES) {
        struct pending_chunk *chunk = (struct pending_chunk *)(void *)(bytes + at);
        for (unsigned i = 0; at && i < 3; i++) {
            if (chunk->stream != i || chunk->number != last[i]->number)
                continue;
            size_t used = i == CONTROLS ? controls.end.used : (size_t)last[i]->used * 8;
            for (size_t back = 1; back <= 40; back++) {
                unsigned char *byte = (unsigned char *)chunk->words + used - back;
                *byte ^= 1;
                expect_loss(bytes, len, i == CONTROLS ? "a control record, byte" : "an add, byte", back);
                *byte ^= 1;
            }
            if (i == CONTROLS)
                continue;
            chunk->number ^= 1;
            if (i == 0)
                expect_loss(bytes, len, "the head of chunk", at);
            chunk->number ^= 1;
        }
    }
    expect_loss(bytes, len - PENDING_CHUNK_BYTES, "cut by a chunk", 0);
    expect_loss(bytes, len - 1, "cut by a byte", 0);
    free(bytes);
}

Test(pending, a_place_beyond_its_chunk_has_no_records)
{
    note(10);
    note(20);
    struct log_place places[RINGS + 1] = {[CONTROLS] = {.chunk = 1, .used = UINT32_C(1) << 30, .stream = CONTROLS}};
    note_known(10, places);
    struct found found = read_now();
    cr_assert(found.fits && !found.controls, "%s", why.text);
}

static void take_report(void *ctx, enum store_severity severity, const char *text)
{
    (void)severity;
    errbuf_set(ctx, "%s", text);
}

Test(pending, a_file_of_another_process_is_not_read)
{
    struct log_reader_options options = {
        .dir = dir, .on_damage = LOG_EXAMINE, .report = take_report, .report_ctx = &why};
    struct log_reader_summary summary;
    struct log_reader *reader;
    struct errbuf err;
    note(10);
    file_copy(PENDING, tmp_path(dir, "log/00000004.pending").text);
    cr_assert_eq(log_reader_open(&options, &reader, &summary, &err), LOG_OK, "%s", err.text);
    cr_assert(strstr(why.text, "00000004.pending: it was created by process 3: ignored"), "%s", why.text);
    log_reader_close(reader);
}

static void hold(void)
{
    struct pending_chunk *const last[2] = {rings[0]->tail, controls.end.chunk};
    log_pending_hold(pending, 0, ring_end(rings[0]), ring_place_of(&controls.end, CONTROLS), last);
}

/* Nothing of an open transaction is taken, everything of a finished one is. */
Test(pending, a_transaction_is_there_as_a_whole_or_not_at_all)
{
    for (int round = 0; round < 3; round++) {
        add(0, 1000);
        add(1, 10);
        note(10);
        struct found before = read_now();
        hold();
        add(0, round == 1 ? 10000 : 10);
        note(59000);
        note(10);
        struct found found = read_now();
        cr_assert(found.fits && memcmp(&found, &before, sizeof(found)) == 0);
        log_pending_release(pending);
        found = read_now();
        cr_assert_eq(found.controls, before.controls + 2);
        cr_assert_eq(found.adds[0], before.adds[0] + (round == 1 ? 10000u : 10u));
        if (round == 1)
            make_frame();
    }
}

/* cp reads the file front to back while the process continues: the head is from before a transaction, the rest from
 * its middle. Half of the transaction would look like the result of a kill. */
Test(pending, a_copy_that_was_made_while_a_transaction_began_is_not_used)
{
    for (int large = 0; large < 2; large++) {
        size_t len, before_len;
        add(0, 1000);
        note(10);
        unsigned char *before = file_read(PENDING, &before_len);
        hold();
        add(0, large ? 10000 : 10);
        note(10);
        unsigned char *copy = file_read(PENDING, &len);
        memcpy(copy, before, PENDING_HEAD_PART);
        file_write(tmp_path(dir, "copy").text, copy, len);
        struct found found = read_path(tmp_path(dir, "copy").text);
        cr_assert(!found.fits && !found.adds[0] && !found.controls);
        log_pending_release(pending);
        free(before);
        free(copy);
    }
}

/* A power failure leaves pages of different moments, and of none: only recorded data is taken, each record at most
 * once and in order (on_adds() checks it), and never before the frame. */
Test(pending, pages_of_any_moment_do_no_harm)
{
    struct rng rng;
    size_t len, old_len = 0, used = 0;
    unsigned char *old = NULL;
    rng_init(&rng, 2);
    for (int round = 0; round < 300; round++) {
        for (unsigned i = 0; i < RINGS; i++)
            add(i, rng_below(&rng, round % 8 ? 300 : 6000));
        note(rng_below(&rng, 5) ? 10 : 20000);
        unsigned char *now = file_read(PENDING, &len);
        unsigned char *torn = malloc(len);
        memcpy(torn, now, len);
        for (size_t page = 0; page < len / PAGE; page++) {
            uint64_t fate = rng_below(&rng, 4 + (uint64_t)round % 40);
            if (fate == 0)
                memset(torn + page * PAGE, 0, PAGE);
            else if (fate == 1 && (page + 1) * PAGE <= old_len)
                memcpy(torn + page * PAGE, old + page * PAGE, PAGE);
            else if (fate == 2)
                torn[page * PAGE + rng_below(&rng, PAGE)] ^= (unsigned char)(1 + rng_below(&rng, 255));
        }
        file_write(tmp_path(dir, "torn").text, torn, len);
        struct found found = read_path(tmp_path(dir, "torn").text);
        used += found.fits;
        free(torn);
        free(old);
        old = now;
        old_len = len;
        if (rng_below(&rng, 2))
            make_frame();
        if (rng_below(&rng, 3) == 0)
            sync_frames();
    }
    free(old);
    cr_assert_gt(used, 10u, "most of what was tried is refused at once: %zu", used);
}
