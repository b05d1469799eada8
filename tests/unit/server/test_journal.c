/* The journal's reports of changes that it could not take: to waiters, to the saver, and to the next start. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "alloc_countdown.h"
#include "journal.h"
#include "log_reader.h"
#include "tmpdir.h"

static char dir[TMPDIR_SIZE];
static struct journal *journal;
static _Atomic uint64_t announced;
static struct fsops fs;
static _Atomic unsigned sync_takes_us;
static _Atomic bool disk_is_full;

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
}

static void on_state(void *ctx, bool failed, const char *text)
{
    (void)ctx;
    cr_assert(!failed, "%s", text);
}

static int slow_sync(void *ctx, int fd)
{
    usleep(atomic_load(&sync_takes_us));
    return fsops_posix()->sync(ctx, fd);
}

static int full_pwrite(void *ctx, int fd, const void *buf, size_t len, uint64_t offset, size_t *n_out)
{
    return atomic_load(&disk_is_full) ? -ENOSPC : fsops_posix()->pwrite(ctx, fd, buf, len, offset, n_out);
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
};

static void setup(void)
{
    struct errbuf err = {""};
    tmpdir_create(dir);
    fs = *fsops_posix();
    fs.sync = slow_sync;
    fs.pwrite = full_pwrite;
    cr_assert_eq(journal_create(&journal, &at_first, &err), 0, "%s", err.text);
    journal_set_policy(journal, JOURNAL_ALWAYS);
}

static void teardown(void)
{
    journal_destroy(journal);
    tmpdir_remove(dir);
}

TestSuite(journal, .init = setup, .fini = teardown, .timeout = 3000);

/* Notes a deletion, or a record so long that it needs memory. */
static void note(uint64_t id, bool large)
{
    static char name[65535];
    memset(name, 'x', sizeof(name));
    journal_note(journal, &(struct log_control){.kind = large ? LOG_RENAME : LOG_DELETE,
                                                .id = id,
                                                .name = name,
                                                .name_len = large ? sizeof(name) : 0});
}

static void sync_log(void)
{
    struct errbuf err = {""};
    cr_assert_eq(journal_sync(journal, &err), 0, "%s", err.text);
}

/* Notes this many, and the file of pending records cannot grow. The log thread is held meanwhile, so that nothing of it
 * fails. */
static void note_without_memory(unsigned count)
{
    sync_log();
    journal_hold(journal, NULL);
    atomic_store(&disk_is_full, true);
    for (unsigned i = 0; i < count; i++) {
        alloc_exhausted_start();
        note(5, true);
        cr_assert(alloc_countdown_stop(), "it needed no memory");
    }
    atomic_store(&disk_is_full, false);
    journal_release(journal);
}

static void save(uint64_t begun)
{
    sync_log();
    journal_save_committed(journal, begun);
}

static void wait_for(uint64_t ticket)
{
    while (atomic_load(&announced) < ticket)
        usleep(1000);
}

/* ---- contents after a start ---- */

static char found[220000]; /* a letter for each control record */

static int on_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    (void)ctx, (void)err;
    cr_assert_eq(number, strlen(found) + 1);
    found[number - 1] = control->kind == LOG_BREAK ? 'B' : (char)('0' + control->id);
    return 0;
}

static void read_log(void)
{
    struct log_reader_options options = {.dir = dir, .on_control = on_control};
    struct log_reader_summary sum;
    struct log_reader *reader;
    struct errbuf err = {""};
    sync_log();
    memset(found, 0, sizeof(found));
    cr_assert_eq(log_reader_open(&options, &reader, &sum, &err), 0, "%s", err.text);
    log_reader_close(reader);
}

static void expect_log(const char *records)
{
    read_log();
    cr_assert_str_eq(found, records);
}

/* ---- rounds ---- */

/* On a slow disk a round waits for the clients that the last one served, but not forever. */
Test(journal, each_of_its_parts_needs_memory)
{
    struct errbuf err = {""};
    int status = -ENOMEM;
    size_t n = 0;
    journal_destroy(journal);
    for (; status != 0; n++) {
        journal = NULL;
        err.text[0] = '\0';
        alloc_countdown_start(n);
        status = journal_create(&journal, &at_first, &err);
        bool failed = alloc_countdown_stop();
        cr_assert(status == 0 || (status == -ENOMEM && failed && err.text[0]), "allocation %zu: %d %s", n, status,
                  err.text);
    }
    cr_assert_gt(n, 5, "few parts had memory of their own");
}

Test(journal, who_does_not_come_back_keeps_nobody_waiting)
{
    journal_record(journal, true);
    atomic_store(&sync_takes_us, 20000);
    for (uint64_t i = 1; i <= 4; i++) {
        note(i, false);
        wait_for(journal_ticket(journal, 0, 50));
    }
    for (uint64_t i = 5; i <= 8; i++) {
        note(i, false);
        wait_for(journal_ticket(journal, 0, 1));
    }
    expect_log("12345678");
}

/* ---- no memory ---- */

/* Under `always` the reply to a change that could not be noted waits until a save has it; a sync of the log is not
 * enough. */
Test(journal, what_could_not_be_noted_is_not_promised)
{
    journal_record(journal, true);
    note(1, false);
    uint64_t first = journal_ticket(journal, 0, 1);
    wait_for(first);
    note_without_memory(1);
    cr_assert(journal_refuses(journal));
    cr_assert(!journal_is_whole(journal));
    struct errbuf reason;
    journal_reason(journal, &reason);
    cr_assert_str_eq(reason.text, "out of memory for a log record; the next save will contain the change");
    uint64_t ticket = journal_ticket(journal, 0, 1);
    note(3, false);
    for (int i = 0; i < 3; i++)
        sync_log();
    cr_assert_lt(atomic_load(&announced), ticket);
    save(journal_save_begins(journal));
    wait_for(ticket);
    cr_assert(!journal_refuses(journal));
    cr_assert(journal_is_whole(journal));
    expect_log("1B3");
}

/* Changes that could not be noted during a save, maybe after it had passed them, are left to the next one. */
Test(journal, a_save_under_way_makes_up_for_nothing)
{
    journal_record(journal, true);
    note_without_memory(1);
    uint64_t begun = journal_save_begins(journal);
    note(2, false);
    note_without_memory(1);
    note(4, false);
    cr_assert_eq(journal_saved_controls(journal), 2u, "what comes behind the second break needs another save");
    save(begun);
    cr_assert(journal_refuses(journal));
    begun = journal_save_begins(journal);
    cr_assert_eq(journal_saved_controls(journal), 4u);
    save(begun);
    cr_assert(!journal_refuses(journal));
    expect_log("B2B4");
}

/* Repeatedly without memory: each time there is room for a break. */
Test(journal, there_is_always_room_for_a_break)
{
    journal_record(journal, true);
    for (int i = 0; i < 4; i++)
        note_without_memory(5);
    note(7, false);
    expect_log("BBBBBBBBBBBBBBBBBBBB7");
}

/* Notes until there is no room for another break either: it is owed. Returns the number of breaks. */
static size_t owe_a_break(void)
{
    note_without_memory(200000);
    read_log();
    size_t breaks = strlen(found);
    cr_assert(breaks < 200000 && strspn(found, "B") == breaks, "%zu", breaks);
    return breaks;
}

Test(journal, a_break_that_is_owed_comes_before_anything_else)
{
    journal_record(journal, true);
    size_t breaks = owe_a_break();
    note(7, false);
    note(8, false);
    read_log();
    cr_assert_eq(strspn(found, "B"), breaks + 1);
    cr_assert_str_eq(found + breaks + 1, "78");
}

/* A save that makes up for changes not noted does so for the break, too: no one would start another save for it. */
Test(journal, a_break_that_is_owed_is_not_after_a_save)
{
    journal_record(journal, true);
    size_t breaks = owe_a_break();
    save(journal_save_begins(journal));
    cr_assert(journal_is_whole(journal));
    note(7, false);
    read_log();
    cr_assert_eq(strspn(found, "B"), breaks);
    cr_assert_str_eq(found + breaks, "7");
}

/* Except for a break that came into the log during the save. */
Test(journal, a_break_that_was_owed_to_a_save_needs_another)
{
    journal_record(journal, true);
    size_t breaks = owe_a_break();
    uint64_t begun = journal_save_begins(journal);
    note(7, false);
    cr_assert_eq(journal_saved_controls(journal), breaks);
    save(begun);
    cr_assert(!journal_is_whole(journal));
    cr_assert(journal_refuses(journal));
    begun = journal_save_begins(journal);
    cr_assert_eq(journal_saved_controls(journal), breaks + 2);
    save(begun);
    cr_assert(journal_is_whole(journal));
}

/* ---- switching ---- */

Test(journal, switched_on_it_needs_a_save_that_begins_later)
{
    note(9, false);
    uint64_t begun = journal_save_begins(journal);
    journal_switch(journal, true);
    note(1, false);
    cr_assert_eq(journal_saved_controls(journal), 0u);
    save(begun);
    cr_assert(!journal_is_whole(journal));
    cr_assert(!journal_refuses(journal), "it is no failure");
    wait_for(journal_ticket(journal, 0, 1));
    journal_switch(journal, false);
    cr_assert_eq(journal_ticket(journal, 0, 1), 0, "nothing is recorded: nobody waits");
    note(9, false);
    begun = journal_save_begins(journal);
    cr_assert_eq(journal_saved_controls(journal), 2u);
    save(begun);
    cr_assert(journal_is_whole(journal));
    journal_switch(journal, true);
    note(2, false);
    begun = journal_save_begins(journal);
    journal_missed(journal);
    save(begun);
    cr_assert(!journal_is_whole(journal));
    save(journal_save_begins(journal));
    cr_assert(journal_is_whole(journal));
    expect_log("B1B2B");
}

/* ---- segments that a save may cut ---- */

static uint64_t rotate(void)
{
    struct errbuf err = {""};
    uint64_t segment;
    note(1, false);
    cr_assert_eq(journal_rotate(journal, &segment, &err), 0, "%s", err.text);
    return segment;
}

static void expect_segment(uint64_t segment, bool is_there)
{
    struct errbuf err = {""};
    cr_assert_eq(journal_look(journal, segment, &err), is_there ? 0 : -ENOENT, "%s", err.text);
    cr_assert(is_there || strstr(err.text, "another program has removed it"), "%s", err.text);
}

/* Contents from elsewhere appear after a save has passed them. Adds since they were written are in segments from
 * before the save, and nowhere else until the next save. */
Test(journal, a_save_keeps_what_was_published_behind_its_back)
{
    struct journal_keep first, early, late;
    journal_switch(journal, true);
    journal_keep_begin(journal, &first); /* there is no segment: all are kept */
    uint64_t oldest = rotate() - 1;
    uint64_t before = rotate();
    cr_assert_eq(journal_first_needed(journal, before), oldest);
    journal_keep_end(journal, &first);
    journal_save_begins(journal);
    journal_keep_begin(journal, &early);
    journal_save_begins(journal);
    uint64_t segment = rotate();
    cr_assert_gt(segment, before);
    cr_assert_eq(journal_first_needed(journal, segment), before);
    journal_keep_begin(journal, &late);
    journal_keep_end(journal, &early);
    journal_keep_end(journal, &late);
    cr_assert_eq(journal_first_needed(journal, segment), before);
    journal_cut(journal, before);
    expect_segment(before - 1, false);
    expect_segment(before, true);
    journal_save_begins(journal); /* the next save finds it */
    segment = rotate();
    cr_assert_eq(journal_first_needed(journal, segment), segment);
    journal_cut(journal, segment);
    expect_segment(before, false);
    expect_segment(segment, true);
    expect_segment(0, true);
    cr_assert_eq(unlink(tmp_path(dir, "log/%08d.log", (int)segment).text), 0);
    expect_segment(segment, false);
    expect_segment(0, false);
}
