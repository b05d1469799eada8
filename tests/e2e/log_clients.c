#include "log_clients.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client.h"

double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- writers -------------------------------------------------------------------------------------------------------- */

struct writer {
    struct writers *all;
    unsigned me;
    pthread_t thread;
};

static void note_acked(struct writers *w, unsigned me, long from, long to)
{
    double now = seconds_now();

    for (long n = from; n < to; n++)
        if (n % 256 == 0 && n / 256 < 4096)
            w->acked_at[me][n / 256] = now;
    w->acked[me] = to;
}

/* One pipeline; false when the connection has ended. */
static bool write_some(struct writers *w, unsigned me, redisContext *client, long first)
{
    long n = (long)w->pipeline;
    redisReply *reply;

    if (w->transactions)
        redisAppendCommand(client, "MULTI");
    for (long i = first; i < first + n; i++)
        redisAppendCommand(client, "BF.ADD w %u:%ld", me, i);
    if (w->transactions)
        redisAppendCommand(client, "EXEC");
    w->sent[me] = first + n;
    for (long i = 0; i < n + (w->transactions ? 2 : 0); i++) {
        if (redisGetReply(client, (void **)&reply) != REDIS_OK)
            return false;
        bool refused = reply->type == REDIS_REPLY_ERROR;
        freeReplyObject(reply);
        if (refused)
            return false;
        if (!w->transactions)
            note_acked(w, me, first + i, first + i + 1);
    }
    if (w->transactions)
        note_acked(w, me, first, first + n);
    return true;
}

static void *writer_main(void *arg)
{
    struct writer *writer = arg;
    struct writers *w = writer->all;
    struct timeval patience = {.tv_sec = 120};
    redisContext *client = redisConnect("127.0.0.1", w->port);

    if (client && !client->err) {
        redisSetTimeout(client, patience);
        for (long n = w->sent[writer->me]; !w->limit || n < w->limit; n += (long)w->pipeline)
            if (!write_some(w, writer->me, client, n))
                break;
    }
    if (client)
        redisFree(client);
    return NULL;
}

void writers_start(struct writers *w, int port, unsigned count, unsigned pipeline)
{
    redisContext *client = client_open(port);

    client_ask(client, "BF.RESERVE w 0.0000000001 500");
    redisFree(client);
    w->port = port;
    w->count = count;
    w->pipeline = pipeline;
    for (unsigned i = 0; i < count; i++) {
        struct writer *writer = calloc(1, sizeof(*writer));

        cr_assert_not_null(writer);
        *writer = (struct writer){.all = w, .me = i};
        w->first[i] = w->acked[i] = w->sent[i];
        w->threads[i] = writer;
        cr_assert_eq(pthread_create(&writer->thread, NULL, writer_main, writer), 0);
    }
}

void writers_join(struct writers *w)
{
    for (unsigned i = 0; i < w->count; i++) {
        struct writer *writer = w->threads[i];

        pthread_join(writer->thread, NULL);
        free(writer);
    }
}

/* Whether item n was answered by then. The time is known of every 256th: that of the next one is later, if anything. */
static bool answered_by(const struct writers *w, unsigned me, long n, double before)
{
    long grid = (n + 255) / 256;

    if (n < w->first[me] || n >= w->acked[me])
        return false;
    if (before == 0)
        return true;
    return grid < 4096 && grid * 256 < w->acked[me] && w->acked_at[me][grid] != 0 && w->acked_at[me][grid] <= before;
}

static long long check_writer(struct writers *w, unsigned me, redisContext *client, double before)
{
    char *known = calloc(1, (size_t)w->sent[me] + 1);
    long long present = 0;
    bool whole = false;

    cr_assert_not_null(known);
    for (long n = 0; n < w->sent[me]; n++)
        redisAppendCommand(client, "BF.EXISTS w %u:%ld", me, n);
    for (long n = 0; n < w->sent[me]; n++) {
        redisReply *reply;
        cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK);
        known[n] = reply->integer == 1;
        freeReplyObject(reply);
        present += known[n];
        cr_assert(known[n] || !answered_by(w, me, n, before), "item %u:%ld (from %ld to %ld) was answered and is absent", me, n,
                  w->first[me], w->acked[me]);
        cr_assert(known[n] || n >= w->nknown[me] || !w->known[me][n], "item %u:%ld was there after the last start", me, n);
        whole = n % (long)w->pipeline == 0 ? known[n] : whole;
        cr_assert(!w->transactions || known[n] == whole, "a part of a transaction: item %u:%ld", me, n);
    }
    free(w->known[me]);
    w->known[me] = known;
    w->nknown[me] = w->sent[me];
    return present;
}

void writers_check(struct writers *w, int port, double before)
{
    redisContext *client = client_open(port);
    long long present = 0;

    for (unsigned me = 0; me < w->count; me++)
        present += check_writer(w, me, client, before);
    cr_assert_eq(client_number(client, "BF.CARD w"), present, "BF.CARD and %lld items that are there", present);
    redisFree(client);
}

void writers_free(struct writers *w)
{
    for (unsigned i = 0; i < WRITERS_MAX; i++)
        free(w->known[i]);
    free(w);
}

/* ---- the tool ------------------------------------------------------------------------------------------------------- */

int check_tool(const struct daemon *daemon, const char **output_out)
{
    static char output[65536];
    char command[1024];

    snprintf(command, sizeof(command), "%s check %s 2>&1", BLOOMERY_TOOL_PATH, daemon->data);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    size_t n = fread(output, 1, sizeof(output) - 1, pipe);
    output[n] = '\0';
    int status = pclose(pipe);
    *output_out = output;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* ---- the disk ------------------------------------------------------------------------------------------------------- */

static char disk_path[64];

void disk_set(const char *what)
{
    char next[80];

    snprintf(next, sizeof(next), "%s.new", disk_path);
    int fd = open(next, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert(fd >= 0 && write(fd, what, strlen(what)) == (ssize_t)strlen(what));
    close(fd);
    cr_assert_eq(rename(next, disk_path), 0);
}

void disk_attach(void)
{
    const char *options = getenv("ASAN_OPTIONS");
    char asan[1024];

    snprintf(disk_path, sizeof(disk_path), "/tmp/bloomery-disk-%ld", (long)getpid());
    disk_set("");
    snprintf(asan, sizeof(asan), "%s%sverify_asan_link_order=0", options ? options : "", options ? ":" : "");
    setenv("ASAN_OPTIONS", asan, 1);
    setenv("BLOOMERY_DISK", disk_path, 1);
    setenv("LD_PRELOAD", DISK_SHIM_PATH, 1);
}

void disk_detach(void)
{
    unsetenv("LD_PRELOAD");
    unsetenv("BLOOMERY_DISK");
    unlink(disk_path);
}

/* ---- questions ------------------------------------------------------------------------------------------------------ */

long long info_number(int port, const char *field)
{
    redisContext *client = client_open(port);
    redisReply *reply = redisCommand(client, "INFO everything");
    char name[64];

    cr_assert(reply && reply->str);
    snprintf(name, sizeof(name), "\n%s:", field);
    const char *at = strstr(reply->str, name);
    cr_assert_not_null(at, "INFO has no %s", field);
    long long value = strtoll(at + strlen(name), NULL, 10);
    freeReplyObject(reply);
    redisFree(client);
    return value;
}

void wait_for_reply(int port, const char *prefix, const char *command)
{
    double until = seconds_now() + 60;
    redisContext *client = client_open(port);

    for (;;) {
        const char *text = client_ask(client, command);
        if (strncmp(text, prefix, strlen(prefix)) == 0)
            break;
        cr_assert_lt(seconds_now(), until, "%s: still '%s'", command, text);
        usleep(20000);
    }
    redisFree(client);
}
