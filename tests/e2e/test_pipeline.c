/* Pipelines whose replies are read late. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "daemon.h"
#include "tmpdir.h"
#include "wait.h"

DAEMON_SUITE(the_daemon, pipeline, "--threads", "2");

/* Most client libraries write a whole pipeline before they read the first reply. Up to reply-buffer-limit the server
 * must not stop reading for good because the replies are not read. */
DAEMON_TEST(the_daemon, pipeline, written_whole_before_a_reply_is_read)
{
    enum { PINGS = 40000, BYTES = 1000 }; /* far more than the kernel buffers for a socket */
    const char *const args[] = {"--threads", "1", "--reply-buffer-high-water", "64kb", NULL};
    daemon_stop(&the_daemon);
    redisContext *client = client_start(&the_daemon, args);
    char *text = malloc(BYTES);
    memset(text, 'x', BYTES);
    for (int i = 0; i < PINGS; i++)
        cr_assert_eq(redisAppendCommand(client, "PING %b", text, (size_t)BYTES), REDIS_OK);
    for (int i = 0; i < PINGS; i++) {
        redisReply *reply = NULL;
        cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK, "reply %d: %s", i, client->errstr);
        cr_assert_eq(reply->len, BYTES);
        freeReplyObject(reply);
    }
    free(text);
}

/* A DUMP may be larger than reply-buffer-limit. Replies before it that have not left, and behind it, are as usual. A
 * UNIX socket, because the kernel keeps little there. */
DAEMON_TEST(the_daemon, pipeline, replies_around_a_dump_that_is_larger_than_their_limit)
{
    static char text[64 << 10];
    int done = 0;
    daemon_stop(&the_daemon);
    struct tmp_path path = tmp_path(the_daemon.dir, "socket");
    const char *const args[] = {
        "--threads", "1", "--reply-buffer-limit", "1mb", "--reply-buffer-high-water", "1mb", "--unixsocket",
        path.text,   NULL};
    redisContext *other = client_start(&the_daemon, args), *slow = redisConnectUnix(path.text);
    expect(other, "+OK", "BF.RESERVE f 0.01 3000000");
    expect(other, "+OK", "CONFIG RESETSTAT");
    memset(text, 'x', sizeof(text));
    for (int i = 0; i < 10; i++)
        cr_assert_eq(redisAppendCommand(slow, "PING %b", text, sizeof(text)), REDIS_OK);
    cr_assert_eq(redisAppendCommand(slow, "DUMP f"), REDIS_OK);
    for (int i = 0; i < 10; i++)
        cr_assert_eq(redisAppendCommand(slow, "PING %b", text, sizeof(text)), REDIS_OK);
    while (!done)
        cr_assert_eq(redisBufferWrite(slow, &done), REDIS_OK, "%s", slow->errstr);
    wait_until(strstr(client_ask(other, "INFO commandstats"), "cmdstat_ping:calls=20,") ||
               client_info(other, "stats", "client_output_buffer_limit_disconnections"));
    for (int i = 0; i < 21; i++) {
        redisReply *reply = NULL;
        cr_assert_eq(redisGetReply(slow, (void **)&reply), REDIS_OK, "reply %d: %s", i, slow->errstr);
        cr_assert(i == 10 ? reply->len > 3u << 20 : reply->len == sizeof(text), "reply %d: %zu bytes", i, reply->len);
        freeReplyObject(reply);
    }
    redisFree(slow);
}
