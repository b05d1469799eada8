#include "find.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cql_key.h"
#include "murmur.h"

#define KEYS                                                                                                \
    ((size_t)1 << 20) /* of a block: enough that reading all filters for it costs little beside asking them \
                       */
#define TEXT_BYTES ((size_t)64 << 20)

int find_keys_open(struct find_keys *keys, const struct tool_args *args)
{
    const char *path = tool_option(args, "--keys-from"), *command = args->command->name;
    *keys = (struct find_keys){.arguments = args->positional + 1, .narguments = args->npositional - 1};
    keys->from_file = path != NULL;
    buf_init(&keys->text, 2 * TEXT_BYTES);
    if (!path && !keys->narguments)
        return tool_misused(command, "KEY is missing; give keys, or --keys-from FILE");
    if (path && keys->narguments)
        return tool_misused(command, "give keys or --keys-from FILE, not both");
    const struct item_form form = {.keys = true};
    TRY(path ? item_input_open_as(&keys->input, path, args, &form) : TOOL_OK);
    size_t n = path ? KEYS + BLOOM_BATCH : keys->narguments;
    keys->h1 = malloc(n * sizeof(*keys->h1));
    keys->h2 = malloc(n * sizeof(*keys->h2));
    keys->ends = malloc(n * sizeof(*keys->ends));
    if (keys->h1 && keys->h2 && keys->ends)
        return TOOL_OK;
    find_keys_close(keys);
    return tool_failed(command, "%s", strerror(ENOMEM));
}

void find_keys_close(struct find_keys *keys)
{
    if (keys->from_file)
        item_input_close(&keys->input);
    free(keys->h1);
    free(keys->h2);
    free(keys->ends);
    buf_deinit(&keys->text);
}

static void add(struct find_keys *keys, const void *key, size_t len, const void *text, size_t text_len)
{
    struct bloom_hash hash = murmur3_hash(key, len);
    keys->h1[keys->n] = hash.h1;
    keys->h2[keys->n] = hash.h2;
    buf_append(&keys->text, text, text_len);
    keys->ends[keys->n++] = buf_len(&keys->text);
}

/* All of the command line at once. */
static int take_arguments(struct find_keys *keys)
{
    static unsigned char key[CQL_KEY_MAX];
    struct errbuf err = {{0}};
    struct stat st;
    size_t len;
    for (; keys->narguments > 0; keys->narguments--, keys->arguments++) {
        const char *text = *keys->arguments;
        bool is_key = cql_key_parse(text, strlen(text), key, &len, &err) == CQL_KEY_OK;
        if (!is_key && stat(text, &st) == 0)
            return tool_misused("find", "'%s' is a file or directory, not a key: the command takes one directory",
                                text);
        if (!is_key)
            return tool_misused("find", "the key '%s': %s", text, err.text);
        add(keys, key, len, text, strlen(text));
    }
    return TOOL_OK;
}

static size_t line_length(const struct bloom_item *line)
{
    return line->len && line->ptr[line->len - 1] == '\n' ? line->len - 1 : line->len;
}

static int take_lines(struct find_keys *keys)
{
    static struct item_batch batch;
    int rc = TOOL_OK;
    do {
        rc = item_input_next(&keys->input, &batch);
        for (size_t i = 0; rc == TOOL_OK && i < batch.n; i++)
            add(keys, batch.items[i].ptr, batch.items[i].len, batch.lines[i].ptr, line_length(&batch.lines[i]));
    } while (rc == TOOL_OK && batch.n && keys->n < KEYS && buf_len(&keys->text) < TEXT_BYTES);
    return rc;
}

int find_keys_next(struct find_keys *keys)
{
    keys->n = 0;
    buf_truncate(&keys->text, 0);
    int rc = keys->from_file ? take_lines(keys) : take_arguments(keys);
    if (rc == TOOL_OK && buf_failed(&keys->text))
        rc = tool_failed("find", "%s", strerror(ENOMEM));
    return rc;
}

/* The text of key i as the user gave it; valid until the next block. */
static struct slice find_keys_text(const struct find_keys *keys, size_t i)
{
    size_t from = i ? keys->ends[i - 1] : 0;
    return (struct slice){buf_head(&keys->text) + from, keys->ends[i] - from};
}

void find_report_key(struct find_report *report, size_t key, const struct find_place *place, const char *filter)
{
    if (report->present) {
        report->present[key] = true;
        return;
    }
    struct buf *json = output_object(&report->out);
    struct slice text = find_keys_text(&report->keys, key);
    if (json) {
        json_bytes(json, "key", text);
        json_bytes(json, place->sstable ? "file" : "name", place->shown);
        if (place->sstable) {
            json_bytes(json, "keyspace", place->sstable->keyspace);
            json_bytes(json, "table", place->sstable->table);
            json_bytes(json, "generation", place->sstable->generation);
        }
        json_str(json, "filter", filter);
        json_end(json, '}');
    } else {
        if (report->name_keys) {
            tool_print_result(text.ptr, text.len);
            putchar('\t');
        }
        tool_print_result(place->shown.ptr, place->shown.len);
        putchar('\n');
    }
    report->found++;
}

void find_report_all(struct find_report *report, const struct find_place *place, const char *filter)
{
    for (size_t i = 0; i < report->keys.n; i++)
        find_report_key(report, i, place, filter);
}

void find_report_absent(struct find_report *report)
{
    for (size_t i = 0; i < report->keys.n; i++) {
        if (report->present[i])
            continue;
        struct slice text = find_keys_text(&report->keys, i);
        struct buf *json = output_object(&report->out);
        report->found++;
        if (json) {
            json_bytes(json, "key", text);
            json_end(json, '}');
        } else {
            tool_print_result(text.ptr, text.len);
            putchar('\n');
        }
    }
}

#define BATCH        256 /* keys of a request */
#define UNDER_WAY    16  /* requests */
#define MAX_REPORTED 100 /* filters that cannot be asked are named */
#define NO_FILTER    "the SSTable has no Filter.db"
#define HEAD_WORDS   3

/* A reply to BF.FIND: the nodes of its parts. */
struct reply_parts {
    const struct resp_reply *reply;
    size_t found, unknown; /* 0: it has none */
};

int find_server_open(struct find_server *server, const struct tool_args *args, char *url)
{
    const char *names = tool_option(args, "--names");
    server->names = names ? names : "*";
    buf_init(&server->reported, SIZE_MAX);
    int rc = server_call_read(&server->call, args, url);
    return rc == TOOL_OK ? server_call_connect(&server->call) : rc;
}

void find_server_close(struct find_server *server)
{
    server_call_close(&server->call);
    buf_deinit(&server->reported);
}

/* ---- replies ---- */

/* The node after this one and its contents; at most the number of nodes. */
static size_t node_behind(const struct resp_reply *reply, size_t at)
{
    for (uint64_t due = 1; due > 0 && at < reply->count; at++) {
        const struct resp_reply_node *node = &reply->nodes[at];
        due += node->kind == RESP_REPLY_ARRAY ? (uint64_t)node->number : 0;
        due--;
    }
    return at;
}

static bool is_text(const struct resp_reply *reply, size_t at, const char *text)
{
    return reply->nodes[at].kind == RESP_REPLY_TEXT && slice_is(resp_reply_text(reply, at), text);
}

static bool are_texts(const struct resp_reply *reply, size_t at)
{
    if (reply->nodes[at].kind != RESP_REPLY_ARRAY)
        return false;
    for (size_t i = 0; i < (size_t)reply->nodes[at].number; i++)
        if (reply->nodes[at + 1 + i].kind != RESP_REPLY_TEXT)
            return false;
    return true;
}

/* False: this is no reply of BF.FIND to n keys. */
static bool read_parts(const struct resp_reply *reply, size_t n, struct reply_parts *parts)
{
    *parts = (struct reply_parts){.reply = reply};
    if (reply->nodes[0].kind != RESP_REPLY_ARRAY)
        return false;
    for (size_t at = 1; at + 1 < reply->count; at = node_behind(reply, at + 1)) {
        if (is_text(reply, at, "found"))
            parts->found = at + 1;
        else if (is_text(reply, at, "unknown"))
            parts->unknown = at + 1;
    }
    if (!parts->found || reply->nodes[parts->found].kind != RESP_REPLY_ARRAY ||
        reply->nodes[parts->found].number != (int64_t)n || !parts->unknown || !are_texts(reply, parts->unknown) ||
        reply->nodes[parts->unknown].number % 2 != 0)
        return false;
    size_t at = parts->found + 1;
    for (size_t i = 0; i < n; i++, at = node_behind(reply, at))
        if (!are_texts(reply, at))
            return false;
    return true;
}

/* ---- filters that cannot be asked ---- */

static bool was_reported(const struct find_server *server, struct slice name)
{
    const char *at = buf_head(&server->reported), *end = at + buf_len(&server->reported);
    for (; at < end; at += strlen(at) + 1)
        if (strlen(at) == name.len && memcmp(at, name.ptr, name.len) == 0)
            return true;
    return false;
}

/* Reports each of them once, up to a limit. */
static void tell(struct find_server *server, struct find_report *report, struct slice name, struct slice reason,
                 bool is_filter)
{
    const char *end = is_filter ? "; it may hold the key" : "";
    report->status = TOOL_FAILED;
    if (server->nreported > MAX_REPORTED || was_reported(server, name))
        return;
    if (server->nreported++ == MAX_REPORTED)
        tool_failed(FIND_COMMAND, "%s: more filters cannot be queried; they are not listed", server->call.url.shown);
    else
        tool_failed(FIND_COMMAND, "%s: %.*s: %.*s%s", server->call.url.shown, (int)name.len, name.ptr, (int)reason.len,
                    reason.ptr, end);
    buf_append(&server->reported, name.ptr, name.len);
    buf_append(&server->reported, "", 1);
}

/* Under the daemon's policy `maybe` it is among the found ones, too. */
static bool is_among(const struct resp_reply *reply, size_t array, struct slice name)
{
    for (size_t i = 1; i <= (size_t)reply->nodes[array].number; i++) {
        struct slice found = resp_reply_text(reply, array + i);
        if (found.len == name.len && memcmp(found.ptr, name.ptr, name.len) == 0)
            return true;
    }
    return false;
}

/* A filter may have any of the n keys from `first` on. */
static void report_unknown(struct find_server *server, struct find_report *report, const struct reply_parts *parts,
                           size_t first, size_t n, size_t at)
{
    struct slice name = resp_reply_text(parts->reply, at), reason = resp_reply_text(parts->reply, at + 1);
    const struct find_place place = {.shown = name};
    bool is_filter = !slice_is(name, server->names); /* otherwise the pattern leads to none, or not all are known */
    bool missing = reason.len >= strlen(NO_FILTER) && memcmp(reason.ptr, NO_FILTER, strlen(NO_FILTER)) == 0;
    if (!missing)
        tell(server, report, name, reason, is_filter);
    if (!is_filter)
        return;
    size_t found = parts->found + 1;
    for (size_t i = 0; i < n; i++, found = node_behind(parts->reply, found))
        if (!is_among(parts->reply, found, name))
            find_report_key(report, first + i, &place, missing ? "missing" : "unreadable");
}

/* ---- blocks ---- */

static void send_keys(struct find_server *server, const struct find_report *report, size_t first, size_t n)
{
    struct slice words[HEAD_WORDS + BATCH] = {slice_of("BF.FIND"), slice_of(server->names), slice_of("KEY")};
    for (size_t i = 0; i < n; i++)
        words[HEAD_WORDS + i] = find_keys_text(&report->keys, first + i);
    peer_put(&server->call.peer, words, HEAD_WORDS + n);
}

static int take_reply(struct find_server *server, struct find_report *report, size_t first, size_t n)
{
    struct resp_reply reply;
    struct reply_parts parts;
    TRY(server_call_reply(&server->call, &reply));
    if (!read_parts(&reply, n, &parts))
        return tool_failed(FIND_COMMAND, "%s: unexpected reply to BF.FIND", server->call.url.shown);
    size_t at = parts.found + 1;
    for (size_t i = 0; i < n; i++, at = node_behind(&reply, at)) {
        for (size_t j = 1; j <= (size_t)reply.nodes[at].number; j++) {
            const struct find_place place = {.shown = resp_reply_text(&reply, at + j)};
            find_report_key(report, first + i, &place, "may hold it");
        }
    }
    for (size_t i = 0; i < (size_t)reply.nodes[parts.unknown].number; i += 2)
        report_unknown(server, report, &parts, first, n, parts.unknown + 1 + i);
    return TOOL_OK;
}

static size_t batch_at(const struct find_report *report, size_t first)
{
    size_t left = report->keys.n - first;
    return left < BATCH ? left : BATCH;
}

int find_server_ask(struct find_server *server, struct find_report *report)
{
    size_t sent = 0, taken = 0;
    int rc = TOOL_OK;
    while (rc == TOOL_OK && taken < report->keys.n) {
        for (; sent < report->keys.n && sent - taken < UNDER_WAY * BATCH; sent += batch_at(report, sent))
            send_keys(server, report, sent, batch_at(report, sent));
        size_t n = batch_at(report, taken);
        rc = take_reply(server, report, taken, n);
        taken += n;
    }
    return rc;
}
