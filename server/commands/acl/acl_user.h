/* acl_user: a user: its passwords and its rights. Rules are those of Redis's ACL SETUSER.
 *
 * A user is built by rules and is immutable once published. Sessions and threads share it by counted references, and a
 * change of rights replaces it by another object. Only the mark that it has been replaced is set later.
 *
 * Lifetime: by references. Thread: any, on distinct objects; any number of threads may read one that is published. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "acl_catalog.h"
#include "buf.h"
#include "glob_match.h"
#include "slice.h"

#define ACL_DIGEST        32                   /* bytes of a password's SHA-256 */
#define ACL_MAX_PASSWORDS 64                   /* of a user: a login is compared with as many, whoever it is */
#define ACL_MAX_RULES     1000                 /* of a user: passwords, patterns, rules on commands, selectors */
#define ACL_MAX_TEXT      ((size_t)128 * 1024) /* a longer text matches nothing: no filter or channel has such a name */

/* A pattern of keys or of channels. */
struct acl_pattern {
    char *text;
    size_t len;
    uint8_t perms; /* ACL_READ, ACL_WRITE, ored */
};

/* A rule on commands as it was given, "+@read" or "-config|set"; or a first argument, "+select|0". */
struct acl_rule {
    char *text;       /* with its sign, in lower case except for a first argument */
    int first_arg_of; /* -1, or the number of the command that it allows with one first argument */
};

enum {
    ACL_ALL_KEYS = 1 << 0,
    ACL_ALL_CHANNELS = 1 << 1,
    ACL_ALL_COMMANDS = 1 << 2,
    ACL_FROM_ALL = 1 << 3, /* its rules on commands begin with +@all, not -@all */
};

/* One set of rights; a command is allowed if one of the user's sets allows all of it. */
struct acl_selector {
    unsigned flags;
    uint64_t allowed[ACL_WORDS];
    struct acl_rule *rules;
    size_t nrules;
    struct acl_pattern *keys;
    size_t nkeys;
    struct acl_pattern *channels;
    size_t nchannels;
};

enum {
    ACL_ON = 1 << 0,
    ACL_NOPASS = 1 << 1,
    ACL_SANITIZE = 1 << 2, /* these two have no effect: there are no payloads that could be left unchecked */
    ACL_SKIP_SANITIZE = 1 << 3,
};

struct acl_user {
    atomic_uint refs;
    atomic_bool replaced; /* there is another one in its place, or it was deleted */
    uint64_t id;          /* of the user, through all his changes: a later one of the same name has another */
    bool unrestricted;    /* may call everything: no check is needed */
    unsigned flags;
    size_t bytes;     /* memory of the user */
    size_t npatterns; /* of keys, in all selectors */
    uint8_t (*passwords)[ACL_DIGEST];
    size_t npasswords;
    struct acl_selector *selectors; /* the first one is the user's own */
    size_t nselectors;
    char *name; /* NUL-terminated */
};

/* A new user with one reference and an id of its own: off, without passwords and rights, except for the channels if
 * `all_channels`. NULL without memory. */
struct acl_user *acl_user_create(struct slice name, bool all_channels);

/* A copy with the same id and one reference. NULL without memory. */
struct acl_user *acl_user_copy(const struct acl_user *user);

struct acl_user *acl_user_ref(struct acl_user *user); /* returns it */
void acl_user_unref(struct acl_user *user);           /* NULL is fine */

/* Whether it may be a name: not empty, no white space, no NUL. */
bool acl_name_is_good(struct slice name);

/* The faults of a rule; their texts are Redis's. */
enum acl_fault {
    ACL_GOOD = 0,
    ACL_FAULT_UNKNOWN,
    ACL_FAULT_SYNTAX,
    ACL_FAULT_ALL_KEYS,
    ACL_FAULT_ALL_CHANNELS,
    ACL_FAULT_NO_PASSWORD,
    ACL_FAULT_HASH,
    ACL_FAULT_FIRST_ARG,
    ACL_FAULT_LONG,
    ACL_FAULT_MANY,
    ACL_FAULT_PASSWORDS,
    ACL_FAULT_MEMORY,
};
const char *acl_fault_text(enum acl_fault fault);

/* Applies rules, the words of a command or line, to a user that no other thread sees; a selector may be spread over
 * several words. Returns ACL_GOOD, or a fault with the wrong rule in *fault_out, which points into the words or into
 * `scratch`; the user may be partly changed. -1: a '(' is not closed, with its word. `all_channels`: the meaning of the
 * setting acl-pubsub-default for "reset" and selectors. `scratch` holds joined selectors; the caller frees it. */
int acl_user_apply_words(struct acl_user *user, const struct slice *words, size_t n, bool all_channels,
                         struct buf *scratch, struct slice *fault_out);

/* Rules as files have them; or as ACL LIST and GETUSER show them, as in Redis: with ~* for %RW~*. Read again, ~* would
 * be `allkeys`, which allows no other pattern after it. */
enum acl_form { ACL_STORED, ACL_SHOWN };

/* Appends the rules that make this user out of a new one: without the name. */
void acl_user_describe(const struct acl_user *user, enum acl_form form, struct buf *out);

/* Parts of that, for ACL GETUSER: "-@all +get", "~a* %R~b", "&c". */
void acl_describe_commands(const struct acl_selector *selector, struct buf *out);
void acl_describe_keys(const struct acl_selector *selector, enum acl_form form, struct buf *out);
void acl_describe_channels(const struct acl_selector *selector, struct buf *out);

/* Whether the pattern matches. */
static inline bool acl_pattern_matches(const struct acl_pattern *pattern, struct slice text)
{
    return text.len <= ACL_MAX_TEXT && glob_match((struct slice){pattern->text, pattern->len}, text, false);
}

void acl_password_digest(struct slice password, uint8_t digest_out[ACL_DIGEST]);

/* Whether the digest is one of the user's passwords; NULL has none. Its time does not depend on user or digests. */
bool acl_user_has_password(const struct acl_user *user, const uint8_t digest[ACL_DIGEST]);

/* ---- rules ---- */

bool acl_has_spaces(struct slice text); /* or NUL bytes */

/* Cuts a line of rules into words, which the caller frees. NULL without memory. */
struct slice *acl_split(struct slice line, size_t *n_out);

/* Applies "+get", "-@write", "~key*", "%R~key*", "&channel", "allkeys" and so on. */
enum acl_fault acl_selector_apply(struct acl_selector *selector, struct slice rule);

void acl_selector_clear_rules(struct acl_selector *selector);
void acl_patterns_clear(struct acl_pattern **patterns, size_t *n);
