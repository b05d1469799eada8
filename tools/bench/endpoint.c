/* Connections to the server: opening them, and single questions. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "load.h"

#define QUESTION_TIMEOUT_MS 60000 /* DEL or BF.RESERVE of a huge filter by a busy server */
#define WORDS_MAX           8

/* One question; the reply is valid until the next one. */
static int ask(struct peer *peer, const char *const *words, unsigned nwords, struct resp_reply *reply_out,
               struct errbuf *err)
{
    struct slice slices[WORDS_MAX];
    for (unsigned i = 0; i < nwords; i++)
        slices[i] = slice_of(words[i]);
    peer_put(peer, slices, nwords);
    int status = peer_reply(peer, reply_out, err);
    if (status != 0 || reply_out->nodes[0].kind != RESP_REPLY_ERROR)
        return status;
    struct slice text = resp_reply_text(reply_out, 0);
    errbuf_set(err, "%s: %.*s", words[0], (int)(text.len < REPLY_TEXT ? text.len : REPLY_TEXT), text.ptr);
    return -EREMOTEIO;
}

static int open_peer(struct peer *peer, const struct endpoint *endpoint, struct errbuf *err)
{
    struct resp_reply reply;
    peer_init(peer, QUESTION_TIMEOUT_MS, NULL);
    int status = peer_log_in(peer, &endpoint->address, err);
    if (status == 0 && endpoint->resp == 3)
        status = ask(peer, (const char *const[]){"HELLO", "3"}, 2, &reply, err);
    if (status != 0)
        peer_close(peer);
    return status;
}

int endpoint_connect(const struct endpoint *endpoint, struct tls_stream **tls_out, struct errbuf *err)
{
    struct peer peer;
    int status = open_peer(&peer, endpoint, err);
    return status == 0 ? peer_release(&peer, tls_out) : status;
}

int endpoint_ask(const struct endpoint *endpoint, const char *const *words, unsigned nwords, char *text, size_t size,
                 struct errbuf *err)
{
    struct peer peer;
    struct resp_reply reply;
    int status = open_peer(&peer, endpoint, err);
    if (status == 0)
        status = ask(&peer, words, nwords, &reply, err);
    if (status == 0) {
        struct slice got = resp_reply_text(&reply, 0);
        snprintf(text, size, "%.*s", (int)(got.len < size ? got.len : size - 1), got.ptr);
    }
    peer_close(&peer);
    return status;
}
