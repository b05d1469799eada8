/* `bloomery move --follow`, `--cutover` and `--merge` between two daemons, with clients that write throughout. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "move_runs.h"
#include "tmpdir.h"
#include "wait.h"

DAEMON_PAIR(follow);

static void expect_end(pid_t pid, int signal_number, int expected)
{
    if (signal_number)
        kill(pid, signal_number);
    cr_assert_eq(wait_for(pid), expected);
}

/* ---- clients that write throughout ---- */

/* Adds the items <id>:0, <id>:1, ... one after the other, or several in a command, until a server has acknowledged
 * them; goes to the target when the source is read-only, and connects again when it is disconnected. */
struct live {
    int id, port;
    const char *add, *remove, *filter; /* `remove`: NULL or CF.DEL, for every third item */
    int batch;                         /* items in a command; 0: one */
    pthread_t thread;
    atomic_bool *stop;
    long acked;   /* items */
    long at_home; /* of these, acknowledged by the source */
    bool failed;  /* by an answer that no client may get */
    char why[256];
};

static redisContext *reach(const struct live *live)
{
    redisContext *client = redisConnect("127.0.0.1", live->port);
    cr_assert(client);
    return client;
}

#define BATCH_MAX 60000

static redisReply *ask(const struct live *live, redisContext *client, const char *command, long n)
{
    static const char *words[2 + BATCH_MAX];
    static char items[BATCH_MAX][16];
    if (!live->batch)
        return redisCommand(client, "%s %s %d:%ld", command, live->filter, live->id, n);
    words[0] = command;
    words[1] = live->filter;
    for (int i = 0; i < live->batch; i++) {
        snprintf(items[i], sizeof(items[i]), "%d:%ld", live->id, n + i);
        words[2 + i] = items[i];
    }
    return redisCommandArgv(client, 2 + live->batch, words, NULL);
}

/* Whether the command was acknowledged. */
static bool call(struct live *live, redisContext **client, const char *command, long n)
{
    redisReply *reply = ask(live, *client, command, n);
    bool acked = reply && (reply->type == REDIS_REPLY_INTEGER || reply->type == REDIS_REPLY_ARRAY);
    bool read_only = reply && reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "READONLY", 8) == 0;
    if (reply && !acked && !read_only) {
        live->failed = true;
        snprintf(live->why, sizeof(live->why), "%s: %s", command, reply->str ? reply->str : "?");
    }
    freeReplyObject(reply);
    if (read_only)
        live->port = target.port;
    if (!acked) {
        redisFree(*client);
        *client = reach(live);
    }
    return acked;
}

static bool is_removed(const struct live *live, long n)
{
    return live->remove && n % 3 == 0;
}

static void *live_run(void *ctx)
{
    struct live *live = ctx;
    redisContext *client = reach(live);
    while (!atomic_load(live->stop) && !live->failed) {
        if (!call(live, &client, live->add, live->acked))
            continue;
        long acked = live->batch ? live->batch : 1;
        live->at_home += live->port == source.port ? acked : 0;
        live->acked += acked;
        if (is_removed(live, live->acked - 1))
            (void)call(live, &client, live->remove, live->acked - 1); /* without a reply: perhaps */
    }
    redisFree(client);
    return NULL;
}

static void live_start(struct live *live, size_t n, atomic_bool *stop)
{
    for (size_t i = 0; i < n; i++) {
        live[i].id = (int)i;
        live[i].port = source.port;
        live[i].stop = stop;
        cr_assert_eq(pthread_create(&live[i].thread, NULL, live_run, &live[i]), 0);
    }
}

static void live_join(struct live *live, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        pthread_join(live[i].thread, NULL);
        cr_assert_not(live[i].failed, "%s: %s", live[i].filter, live[i].why);
    }
}

/* The target has each item that either server has acknowledged. */
static void live_check(const struct live *live)
{
    enum { PART = 1000 };
    char command[128];
    for (long first = 0; first < live->acked; first += PART) {
        long end = first + PART < live->acked ? first + PART : live->acked;
        for (long n = first; n < end; n++) {
            snprintf(command, sizeof(command), "%.2s.EXISTS %s %d:%ld", live->add, live->filter, live->id, n);
            redisAppendCommand(to, command);
        }
        for (long n = first; n < end; n++) {
            redisReply *reply;
            cr_assert_eq(redisGetReply(to, (void **)&reply), REDIS_OK);
            cr_assert(reply->type == REDIS_REPLY_INTEGER && (reply->integer == 1 || is_removed(live, n)),
                      "%s %d:%ld of %ld (%ld in the source) is lost", live->filter, live->id, n, live->acked,
                      live->at_home);
            freeReplyObject(reply);
        }
    }
}

/* ---- names that come and go ---- */

#define NAMES 12

struct churn {
    pthread_t thread;
    unsigned steps;
};

static void churn_command(unsigned step, char *text, size_t size)
{
    unsigned a = step * 7 % NAMES, b = step * 5 % NAMES, what = step % 11;
    switch (what) {
    case 0:
        snprintf(text, size, "DEL n:%u", a);
        break;
    case 1:
        snprintf(text, size, "RENAME n:%u n:%u", a, b);
        break;
    case 2:
        snprintf(text, size, "PEXPIRE n:%u %u", a, step % 300 + 1);
        break;
    case 3:
        snprintf(text, size, "PERSIST n:%u", a);
        break;
    case 4:
        snprintf(text, size, "CF.ADD n:%u %u", a, step);
        break;
    case 5:
        snprintf(text, size, "BF.INSERT n:%u CAPACITY 500 WINDOW ITEMS 1000 ITEMS %u", b, step);
        break;
    default:
        snprintf(text, size, "BF.ADD n:%u %u", b, step % 400);
        break;
    }
}

/* Until the source is read-only. */
static void *churn_run(void *ctx)
{
    struct churn *churn = ctx;
    redisContext *client = redisConnect("127.0.0.1", source.port);
    for (bool goes_on = true; goes_on;) {
        char text[128];
        churn_command(churn->steps++, text, sizeof(text));
        redisReply *reply = redisCommand(client, text);
        goes_on = !reply || reply->type != REDIS_REPLY_ERROR || strncmp(reply->str, "READONLY", 8) != 0;
        freeReplyObject(reply);
        if (!reply) {
            redisFree(client);
            client = redisConnect("127.0.0.1", source.port);
        }
    }
    redisFree(client);
    return NULL;
}

/* Both answer the same about the names. */
static void expect_same_names(void)
{
    static const char *const questions[] = {"TYPE n:%d", "BF.INFO n:%d", "CF.INFO n:%d"};
    for (int i = 0; i < NAMES; i++) {
        /* A name expires at its own moment in each. */
        wait_until(client_number(from, "EXISTS n:%d", i) == client_number(to, "EXISTS n:%d", i));
        bool stays = client_number(from, "PTTL n:%d", i) == -1;
        if (stays)
            expect(to, ":-1", "PTTL n:%d", i);
        for (size_t j = 0; stays && j < sizeof(questions) / sizeof(questions[0]); j++) {
            char *here = strdup(client_ask(from, questions[j], i));
            cr_expect_str_eq(client_ask(to, questions[j], i), here, "n:%d", i);
            free(here);
        }
        for (int item = 0; stays && item < 400; item += 7) {
            char *here = strdup(client_ask(from, "BF.EXISTS n:%d %d", i, item));
            cr_expect_str_eq(client_ask(to, "BF.EXISTS n:%d %d", i, item), here, "n:%d", i);
            free(here);
        }
    }
}

/* ---- cutover ---- */

/* Small and large filters of either kind, windows, deletions, names that come and go: the target has all changes
 * that either server acknowledged. */
PAIR_TEST(follow, live_clients_lose_nothing_when_the_source_is_cut_over)
{
    static struct live live[] = {
        {.add = "BF.ADD", .filter = "bloom"},    {.add = "BF.ADD", .filter = "bloom"},
        {.add = "BF.ADD", .filter = "window"},   {.add = "BF.ADD", .filter = "large"},
        {.add = "CF.ADD", .filter = "cuckoo"},   {.add = "CF.ADD", .remove = "CF.DEL", .filter = "cuckoo"},
        {.add = "CF.ADD", .filter = "large-cf"},
    };
    enum { LIVE = sizeof(live) / sizeof(live[0]) };
    atomic_bool stop = false;
    struct churn churn = {.steps = 1};
    expect(from, "+OK", "BF.RESERVE bloom 0.000001 1000");
    expect(from, "+OK", "BF.RESERVE window 0.000001 100000 WINDOW 100000");
    expect(from, "+OK", "BF.RESERVE large 0.000001 1000000");
    expect(from, "+OK", "CF.RESERVE cuckoo 1000 EXPANSION 2");
    expect(from, "+OK", "CF.RESERVE large-cf 10000000");
    live_start(live, LIVE, &stop);
    cr_assert_eq(pthread_create(&churn.thread, NULL, churn_run, &churn), 0);
    wait_until(client_number(from, "BF.CARD bloom") > 1000);
    expect_move(0, "cut over writers of the source waited for ", "--cutover --behind 60");
    long long moved = client_number(to, "BF.CARD bloom");
    program_said(output, "now it answers them -READONLY");
    redisFree(from); /* which was closed, too */
    from = client_open(source.port);
    pthread_join(churn.thread, NULL);
    wait_until(client_number(to, "BF.CARD bloom") > moved); /* clients have come over */
    atomic_store(&stop, true);
    live_join(live, LIVE);
    for (size_t i = 0; i < LIVE; i++) {
        cr_expect_gt(live[i].at_home, 0);
        live_check(&live[i]);
    }
    expect_same_names();
    expect(from, "-READONLY You can't write against a read only server: its setting read-only is yes",
           "BF.ADD bloom x");
    expect(from, ":1", "BF.EXISTS bloom 0:0");
    expect(from, "+OK", "CONFIG SET read-only no");
    expect(from, ":1", "BF.ADD bloom x");
}

static void *unpause_run(void *stop)
{
    redisContext *own = client_open(source.port);
    while (!atomic_load((atomic_bool *)stop)) {
        freeReplyObject(redisCommand(own, "CLIENT UNPAUSE")); /* NULL when the cutover has closed the connection */
        usleep(1000);
    }
    redisFree(own);
    return NULL;
}

/* Clients write to the target by then: another cutover would overwrite their changes. */
PAIR_TEST(follow, a_second_cutover_is_refused)
{
    expect(from, ":1", "BF.ADD f before");
    expect_move(0, "cut over", "--cutover");
    redisFree(from);
    from = client_open(source.port);
    expect(to, ":1", "BF.ADD f winner");
    expect_move(1, "it refuses writes already (its setting read-only is yes)", "--cutover");
    expect(to, "[:1,:1]", "BF.MEXISTS f before winner");
    expect(from, "+OK", "CONFIG SET read-only no");
    expect_move(0, "cut over", "--cutover");
    expect(to, "[:1,:0]", "BF.MEXISTS f before winner");
}

/* A pause that another client ends gives no protection: the cutover is given up, so that no change is lost. */
PAIR_TEST(follow, a_cutover_whose_pause_another_client_ends_is_given_up)
{
    static struct live live[] = {{.add = "BF.ADD", .filter = "f1"},
                                 {.add = "BF.ADD", .filter = "f2"},
                                 {.add = "BF.ADD", .filter = "f3"},
                                 {.add = "CF.ADD", .filter = "c"}};
    enum { LIVE = sizeof(live) / sizeof(live[0]) };
    atomic_bool stop = false;
    pthread_t unpause;
    for (int i = 1; i <= 3; i++)
        expect(from, "+OK", "BF.RESERVE f%d 0.000001 100000", i);
    expect(from, "+OK", "CF.RESERVE c 100000");
    live_start(live, LIVE, &stop);
    wait_until(client_number(from, "BF.CARD f1") > 1000);
    cr_assert_eq(pthread_create(&unpause, NULL, unpause_run, &stop), 0);
    expect_move(1, "filters of the source have changed during the pause of its writers", "--cutover --behind 60");
    program_said(output, "the source continues as before");
    expect(from, "[\"read-only\",\"no\"]", "CONFIG GET read-only");
    expect(from, ":1", "BF.ADD f1 later");
    atomic_store(&stop, true);
    live_join(live, LIVE);
    pthread_join(unpause, NULL);
}

/* Commands of many items, run in slices by the source: a command that the pause interrupts must not be acknowledged
 * after it. */
PAIR_TEST(follow, a_command_that_the_pause_catches_half_way_is_not_acknowledged)
{
    struct live live = {.add = "BF.MADD", .filter = "f", .batch = BATCH_MAX};
    atomic_bool stop = false;
    expect(from, "+OK", "BF.RESERVE f 0.000001 100000");
    live_start(&live, 1, &stop);
    wait_until(client_number(from, "BF.CARD f") > BATCH_MAX / 2);
    expect_move(0, "cut over", "--cutover --behind 60");
    long long moved = client_number(to, "BF.CARD f");
    wait_until(client_number(to, "BF.CARD f") > moved);
    atomic_store(&stop, true);
    live_join(&live, 1);
    live_check(&live);
}

/* A filter that cannot be moved: the source's clients continue. */
PAIR_TEST(follow, a_cutover_without_all_filters_is_given_up)
{
    expect(from, "+OK", "BF.RESERVE large 0.001 1000000");
    expect(from, ":1", "BF.ADD small a");
    expect(to, "+OK", "CONFIG SET bf-max-filter-bytes 100000");
    expect_move(3, "no cutover: filters are missing in the target", "--cutover");
    program_said(output, "skipped large: ");
    program_said(output, "the source continues as before");
    expect(from, ":1", "BF.ADD small b");
    expect(from, "[\"read-only\",\"no\"]", "CONFIG GET read-only");

    expect(to, "+OK", "CONFIG SET bf-max-filter-bytes 1gb");
    expect(from, "+OK", "SELECT 3");
    expect(from, ":1", "BF.ADD other a");
    expect_move(1, "it has keys in database 3, which this run does not move", "--cutover");
    expect(from, ":1", "DEL other");
    expect(from, "+OK", "SELECT 0");
    expect_move(0, "cut over", "--cutover");
    expect(to, "[:1,:1]", "BF.MEXISTS small a b");
}

/* ---- following ---- */

PAIR_TEST(follow, what_changes_is_repeated_until_a_signal)
{
    expect(from, ":1", "BF.ADD one a");
    expect(from, ":1", "BF.ADD two b");
    expect(from, ":1", "BF.ADD gone x");
    expect(from, "+OK", "CF.RESERVE cuckoo 100");
    expect(to, ":1", "BF.ADD elsewhere x");
    pid_t pid = move_beside(source.port, target.port, "--follow", NULL);
    wait_until(client_number(to, "DBSIZE") == 5);
    expect(from, ":1", "DEL gone");
    wait_until(client_number(to, "EXISTS gone") == 0);
    expect(from, ":1", "BF.ADD later x");
    wait_until(client_number(to, "EXISTS later") == 1);
    expect(from, ":1", "BF.ADD one more");
    wait_until(client_number(to, "BF.EXISTS one more") == 1);
    expect(from, ":1", "CF.ADD cuckoo x");
    wait_until(client_number(to, "CF.EXISTS cuckoo x") == 1);
    expect(from, ":1", "CF.DEL cuckoo x");
    wait_until(client_number(to, "CF.EXISTS cuckoo x") == 0);
    expect(from, ":1", "PEXPIRE later 1000000");
    wait_until(client_number(to, "PTTL later") > 0);
    expect(from, ":1", "PERSIST later");
    wait_until(client_number(to, "PTTL later") == -1);
    expect(from, ":1", "PEXPIRE later 1");
    wait_until(client_number(to, "EXISTS later") == 0);
    expect(from, ":1", "BF.ADD one b"); /* "one" has as many items as "swapped" */
    expect(from, "[:1,:1,:1]", "BF.MADD swapped x y z");
    expect(from, "+OK", "RENAME swapped one");
    wait_until(client_number(to, "BF.EXISTS one x") == 1 && client_number(to, "EXISTS swapped") == 0);
    expect(to, ":0", "BF.EXISTS one a");
    expect(from, "+OK", "FLUSHALL");
    wait_until(client_number(to, "DBSIZE") == 1);
    expect(to, ":1", "EXISTS elsewhere");
    expect_end(pid, SIGINT, 130);
}

static bool has_said(const char *path, const char *text)
{
    return file_exists(path) && strstr(file_text(path), text);
}

PAIR_TEST(follow, a_target_that_does_not_catch_up_is_told)
{
    static char path[300];
    snprintf(path, sizeof(path), "%s/said", source.dir);
    beside_output = path;
    pid_t pid = move_beside(source.port, target.port, "--follow", "--behind=0");
    for (int i = 0; !has_said(path, "not caught up: a round takes "); i++)
        for (int j = 0; j < 100; j++)
            client_number(from, "BF.ADD f%d %d", j, i);
    expect_end(pid, SIGINT, 130);
    beside_output = "/dev/null";
}

PAIR_TEST(follow, only_matching_names_are_followed)
{
    pid_t pid = move_beside(source.port, target.port, "--follow", "--match=u:*");
    expect(from, ":1", "BF.ADD other x");
    expect(from, ":1", "BF.ADD u:1 x");
    wait_until(client_number(to, "EXISTS u:1") == 1);
    expect(to, ":0", "EXISTS other");
    expect_end(pid, SIGTERM, 143);
}

/* The tool loses its connections to either server: then any filter may have changed. */
PAIR_TEST(follow, lost_connections_lose_no_change)
{
    expect(from, ":1", "BF.ADD f 0");
    pid_t pid = move_beside(source.port, target.port, "--follow", NULL);
    for (int i = 1; i < 40; i++) {
        client_ask(i % 2 ? from : to, "CLIENT KILL TYPE normal SKIPME yes");
        expect(from, ":1", "BF.ADD f %d", i);
        expect(from, ":1", "BF.ADD f:%d x", i);
        expect(from, i > 1 ? ":1" : ":0", "DEL f:%d", i - 1);
        wait_until(client_number(to, "BF.EXISTS f %d", i) == 1);
        wait_until(client_number(to, "EXISTS f:%d", i) == 1 && client_number(to, "EXISTS f:%d", i - 1) == 0);
    }
    expect_end(pid, SIGINT, 130);
}

/* Either server dies and comes back; the source may have lost or gained names meanwhile. */
PAIR_TEST(follow, servers_that_die_and_return_are_followed_on)
{
    char from_path[300], to_path[300], from_url[320], to_url[320];
    snprintf(from_path, sizeof(from_path), "%s/socket", source.dir);
    snprintf(to_path, sizeof(to_path), "%s/socket", target.dir);
    snprintf(from_url, sizeof(from_url), "unix://%s", from_path); /* the port is another after the restart */
    snprintf(to_url, sizeof(to_url), "unix://%s", to_path);
    from = client_after_kill(from, &source, (const char *const[]){"--unixsocket", from_path, NULL});
    to = client_after_kill(to, &target, (const char *const[]){"--unixsocket", to_path, NULL});
    expect(from, "[:1,:1]", "BF.MADD f a b");
    expect(from, ":1", "BF.ADD gone a");
    pid_t pid = move_beside_urls(from_url, to_url, "--follow", NULL);
    wait_until(client_number(to, "DBSIZE") == 2);
    from = client_after_kill(from, &source, NULL);
    expect(from, ":1", "BF.ADD f c");
    expect(from, ":1", "DEL gone");
    wait_until(client_number(to, "BF.EXISTS f c") == 1 && client_number(to, "EXISTS gone") == 0);
    to = client_after_kill(to, &target, NULL);
    expect(from, ":1", "BF.ADD f d");
    wait_until(client_number(to, "BF.EXISTS f d") == 1);
    expect_end(pid, SIGINT, 130);
}

/* ---- merges ---- */

PAIR_TEST(follow, merge_unites_what_both_have)
{
    expect(from, "[:1,:1]", "BF.MADD both a b");
    expect(to, "[:1,:1]", "BF.MADD both b c");
    expect(to, ":1", "EXPIRE both 1000");
    expect(from, ":1", "BF.ADD here a");
    expect(from, "+OK", "BF.RESERVE large 0.001 5000000");
    expect(to, "+OK", "BF.RESERVE large 0.001 5000000");
    client_for_items(from, "BF.MADD", "large", "here", 5000);
    client_for_items(to, "BF.MADD", "large", "there", 5000);
    expect(from, "+OK", "BF.RESERVE other 0.01 100");
    expect(to, "+OK", "BF.RESERVE other 0.001 100");
    expect(from, ":1", "CF.ADD cuckoo a");
    expect(from, ":1", "CF.ADD new-cuckoo a");
    expect(to, "[:1,:1]", "CF.INSERT cuckoo ITEMS b c");
    expect_move(3, "moved    4 filters", "--merge");
    program_said(output, "skipped other: ");
    program_said(output, "skipped cuckoo: the target has a cuckoo filter of this name, and cuckoo filters cannot ");
    expect(to, "[:1,:1,:1]", "BF.MEXISTS both a b c");
    cr_assert_gt(client_number(to, "TTL both"), 500);
    expect(to, ":1", "BF.EXISTS here a");
    expect(to, ":1", "CF.EXISTS new-cuckoo a");
    expect(to, "[:0,:1]", "CF.MEXISTS cuckoo a b");
    cr_assert_eq(client_for_items(to, "BF.MEXISTS", "large", "here", 5000), 5000);
    cr_assert_eq(client_for_items(to, "BF.MEXISTS", "large", "there", 5000), 5000);
    expect(to, ":6", "DBSIZE"); /* no temporary names */
    expect(from, "[:1,:1,:0]", "BF.MEXISTS both a b c");
}

/* Two sites, each with the other's adds; a merge that changes nothing is no change, so they come to rest. */
PAIR_TEST(follow, two_sites_merge_into_each_other)
{
    pid_t there = move_beside(source.port, target.port, "--follow", "--merge");
    pid_t back = move_beside(target.port, source.port, "--follow", "--merge");
    for (int i = 0; i < 30; i++) {
        client_number(from, "BF.ADD f a%d", i);
        client_number(to, "BF.ADD f b%d", i);
        if (i % 10 == 9) {
            wait_until(client_number(to, "BF.EXISTS f a%d", i) == 1);
            wait_until(client_number(from, "BF.EXISTS f b%d", i) == 1);
        }
    }
    for (int i = 0; i < 30; i++) {
        wait_until(client_number(to, "BF.EXISTS f a%d", i) == 1);
        wait_until(client_number(from, "BF.EXISTS f b%d", i) == 1);
    }
    wait_until(client_number(from, "DBSIZE") == 1 && client_number(to, "DBSIZE") == 1);
    char *here = strdup(client_ask(from, "BF.INFO f BITSSET"));
    expect(to, here, "BF.INFO f BITSSET");
    free(here);
    expect_end(there, SIGINT, 130);
    expect_end(back, SIGINT, 130);
}

/* ---- options ---- */

PAIR_TEST(follow, what_cannot_begin_is_told_at_once)
{
    program_expect(output, sizeof(output), 1, "the source, redis://127.0.0.1:1: cannot connect",
                   "'%s' move --from redis://127.0.0.1:1 --to redis://127.0.0.1:%d --follow --retry 100000 2>&1",
                   BLOOMERY_TOOL_PATH, target.port);
    program_expect(output, sizeof(output), 1, "the target, redis://127.0.0.1:1: cannot connect",
                   "'%s' move --from redis://127.0.0.1:%d --to redis://127.0.0.1:1 --cutover --retry 100000 2>&1",
                   BLOOMERY_TOOL_PATH, source.port);
    expect(from, "+OK", "ACL SETUSER default -client|tracking");
    expect_move(1, "it refuses CLIENT TRACKING, which --follow needs: NOPERM", "--follow");
    expect(from, "+OK", "ACL SETUSER default +client");
}

/* Before any copying, which may take hours. */
PAIR_TEST(follow, rights_that_a_cutover_lacks_are_told_before_it_copies_anything)
{
    static const char *const rights[][2] = {{"client|pause", "CLIENT PAUSE"}, {"client|unpause", "CLIENT UNPAUSE"},
                                            {"client|kill", "CLIENT KILL"},   {"config|get", "CONFIG GET"},
                                            {"config|set", "CONFIG SET"},     {"del", "DEL"}};
    expect(from, ":1", "BF.ADD f x");
    for (size_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++) {
        char text[128];
        snprintf(text, sizeof(text), "it refuses %s, which --cutover needs: NOPERM", rights[i][1]);
        expect(from, "+OK", "ACL SETUSER default -%s", rights[i][0]);
        expect_move(1, text, "--cutover");
        expect(from, ":1", "BF.ADD f %d", (int)i); /* it is neither paused nor read-only */
        expect(from, "+OK", "ACL SETUSER default +@all");
    }
    expect(to, ":0", "EXISTS f");
}

PAIR_TEST(follow, options_that_contradict_each_other)
{
    expect_move(2, "--merge and --replace exclude each other", "--merge --replace");
    expect_move(2, "--merge and --verify exclude each other", "--merge --verify");
    expect_move(2, "--cutover and --match exclude each other", "--cutover --match 'x*'");
    expect_move(2, "--follow and --all-databases exclude each other", "--follow --all-databases");
    expect_move(2, "--cutover and --dry-run exclude each other", "--cutover --dry-run");
    expect_move(2, "--behind needs --follow or --cutover", "--behind 2");
}
