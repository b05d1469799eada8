/* traffic: the two directions of RESP for a load generator: requests made from a template, replies counted.
 *
 * Thread: each connection has its own reader; a template is constant once it is made. */
#ifndef BLOOMERY_BENCH_TRAFFIC_H
#define BLOOMERY_BENCH_TRAFFIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buf.h"
#include "items.h"
#include "resp_reply.h"

/* ---- requests ---- */

/* A command line such as "BF.EXISTS {filter} {item}" or "BF.MADD {filter} {items}": words separated by spaces. {filter}
 * is a filter's name, {item} the next item, and {items}, as a separate word, a batch of items. */
struct request_template {
    struct buf literal; /* all literal bytes, one after another */
    struct buf parts;   /* struct request_part */
    const char *filter; /* borrowed */
    uint64_t nfilters;  /* > 1: the names are "<filter>:<n>", n from 0 */
    unsigned items;     /* items per request */
    size_t max_size;    /* bytes of a request at most */
};

/* 0 or -ENOMEM, -EINVAL: the line is empty. `batch` is the number of items in {items}. */
int request_template_init(struct request_template *t, const char *line, const char *filter, uint64_t nfilters,
                          unsigned batch, unsigned max_item_size);
void request_template_deinit(struct request_template *t);

/* Writes the next request, at most max_size bytes; returns their number. */
size_t request_write(const struct request_template *t, struct items *items, char *out);

/* ---- replies ---- */

#define REPLY_TEXT 160

/* Counts whole top-level replies of RESP2 and RESP3, and in them the answers 1 and 0. */
struct reply_reader {
    uint64_t replies, errors, ones, zeros;
    char first_error[REPLY_TEXT];
    /* internal */
    struct resp_reply_reader reader;
    struct buf kept; /* the beginning of a reply */
};

void replies_init(struct reply_reader *reader);
void replies_deinit(struct reply_reader *reader);

/* Takes everything. False: this is not RESP, or memory ran out. */
bool replies_take(struct reply_reader *reader, const char *data, size_t len);

#endif
