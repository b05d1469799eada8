#include "filter_kind.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- fields of BF.INFO ---- */

struct value {
    bool null;
    int64_t number; /* of an integer */
    char text[64];
};

static void read_rate(struct filter_kind *kind, const struct value *value)
{
    kind->rate = strtod(value->text, NULL);
}

static void read_capacity(struct filter_kind *kind, const struct value *value)
{
    kind->capacity = value->number > 0 ? (uint64_t)value->number : 0;
}

static void read_expansion(struct filter_kind *kind, const struct value *value)
{
    kind->fixed = value->null || value->number == 0;
    snprintf(kind->expansion, sizeof(kind->expansion), "%" PRId64, value->number);
}

/* Filters of files may have layouts that no new filter has; those of Cassandra are made as its newest. */
static void read_layout(struct filter_kind *kind, const struct value *value)
{
    bool redisbloom = strncmp(value->text, "redisbloom", strlen("redisbloom")) == 0;
    bool valkey = strcmp(value->text, "valkey") == 0;
    snprintf(kind->layout, sizeof(kind->layout), "%s", redisbloom ? "redisbloom" : valkey ? "valkey" : "na");
}

/* "3600 seconds", "1000 items refresh" */
static void read_window(struct filter_kind *kind, const struct value *value)
{
    if (value->null)
        return;
    snprintf(kind->window, sizeof(kind->window), "%.*s", (int)strspn(value->text, "0123456789"), value->text);
    kind->by_items = strstr(value->text, "items") != NULL;
    kind->refresh = strstr(value->text, "refresh") != NULL;
}

static void read_parts(struct filter_kind *kind, const struct value *value)
{
    if (!value->null)
        snprintf(kind->parts, sizeof(kind->parts), "%" PRId64, value->number);
}

static void read_key(struct filter_kind *kind, const struct value *value)
{
    kind->keyed = !value->null;
}

static const struct {
    const char *name;
    void (*read)(struct filter_kind *kind, const struct value *value);
    bool needed; /* every server reports it */
} fields[] = {
    {"CAPACITY", read_capacity, true}, {"EXPANSION", read_expansion, true}, {"ERRORRATE", read_rate, false},
    {"LAYOUT", read_layout, false},    {"WINDOW", read_window, false},      {"PARTS", read_parts, false},
    {"KEY", read_key, false},
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

/* An array of the value; or of an older RedisBloom the value alone. */
static struct value value_of(const struct resp_reply *reply)
{
    size_t at = reply->nodes[0].kind == RESP_REPLY_ARRAY && reply->count == 2 ? 1 : 0;
    const struct resp_reply_node *node = &reply->nodes[at];
    struct slice text = resp_reply_text(reply, at);
    struct value value = {.null = node->kind == RESP_REPLY_NULL};
    if (node->kind == RESP_REPLY_INTEGER)
        value.number = node->number;
    else if (node->kind == RESP_REPLY_TEXT || node->kind == RESP_REPLY_STATUS)
        snprintf(value.text, sizeof(value.text), "%.*s", (int)text.len, text.ptr);
    return value;
}

/* RedisBloom does not know all fields. */
static bool is_unknown_field(const struct resp_reply *reply)
{
    static const char unknown[] = "Invalid information value";
    struct slice text = resp_reply_text(reply, 0);
    return memmem(text.ptr, text.len, unknown, strlen(unknown)) != NULL;
}

static int report_unreadable(const struct server_call *call, struct slice name, const struct resp_reply *reply)
{
    struct slice text = resp_reply_text(reply, 0);
    return tool_failed(call->command, "%s: cannot read '%.*s', which a new filter needs: %.*s", call->url.shown,
                       (int)name.len, name.ptr, (int)text.len, text.ptr);
}

int filter_kind_read(struct server_call *call, struct slice name, struct filter_kind *out)
{
    struct resp_reply reply;
    *out = (struct filter_kind){.exists = false};
    PEER_PUT(&call->peer, slice_of("EXISTS"), name);
    int rc = server_call_reply(call, &reply);
    if (rc != TOOL_OK || reply.nodes[0].number == 0)
        return rc;
    out->exists = true;
    for (size_t i = 0; i < FIELDS; i++)
        PEER_PUT(&call->peer, slice_of("BF.INFO"), name, slice_of(fields[i].name));
    for (size_t i = 0; i < FIELDS; i++) {
        rc = server_call_any_reply(call, &reply);
        if (rc != TOOL_OK)
            return rc;
        if (reply.nodes[0].kind == RESP_REPLY_ERROR) {
            if (fields[i].needed || !is_unknown_field(&reply))
                return report_unreadable(call, name, &reply);
            continue;
        }
        const struct value value = value_of(&reply);
        fields[i].read(out, &value);
    }
    return TOOL_OK;
}

size_t filter_kind_options(const struct filter_kind *kind, struct slice words[FILTER_KIND_WORDS])
{
    size_t n = 0;
    if (kind->exists && kind->fixed) {
        words[n++] = slice_of("NONSCALING");
    } else if (kind->exists) {
        words[n++] = slice_of("EXPANSION");
        words[n++] = slice_of(kind->expansion);
    }
    if (kind->layout[0]) {
        words[n++] = slice_of("LAYOUT");
        words[n++] = slice_of(kind->layout);
    }
    if (kind->window[0]) {
        words[n++] = slice_of("WINDOW");
        if (kind->by_items)
            words[n++] = slice_of("ITEMS");
        words[n++] = slice_of(kind->window);
        words[n++] = slice_of("PARTS");
        words[n++] = slice_of(kind->parts);
        if (kind->refresh)
            words[n++] = slice_of("REFRESH");
    }
    if (kind->keyed)
        words[n++] = slice_of("KEYED");
    return n;
}
