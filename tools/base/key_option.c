#include "key_option.h"

#include <inttypes.h>
#include <string.h>

#include "key_file.h"

static int choose(const struct key_file *keys, const char *command, const char *path, uint64_t wanted,
                  struct bloom_secret *out)
{
    for (size_t i = 0; i < keys->n; i++) {
        if (wanted && keys->secrets[i].id != wanted)
            continue;
        *out = keys->secrets[i];
        return TOOL_OK;
    }
    return tool_failed(command, "%s has no key %016" PRIx64, path, wanted);
}

int key_option_read(const struct tool_args *args, uint64_t needed, const char *file, struct bloom_secret *out)
{
    const char *command = args->command->name, *path = tool_option(args, "--key-file"),
               *id = tool_option(args, "--key-id");
    struct key_file *keys;
    struct errbuf err = {""};
    uint64_t wanted = needed;

    *out = (struct bloom_secret){0};
    if (!path && id)
        return tool_misused(command, "--key-id needs --key-file");
    if (!path)
        return !needed ? TOOL_OK
                       : tool_failed(command, "%s is KEYED: give --key-file with the key %016" PRIx64, file, needed);
    if (id && !key_id_parse(id, strlen(id), &wanted))
        return tool_misused(command, "--key-id '%s': must be an id of 16 hexadecimal digits", id);
    if (needed && wanted != needed)
        return tool_misused(command, "--key-id %s: the key of %s is %016" PRIx64, id, file, needed);
    if (key_file_read(fsops_posix(), path, &keys, &err) != 0)
        return tool_failed(command, "%s", err.text);
    int rc = choose(keys, command, path, wanted, out);
    key_file_free(keys);
    return rc;
}
