#include "acl_catalog.h"

#include <string.h>

#include "check.h"
#include "handlers.h"

/* All categories of Redis, even without a command of ours, and RedisBloom's. */
static const char *const names[] = {
    "keyspace", "read",        "write",      "set",         "sortedset", "list",  "hash",   "string",
    "bitmap",   "hyperloglog", "geo",        "stream",      "pubsub",    "admin", "fast",   "slow",
    "blocking", "dangerous",   "connection", "transaction", "scripting", "bloom", "cuckoo",
};

#define NAMES (sizeof(names) / sizeof(names[0]))

_Static_assert(NAMES <= 32, "a bit for each category");

static struct acl_command commands[ACL_MAX_COMMANDS];
static size_t ncommands;

const char *acl_category_name(size_t category)
{
    return category < NAMES ? names[category] : NULL;
}

int acl_category(struct slice name)
{
    for (size_t i = 0; i < NAMES; i++) {
        if (slice_is(name, names[i]))
            return (int)i;
    }
    return -1;
}

const struct acl_command *acl_command(size_t index)
{
    return index < ncommands ? &commands[index] : NULL;
}

static uint32_t categories_of(const struct command *row)
{
    uint32_t bits = 0;
    for (size_t i = 0; i < NAMES; i++) {
        if (command_has_category(row, slice_of(names[i])))
            bits |= UINT32_C(1) << i;
    }
    return bits;
}

/* Whether a set of key flags, words with spaces between, has the word. */
static bool has_word(const char *flags, size_t len, const char *word)
{
    const char *found = memmem(flags, len, word, strlen(word));
    return found && (found == flags || found[-1] == ' ');
}

static uint8_t need_of(const char *flags, size_t len)
{
    uint8_t need = has_word(flags, len, "access") ? ACL_READ : 0;
    if (has_word(flags, len, "insert") || has_word(flags, len, "update") || has_word(flags, len, "delete"))
        need |= ACL_WRITE;
    return need;
}

static void set_needs(struct acl_command *command)
{
    const struct command *row = command->row;
    const char *flags = row->key_flags;
    if (row->flags & CMD_MODULE) {
        command->need_first = command->need_rest = row->flags & CMD_WRITE ? ACL_WRITE : ACL_READ;
        if (row->handler == cmd_bf_merge) {
            command->need_first = ACL_READ | ACL_WRITE;
            command->need_rest = ACL_READ;
        }
        return;
    }
    if (!flags)
        return;
    const char *bar = strchr(flags, '|');
    command->need_first = command->need_rest = need_of(flags, bar ? (size_t)(bar - flags) : strlen(flags));
    if (bar)
        command->need_rest = need_of(bar + 1, strlen(bar + 1));
}

static enum acl_channels channels_of(const struct command *row)
{
    if (row->handler == cmd_publish || row->handler == cmd_spublish)
        return ACL_CHANNEL;
    if (row->handler == cmd_subscribe || row->handler == cmd_ssubscribe)
        return ACL_CHANNELS;
    return row->handler == cmd_psubscribe ? ACL_PATTERNS : ACL_NO_CHANNELS;
}

/* Before main(), like the table's own index. */
__attribute__((constructor)) static void fill(void)
{
    const struct command *row;
    for (size_t i = 0; (row = command_row(i)) != NULL; i++) {
        CHECK(i < ACL_MAX_COMMANDS);
        struct acl_command *command = &commands[i];
        command->row = row;
        command->categories = categories_of(row);
        command->first_sub = (uint16_t)(row->nsubcommands ? command_index(row->subcommands) : 0);
        command->nsubs = (uint16_t)row->nsubcommands;
        command->channels = channels_of(row);
        command->special = row->handler == cmd_bf_find ? ACL_FIND : row->handler == cmd_copy ? ACL_COPY : ACL_BY_ROW;
        command->always = row->flags & CMD_NOAUTH;
        set_needs(command);
        ncommands = i + 1;
    }
}
