/* acl_grants: a user's rights in the form in which they are looked up, made of its selectors.
 *
 * Most commands have no name of a filter, or one in a fixed place. For these a bit tells whether the user may call the
 * command with any arguments, or with the names that a pattern matches. A grant is such a pattern with such bits. What
 * grants allow is allowed; of what they do not allow acl_check() knows more.
 *
 * Thread: any. */
#ifndef BLOOMERY_ACL_GRANTS_H
#define BLOOMERY_ACL_GRANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "acl_user.h"

/* Makes them from the selectors, in the place of those before. False without memory: then there are none. */
bool acl_grants_make(struct acl_user *user);
void acl_grants_clear(struct acl_user *user);

/* The comparison in full: internal. */
bool acl_grant_fits_in_full(const struct acl_grant *grant, struct slice key);

/* Whether the pattern matches. */
static inline bool acl_grant_fits(const struct acl_grant *grant, struct slice key)
{
    uint64_t head;
    if (key.len - grant->prefix > grant->more) /* also if it is shorter */
        return false;
    if (key.len < sizeof(head))
        return acl_grant_fits_in_full(grant, key);
    memcpy(&head, key.ptr, sizeof(head));
    return ((head ^ grant->head) & grant->mask) == 0 && (!grant->tail || acl_grant_fits_in_full(grant, key));
}

/* Whether grants allow the command, given by its number, whose only key is `key` if it has one. */
static inline bool acl_is_granted(const struct acl_user *user, size_t command, struct slice key)
{
    size_t word = command / 64;
    uint64_t bit = UINT64_C(1) << command % 64;
    if (user->plain[word] & bit)
        return true;
    for (size_t i = 0; i < user->ngrants; i++) {
        if (user->grants[i].commands[word] & bit && acl_grant_fits(&user->grants[i], key))
            return true;
    }
    return false;
}

#endif
