/* The scanner: reads all names of the source, page by page, with BF.INFO or CF.INFO of each. It scans by type if the
 * server can, because a Redis may have millions of other keys; otherwise CF.INFO and BF.INFO tell which keys are
 * filters.
 *
 * After a lost connection the scan continues if the server is still the same process. Otherwise its cursors may be
 * invalid, and the scan starts again; the filters moved so far then agree. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "cuckoo_dump.h"
#include "move_internal.h"
#include "lock.h"
#include "redisbloom_format.h"
#include "valkey_format.h"

#define PAGE_KEYS 512 /* SCAN's COUNT */

/* Names of the types of filters: RedisBloom's and valkey-bloom's, which Bloomery answers, too; those of its module. */
static const struct {
    const char *name;
    bool cuckoo, whole; /* as in struct move_filter */
} types[] = {{.name = REDISBLOOM_TYPE_NAME},
             {.name = "bloomery1"},
             {.name = VALKEY_TYPE_NAME, .whole = true},
             {.name = CUCKOO_TYPE_NAME, .cuckoo = true},
             {.name = CUCKOO_OWN_TYPE_NAME, .cuckoo = true}};
#define NTYPES (sizeof(types) / sizeof(types[0]))

struct scan {
    struct move *move;
    struct move_link link;
    size_t type;                     /* index in `types`; NTYPES: the server cannot scan by type */
    char cursor[32];                 /* of the page */
    char following[32];              /* of the next page */
    char process[MOVE_PROCESS_SIZE]; /* identity of the server's process; "": unknown */
    struct move_filter **page;
    size_t npage, page_size;
    size_t requested; /* filters of the page that have been handed on */
    bool done;
};

/* Frees the filters not handed on. */
static void drop_page(struct scan *scan)
{
    for (size_t i = scan->requested; i < scan->npage; i++)
        free(scan->page[i]);
    scan->npage = scan->requested = 0;
}

/* ---- the server ---- */

void move_read_process(const struct resp_reply *reply, char out[MOVE_PROCESS_SIZE])
{
    static const char field[] = "run_id:";
    struct slice text = resp_reply_text(reply, 0);
    const char *at = reply->nodes[0].kind == RESP_REPLY_TEXT ? memmem(text.ptr, text.len, field, strlen(field)) : NULL;
    out[0] = '\0';
    if (!at)
        return;
    at += strlen(field);
    size_t left = (size_t)(text.ptr + text.len - at), len = 0;
    while (len < left && len < MOVE_PROCESS_SIZE - 1 && at[len] != '\r' && at[len] != '\n')
        len++;
    memcpy(out, at, len);
    out[len] = '\0';
}

static int meet_server(struct scan *scan)
{
    struct resp_reply reply;
    char process[MOVE_PROCESS_SIZE];
    PEER_PUT(&scan->link.from, slice_of("DBSIZE"));
    PEER_PUT(&scan->link.from, slice_of("INFO"), slice_of("server"));
    TRY(move_reply(&scan->link, &scan->link.from, &reply));
    if (reply.nodes[0].kind == RESP_REPLY_INTEGER) {
        lock_take(&scan->move->lock);
        scan->move->totals.keys = (uint64_t)reply.nodes[0].number;
        lock_give(&scan->move->lock);
    }
    TRY(move_reply(&scan->link, &scan->link.from, &reply));
    move_read_process(&reply, process);
    if (!process[0] || strcmp(process, scan->process) != 0) {
        drop_page(scan);
        strcpy(scan->cursor, "0");
    }
    strcpy(scan->process, process);
    return 0;
}

/* ---- a page ---- */

static int add_to_page(struct scan *scan, struct slice name)
{
    struct move_filter *filter = NULL;
    if (GROW(scan->page, scan->npage, scan->page_size) != 0 || !(filter = calloc(1, sizeof(*filter) + name.len + 1)))
        return move_fatal(scan->move, -ENOMEM, "out of memory");
    filter->name_len = name.len;
    if (name.len)
        memcpy(filter->name, name.ptr, name.len);
    scan->page[scan->npage++] = filter;
    return 0;
}

static void put_scan(struct scan *scan)
{
    char count[PEER_NUMBER_SIZE];
    struct slice words[8] = {slice_of("SCAN"), slice_of(scan->cursor), slice_of("COUNT"),
                             peer_number(PAGE_KEYS, count)};
    size_t n = 4;
    if (scan->move->options->match) {
        words[n++] = slice_of("MATCH");
        words[n++] = slice_of(scan->move->options->match);
    }
    if (scan->type < NTYPES) {
        words[n++] = slice_of("TYPE");
        words[n++] = slice_of(types[scan->type].name);
    }
    peer_put(&scan->link.from, words, n);
}

/* Takes the reply to SCAN apart. */
static int take_names(struct scan *scan, const struct resp_reply *reply)
{
    int status = 0;
    if (reply->count < 3 || reply->nodes[1].kind != RESP_REPLY_TEXT || reply->nodes[1].len >= 32 ||
        reply->nodes[2].kind != RESP_REPLY_ARRAY)
        return move_fatal(scan->move, -EPROTO, "unexpected reply of the source to SCAN");
    struct slice cursor = resp_reply_text(reply, 1);
    memcpy(scan->following, cursor.ptr, cursor.len);
    scan->following[cursor.len] = '\0';
    for (size_t i = 3; i < reply->count && status == 0; i++)
        status = add_to_page(scan, resp_reply_text(reply, i));
    return status;
}

/* Asks for the next names. A server that does not know TYPE, or not this one, is scanned without from now on. */
static int read_names(struct scan *scan)
{
    struct resp_reply reply;
    put_scan(scan);
    TRY(move_reply(&scan->link, &scan->link.from, &reply));
    if (!move_is_error(&reply))
        return take_names(scan, &reply);
    struct slice text = resp_reply_text(&reply, 0);
    TRY(move_refused(&scan->link, &scan->link.from, "SCAN", text));
    if (move_text_has(text, "unknown type")) { /* a server that says so has none of them */
        strcpy(scan->following, "0");
        return 0;
    }
    if (scan->type >= NTYPES)
        return move_fatal(scan->move, -EREMOTEIO, "the source refuses SCAN: %.*s", (int)text.len, text.ptr);
    scan->type = NTYPES;
    strcpy(scan->cursor, "0");
    return read_names(scan);
}

static bool is_typed(const struct scan *scan)
{
    return scan->type < NTYPES;
}

/* Takes the last reply about the next filter and hands the filter on, or drops a key that is no filter. If the
 * connection fails, the filter stays in the page. */
static int take_info(struct scan *scan, const struct resp_reply *reply)
{
    struct move *move = scan->move;
    struct move_filter *filter = scan->page[scan->requested];
    bool known = filter->cuckoo && !is_typed(scan); /* by the reply before */
    int found = known ? 1 : move_read_info(reply, filter->cuckoo, &filter->info);
    if (move_is_temporary(move_name(filter))) {
        move_finish(move, filter, MOVE_LEFT, "left by an interrupted run of this command");
        found = 0;
    } else if (found < 0) {
        struct slice text = move_is_error(reply) ? resp_reply_text(reply, 0) : (struct slice){"", 0};
        TRY(move_refused(&scan->link, &scan->link.from, MOVE_COMMAND(filter, "INFO"), text));
        if (move_text_has(text, "WRONGTYPE"))
            found = 0;
        else
            move_finish(move, filter, MOVE_UNREAD, "%.*s", (int)text.len, text.ptr);
    }
    scan->requested++;
    move_link_works(&scan->link);
    if (found > 0) {
        lock_take(&move->lock);
        move->totals.found++;
        move->totals.found_bytes += (uint64_t)filter->info.size;
        lock_give(&move->lock);
        return move_queue_put(move, filter) ? 0 : -ECANCELED;
    }
    free(filter);
    return 0;
}

/* Where the type is not known, both: a Bloom filter has no CF.INFO, and a server may have no cuckoo filters. */
static void put_infos(struct scan *scan, struct move_filter *filter)
{
    filter->cuckoo = is_typed(scan) && types[scan->type].cuckoo;
    filter->whole = is_typed(scan) && types[scan->type].whole;
    if (!is_typed(scan))
        PEER_PUT(&scan->link.from, slice_of("CF.INFO"), move_name(filter));
    PEER_PUT(&scan->link.from, slice_of(MOVE_COMMAND(filter, "INFO")), move_name(filter));
}

/* The reply to CF.INFO of a key of which the type is not known. */
static int look_for_cuckoo(struct scan *scan, struct move_filter *filter)
{
    struct resp_reply reply;
    int status = move_reply(&scan->link, &scan->link.from, &reply);
    if (status == 0)
        filter->cuckoo = move_read_info(&reply, true, &filter->info) > 0;
    return status;
}

/* Of the filters of the page that have not been handed on. */
static int read_infos(struct scan *scan)
{
    struct resp_reply reply;
    int status = 0;
    for (size_t i = scan->requested; i < scan->npage; i++)
        put_infos(scan, scan->page[i]);
    while (scan->requested < scan->npage && status == 0) {
        if (!is_typed(scan))
            status = look_for_cuckoo(scan, scan->page[scan->requested]);
        STEP(status, move_reply(&scan->link, &scan->link.from, &reply));
        STEP(status, take_info(scan, &reply));
    }
    return status;
}

/* Scans one page, or the rest of it after a lost connection. After the last page the next type follows. */
static int scan_page(struct scan *scan)
{
    int status = scan->npage == 0 ? read_names(scan) : 0;
    STEP(status, read_infos(scan));
    if (status != 0)
        return status;
    drop_page(scan);
    move_link_works(&scan->link);
    strcpy(scan->cursor, scan->following);
    if (strcmp(scan->cursor, "0") == 0)
        scan->done = ++scan->type >= NTYPES;
    lock_take(&scan->move->lock);
    scan->move->totals.scanned += PAGE_KEYS;
    lock_give(&scan->move->lock);
    return 0;
}

static int scan_all(struct scan *scan)
{
    while (!scan->done) {
        int status = move_link_open(&scan->link);
        STEP(status, meet_server(scan));
        while (status == 0 && !scan->done)
            status = scan_page(scan);
        if (status == -ECANCELED)
            return status;
        if (status != 0)
            move_link_lost(&scan->link);
    }
    return 0;
}

void *move_scan_thread(void *ctx)
{
    struct move *move = ctx;
    struct scan scan = {.move = move, .cursor = "0"};
    move_link_init(&scan.link, ctx, false);
    (void)scan_all(&scan);
    drop_page(&scan);
    move_link_close(&scan.link);
    free(scan.page);
    lock_take(&scan.move->lock);
    scan.move->totals.scan_done = true;
    lock_give(&scan.move->lock);
    move_queue_end(scan.move);
    atomic_fetch_sub(&scan.move->running, 1);
    return NULL;
}
