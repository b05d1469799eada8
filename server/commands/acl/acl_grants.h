/* acl_grants: a user's rights in the form in which they are looked up, made of its selectors.
 *
 * Most commands have no name of a filter, or one in a fixed place. For these a flag tells whether the user may call the
 * command with any arguments, or with the names that a pattern matches. A grant is such a pattern with such flags. A
 * call that grants allow is allowed; for all others acl_check() decides.
 *
 * Thread: any. */
#ifndef BLOOMERY_ACL_GRANTS_H
#define BLOOMERY_ACL_GRANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "acl_user.h"

/* Makes them from the selectors, instead of those before. False without memory: then there are none. */
bool acl_grants_make(struct acl_user *user);
void acl_grants_clear(struct acl_user *user);

/* Whether the user may call the command, given by its number, with any arguments. */
static inline bool acl_is_plain(const struct acl_user *user, size_t command)
{
    return user->plain[command];
}

/* Whether grants allow the command, given by its number, whose only key is `key` if it has one. */
static inline bool acl_is_granted(const struct acl_user *user, size_t command, struct slice key)
{
    if (acl_is_plain(user, command))
        return true;
    uint64_t head = glob_parts_head(key);
    const struct acl_grant *grant = user->grants;
    for (size_t left = user->ngrants; left > 0; left--, grant++) {
        if (glob_parts_may_match(&grant->glob, head) && grant->commands[command] &&
            glob_parts_match(&grant->glob, head, key))
            return true;
    }
    return false;
}

#endif
