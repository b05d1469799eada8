#include "sim_client.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "schedule.h"

#define BUF_LIMIT ((size_t)1 << 30)

static __typeof__(&send) real_send;
static __typeof__(&recv) real_recv;
static __typeof__(&close) real_close;

void sim_client_open(struct sim_client *client, int fd)
{
    *(void **)&real_send = schedule_real("send");
    *(void **)&real_recv = schedule_real("recv");
    *(void **)&real_close = schedule_real("close");
    *client = (struct sim_client){.fd = fd};
    buf_init(&client->out, BUF_LIMIT);
    buf_init(&client->in, BUF_LIMIT);
}

void sim_client_close(struct sim_client *client)
{
    if (client->fd < 0)
        return;
    real_close(client->fd);
    schedule_io();
    client->fd = -1;
    buf_deinit(&client->out);
    buf_deinit(&client->in);
    resp_reply_reader_deinit(&client->reader);
}

void sim_client_bytes(struct sim_client *client, size_t n, const char *const *words, const size_t *lens)
{
    char head[32];
    buf_append(&client->out, head, (size_t)snprintf(head, sizeof(head), "*%zu\r\n", n));
    for (size_t i = 0; i < n; i++) {
        buf_append(&client->out, head, (size_t)snprintf(head, sizeof(head), "$%zu\r\n", lens[i]));
        buf_append(&client->out, words[i], lens[i]);
        buf_append(&client->out, "\r\n", 2);
    }
}

void sim_client_words(struct sim_client *client, size_t n, const char *const *words)
{
    size_t lens[SIM_CLIENT_WORDS];
    for (size_t i = 0; i < n; i++)
        lens[i] = strlen(words[i]);
    sim_client_bytes(client, n, words, lens);
}

bool sim_client_send(struct sim_client *client, size_t most)
{
    size_t len = buf_len(&client->out) < most ? buf_len(&client->out) : most;
    ssize_t n = len ? real_send(client->fd, buf_head(&client->out), len, MSG_NOSIGNAL) : 0;
    if (n < 0)
        return errno == EAGAIN;
    buf_consume(&client->out, (size_t)n);
    schedule_io();
    return true;
}

bool sim_client_receive(struct sim_client *client)
{
    char bytes[16384];
    for (;;) {
        ssize_t n = real_recv(client->fd, bytes, sizeof(bytes), 0);
        if (n < 0)
            return errno == EAGAIN;
        if (n == 0)
            return false;
        schedule_io();
        buf_append(&client->in, bytes, (size_t)n);
    }
}

bool sim_client_reply(struct sim_client *client, struct resp_reply *reply_out, enum resp_reply_status *status_out)
{
    size_t used = 0, needs;
    static char last[1 << 16];
    *status_out = buf_len(&client->in) == 0 ? RESP_REPLY_NEED_MORE
                                            : resp_reply_next(&client->reader, buf_head(&client->in),
                                                              buf_len(&client->in), &used, &needs, reply_out);
    if (*status_out != RESP_REPLY_WHOLE)
        return false;
    if (used <= sizeof(last)) { /* its bytes outlast their place in the buffer */
        memcpy(last, buf_head(&client->in), used);
        reply_out->base = last;
    }
    buf_consume(&client->in, used);
    return true;
}
