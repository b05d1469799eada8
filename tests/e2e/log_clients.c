#include "log_clients.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "program.h"
#include "wait.h"

/* ---- writers ---- */

struct writer {
    struct writers *all;
    unsigned me;
    pthread_t thread;
};

/* ThreadSanitizer keeps about one KB for each word that the daemon has changed, and a new item changes 33 words of "w":
 * without a pause, the daemon takes all memory within minutes. */
enum { PAUSE_US = DAEMON_SANITIZED ? 50000 : 0 };

/* Sends one pipeline; false when the connection has ended. */
static bool write_some(struct writers *w, unsigned me, redisContext *client, long first)
{
    long n = (long)w->pipeline;
    redisReply *reply;

    for (long i = first; i < first + n; i++)
        redisAppendCommand(client, "BF.ADD w %u:%ld", me, i);
    w->sent[me] = first + n;
    for (long i = 0; i < n; i++) {
        if (redisGetReply(client, (void **)&reply) != REDIS_OK)
            return false;
        bool refused = reply->type == REDIS_REPLY_ERROR;
        freeReplyObject(reply);
        if (refused)
            return false;
        w->acked[me] = first + i + 1;
    }
    usleep(PAUSE_US);
    return true;
}

static void *writer_main(void *arg)
{
    struct writer *writer = arg;
    struct writers *w = writer->all;
    struct timeval patience = {.tv_sec = 300};
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
        w->acked[i] = w->sent[i];
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

static long long check_writer(const struct writers *w, unsigned me, redisContext *client)
{
    long long present = 0;

    for (long n = 0; n < w->sent[me]; n++)
        redisAppendCommand(client, "BF.EXISTS w %u:%ld", me, n);
    for (long n = 0; n < w->sent[me]; n++) {
        redisReply *reply;
        cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK);
        cr_assert(reply->integer == 1 || n >= w->acked[me], "item %u:%ld was answered and is absent", me, n);
        present += reply->integer;
        freeReplyObject(reply);
    }
    return present;
}

void writers_check(const struct writers *w, int port)
{
    redisContext *client = client_open(port);
    long long present = 0;

    for (unsigned me = 0; me < w->count; me++)
        present += check_writer(w, me, client);
    cr_assert_eq(client_number(client, "BF.CARD w"), present, "BF.CARD and %lld items that are there", present);
    redisFree(client);
}

/* ---- the tool ---- */

int check_tool(const struct daemon *daemon, const char **output_out)
{
    static char output[65536];

    *output_out = output;
    return program_run(output, sizeof(output), "env -u LD_PRELOAD '%s' check %s", BLOOMERY_TOOL_PATH, daemon->data);
}

/* ---- queries ---- */

void wait_for_reply(int port, const char *prefix, const char *command)
{
    double until = wait_clock() + 60;
    redisContext *client = client_open(port);

    for (;;) {
        const char *text = client_ask(client, command);
        if (strncmp(text, prefix, strlen(prefix)) == 0)
            break;
        cr_assert_lt(wait_clock(), until, "%s: still '%s'", command, text);
        usleep(20000);
    }
    redisFree(client);
}
