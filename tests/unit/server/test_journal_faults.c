/* The journal on a disk of which each operation in turn fails, once or several times in a row: nobody is promised what
 * is not on the disk, and in the end the log has every record once and in order. */
#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "journal.h"
#include "log_reader.h"
#include "tmpdir.h"

#define NOTES 5     /* each of 64 kB */
#define ADDS  12000 /* each with a head, 40 bytes: neither they nor the notes fit the writer's buffer */

static char dir[TMPDIR_SIZE];
static struct journal *journal;
static _Atomic uint64_t announced;
static _Atomic bool told_of_room;
static _Atomic unsigned failures; /* reports of it to the operator */

/* ---- a disk that fails ---- */

static struct fsops fs;
static _Atomic unsigned calls, first_fault, last_fault;
static _Atomic unsigned syncs, failing_sync; /* 0: none */
static _Atomic int moved;                    /* what still_ours() returns */

static void arm(unsigned first, unsigned count)
{
    atomic_store(&failures, 0);
    atomic_store(&calls, 0);
    atomic_store(&last_fault, first + count - 1);
    atomic_store(&first_fault, first);
}

/* Whether a fault came. */
static bool disarm(void)
{
    unsigned first = atomic_exchange(&first_fault, 0);
    return atomic_load(&calls) >= first;
}

static bool strikes(void)
{
    unsigned call = atomic_fetch_add(&calls, 1) + 1, first = atomic_load(&first_fault);
    return first && call >= first && call <= atomic_load(&last_fault);
}

static int open_or_fail(void *ctx, const char *path, unsigned flags, int *fd_out)
{
    return strikes() ? -EIO : fsops_posix()->open(ctx, path, flags, fd_out);
}

static int pwrite_or_fail(void *ctx, int fd, const void *buf, size_t len, uint64_t offset, size_t *n_out)
{
    return strikes() ? -EIO : fsops_posix()->pwrite(ctx, fd, buf, len, offset, n_out);
}

/* No test here looks at what a power failure leaves: nothing waits for the disk. */
static int sync_or_fail(void *ctx, int fd)
{
    (void)ctx, (void)fd;
    return strikes() || atomic_fetch_add(&syncs, 1) + 1 == atomic_load(&failing_sync) ? -EIO : 0;
}

static int sync_dir_or_fail(void *ctx, const char *path)
{
    (void)ctx, (void)path;
    return strikes() ? -EIO : 0;
}

static int mkdir_or_fail(void *ctx, const char *path)
{
    return strikes() ? -EIO : fsops_posix()->mkdir(ctx, path);
}

static int rename_or_fail(void *ctx, const char *from, const char *to)
{
    return strikes() ? -EIO : fsops_posix()->rename(ctx, from, to);
}

/* ---- a journal ---- */

static void on_barrier(void *ctx)
{
    (void)ctx;
}

static void on_announce(void *ctx, unsigned worker, uint64_t ticket)
{
    (void)ctx, (void)worker;
    atomic_store(&announced, ticket);
}

static void on_room(void *ctx, unsigned worker)
{
    (void)ctx, (void)worker;
    atomic_store(&told_of_room, true);
}

static void on_state(void *ctx, bool failed, const char *text)
{
    (void)ctx;
    cr_assert_eq(failed, text[0] != '\0', "%s", text);
    failures += failed;
}

static int is_ours(void *ctx)
{
    (void)ctx;
    return atomic_load(&moved);
}

static const struct journal_start at_first = {
    .fs = &fs,
    .dir = dir,
    .next_segment = 1,
    .next_sequence = 1,
    .next_control = 1,
    .salt = 77,
    .nrings = 1,
    .barrier = on_barrier,
    .announce = on_announce,
    .has_room = on_room,
    .state = on_state,
    .still_ours = is_ours,
};

static void begin(const struct journal_start *start)
{
    struct errbuf err = {""};
    cr_assert_eq(journal_create(&journal, start, &err), 0, "%s", err.text);
    atomic_store(&announced, 0);
}

static void setup(void)
{
    tmpdir_create(dir);
    fs = *fsops_posix();
    fs.open = open_or_fail;
    fs.pwrite = pwrite_or_fail;
    fs.sync = sync_or_fail;
    fs.sync_dir = sync_dir_or_fail;
    fs.mkdir = mkdir_or_fail;
    fs.rename = rename_or_fail;
}

static void teardown(void)
{
    journal_destroy(journal);
    journal = NULL;
    tmpdir_remove(dir);
}

TestSuite(journal_faults, .init = setup, .fini = teardown, .timeout = 3000);

/* Everything again, in a directory that is empty. */
static void start_anew(void)
{
    teardown();
    setup();
}

static void note(uint64_t id)
{
    static char name[65535];
    memset(name, 'x', sizeof(name));
    journal_note(journal, &(struct log_control){.kind = LOG_RENAME, .id = id, .name = name, .name_len = sizeof(name)});
}

/* The filters take turns. */
static void add(uint64_t n, uint64_t filters)
{
    struct journal_ring *ring = journal_ring(journal, 0);
    cr_assert_eq(ring_reserve(ring, n), 0);
    for (uint64_t i = 0; i < n; i++)
        journal_ops.add(ring, 1 + i % filters, (struct bloom_hash){i, i}, 0, i + 1);
}

/* The log thread takes them all at once, after journal_release(). */
static void record_held(void)
{
    journal_record(journal, true);
    journal_set_policy(journal, JOURNAL_ALWAYS);
    journal_hold(journal, NULL);
    add(ADDS, 2);
    for (uint64_t id = 1; id <= NOTES; id++)
        note(id);
}

static void sync_log(void)
{
    struct errbuf err = {""};
    cr_assert_eq(journal_sync(journal, &err), 0, "%s", err.text);
}

/* A rotation tries again at once what has failed. */
static void rotate_at_last(unsigned most_failures)
{
    struct errbuf err = {""};
    uint64_t segment;
    while (journal_rotate(journal, &segment, &err) != 0) {
        cr_assert(strstr(err.text, "error") || strstr(err.text, "moved"), "%s", err.text);
        cr_assert(most_failures-- > 0, "%s", err.text);
    }
    cr_assert_gt(segment, 0);
}

/* ---- what a start finds ---- */

static uint64_t controls, adds;

static int on_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    (void)ctx, (void)err;
    cr_assert(number == ++controls && control->id == number, "record %llu", (unsigned long long)number);
    return 0;
}

static int on_adds(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items, size_t n)
{
    (void)ctx;
    cr_assert(id <= 2 && layer == 0);
    for (size_t i = 0; i < n; i++, adds++)
        cr_assert_eq(items[i].hash.h1, adds, "each once, in order");
    return 0;
}

/* The caller closes the reader. */
static struct log_reader *read_log(struct log_reader_summary *sum, uint64_t notes, uint64_t of_adds)
{
    static struct log_reader_options options;
    struct log_reader *reader;
    struct errbuf err = {""};
    options = (struct log_reader_options){.fs = &fs, .dir = dir, .on_control = on_control};
    controls = adds = 0;
    cr_assert_eq(log_reader_open(&options, &reader, sum, &err), 0, "%s", err.text);
    for (size_t i = 0; i < log_reader_parts(reader); i++)
        cr_assert_eq(log_reader_adds(reader, i, on_adds, NULL, &err), 0, "%s", err.text);
    cr_assert(controls == notes && adds == of_adds, "%llu notes, %llu adds", (unsigned long long)controls,
              (unsigned long long)adds);
    return reader;
}

static void expect(uint64_t notes, uint64_t of_adds)
{
    struct log_reader_summary sum;
    log_reader_close(read_log(&sum, notes, of_adds));
}

/* ---- rounds ---- */

Test(journal_faults, each_operation_of_a_round_and_a_rotation)
{
    for (unsigned count = 1; count <= 3; count++) {
        bool hit = true;
        unsigned n = 0;
        while (hit) {
            struct errbuf err = {""};
            start_anew();
            begin(&at_first);
            record_held();
            uint64_t ticket = journal_ticket(journal, 0, 1);
            arm(++n, count);
            journal_release(journal);
            int status = journal_sync(journal, &err);
            cr_assert(status == 0 || (atomic_load(&announced) < ticket && err.text[0]), "operation %u: %s", n,
                      err.text);
            rotate_at_last(count);
            hit = disarm();
            cr_assert_eq(hit, atomic_load(&failures) > 0, "operation %u", n);
            sync_log();
            while (atomic_load(&announced) < ticket)
                usleep(1000);
            cr_assert(!journal_refuses(journal));
            expect(NOTES, ADDS);
        }
        cr_assert_gt(n, 15, "few operations: %u", n);
    }
}

/* The log is off, and the segments of an earlier process are still needed. */
Test(journal_faults, each_operation_of_a_rotation_without_records)
{
    struct journal_start start = at_first;
    bool hit = true;
    unsigned n = 0;
    start.next_segment = start.next_sequence = 8;
    start.last_segment = start.oldest_segment = 7;
    while (hit) {
        start_anew();
        begin(&start);
        arm(++n, 1);
        rotate_at_last(1);
        hit = disarm();
    }
    cr_assert_gt(n, 8, "few operations: %u", n);
}

/* More than a frame may have, and than may be written without a sync: a sync comes between two frames. */
Test(journal_faults, a_round_of_several_frames)
{
    const uint64_t many = (UINT64_C(66) << 20) / 24;
    for (unsigned sync = 2; sync <= 4; sync++) { /* the first and the third name segments; the fourth ends the round */
        struct errbuf err = {""};
        struct journal_info info;
        start_anew();
        begin(&at_first);
        journal_record(journal, true);
        journal_hold(journal, NULL);
        add(many, 1);
        atomic_store(&syncs, 0);
        atomic_store(&failing_sync, sync);
        journal_release(journal);
        cr_assert_eq(journal_sync(journal, &err), -EIO, "sync %u", sync);
        journal_info(journal, &info);
        cr_assert(info.failed && info.queued < many && (info.queued > 0) == (sync < 4), "sync %u: %llu are queued",
                  sync, (unsigned long long)info.queued);
        rotate_at_last(0);
        journal_info(journal, &info);
        cr_assert(!info.failed && info.queued == 0 && info.pending_bytes == 0);
        expect(0, many);
    }
}

/* Nobody waits for room on a disk that fails: writes are refused there. */
Test(journal_faults, who_waits_for_room_hears_of_it)
{
    for (unsigned faults = 0; faults <= 1000; faults += 1000) {
        struct errbuf err = {""};
        uint64_t notes = 0;
        start_anew();
        begin(&at_first);
        journal_record(journal, true);
        journal_hold(journal, NULL);
        if (faults) {
            add(JOURNAL_RING_LIMIT - 1, 1);
            cr_assert(!journal_is_full(journal, 0));
            add(1, 1);
        } else {
            while (journal_has_room(journal)) {
                cr_assert(!journal_is_full(journal, 0));
                note(++notes);
            }
        }
        atomic_store(&told_of_room, false);
        for (int i = 0; i < 2; i++)
            cr_assert(journal_is_full(journal, 0));
        arm(1, faults);
        journal_release(journal);
        cr_assert_eq(journal_sync(journal, &err), faults ? -EIO : 0, "%s", err.text);
        while (!atomic_load(&told_of_room))
            usleep(1000);
        struct journal_info info;
        journal_info(journal, &info);
        cr_assert(info.delayed == 1 && info.failed == (faults > 0));
        disarm();
        rotate_at_last(0);
        cr_assert(!journal_is_full(journal, 0));
    }
}

/* By itself, each second. */
Test(journal_faults, it_tries_again)
{
    struct errbuf err = {""}, reason;
    begin(&at_first);
    record_held();
    arm(1, 1000);
    journal_release(journal);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(journal_sync(journal, &err), -EIO);
        journal_reason(journal, &reason);
        cr_assert(strstr(reason.text, "Input/output error"), "%s", reason.text);
    }
    disarm();
    while (journal_refuses(journal))
        usleep(1000);
    expect(NOTES, ADDS);
}

/* ---- when ---- */

/* Under `always` the log is synced although nobody waits, under `no` it is not. */
Test(journal_faults, the_policy_decides_about_syncs)
{
    struct journal_info info;
    begin(&at_first);
    journal_record(journal, true);
    journal_set_policy(journal, JOURNAL_ALWAYS);
    note(1);
    do {
        usleep(1000);
        journal_info(journal, &info);
    } while (info.frames < 1 || info.pending_bytes);
    cr_assert_eq(journal_synced_frame(journal), 1);
    journal_set_policy(journal, JOURNAL_NO);
    note(2);
    do {
        usleep(1000);
        journal_info(journal, &info);
    } while (info.frames < 2);
    cr_assert_gt(info.pending_bytes, 0);
    sync_log();
    cr_assert_eq(journal_synced_frame(journal), 2);
}

/* ---- what an earlier process has left ---- */

/* Records of a process that was killed, and that only its file of pending records has. */
static void leave_pending(void)
{
    char other[TMPDIR_SIZE];
    begin(&at_first);
    record_held();
    tmpdir_create(other);
    file_copy(tmp_path(dir, "log/00000001.pending").text, tmp_path(other, "pending").text);
    journal_release(journal);
    start_anew();
    cr_assert_eq(fs.mkdir(fs.ctx, tmp_path(dir, "log").text), 0);
    file_copy(tmp_path(other, "pending").text, tmp_path(dir, "log/00000001.pending").text);
    tmpdir_remove(other);
}

/* A process after it, of which this operation fails; 0: none. */
static void begin_after_it(unsigned fault, int (*still_ours)(void *ctx))
{
    struct log_reader_summary sum;
    struct journal_start start = at_first;
    start.still_ours = still_ours;
    start.log = read_log(&sum, NOTES, ADDS);
    cr_assert(sum.unsettled);
    start.next_segment = sum.next_segment;
    start.last_segment = start.oldest_segment = sum.last_segment;
    start.next_sequence = sum.next_sequence;
    start.next_control = sum.next_control;
    arm(fault, 1);
    begin(&start);
}

Test(journal_faults, each_operation_that_settles_what_was_pending)
{
    bool hit = true;
    unsigned n = 0;
    while (hit) {
        start_anew();
        leave_pending();
        begin_after_it(++n, NULL);
        rotate_at_last(1);
        hit = disarm();
        cr_assert(hit || atomic_load(&failures) == 0); /* a start does without the file that names the process */
        expect(NOTES, ADDS);
    }
    cr_assert_gt(n, 8, "few operations: %u", n);
}

/* The directory may belong to another process by now: nothing is written to it. */
Test(journal_faults, a_directory_that_was_moved_is_left_alone)
{
    struct errbuf err = {""};
    uint64_t segment;
    leave_pending();
    atomic_store(&moved, -ESTALE);
    begin_after_it(0, is_ours);
    cr_assert_eq(journal_rotate(journal, &segment, &err), -ESTALE);
    cr_assert(strstr(err.text, "has been moved, removed or replaced"), "%s", err.text);
    cr_assert_eq(dir_count(tmp_path(dir, "log").text), 1);
    atomic_store(&moved, 0);
    rotate_at_last(0);
    expect(NOTES, ADDS);
}

/* ---- what is refused ---- */

Test(journal_faults, a_layer_that_cannot_be_noted_is_refused)
{
    const struct bloom_shape shape = {.nwords = 1, .k = 1};
    struct errbuf err = {""};
    begin(&at_first);
    arm(1, 1000); /* the file of pending records cannot be made */
    cr_assert_lt(journal_ops.grow(journal_ring(journal, 0), 1, 1, &shape, &err), 0);
    cr_assert(strstr(err.text, "no room for the log"), "%s", err.text);
    cr_assert_eq(disarm(), true);
    cr_assert_eq(journal_ops.grow(journal_ring(journal, 0), 1, 1, &shape, &err), 0);
    cr_assert(journal_is_whole(journal), "who asked was told");
}

/* ---- no thread ---- */

static bool no_thread;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *arg), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *arg), void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *arg), void *arg)
{
    return no_thread ? EAGAIN : __real_pthread_create(thread, attr, main, arg);
}

Test(journal_faults, without_a_thread_there_is_no_journal)
{
    struct errbuf err = {""};
    no_thread = true;
    cr_assert_eq(journal_create(&journal, &at_first, &err), -EAGAIN);
    cr_assert_str_eq(err.text, "cannot start a thread: Resource temporarily unavailable");
    cr_assert_eq(journal, NULL);
}
