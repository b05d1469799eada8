#include "acl_grants.h"

#include <stdlib.h>

enum { PERMS = ACL_READ | ACL_WRITE };

static bool may_call(const struct acl_selector *selector, size_t command)
{
    return (selector->allowed[command / 64] >> command % 64 & 1) || acl_command(command)->always;
}

/* Whether the selector need not check arguments of the command. */
static bool is_plain(const struct acl_selector *selector, const struct acl_command *command)
{
    bool has_keys = command->special != ACL_BY_ROW ||
                    (command->row->first_key > 0 && !command->channels && !(command->row->flags & CMD_PUBSUB));
    return (!has_keys || selector->flags & ACL_ALL_KEYS) && (!command->channels || selector->flags & ACL_ALL_CHANNELS);
}

/* The commands with one key that the selector allows, by the permissions that a pattern gives. */
static void sort_commands(const struct acl_selector *selector, bool by_perms_out[PERMS + 1][ACL_MAX_COMMANDS])
{
    const struct acl_command *command;
    for (size_t i = 0; (command = acl_command(i)) != NULL; i++) {
        if (!command->only_key || !may_call(selector, i))
            continue;
        for (unsigned perms = 0; perms <= PERMS; perms++)
            by_perms_out[perms][i] = (perms & command->need_first) == command->need_first;
    }
}

static void set_grant(struct acl_grant *grant, const struct acl_pattern *pattern, const bool commands[ACL_MAX_COMMANDS])
{
    grant->glob = pattern->glob;
    memcpy(grant->commands, commands, sizeof(grant->commands));
}

static void add_selector(struct acl_user *user, const struct acl_selector *selector)
{
    bool by_perms[PERMS + 1][ACL_MAX_COMMANDS] = {{false}};
    const struct acl_command *command;
    for (size_t i = 0; (command = acl_command(i)) != NULL; i++) {
        if (may_call(selector, i) && is_plain(selector, command))
            user->plain[i] = true;
    }
    sort_commands(selector, by_perms);
    for (size_t i = 0; i < selector->nkeys; i++)
        set_grant(&user->grants[user->ngrants++], &selector->keys[i], by_perms[selector->keys[i].perms]);
}

void acl_grants_clear(struct acl_user *user)
{
    free(user->grants);
    user->grants = NULL;
    user->ngrants = 0;
    memset(user->plain, 0, sizeof(user->plain));
}

bool acl_grants_make(struct acl_user *user)
{
    size_t n = 0;
    acl_grants_clear(user);
    for (size_t i = 0; i < user->nselectors; i++)
        n += user->selectors[i].nkeys;
    user->grants = n ? malloc(n * sizeof(*user->grants)) : NULL;
    if (n && !user->grants)
        return false;
    for (size_t i = 0; i < user->nselectors; i++)
        add_selector(user, &user->selectors[i]);
    return true;
}
