/* bloomery key: makes a key for KEYED filters, tells the ids of a key file, and which filters need which key. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "key_file.h"
#include "server_call.h"
#include "tool.h"

#define COMMAND "key"

struct needs {
    const struct key_file *keys; /* NULL: not given */
    struct databases databases;
    bool missing;
};

/* ---- without a directory or a server ---- */

static int print_new_key(void)
{
    char line[KEY_LINE_LEN];
    int rc = key_line_make(line);

    if (rc != 0)
        return tool_failed(COMMAND, "%s", strerror(-rc));
    fwrite(line, 1, sizeof(line), stdout);
    explicit_bzero(line, sizeof(line));
    return TOOL_OK;
}

static int print_ids(const struct key_file *keys)
{
    for (size_t i = 0; i < keys->n; i++)
        printf("%016" PRIx64 "\n", keys->secrets[i].id);
    return TOOL_OK;
}

/* ---- filters ---- */

static bool is_known(const struct key_file *keys, uint64_t id)
{
    for (size_t i = 0; i < keys->n; i++)
        if (keys->secrets[i].id == id)
            return true;
    return false;
}

static void print_need(struct needs *needs, uint64_t id, unsigned db, const char *name, size_t len)
{
    bool missing = needs->keys && !is_known(needs->keys, id);

    printf("%016" PRIx64 "\t", id);
    tool_print_name(stdout, name, len);
    if (db)
        printf("\tdatabase %u", db);
    puts(missing ? "\tmissing" : "");
    needs->missing |= missing;
}

static int on_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    struct needs *needs = ctx;
    size_t prefix = database_prefix_of_key(filter->name, filter->name_len);

    (void)err;
    if (filter->params.key)
        print_need(needs, filter->params.key,
                   databases_number(&needs->databases, database_of_key(filter->name, filter->name_len)),
                   filter->name + prefix, filter->name_len - prefix);
    return 0;
}

static int ask_directory(struct needs *needs, const char *dir)
{
    const struct manifest_sink sink = {.on_filter = on_filter, .ctx = needs};
    struct errbuf err = {""};
    struct stat st;

    if (stat(dir, &st) == 0 && S_ISREG(st.st_mode))
        return tool_misused(COMMAND, "%s is a file, not a data directory; --key-file %s shows the keys of a key file",
                            dir, dir);
    needs->databases = tool_read_databases(dir);
    int rc = tool_read_manifest(dir, &sink, NULL, &err);
    return rc == TOOL_OK ? rc : tool_failed(COMMAND, "%s", err.text);
}

/* ---- a server ---- */

struct scan {
    struct needs *needs;
    struct server_call *server;
    char cursor[PEER_NUMBER_SIZE];
};

/* CF.INFO FULL ends with the key, if the filter has one. */
static int ask_cuckoo(struct scan *scan, struct slice name)
{
    struct resp_reply reply;
    uint64_t id;

    PEER_PUT(&scan->server->peer, slice_of("CF.INFO"), name, slice_of("FULL"));
    int rc = server_call_any_reply(scan->server, &reply);
    if (rc != TOOL_OK || reply.nodes[0].kind != RESP_REPLY_ARRAY || reply.count < 3)
        return rc;
    struct slice field = resp_reply_text(&reply, reply.count - 2), text = resp_reply_text(&reply, reply.count - 1);
    if (slice_is(field, "Key") && key_id_parse(text.ptr, text.len, &id))
        print_need(scan->needs, id, 0, name.ptr, name.len);
    return TOOL_OK;
}

/* A filter that is gone by now, and a key of another type, reply with an error. */
static int ask_filter(struct scan *scan, struct slice name)
{
    struct resp_reply reply;
    uint64_t id;

    PEER_PUT(&scan->server->peer, slice_of("BF.INFO"), name, slice_of("KEY"));
    int rc = server_call_any_reply(scan->server, &reply);
    if (rc == TOOL_OK && reply.nodes[0].kind == RESP_REPLY_ERROR)
        return ask_cuckoo(scan, name);
    if (rc != TOOL_OK || reply.nodes[0].kind != RESP_REPLY_ARRAY || reply.count != 2)
        return rc;
    struct slice text = resp_reply_text(&reply, 1);
    if (reply.nodes[1].kind == RESP_REPLY_TEXT && key_id_parse(text.ptr, text.len, &id))
        print_need(scan->needs, id, 0, name.ptr, name.len);
    return TOOL_OK;
}

/* Names are copied: the next reply takes their place. */
static int ask_names(struct scan *scan, const struct resp_reply *reply)
{
    size_t bytes = 0, n = reply->count;
    int rc = TOOL_OK;

    for (size_t i = 3; i < n; i++)
        bytes += reply->nodes[i].len;
    char *text = malloc(bytes + 1), *at = text;
    struct slice *names = calloc(n, sizeof(*names));
    if (!text || !names) {
        free(text);
        free(names);
        return tool_failed(COMMAND, "out of memory");
    }
    for (size_t i = 3; i < n; i++) {
        struct slice name = resp_reply_text(reply, i);
        if (name.len)
            memcpy(at, name.ptr, name.len);
        names[i] = (struct slice){at, name.len};
        at += name.len;
    }
    for (size_t i = 3; i < n && rc == TOOL_OK; i++)
        rc = ask_filter(scan, names[i]);
    free(text);
    free(names);
    return rc;
}

/* One page of SCAN: an array of the next cursor and an array of names. */
static int scan_page(struct scan *scan)
{
    struct resp_reply reply;

    PEER_PUT(&scan->server->peer, slice_of("SCAN"), slice_of(scan->cursor), slice_of("COUNT"), slice_of("1000"));
    TRY(server_call_any_reply(scan->server, &reply));
    struct slice text = resp_reply_text(&reply, reply.count > 2 ? 1 : 0);
    if (reply.count < 3 || reply.nodes[2].kind != RESP_REPLY_ARRAY || text.len >= sizeof(scan->cursor))
        return tool_failed(COMMAND, "%s answers: %.*s", scan->server->url.shown, (int)text.len, text.ptr);
    memcpy(scan->cursor, text.ptr, text.len);
    scan->cursor[text.len] = '\0';
    return ask_names(scan, &reply);
}

static int ask_server(struct needs *needs, const struct tool_args *args, char *text)
{
    static struct server_call server;
    struct scan scan = {.needs = needs, .server = &server, .cursor = "0"};
    int rc = server_call_read(&server, args, text);

    STEP(rc, server_call_connect(&server));
    do {
        rc = rc == TOOL_OK ? scan_page(&scan) : rc;
    } while (rc == TOOL_OK && strcmp(scan.cursor, "0") != 0);
    server_call_close(&server);
    return rc;
}

/* ---- the command ---- */

static int run_key(const struct tool_args *args)
{
    const char *path = tool_option(args, "--key-file");
    char *target = args->npositional ? args->positional[0] : NULL;
    struct key_file *keys = NULL;
    struct needs needs = {0};
    struct errbuf err = {""};
    int rc;

    if (path && key_file_read(fsops_posix(), path, &keys, &err) != 0)
        return tool_failed(COMMAND, "%s", err.text);
    needs.keys = keys;
    if (!target)
        rc = keys ? print_ids(keys) : print_new_key();
    else
        rc = strstr(target, "://") ? ask_server(&needs, args, target) : ask_directory(&needs, target);
    key_file_free(keys);
    return rc == TOOL_OK && needs.missing ? tool_failed(COMMAND, "%s lacks keys of filters", path) : rc;
}

static const struct tool_option options[] = {
    {.name = "--key-file",
     .value = "FILE",
     .doc = "Prints the ids of its keys, the key for new filters first; with DATADIR or URL, lists filters whose key "
            "it lacks."},
    TLS_OPTIONS,
    {.name = NULL},
};

const struct tool_command tool_key_command = {
    .name = COMMAND,
    .arguments = "[DATADIR|URL]",
    .summary = "Creates a key for KEYED filters, or lists the keys that filters need.",
    .text = "Without an argument it prints a new line for a key file (bf-key-file): an id and a secret. With DATADIR "
            "(a daemon may be running on it) or a URL as in 'bloomery load', it prints the id of the key and the name "
            "of each KEYED filter of the last save, or of the URL's database. It fails if the file of --key-file "
            "lacks one.\n\nTo change keys, put a new line in front of the others and send SIGHUP: new filters have "
            "the new key, others keep theirs. Remove a line when no filter needs it any more.",
    .options = options,
    .examples = "(umask 077; bloomery key >/etc/bloomery/keys)\n"
                "bloomery key --key-file /etc/bloomery/keys redis://127.0.0.1",
    .run = run_key,
};
