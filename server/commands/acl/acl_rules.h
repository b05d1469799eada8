/* acl_rules: the rules of one selector: on commands, keys and channels. Internal to acl_user.h. */
#ifndef BLOOMERY_ACL_RULES_H
#define BLOOMERY_ACL_RULES_H

#include "acl_user.h"

bool acl_has_spaces(struct slice text); /* or NUL bytes */

/* Applies "+get", "-@write", "~key*", "%R~key*", "&channel", "allkeys" and so on. */
enum acl_fault acl_selector_apply(struct acl_selector *selector, struct slice rule);

void acl_selector_clear_rules(struct acl_selector *selector);
/* False without memory; then nothing is made. */
bool acl_pattern_make(struct acl_pattern *pattern_out, struct slice text, uint8_t perms);
void acl_patterns_clear(struct acl_pattern **patterns, size_t *n);

#endif
