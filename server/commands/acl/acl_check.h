/* acl_check: whether a user may run a command with these arguments.
 *
 * A command is allowed by a selector that allows the command, each of its keys with the permission that it needs, and
 * each of its channels. BF.FIND queries filters by patterns of names. Such a pattern needs a readable key pattern that
 * covers all its names: the same text, or "<text>*" if the pattern begins with the text.
 *
 * Thread: any. */
#pragma once

#include "acl_user.h"

/* In the order of Redis: of the denials by several selectors the last one in this order is reported. */
enum acl_verdict {
    ACL_ALLOWED,
    ACL_DENIED_COMMAND,
    ACL_DENIED_KEY,
    ACL_DENIED_AUTH, /* not by acl_check(): a wrong password, in the log */
    ACL_DENIED_CHANNEL,
    ACL_DENIED_WORK, /* more than ACL_MAX_WORK */
};

/* `words` from `first` on are the command, whose number of words fits the row. With a denial *at_out is the word at
 * fault, counted from the beginning of `words`. */
enum acl_verdict acl_check(const struct acl_user *user, const struct command *row, const struct resp_command *words,
                           size_t first, size_t *at_out);

/* The work of a check is the sum, over its names and the patterns that each may be compared with, of the name's bytes
 * and of ACL_PATTERN_WORK: some milliseconds at most. */
#define ACL_PATTERN_WORK 16
#define ACL_MAX_WORK     ((size_t)4 << 20)

/* Whether the user may call the command, given by its number, with one key and no channel. acl_check() says why not. */
bool acl_may_call(const struct acl_user *user, size_t command, struct slice key);

/* Whether some selector of the user allows the command, given by its number, with any arguments. */
bool acl_allows_command(const struct acl_user *user, size_t command);

/* Whether the user may work in the database of this number: in 0, and in those that he may SELECT. */
bool acl_may_use(const struct acl_user *user, unsigned database);

/* Whether the user may, after a SELECT, send the command, given by its number or ACL_ANY_COMMAND, for the filter of
 * that name, which it reads: some selector must allow command and name. */
#define ACL_ANY_COMMAND SIZE_MAX
bool acl_may_read(const struct acl_user *user, size_t command, unsigned database, struct slice name);

/* Whether the user may subscribe to the channel, or to the pattern, which must then be one of its patterns by text. */
bool acl_allows_channel(const struct acl_user *user, struct slice channel, bool is_pattern);

/* The text of a refusal, "NOPERM ...". */
const char *acl_denial(enum acl_verdict verdict, const struct command *row, char *text_out, size_t size);

/* The same for EXEC, which checks again: for a command that was allowed when it was queued. */
const char *acl_denial_of_exec(enum acl_verdict verdict);
