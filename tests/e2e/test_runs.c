/* Runs of commands that differ in their item only, which the server processes together (server/run/pipeline.h). With
 * any length, cuts of the input, other clients and other commands in between, the replies equal, byte for byte,
 * those of running the commands one by one. At an error rate of 1e-7 a plain set is the model, and a multiset that of
 * a cuckoo filter whose items have fingerprints of their own. */
#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon.h"
#include "rng.h"
#include "text.h"
#include "wire.h"

#define STREAMS  6
#define FILTERS  3
#define ITEMS    300
#define CAPACITY 40 /* of a filter that does not scale */
#define STEPS    150
#define COPIES   3 /* of an item in a cuckoo filter, at most */

DAEMON_SUITE_IDLE(the_daemon, runs);

struct model {
    bool exists, fixed, has[ITEMS];
    unsigned count;
};

/* The requests of one connection, and the expected replies. */
struct stream {
    struct wire wire;
    unsigned number;
    bool resp3;
    struct text sent, expected;
    size_t done;
    struct model filters[FILTERS];
    unsigned copies[ITEMS]; /* in its cuckoo filter */
};

/* Items with lengths of one, two and three digits. */
static void add_item(struct stream *s, unsigned item)
{
    char text[200];
    int len = snprintf(text, sizeof(text), "%0*u", item % 11 == 0 ? 120 : item % 3 == 0 ? 16 : 1, item);
    text_print(&s->sent, "$%d\r\n%s\r\n", len, text);
}

static void add_request(struct stream *s, const char *command, unsigned filter, unsigned item)
{
    text_print(&s->sent, "*3\r\n$%zu\r\n%s\r\n$6\r\n%c:%03u%u\r\n", strlen(command), command, command[0] | 0x20,
               s->number, filter);
    add_item(s, item);
}

static void expect_bool(struct stream *s, bool answer)
{
    text_print(&s->expected, "%s\r\n", s->resp3 ? answer ? "#t" : "#f" : answer ? ":1" : ":0");
}

static void expect_add(struct stream *s, struct model *f, unsigned item)
{
    if (!f->exists)
        *f = (struct model){.exists = true};
    if (!f->has[item] && f->fixed && f->count == CAPACITY) {
        text_print(&s->expected, "-ERR non scaling filter is full\r\n");
        return;
    }
    expect_bool(s, !f->has[item]);
    f->count += !f->has[item];
    f->has[item] = true;
}

static void run_of(struct stream *s, struct rng *rng, unsigned filter, unsigned n)
{
    static const char *const commands[] = {"BF.EXISTS", "BF.ADD", "bf.Exists", "bf.add"};
    unsigned which = rng_below(rng, 10) ? (unsigned)rng_below(rng, 2) : 2 + (unsigned)rng_below(rng, 2);
    struct model *f = &s->filters[filter];
    for (unsigned i = 0; i < n; i++) {
        unsigned item = (unsigned)rng_below(rng, ITEMS);
        add_request(s, commands[which], filter, item);
        if (which % 2)
            expect_add(s, f, item);
        else
            expect_bool(s, f->exists && f->has[item]);
    }
}

enum { EXISTS, ADD, ADDNX, DEL };

/* The model's answer to a command with an item of which there are so many copies. */
static bool cuckoo_answer(unsigned *copies, unsigned command)
{
    bool had = *copies > 0;
    *copies += command == ADD || (command == ADDNX && !had);
    *copies -= command == DEL && had;
    return command == ADD || (command == ADDNX ? !had : had);
}

/* Either runs of one command, or any of them in turn. */
static void cuckoo_run(struct stream *s, struct rng *rng, unsigned n)
{
    static const char *const commands[] = {"CF.EXISTS", "CF.ADD", "CF.ADDNX", "CF.DEL", "cf.Addnx", "cf.dEl"};
    unsigned same = (unsigned)rng_below(rng, 8), among = rng_below(rng, 2) ? ITEMS : 8;
    for (unsigned i = 0; i < n; i++) {
        unsigned item = (unsigned)rng_below(rng, among), which = same < 6 ? same : (unsigned)rng_below(rng, 6);
        unsigned command = which < 4 ? which : which - 2;
        if (command == ADD && s->copies[item] == COPIES)
            command = which = DEL;
        add_request(s, commands[which], 0, item);
        expect_bool(s, cuckoo_answer(&s->copies[item], command));
    }
}

/* Sends one command with many items. */
static void cuckoo_many(struct stream *s, struct rng *rng, unsigned n)
{
    bool adds = rng_below(rng, 2);
    text_print(&s->sent,
               adds ? "*%u\r\n$11\r\nCF.INSERTNX\r\n$6\r\nc:%03u0\r\n$5\r\nITEMS\r\n"
                    : "*%u\r\n$10\r\nCF.MEXISTS\r\n$6\r\nc:%03u0\r\n",
               n + 2 + adds, s->number);
    text_print(&s->expected, "*%u\r\n", n);
    for (unsigned i = 0; i < n; i++) {
        unsigned item = (unsigned)rng_below(rng, ITEMS);
        add_item(s, item);
        bool answer = cuckoo_answer(&s->copies[item], adds ? ADDNX : EXISTS);
        if (adds)
            text_print(&s->expected, ":%d\r\n", answer);
        else
            expect_bool(s, answer);
    }
}

/* Small sub-filters, so that the filter grows, and is compacted after deletions. */
static void cuckoo_anew(struct stream *s)
{
    text_print(&s->sent, "DEL c:%03u0\r\nCF.RESERVE c:%03u0 300 EXPANSION 1 ERROR 0.0006\r\n", s->number, s->number);
    memset(s->copies, 0, sizeof(s->copies));
}

static void transaction(struct stream *s, struct rng *rng, unsigned filter, unsigned n)
{
    text_print(&s->sent, "MULTI\r\n");
    text_print(&s->expected, "+OK\r\n");
    for (unsigned i = 0; i < n; i++)
        text_print(&s->expected, "+QUEUED\r\n");
    text_print(&s->expected, "*%u\r\n", n);
    if (rng_below(rng, 2))
        run_of(s, rng, filter, n);
    else
        cuckoo_run(s, rng, n);
    text_print(&s->sent, "EXEC\r\n");
}

static void step(struct stream *s, struct rng *rng)
{
    static const unsigned lengths[] = {1, 2, 3, 8, 15, 16, 17, 31, 32, 33, 34, 63, 64, 65, 100};
    unsigned filter = (unsigned)rng_below(rng, FILTERS), other = (unsigned)rng_below(rng, FILTERS);
    unsigned n = lengths[rng_below(rng, sizeof(lengths) / sizeof(*lengths))];
    struct model *f = &s->filters[filter];
    switch (rng_below(rng, 32)) {
    case 0:
        text_print(&s->sent, "DEL b:%03u%u\r\n", s->number, filter);
        text_print(&s->expected, ":%d\r\n", f->exists);
        f->exists = false;
        break;
    case 1:
    case 2:
        text_print(&s->sent, "BF.RESERVE b:%03u%u 0.0000001 %d NONSCALING\r\n", s->number, filter, CAPACITY);
        text_print(&s->expected, f->exists ? "-ERR item exists\r\n" : "+OK\r\n");
        if (!f->exists)
            *f = (struct model){.exists = true, .fixed = true};
        break;
    case 3:
        text_print(&s->sent, "RENAME b:%03u%u b:%03u%u\r\n", s->number, filter, s->number, other);
        text_print(&s->expected, f->exists ? "+OK\r\n" : "-ERR no such key\r\n");
        if (f->exists && other != filter) {
            s->filters[other] = *f;
            f->exists = false;
        }
        break;
    case 4:
        text_print(&s->sent, "BF.CARD b:%03u%u\r\n", s->number, filter);
        text_print(&s->expected, ":%u\r\n", f->exists ? f->count : 0);
        break;
    case 5:
        text_print(&s->sent, "*1\r\n$4\r\nPING\r\n");
        text_print(&s->expected, "+PONG\r\n");
        break;
    case 6:
        transaction(s, rng, filter, n);
        break;
    case 7:
        cuckoo_many(s, rng, n);
        break;
    case 8:
        cuckoo_anew(s);
        text_print(&s->expected, ":1\r\n+OK\r\n");
        break;
    default:
        if (rng_below(rng, 2))
            cuckoo_run(s, rng, n);
        else
            run_of(s, rng, filter, n);
        break;
    }
}

static void read_expected(struct stream *s, const char *about)
{
    struct lines got = {0};
    size_t at = 0, replies = 0;
    while (at < s->expected.len) {
        cr_assert_eq(wire_reply(&s->wire, WIRE_PATIENCE_MS, &got), WIRE_OK, "%s: %zu replies", about, replies);
        for (size_t i = 0; i < got.count; i++) {
            const char *line = s->expected.data + at, *end = strstr(line, "\r\n");
            cr_assert(end - line == (long)strlen(got.items[i]) &&
                          strncmp(line, got.items[i], (size_t)(end - line)) == 0,
                      "%s: reply %zu is '%s' instead of '%.*s'", about, replies, got.items[i], (int)(end - line), line);
            at += (size_t)(end - line) + 2;
        }
        lines_truncate(&got, 0);
        replies++;
    }
    lines_deinit(&got);
}

/* All streams at once, in pieces of random length. */
static void play(uint64_t seed)
{
    static struct stream streams[STREAMS];
    struct rng rng;
    size_t left = STREAMS;
    rng_init(&rng, seed);
    for (unsigned i = 0; i < STREAMS; i++) {
        struct stream *s = &streams[i];
        *s = (struct stream){.number = i, .resp3 = i % 2};
        wire_open(&s->wire, the_daemon.port);
        wire_ask(&s->wire, s->resp3 ? "HELLO 3" : "PING");
        cuckoo_anew(s);
        text_print(&s->expected, ":0\r\n+OK\r\n");
        for (unsigned n = 0; n < STEPS; n++)
            step(s, &rng);
    }
    while (left) {
        struct stream *s = &streams[rng_below(&rng, STREAMS)];
        size_t n = 1 + rng_below(&rng, rng_below(&rng, 3) ? 200 : 8000);
        if (n > s->sent.len - s->done)
            n = s->sent.len - s->done;
        if (n == 0)
            continue;
        cr_assert(wire_send(&s->wire, s->sent.data + s->done, n));
        s->done += n;
        left -= s->done == s->sent.len;
    }
    for (unsigned i = 0; i < STREAMS; i++) {
        char about[32];
        snprintf(about, sizeof(about), "seed %d, stream %u", (int)seed, i);
        read_expected(&streams[i], about);
        wire_close(&streams[i].wire);
        free(streams[i].sent.data);
        free(streams[i].expected.data);
    }
}

static const char *const small[] = {"--threads", "1", "--bf-error-rate", "0.0000001", NULL};

DAEMON_TEST(the_daemon, runs, are_answered_as_one_by_one)
{
    daemon_start(&the_daemon, small);
    for (uint64_t seed = 1; seed <= 10; seed++) {
        play(seed);
        struct wire wire = {0};
        wire_open(&wire, the_daemon.port);
        cr_assert_str_eq(wire_ask(&wire, "FLUSHALL"), "+OK");
        wire_close(&wire);
    }
}

/* Every add waits for room in the log, and for the disk; and each is reported to listeners. */
DAEMON_TEST(the_daemon, runs, are_logged_and_announced_as_one_by_one)
{
    const char *const args[] = {"--threads",
                                "2",
                                "--bf-error-rate",
                                "0.0000001",
                                "--appendonly",
                                "yes",
                                "--appendfsync",
                                "always",
                                "--notify-keyspace-events",
                                "KEA",
                                NULL};
    daemon_start(&the_daemon, args);
    play(11);
    daemon_stop(&the_daemon);
    daemon_start(&the_daemon, args);
}

/* A filter larger than the caches: its runs wait for memory, others' do not, and none overtakes another. */
DAEMON_TEST(the_daemon, runs, on_large_and_small_filters_keep_their_order)
{
    static struct stream s;
    struct rng rng;
    daemon_start(&the_daemon, small);
    rng_init(&rng, 12);
    s = (struct stream){.number = 7};
    wire_open(&s.wire, the_daemon.port);
    cr_assert_str_eq(wire_ask(&s.wire, "BF.RESERVE b:0070 0.0000001 20000000"), "+OK");
    s.filters[0].exists = true;
    for (unsigned i = 0; i < 2000; i++)
        run_of(&s, &rng, (unsigned)rng_below(&rng, FILTERS),
               1 + (unsigned)rng_below(&rng, rng_below(&rng, 4) ? 4 : 80));
    cr_assert(wire_send(&s.wire, s.sent.data, s.sent.len));
    read_expected(&s, "sizes");
    wire_close(&s.wire);
    free(s.sent.data);
    free(s.expected.data);
}

/* The prefetching for such a filter depends on the number of hits among the latest queries. By runs, and one by one. */
DAEMON_TEST(the_daemon, runs, on_a_large_filter_follow_hits_and_misses)
{
    static struct stream s;
    struct rng rng;
    daemon_start(&the_daemon, small);
    rng_init(&rng, 14);
    s = (struct stream){.number = 9};
    wire_open(&s.wire, the_daemon.port);
    cr_assert_str_eq(wire_ask(&s.wire, "BF.RESERVE b:0090 0.0000001 20000000"), "+OK");
    s.filters[0].exists = true;
    for (unsigned phase = 0; phase < 40; phase++) {
        unsigned from = phase % 3 == 0 ? ITEMS / 2 : 0, among = phase % 3 == 2 ? ITEMS : ITEMS / 2, sent = 0;
        for (unsigned i = 0; i < 300; i++) { /* misses; hits, after their adds; both */
            unsigned item = from + (unsigned)rng_below(&rng, among);
            bool adds = item < ITEMS / 2 && rng_below(&rng, 8) == 0;
            add_request(&s, adds ? "BF.ADD" : "BF.EXISTS", 0, item);
            if (adds)
                expect_add(&s, &s.filters[0], item);
            else
                expect_bool(&s, s.filters[0].has[item]);
            if (i < 299 && rng_below(&rng, phase % 2 ? 2 : 100))
                continue;
            cr_assert(wire_send(&s.wire, s.sent.data + sent, s.sent.len - sent));
            sent = (unsigned)s.sent.len;
        }
        read_expected(&s, "phases");
        s.sent.len = s.expected.len = 0;
    }
    wire_close(&s.wire);
    free(s.sent.data);
    free(s.expected.data);
}

/* The first part has been read when the other connection, of the same worker, has its reply. */
DAEMON_TEST(the_daemon, runs, cut_at_every_byte)
{
    static struct stream s;
    struct wire other = {0};
    struct rng rng;
    daemon_start(&the_daemon, small);
    rng_init(&rng, 13);
    s = (struct stream){.number = 8};
    wire_open(&s.wire, the_daemon.port);
    wire_open(&other, the_daemon.port);
    run_of(&s, &rng, 0, 3);
    text_print(&s.sent, "DEL b:0080\r\n");
    text_print(&s.expected, ":%d\r\n", s.filters[0].exists);
    s.filters[0].exists = false;
    cuckoo_anew(&s);
    text_print(&s.expected, ":0\r\n+OK\r\n");
    cuckoo_run(&s, &rng, 40);
    text_print(&s.sent, "DEL c:0080\r\n");
    text_print(&s.expected, ":1\r\n");
    run_of(&s, &rng, 0, 34);
    text_print(&s.sent, "DEL b:0080\r\n");
    text_print(&s.expected, ":%d\r\n", s.filters[0].exists);
    for (size_t cut = 1; cut < s.sent.len; cut++) {
        cr_assert(wire_send(&s.wire, s.sent.data, cut));
        cr_assert_str_eq(wire_ask(&other, "PING"), "+PONG");
        cr_assert(wire_send(&s.wire, s.sent.data + cut, s.sent.len - cut));
        read_expected(&s, "cut");
    }
    wire_close(&s.wire);
    wire_close(&other);
    free(s.sent.data);
    free(s.expected.data);
}

/* CLIENT PAUSE holds a run of adds back, in its place, and lets queries through. */
DAEMON_TEST(the_daemon, runs, of_adds_wait_for_the_end_of_a_pause)
{
    struct wire wire = {0}, other = {0};
    char text[4096] = "";
    daemon_start(&the_daemon, small);
    wire_open(&wire, the_daemon.port);
    wire_open(&other, the_daemon.port);
    cr_assert_str_eq(wire_ask(&wire, "BF.ADD f x"), ":1"); /* so that similar ones are recognised at once */
    cr_assert_str_eq(wire_ask(&other, "CLIENT PAUSE 60000 WRITE"), "+OK");
    for (int i = 0; i < 40; i++)
        sprintf(text + strlen(text), "*3\r\n$6\r\nBF.ADD\r\n$1\r\nf\r\n$2\r\n%02d\r\n", i);
    wire_send_text(&wire, text);
    cr_assert_str_eq(wire_ask(&other, "BF.EXISTS f 00"), ":0");
    cr_assert_str_eq(wire_ask(&other, "BF.CARD f"), ":1");
    cr_assert_str_eq(wire_ask(&other, "CLIENT UNPAUSE"), "+OK");
    for (int i = 0; i < 40; i++)
        cr_assert_str_eq(wire_text(&wire), ":1");
}
