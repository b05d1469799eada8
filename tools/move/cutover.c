#include "cutover.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "move_internal.h"
#include "peer.h"

#define VALUE_SIZE 64
#define NO_CLIENT  "9223372036854775807" /* an id that no client has */

/* Ways to be read-only; the first one that the source has is used. */
static const struct way {
    const char *setting, *value;
    const char *needs, *needs_value; /* a setting that switches the first one off where it is 0 */
    const char *answer;              /* the beginning of refusals */
} ways[] = {
    {"read-only", "yes", NULL, NULL, "READONLY"},
    {"min-replicas-to-write", "1000000000", "min-replicas-max-lag", "10", "NOREPLICAS"},
};

struct cutover {
    const struct move_options *options;
    struct peer peer;
    const struct way *way;   /* NULL: nothing has been set */
    char before[VALUE_SIZE]; /* the values that were in force */
    char needs_before[VALUE_SIZE];
    bool set_needs;
};

static int failed(const struct cutover *cutover, int status, struct errbuf *err)
{
    errbuf_prefix(err, "the source, %s", cutover->options->from->shown);
    return status;
}

static int refused(const struct cutover *cutover, const char *command, const struct resp_reply *reply,
                   struct errbuf *err)
{
    struct slice text = resp_reply_text(reply, 0);
    errbuf_set(err, "it refuses %s, which --cutover needs: %.*s", command, (int)(text.len < 300 ? text.len : 300),
               text.ptr);
    return failed(cutover, -EACCES, err);
}

/* Its reply, which may be an error reply. */
static int ask(struct cutover *cutover, const struct slice *words, size_t n, struct resp_reply *reply_out,
               struct errbuf *err)
{
    peer_put(&cutover->peer, words, n);
    int status = peer_reply(&cutover->peer, reply_out, err);
    return status ? failed(cutover, status, err) : 0;
}

#define WORDS(...) \
    (const struct slice[]){__VA_ARGS__}, sizeof((const struct slice[]){__VA_ARGS__}) / sizeof(struct slice)

/* Likewise, but fails for an error reply. `command`: its name. */
static int demand(struct cutover *cutover, const char *command, const struct slice *words, size_t n,
                  struct resp_reply *reply_out, struct errbuf *err)
{
    int status = ask(cutover, words, n, reply_out, err);
    return status == 0 && move_is_error(reply_out) ? refused(cutover, command, reply_out, err) : status;
}

static int open_connection(struct cutover *cutover, struct errbuf *err)
{
    int status = peer_log_in(&cutover->peer, &cutover->options->from->address, err);
    return status ? failed(cutover, status, err) : 0;
}

/* ---- read-only ---- */

/* Reads the value in force. 1; 0: the source has no such setting; or -errno. */
static int get(struct cutover *cutover, const char *setting, char value_out[VALUE_SIZE], struct errbuf *err)
{
    struct resp_reply reply;
    int status =
        demand(cutover, "CONFIG GET", WORDS(slice_of("CONFIG"), slice_of("GET"), slice_of(setting)), &reply, err);
    if (status != 0 || reply.count < 3)
        return status;
    struct slice value = resp_reply_text(&reply, 2);
    if (value.len >= VALUE_SIZE) {
        errbuf_set(err, "unexpected reply to CONFIG GET %s", setting);
        return failed(cutover, -EPROTO, err);
    }
    memcpy(value_out, value.ptr, value.len);
    value_out[value.len] = '\0';
    return 1;
}

static int set(struct cutover *cutover, const char *setting, const char *value, struct errbuf *err)
{
    struct resp_reply reply;
    return demand(cutover, "CONFIG SET", WORDS(slice_of("CONFIG"), slice_of("SET"), slice_of(setting), slice_of(value)),
                  &reply, err);
}

static int refuse_closed(const struct cutover *cutover, const struct way *way, struct errbuf *err)
{
    errbuf_set(
        err,
        "it refuses writes already (its setting %s is %s): after an earlier cutover clients write to the target, "
        "whose filters another one would replace; if none has done so, set %s back first",
        way->setting, way->value, way->setting);
    return failed(cutover, -EACCES, err);
}

/* The source must have a way to be read-only, which this user may set: to its own value for now. It must not be
 * read-only already, by an earlier cutover: clients may have written to the target since, and another one would replace
 * their filters. */
static int check_ways(struct cutover *cutover, struct errbuf *err)
{
    char value[VALUE_SIZE];
    bool settable = false;
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        int found = get(cutover, ways[i].setting, value, err);
        if (found > 0 && strcmp(value, ways[i].value) == 0)
            return refuse_closed(cutover, &ways[i], err);
        if (found > 0 && !settable)
            found = set(cutover, ways[i].setting, value, err) < 0 ? -EACCES : 1;
        if (found < 0)
            return found;
        settable |= found > 0;
    }
    if (settable)
        return 0;
    errbuf_set(err, "it has neither the setting read-only nor min-replicas-to-write");
    return failed(cutover, -EACCES, err);
}

/* ---- clients ---- */

static int kill_clients(struct cutover *cutover, const char *by, const char *value, struct errbuf *err)
{
    struct resp_reply reply;
    return demand(
        cutover, "CLIENT KILL",
        WORDS(slice_of("CLIENT"), slice_of("KILL"), slice_of(by), slice_of(value), slice_of("SKIPME"), slice_of("yes")),
        &reply, err);
}

int cutover_close_clients(struct cutover *cutover, struct errbuf *err)
{
    int status = kill_clients(cutover, "TYPE", "normal", err);
    return status ? status : kill_clients(cutover, "TYPE", "pubsub", err);
}

int cutover_unpause(struct cutover *cutover, struct errbuf *err)
{
    struct resp_reply reply;
    return demand(cutover, "CLIENT UNPAUSE", WORDS(slice_of("CLIENT"), slice_of("UNPAUSE")), &reply, err);
}

/* Sends the commands that a cutover needs, in forms that change nothing, except that a pause by another client ends. A
 * copy may take hours, so a missing right should be known before it. */
static int check_rights(struct cutover *cutover, struct errbuf *err)
{
    struct resp_reply reply;
    int status = demand(cutover, "CLIENT PAUSE",
                        WORDS(slice_of("CLIENT"), slice_of("PAUSE"), slice_of("1"), slice_of("WRITE")), &reply, err);
    if (status == 0)
        status = cutover_unpause(cutover, err);
    if (status == 0)
        status = check_ways(cutover, err);
    if (status == 0)
        status = kill_clients(cutover, "ID", NO_CLIENT, err);
    return status ? status : demand(cutover, "DEL", WORDS(slice_of("DEL"), slice_of(MOVE_TEMP_PREFIX)), &reply, err);
}

/* ---- a cutover ---- */

struct cutover *cutover_begin(const struct move_options *options, struct errbuf *err)
{
    struct cutover *cutover = calloc(1, sizeof(*cutover));
    if (!cutover) {
        errbuf_set(err, "out of memory");
        return NULL;
    }
    cutover->options = options;
    peer_init(&cutover->peer, options->timeout_ms, NULL);
    if (open_connection(cutover, err) == 0 && check_rights(cutover, err) == 0)
        return cutover;
    cutover_end(cutover);
    return NULL;
}

void cutover_end(struct cutover *cutover)
{
    if (!cutover)
        return;
    peer_close(&cutover->peer);
    free(cutover);
}

/* A DEL of a name that does not exist must be refused: the promise depends on this. Writers are paused, so a writer
 * that is not refused gets no reply. */
static int prove(struct cutover *cutover, struct errbuf *err)
{
    struct resp_reply reply;
    int status = ask(cutover, WORDS(slice_of("DEL"), slice_of(MOVE_TEMP_PREFIX)), &reply, err);
    if (status != 0)
        return status;
    struct slice text = move_is_error(&reply) ? resp_reply_text(&reply, 0) : (struct slice){"", 0};
    size_t len = strlen(cutover->way->answer);
    if (text.len >= len && memcmp(text.ptr, cutover->way->answer, len) == 0)
        return 0;
    if (text.len > 0)
        errbuf_set(err, "DEL, which --cutover needs, is not answered with -%s: %.*s", cutover->way->answer,
                   (int)text.len, text.ptr);
    else
        errbuf_set(err, "it accepts writes although its setting %s is %s", cutover->way->setting, cutover->way->value);
    return failed(cutover, -EACCES, err);
}

static int set_way(struct cutover *cutover, const struct way *way, struct errbuf *err)
{
    int found = way->needs ? get(cutover, way->needs, cutover->needs_before, err) : 0;
    cutover->way = way; /* before it is set: the answer may be lost */
    cutover->set_needs = found > 0 && strcmp(cutover->needs_before, "0") == 0;
    if (cutover->set_needs)
        found = set(cutover, way->needs, way->needs_value, err);
    return found < 0 ? found : set(cutover, way->setting, way->value, err);
}

int cutover_refuse_writes(struct cutover *cutover, const char **answer_out, struct errbuf *err)
{
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        int found = get(cutover, ways[i].setting, cutover->before, err);
        if (found < 0)
            return found;
        if (found == 0)
            continue;
        int status = set_way(cutover, &ways[i], err);
        *answer_out = ways[i].answer;
        return status ? status : prove(cutover, err);
    }
    errbuf_set(err, "its settings that refuse writes are gone");
    return failed(cutover, -EACCES, err);
}

void cutover_undo(struct cutover *cutover, struct errbuf *err)
{
    struct errbuf why = {""};
    int status = open_connection(cutover, &why); /* replies may still be due on this one */
    if (status == 0 && cutover->way)
        status = set(cutover, cutover->way->setting, cutover->before, &why);
    if (status == 0 && cutover->way && cutover->set_needs)
        status = set(cutover, cutover->way->needs, cutover->needs_before, &why);
    if (status != 0 && cutover->way) {
        size_t len = strlen(err->text);
        snprintf(err->text + len, sizeof(err->text) - len, "; its setting %s may still be %s: set it back to %s",
                 cutover->way->setting, cutover->way->value, cutover->before);
    }
    if (peer_is_open(&cutover->peer))
        (void)cutover_unpause(cutover, &why); /* the pause also ends by itself */
}
