/* bloomery key: makes a key for KEYED filters, tells the ids of a key file, and which filters of a data directory need
 * which key. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "key_file.h"
#include "tool.h"

#define COMMAND "key"

struct needs {
    const struct key_file *keys; /* NULL: not given */
    struct databases databases;
    bool missing;
};

/* ---- without a directory ---- */

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

/* ---- the filters of a directory ---- */

static bool is_known(const struct key_file *keys, uint64_t id)
{
    for (size_t i = 0; i < keys->n; i++)
        if (keys->secrets[i].id == id)
            return true;
    return false;
}

static int on_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    struct needs *needs = ctx;
    size_t prefix = database_prefix_of_key(filter->name, filter->name_len);
    unsigned db = databases_number(&needs->databases, database_of_key(filter->name, filter->name_len));

    (void)err;
    if (!filter->params.key)
        return 0;
    bool missing = needs->keys && !is_known(needs->keys, filter->params.key);
    printf("%016" PRIx64 "\t", filter->params.key);
    tool_print_name(stdout, filter->name + prefix, filter->name_len - prefix);
    if (db)
        printf("\tdatabase %u", db);
    puts(missing ? "\tmissing" : "");
    needs->missing |= missing;
    return 0;
}

static int ask_directory(struct needs *needs, const char *dir)
{
    const struct manifest_sink sink = {.on_filter = on_filter, .ctx = needs};
    struct errbuf err = {""};
    struct stat st;

    if (strstr(dir, "://"))
        return tool_misused(COMMAND,
                            "%s is a URL, not a data directory; the keys that a server uses and lacks are in "
                            "bf_used_keys and bf_missing_keys of INFO",
                            dir);
    if (stat(dir, &st) == 0 && S_ISREG(st.st_mode))
        return tool_misused(COMMAND, "%s is a file, not a data directory; --key-file %s shows the keys of a key file",
                            dir, dir);
    needs->databases = tool_read_databases(dir);
    int rc = tool_read_manifest(dir, &sink, NULL, &err);
    return rc == TOOL_OK ? rc : tool_failed(COMMAND, "%s", err.text);
}

/* ---- the command ---- */

static int run_key(const struct tool_args *args)
{
    const char *path = tool_option(args, "--key-file");
    struct key_file *keys = NULL;
    struct needs needs = {0};
    struct errbuf err = {""};
    int rc;

    if (path && key_file_read(fsops_posix(), path, &keys, &err) != 0)
        return tool_failed(COMMAND, "%s", err.text);
    needs.keys = keys;
    if (args->npositional)
        rc = ask_directory(&needs, args->positional[0]);
    else
        rc = keys ? print_ids(keys) : print_new_key();
    key_file_free(keys);
    return rc == TOOL_OK && needs.missing ? tool_failed(COMMAND, "%s lacks keys of filters", path) : rc;
}

static const struct tool_option options[] = {
    {.name = "--key-file",
     .value = "FILE",
     .doc = "Prints the ids of its keys, the key for new filters first; with DATADIR, lists filters whose key it "
            "lacks."},
    {.name = NULL},
};

const struct tool_command tool_key_command = {
    .name = COMMAND,
    .arguments = "[DATADIR]",
    .summary = "Creates a key for KEYED filters, or lists the keys that filters need.",
    .text = "Without an argument it prints a new line for a key file (bf-key-file): an id and a secret. With DATADIR "
            "(a daemon may be running on it) it prints the id of the key and the name of each KEYED filter of the last "
            "save. It fails if the file of --key-file lacks one.\n\nTo change keys, put a new line in front of the "
            "others and send SIGHUP: new filters have the new key, others keep theirs. Remove a line when no filter "
            "needs it any more.",
    .options = options,
    .examples = "(umask 077; bloomery key >/etc/bloomery/keys)\n"
                "bloomery key --key-file /etc/bloomery/keys /var/lib/bloomery",
    .run = run_key,
};
