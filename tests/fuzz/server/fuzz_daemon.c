/* Fuzz target: the whole daemon (tests/sim): what its clients send goes in, replies come out, with several connections,
 * RESP2 and RESP3, users, databases, transactions, faults, kills, losses of power and restarts.
 *
 * An input is lines, the first of which may be settings:
 *
 * - `=WORKERS POLICY SWITCH`: 1..3; always, everysec, no or off (no log); threads are preempted at one in SWITCH points
 * - `0 BF.ADD name item`: client 0..3 sends an inline command
 * - `0*BF.ADD name item`: the words as RESP
 * - `0+BYTES`: bytes without an end of line; `\xHH`, `\r` and `\n` stand for bytes
 * - `!t MS`: time passes, an hour in all
 * - `!c CLIENT`: a client is gone
 * - `!k`, `!p SEED`, `!s`: a kill, a loss of power, a stop; the next line is for the next daemon
 * - `!d N`, `!m N`: one in N operations of the disk, or allocations, fails; 0: none
 *
 * Replies must be RESP; the daemon must continue, and start again on what is left. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "check.h"
#include "schedule.h"
#include "sim_client.h"
#include "sim_daemon.h"
#include "sim_disk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
const char *__asan_default_options(void);

#define CLIENTS    4
#define INPUT_MAX  4096
#define LINES_MAX  100
#define WORDS_MAX  64
#define MS         UINT64_C(1000000)
#define INPUT_MS   3600000 /* an idle daemon takes 240 points a second */
#define MAX_POINTS 3000000

static struct {
    struct sim_client clients[CLIENTS];
    unsigned workers;
    const char *settings[24];
    bool joined;      /* no daemon is running */
    uint64_t ms_left; /* the time that the input may still advance */
    bool faults;      /* the next start may be refused: a fault may have damaged its files */
} world;

static uint64_t number(const char **at)
{
    char *end;
    uint64_t n = strtoull(*at, &end, 10);
    *at = end;
    return n;
}

/* ---- clients ---- */

static void close_client(unsigned index)
{
    sim_client_close(&world.clients[index]);
}

static void receive(unsigned index)
{
    struct sim_client *client = &world.clients[index];
    struct resp_reply reply;
    enum resp_reply_status status;
    bool open = sim_client_receive(client);
    while (sim_client_reply(client, &reply, &status))
        continue;
    CHECK(status == RESP_REPLY_NEED_MORE);
    if (!open)
        close_client(index);
}

/* The daemon runs until it is idle for a moment. */
static void let_run(uint64_t ms)
{
    schedule_sleep(ms * MS + MS / 10);
    for (unsigned i = 0; i < CLIENTS; i++)
        if (world.clients[i].fd >= 0)
            receive(i);
}

static struct sim_client *client_of(unsigned index)
{
    struct sim_client *client = &world.clients[index];
    if (client->fd < 0) {
        int fd = sim_connect();
        if (fd < 0)
            return NULL;
        sim_client_open(client, fd);
    }
    return client;
}

static void send_all(unsigned index)
{
    struct sim_client *client = &world.clients[index];
    for (int i = 0; i < 3 && client->fd >= 0 && buf_len(&client->out); i++) {
        if (!sim_client_send(client, SIZE_MAX))
            close_client(index);
        let_run(1);
    }
    if (client->fd >= 0)
        buf_truncate(&client->out, 0);
}

static void send_words(struct sim_client *client, char *line)
{
    const char *words[WORDS_MAX];
    size_t n = 0;
    for (char *word = strtok(line, " "); word && n < WORDS_MAX; word = strtok(NULL, " "))
        words[n++] = word;
    if (n > 0)
        sim_client_words(client, n, words);
}

static void send_bytes(struct sim_client *client, const char *at)
{
    for (; *at; at++) {
        unsigned value;
        char byte = *at;
        if (at[0] == '\\' && (at[1] == 'r' || at[1] == 'n')) {
            byte = *++at == 'r' ? '\r' : '\n';
        } else if (at[0] == '\\' && at[1] == 'x' && at[2] && at[3] && sscanf(at + 2, "%2x", &value) == 1) {
            byte = (char)value;
            at += 3;
        }
        buf_append(&client->out, &byte, 1);
    }
}

/* Limits of memory stay: filters of gigabytes must not be created here. */
static bool is_sent(const char *line)
{
    return !strcasestr(line, "max") && !strcasestr(line, "include");
}

static void run_command(unsigned index, char kind, char *line)
{
    struct sim_client *client = is_sent(line) ? client_of(index) : NULL;
    if (!client)
        return;
    if (kind == '*') {
        send_words(client, line);
    } else if (kind == '+') {
        send_bytes(client, line);
    } else {
        buf_append(&client->out, line, strlen(line));
        buf_append(&client->out, "\r\n", 2);
    }
    send_all(index);
}

/* ---- lives ---- */

static void await_start(void)
{
    world.joined = false;
    sim_daemon_start(world.workers, world.settings);
    while (sim_daemon_state() == SIM_STARTS)
        schedule_sleep(MS);
    if (sim_daemon_state() == SIM_SERVES)
        return;
    sim_daemon_join();
    world.joined = true;
    if (!world.faults)
        fprintf(stderr, "the start is refused: %s\n", sim_daemon_reason());
    CHECK(world.faults);
}

static void end_life(char how, uint64_t seed)
{
    sim_disk_fail(0);
    sim_memory_fail(0);
    for (unsigned i = 0; i < CLIENTS; i++)
        close_client(i);
    if (how != 's')
        sim_disk_freeze();
    if (!world.joined)
        (how == 's' ? sim_daemon_stop : sim_daemon_tear_down)();
    sim_disk_crash(how == 'p' ? (enum crash_mode)(seed % 5) : CRASH_KEEP_ALL, seed);
}

static void control(char what, const char *at)
{
    uint64_t n = number(&at);
    switch (what) {
    case 't':
        n = n < world.ms_left ? n : world.ms_left;
        world.ms_left -= n;
        let_run(n);
        break;
    case 'c':
        close_client((unsigned)(n % CLIENTS));
        break;
    case 'd':
    case 'm':
        world.faults |= n > 0;
        (what == 'd' ? sim_disk_fail : sim_memory_fail)((unsigned)n);
        break;
    case 'k':
    case 'p':
    case 's':
        end_life(what, n);
        await_start();
        break;
    default:
        break;
    }
}

static void run_line(char *line)
{
    if (sim_daemon_state() == SIM_ENDED) { /* SHUTDOWN, or a refused start */
        end_life('k', 0);
        await_start();
        if (sim_daemon_state() == SIM_ENDED)
            return;
    }
    if (line[0] == '!' && line[1])
        control(line[1], line + 2);
    else if (line[0] >= '0' && line[0] < '0' + CLIENTS && line[1])
        run_command((unsigned)(line[0] - '0'), line[1], line + 2);
}

/* ---- the input ---- */

static void choose_settings(const char *at, unsigned *switch_in_out)
{
    static const char *const policies[] = {"always", "everysec", "no", "off"};
    unsigned policy = 1;
    world.workers = at ? 1 + (unsigned)(number(&at) % 3) : 2;
    for (unsigned i = 0; at && i < 4; i++)
        if (strncmp(at + strspn(at, " "), policies[i], strlen(policies[i])) == 0)
            policy = i;
    if (at) {
        at += strspn(at, " ");
        at += strcspn(at, " ");
        *switch_in_out = (unsigned)(number(&at) % 1024);
    }
    const char *settings[] = {"appendonly",
                              policy == 3 ? "no" : "yes",
                              "appendfsync",
                              policies[policy % 3],
                              "maxmemory",
                              "32mb",
                              "bf-max-filter-bytes",
                              "1mb",
                              "proto-max-bulk-len",
                              "1mb",
                              "client-query-buffer-limit",
                              "2mb",
                              NULL};
    memcpy(world.settings, settings, sizeof(settings));
}

/* When allocations fail, the daemon leaks memory that it cannot queue to be freed. */
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

/* libFuzzer's alarm would measure the simulated time. An endless run ends at MAX_POINTS. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static char *arguments[64], no_alarm[] = "-timeout=0";
    int n = *argc < 62 ? *argc : 62;
    memcpy(arguments, *argv, (size_t)n * sizeof(char *));
    arguments[n++] = no_alarm;
    *argc = n;
    *argv = arguments;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool made;
    char text[INPUT_MAX + 1];
    unsigned switch_in = 0;
    size = size < INPUT_MAX ? size : INPUT_MAX;
    memcpy(text, data, size);
    for (size_t i = 0; i < size; i++)
        text[i] = text[i] ? text[i] : ' ';
    text[size] = '\0';
    if (!made)
        arena_create();
    made = true;
    arena_empty();
    sim_disk_create();
    for (unsigned i = 0; i < CLIENTS; i++)
        world.clients[i].fd = -1;
    world.faults = false;
    world.ms_left = INPUT_MS;

    char *at = text, *line = strsep(&at, "\n");
    bool settings = line[0] == '=';
    choose_settings(settings ? line + 1 : NULL, &switch_in);
    schedule_begin(&(struct schedule_options){size, switch_in, 0, 200, 5000 * MS, MAX_POINTS});
    await_start();
    if (!settings)
        run_line(line);
    for (int i = 0; i < LINES_MAX && (line = strsep(&at, "\n")); i++)
        run_line(line);
    end_life('s', 0);
    schedule_end();
    return 0;
}
