#include "acl_catalog.h"

#include <string.h>

#include "check.h"
#include "handlers.h"

/* All categories of Redis, even without a command of ours, and RedisBloom's; the flags from which each follows. */
static const struct {
    const char *name;
    uint32_t flags;
} categories[] = {
    {"keyspace", CAT_KEYSPACE},
    {"read", CMD_READONLY},
    {"write", CMD_WRITE},
    {"set", 0},
    {"sortedset", 0},
    {"list", 0},
    {"hash", 0},
    {"string", 0},
    {"bitmap", 0},
    {"hyperloglog", 0},
    {"geo", 0},
    {"stream", 0},
    {"pubsub", CMD_PUBSUB},
    {"admin", CMD_ADMIN | CAT_ADMIN},
    {"fast", CAT_FAST},
    {"slow", CAT_SLOW},
    {"blocking", 0},
    {"dangerous", CMD_ADMIN | CAT_DANGEROUS},
    {"connection", CAT_CONNECTION},
    {"transaction", CAT_TRANSACTION},
    {"scripting", 0},
    {"bloom", CMD_MODULE},
    {"cuckoo", CMD_CUCKOO},
};

#define NAMES (sizeof(categories) / sizeof(categories[0]))

_Static_assert(NAMES <= 32, "a bit for each category");

static struct acl_command commands[ACL_MAX_COMMANDS];
static size_t ncommands;

const char *acl_category_name(size_t category)
{
    return category < NAMES ? categories[category].name : NULL;
}

int acl_category(struct slice name)
{
    for (size_t i = 0; i < NAMES; i++)
        if (slice_is(name, categories[i].name))
            return (int)i;
    return -1;
}

const struct acl_command *acl_command(size_t index)
{
    return index < ncommands ? &commands[index] : NULL;
}

static uint32_t categories_of(const struct command *row)
{
    uint32_t flags = row->flags, bits = 0;

    if (!(flags & CMD_MODULE))
        flags |= flags & CMD_FAST ? CAT_FAST : CAT_SLOW;
    if (flags & CMD_CUCKOO)
        flags &= ~(uint32_t)CMD_MODULE;
    for (size_t i = 0; i < NAMES; i++)
        if (flags & categories[i].flags)
            bits |= UINT32_C(1) << i;
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
