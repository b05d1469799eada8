/* Questions to a server beside a run, and --all-databases: a run for each database that INFO keyspace lists, into the
 * database of the same number. Before the first run, checks that the target has the highest. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "move.h"
#include "peer.h"

#define KEYS_TEXT     (256 * 17) /* as many ids as INFO lists, 16 digits each, with commas between and a NUL */
#define MAX_DATABASES 16384      /* of a source that are moved; usual servers have 16 */

struct numbers {
    int64_t numbers[MAX_DATABASES];
    size_t n;
};

/* Reads the lines "db<number>:keys=..." of INFO. 0 or -EPROTO. */
static int read_keyspace(struct slice text, struct numbers *found)
{
    char line[32]; /* its beginning */
    for (const char *at = text.ptr, *end = text.ptr + text.len; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t len = newline ? (size_t)(newline - at) : (size_t)(end - at);
        size_t kept = len < sizeof(line) - 1 ? len : sizeof(line) - 1;
        memcpy(line, at, kept);
        line[kept] = '\0';
        int used = 0;
        int64_t number;
        if (sscanf(line, "db%5" SCNd64 ":%n", &number, &used) == 1 && used > 0) {
            if (number < 0 || found->n == MAX_DATABASES)
                return -EPROTO;
            found->numbers[found->n++] = number;
        }
        at += len + (newline != NULL);
    }
    return 0;
}

static int connect_to(struct peer *peer, const struct move_options *options, const struct server_url *url,
                      struct errbuf *err)
{
    peer_init(peer, options->timeout_ms, NULL);
    return peer_log_in(peer, &url->address, err);
}

/* Reads a field of INFO bf that lists ids of keys: 1; 0: there is no such field; or -errno. */
static int ask_keys(const struct move_options *options, const struct server_url *url, const char *field,
                    char text_out[KEYS_TEXT], struct errbuf *err)
{
    struct peer peer;
    struct resp_reply reply;
    int found = 0, status = connect_to(&peer, options, url, err);
    if (status == 0) {
        PEER_PUT(&peer, slice_of("INFO"), slice_of("bf"));
        status = peer_reply(&peer, &reply, err);
    }
    if (status == 0 && reply.nodes[0].kind == RESP_REPLY_ERROR) {
        struct slice text = resp_reply_text(&reply, 0);
        errbuf_set(err, "INFO, which names the missing keys of KEYED filters, is refused: %.*s", (int)text.len,
                   text.ptr);
        status = -EACCES;
    } else if (status == 0 && reply.nodes[0].kind == RESP_REPLY_TEXT) {
        struct slice text = resp_reply_text(&reply, 0);
        const char *at = memmem(text.ptr, text.len, field, strlen(field)), *end = text.ptr + text.len;
        found = at != NULL;
        at = at ? at + strlen(field) : end;
        size_t len = 0;
        while (len < KEYS_TEXT - 1 && at + len < end && at[len] != '\r' && at[len] != '\n')
            len++;
        memcpy(text_out, at, len);
        text_out[len] = '\0';
    }
    peer_close(&peer);
    if (status != 0)
        errbuf_prefix(err, "the %s, %s", url == options->to ? "target" : "source", url->shown);
    return status == 0 ? found : status;
}

int move_missing_keys(const struct move_options *options, char *ids_out, size_t size, struct errbuf *err)
{
    char missing[KEYS_TEXT] = "";
    int status = ask_keys(options, options->to, "bf_missing_keys:", missing, err);
    snprintf(ids_out, size, "%s", missing);
    return status < 0 ? status : missing[0] != '\0';
}

int move_needed_keys(const struct move_options *options, char *ids_out, size_t size, struct errbuf *err)
{
    char missing[KEYS_TEXT] = "", used[KEYS_TEXT] = "", *rest = NULL;
    size_t len = 0;
    int status = ask_keys(options, options->to, "bf_missing_keys:", missing, err);
    if (status <= 0 || !missing[0])
        return status < 0 ? status : 0;
    status = ask_keys(options, options->from, "bf_used_keys:", used, err);
    if (status < 0)
        return status;
    bool all = status == 0 || strlen(used) == KEYS_TEXT - 1;
    for (const char *id = strtok_r(missing, ",", &rest); id && len < size; id = strtok_r(NULL, ",", &rest))
        if (all || strstr(used, id))
            len += (size_t)snprintf(ids_out + len, size - len, "%s%s", len > 0 ? "," : "", id);
    return len > 0;
}

static int find_databases(const struct move_options *options, struct numbers *found, struct errbuf *err)
{
    struct peer peer;
    struct resp_reply reply;
    int status = connect_to(&peer, options, options->from, err);
    if (status == 0) {
        PEER_PUT(&peer, slice_of("INFO"), slice_of("keyspace"));
        status = peer_reply(&peer, &reply, err);
    }
    if (status == 0) {
        struct slice text = resp_reply_text(&reply, 0);
        if (reply.nodes[0].kind == RESP_REPLY_ERROR) {
            errbuf_set(err, "cannot list the databases: INFO is refused: %.*s", (int)text.len, text.ptr);
            status = -EACCES;
        } else if (reply.nodes[0].kind != RESP_REPLY_TEXT || read_keyspace(text, found) != 0) {
            errbuf_set(err, "unexpected reply to INFO keyspace");
            status = -EPROTO;
        }
    }
    peer_close(&peer);
    if (status != 0)
        errbuf_prefix(err, "the source, %s", options->from->shown);
    return status;
}

int move_other_database(const struct move_options *options, int64_t *number_out, struct errbuf *err)
{
    struct numbers *found = calloc(1, sizeof(*found));
    if (!found)
        return errbuf_fail(err, -ENOMEM, "out of memory");
    int status = find_databases(options, found, err);
    for (size_t i = 0; i < found->n && status == 0; i++) {
        *number_out = found->numbers[i];
        status = found->numbers[i] != options->from->address.database;
    }
    free(found);
    return status;
}

static int compare(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* The same server with that database. The strings of its address remain those of `url`. */
static void choose_database(struct server_url *chosen, const struct server_url *url, int64_t number)
{
    *chosen = *url;
    chosen->address.database = number;
    size_t len = strlen(chosen->shown);
    snprintf(chosen->shown + len, sizeof(chosen->shown) - len, "%s%" PRId64, url->address.unixpath ? "?db=" : "/",
             number);
}

static int ask_target(const struct move_options *options, int64_t highest, struct errbuf *err)
{
    struct server_url to;
    struct peer peer;
    choose_database(&to, options->to, highest);
    int status = connect_to(&peer, options, &to, err);
    peer_close(&peer);
    if (status != 0)
        errbuf_prefix(err, "the target, %s", to.shown);
    return status;
}

static int move_database(const struct move_options *options, int64_t number, struct move_summary *sum,
                         struct errbuf *err)
{
    struct server_url from, to;
    struct move_options one = *options;
    struct move_summary summary;
    choose_database(&from, options->from, number);
    choose_database(&to, options->to, number);
    one.from = &from;
    one.to = &to;
    one.met = true;
    FILE *out = options->dry_run ? stdout : stderr; /* where lines on filters go */
    fprintf(out, "database %" PRId64 "\n", number);
    fflush(out);
    int status = move_run(&one, &summary, err);
    for (int i = 0; i < MOVE_OUTCOMES; i++)
        sum->filters[i] += summary.filters[i];
    sum->bytes += summary.bytes;
    sum->changed += summary.changed;
    sum->seconds += summary.seconds;
    sum->signal = summary.signal;
    return status;
}

int move_all_databases(const struct move_options *options, struct move_summary *summary_out, struct errbuf *err)
{
    *summary_out = (struct move_summary){.signal = 0};
    struct numbers *found = calloc(1, sizeof(*found));
    if (!found)
        return errbuf_fail(err, -ENOMEM, "out of memory");
    int status = find_databases(options, found, err);
    qsort(found->numbers, found->n, sizeof(found->numbers[0]), compare);
    STEP(status, ask_target(options, found->n ? found->numbers[found->n - 1] : 0, err));
    for (size_t i = 0; i < found->n && status == 0; i++)
        status = move_database(options, found->numbers[i], summary_out, err);
    free(found);
    return status;
}
