#include "quarantined.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "name_code.h"

#define PAGE_NAMES "512" /* SCAN's COUNT */
#define WHY        "quarantined: "

struct page {
    struct buf names; /* encoded, each with a NUL */
    size_t n;
    char cursor[32]; /* of the page that follows */
};

static int refused(const struct resp_reply *reply, const char *command, struct errbuf *err)
{
    struct slice text = resp_reply_text(reply, 0);
    errbuf_set(err, "%s answers: %.*s", command, (int)text.len, text.ptr);
    return -EACCES;
}

static void keep_name(struct buf *names, struct slice name)
{
    size_t len = name_encoded_len(name.ptr, name.len);
    char *to = buf_reserve(names, len + 1);
    if (!to)
        return;
    name_encode(name.ptr, name.len, to);
    to[len] = '\0';
    buf_commit(names, len + 1);
}

/* Reads a page, and queues a question for each name. */
static int read_page(struct peer *peer, struct page *page, struct errbuf *err)
{
    struct resp_reply reply;
    PEER_PUT(peer, slice_of("SCAN"), slice_of(page->cursor), slice_of("COUNT"), slice_of(PAGE_NAMES));
    int status = peer_reply(peer, &reply, err);
    if (status != 0)
        return status;
    if (reply.nodes[0].kind == RESP_REPLY_ERROR)
        return refused(&reply, "SCAN", err);
    struct slice cursor = reply.count >= 3 ? resp_reply_text(&reply, 1) : (struct slice){NULL, 0};
    if (cursor.len == 0 || cursor.len >= sizeof(page->cursor)) {
        errbuf_set(err, "the reply to SCAN has no cursor");
        return -EPROTO;
    }
    memcpy(page->cursor, cursor.ptr, cursor.len);
    page->cursor[cursor.len] = '\0';
    page->n = reply.count - 3;
    buf_truncate(&page->names, 0);
    for (size_t i = 3; i < reply.count; i++) {
        struct slice name = resp_reply_text(&reply, i);
        keep_name(&page->names, name);
        PEER_PUT(peer, slice_of("BF.CARD"), name);
    }
    if (!buf_failed(&page->names))
        return 0;
    errbuf_set(err, "out of memory");
    return -ENOMEM;
}

/* The answers about its names. A filter that is gone meanwhile has 0 items. */
static int read_answers(struct peer *peer, const struct page *page, unsigned most, quarantined_sink *sink, void *ctx,
                        unsigned *named, struct errbuf *err)
{
    const char *name = buf_head(&page->names);
    for (size_t i = 0; i < page->n && *named < most; i++, name += strlen(name) + 1) {
        struct resp_reply reply;
        int status = peer_reply(peer, &reply, err);
        if (status != 0)
            return status;
        if (reply.nodes[0].kind != RESP_REPLY_ERROR)
            continue;
        struct slice text = resp_reply_text(&reply, 0);
        const char *why = memmem(text.ptr, text.len, WHY, strlen(WHY));
        if (!why && text.len >= 6 && memcmp(text.ptr, "NOPERM", 6) == 0)
            return refused(&reply, "BF.CARD", err);
        if (!why)
            continue;
        why += strlen(WHY);
        sink(ctx, name, (struct slice){why, (size_t)(text.ptr + text.len - why)});
        ++*named;
    }
    return 0;
}

int quarantined_find(struct peer *peer, unsigned most, quarantined_sink *sink, void *ctx, unsigned *named_out,
                     struct errbuf *err)
{
    struct page page = {.cursor = "0"};
    struct resp_reply reply;
    buf_init(&page.names, SIZE_MAX);
    *named_out = 0;
    PEER_PUT(peer, slice_of("CLIENT"), slice_of("NO-TOUCH"), slice_of("ON"));
    int status = peer_reply(peer, &reply, err);
    if (status == 0 && reply.nodes[0].kind == RESP_REPLY_ERROR)
        status = refused(&reply, "CLIENT NO-TOUCH", err);
    while (status == 0) {
        status = read_page(peer, &page, err);
        if (status == 0)
            status = read_answers(peer, &page, most, sink, ctx, named_out, err);
        if (*named_out == most || strcmp(page.cursor, "0") == 0)
            break;
    }
    buf_deinit(&page.names);
    return status;
}
