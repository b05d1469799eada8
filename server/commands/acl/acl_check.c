#include "acl_check.h"

#include <stdio.h>
#include <string.h>

#include "glob_match.h"
#include "session.h"

/* The words of a command, from its name on. */
struct call {
    const struct acl_command *command;
    size_t index;
    const struct resp_command *words;
    size_t first, argc;
    size_t from; /* words before this one have been compared with the selector's patterns */
    size_t left; /* comparisons in this call */
};

/* Counts a word's comparisons with `n` patterns. False: the next word is for another call. */
static bool goes_on(struct call *call, size_t n, size_t next)
{
    call->left -= n < call->left ? n : call->left;
    if (call->left > 0 || next >= call->argc)
        return true;
    call->from = next;
    return false;
}

static struct slice word(const struct call *call, size_t i)
{
    return resp_arg(call->words, call->first + i);
}

/* ---- commands ---- */

static bool has_bit(const struct acl_selector *selector, size_t index)
{
    return selector->allowed[index / 64] >> index % 64 & 1;
}

static bool allows_first_arg(const struct acl_selector *selector, const struct call *call)
{
    if (call->argc < 2)
        return false;
    for (size_t i = 0; i < selector->nrules; i++) {
        const struct acl_rule *rule = &selector->rules[i];
        if (rule->first_arg_of == (int)call->index && slice_is(word(call, 1), strchr(rule->text, '|') + 1))
            return true;
    }
    return false;
}

static bool allows_command(const struct acl_selector *selector, const struct call *call)
{
    return has_bit(selector, call->index) || call->command->always || allows_first_arg(selector, call);
}

/* ---- keys ---- */

static bool allows_key(const struct acl_selector *selector, struct slice key, uint8_t need)
{
    for (size_t i = 0; i < selector->nkeys; i++) {
        const struct acl_pattern *pattern = &selector->keys[i];
        if ((pattern->perms & need) == need && acl_pattern_matches(pattern, key))
            return true;
    }
    return selector->flags & ACL_ALL_KEYS;
}

/* Whether the pattern is literal bytes with a star after them, and their number. */
static bool is_beginning(const struct acl_pattern *pattern, size_t *len_out)
{
    size_t len = pattern->len;
    while (len > 0 && pattern->text[len - 1] == '*')
        len--;
    *len_out = len;
    return len < pattern->len && glob_is_literal((struct slice){pattern->text, len});
}

/* Whether a pattern of names matches only names that may be read. */
static bool allows_names(const struct acl_selector *selector, struct slice names)
{
    if (glob_is_literal(names))
        return allows_key(selector, names, ACL_READ);
    for (size_t i = 0; i < selector->nkeys; i++) {
        const struct acl_pattern *pattern = &selector->keys[i];
        if (!(pattern->perms & ACL_READ))
            continue;
        if (pattern->len == names.len && memcmp(pattern->text, names.ptr, names.len) == 0)
            return true;
        size_t len;
        if (is_beginning(pattern, &len) && names.len >= len && memcmp(pattern->text, names.ptr, len) == 0)
            return true; /* the bytes in common are literal in both */
    }
    return false;
}

/* The words of BF.FIND from the first pattern up to ITEMS or KEY. */
static bool check_find(const struct acl_selector *selector, const struct call *call, size_t *at_out)
{
    size_t i = call->argc > 1 && slice_is(word(call, 1), "COUNT") ? 2 : 1;
    for (size_t first = i; i < call->argc; i++) {
        if (i > first && (slice_is(word(call, i), "ITEMS") || slice_is(word(call, i), "KEY")))
            return true;
        if (!allows_names(selector, word(call, i))) {
            *at_out = i;
            return false;
        }
    }
    return true;
}

/* Whether the keys from one word to another, both included, are allowed. */
static enum acl_verdict check_range(const struct acl_selector *selector, struct call *call, size_t from, size_t to,
                                    size_t step, size_t *at_out)
{
    for (size_t i = call->from > from ? call->from : from; i <= to && i < call->argc; i += step) {
        uint8_t need = i == from ? call->command->need_first : call->command->need_rest;
        if (!allows_key(selector, word(call, i), need)) {
            *at_out = i;
            return ACL_DENIED_KEY;
        }
        if (!goes_on(call, selector->nkeys, i + step))
            return ACL_UNDECIDED;
    }
    return ACL_ALLOWED;
}

static enum acl_verdict check_keys(const struct acl_selector *selector, struct call *call, size_t *at_out)
{
    const struct command *row = call->command->row;
    if (selector->flags & ACL_ALL_KEYS)
        return ACL_ALLOWED;
    if (call->command->special == ACL_FIND)
        return check_find(selector, call, at_out) ? ACL_ALLOWED : ACL_DENIED_KEY;
    if (row->first_key == 0 || call->command->channels != ACL_NO_CHANNELS || row->flags & CMD_PUBSUB)
        return ACL_ALLOWED;
    size_t last = row->last_key < 0 ? call->argc - (size_t)-row->last_key : (size_t)row->last_key;
    return check_range(selector, call, (size_t)row->first_key, last, (size_t)row->key_step, at_out);
}

/* ---- channels ---- */

static bool selector_allows_channel(const struct acl_selector *selector, struct slice channel, bool is_pattern)
{
    for (size_t i = 0; i < selector->nchannels; i++) {
        const struct acl_pattern *pattern = &selector->channels[i];
        if (is_pattern ? pattern->len == channel.len && memcmp(pattern->text, channel.ptr, channel.len) == 0
                       : acl_pattern_matches(pattern, channel))
            return true;
    }
    return selector->flags & ACL_ALL_CHANNELS;
}

bool acl_allows_channel(const struct acl_user *user, struct slice channel, bool is_pattern)
{
    for (size_t i = 0; i < user->nselectors; i++) {
        if (selector_allows_channel(&user->selectors[i], channel, is_pattern))
            return true;
    }
    return false;
}

static enum acl_verdict check_channels(const struct acl_selector *selector, struct call *call, size_t *at_out)
{
    enum acl_channels kind = call->command->channels;
    size_t last = kind == ACL_CHANNEL ? 1 : call->argc - 1;
    if (kind == ACL_NO_CHANNELS || selector->flags & ACL_ALL_CHANNELS)
        return ACL_ALLOWED;
    for (size_t i = call->from > 1 ? call->from : 1; i <= last; i++) {
        if (!selector_allows_channel(selector, word(call, i), kind == ACL_PATTERNS)) {
            *at_out = i;
            return ACL_DENIED_CHANNEL;
        }
        if (!goes_on(call, selector->nchannels, i + 1))
            return ACL_UNDECIDED;
    }
    return ACL_ALLOWED;
}

/* ---- the whole ---- */

/* A command has names of filters or of channels. */
static enum acl_verdict check(const struct acl_selector *selector, struct call *call, size_t *at_out)
{
    if (!allows_command(selector, call))
        return ACL_DENIED_COMMAND;
    enum acl_verdict verdict = check_keys(selector, call, at_out);
    return verdict == ACL_ALLOWED ? check_channels(selector, call, at_out) : verdict;
}

/* Continues with the selector and the word of `progress`. */
static enum acl_verdict check_all(const struct acl_user *user, struct call *call, struct session_rights *progress,
                                  size_t *at_out)
{
    size_t at = 0;
    if (progress->worst == 0)
        progress->worst = ACL_DENIED_COMMAND;
    for (size_t i = progress->selector; i < user->nselectors; i++) {
        call->from = i == progress->selector ? progress->word : 0;
        enum acl_verdict verdict = check(&user->selectors[i], call, &at);
        if (verdict == ACL_ALLOWED)
            return ACL_ALLOWED;
        if (verdict == ACL_UNDECIDED) {
            progress->selector = i;
            progress->word = call->from;
            return ACL_UNDECIDED;
        }
        if ((int)verdict > progress->worst || ((int)verdict == progress->worst && at > progress->worst_at)) {
            progress->worst = (int)verdict;
            progress->worst_at = at;
        }
    }
    *at_out = call->first + progress->worst_at;
    return (enum acl_verdict)progress->worst;
}

static struct call call_of(const struct command *row, const struct resp_command *words, size_t first, size_t most)
{
    size_t index = command_index(row);
    return (struct call){.command = acl_command(index),
                         .index = index,
                         .words = words,
                         .first = first,
                         .argc = words->argc - first,
                         .left = most};
}

enum acl_verdict acl_check(const struct acl_user *user, const struct command *row, const struct resp_command *words,
                           size_t first, size_t *at_out)
{
    struct call call = call_of(row, words, first, SIZE_MAX);
    struct session_rights whole = {0};
    return check_all(user, &call, &whole, at_out);
}

enum acl_verdict acl_check_some(const struct acl_user *user, const struct command *row,
                                const struct resp_command *words, struct session_rights *progress, size_t *at_out)
{
    struct call call = call_of(row, words, 0, ACL_CHECK_SOME);
    enum acl_verdict verdict = check_all(user, &call, progress, at_out);
    if (verdict != ACL_UNDECIDED)
        *progress = (struct session_rights){0};
    return verdict;
}

bool acl_allows_command(const struct acl_user *user, size_t command)
{
    for (size_t i = 0; i < user->nselectors; i++) {
        if (has_bit(&user->selectors[i], command))
            return true;
    }
    return false;
}

bool acl_may_read(const struct acl_user *user, size_t command, struct slice name)
{
    for (size_t i = 0; i < user->nselectors; i++) {
        const struct acl_selector *selector = &user->selectors[i];
        if ((command == ACL_ANY_COMMAND || has_bit(selector, command)) && allows_key(selector, name, ACL_READ))
            return true;
    }
    return false;
}

/* ---- texts ---- */

const char *acl_denial(enum acl_verdict verdict, const struct command *row, char *text_out, size_t size)
{
    if (verdict == ACL_DENIED_KEY)
        snprintf(text_out, size, "NOPERM this user has no permissions to access one of the keys used as arguments");
    else if (verdict == ACL_DENIED_CHANNEL)
        snprintf(text_out, size, "NOPERM this user has no permissions to access one of the channels used as arguments");
    else
        snprintf(text_out, size, "NOPERM this user has no permissions to run the '%s' command", row->full_name);
    return text_out;
}

#define CHANGED                                                                                                        \
    "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is " \
    "no longer allowed for the following reason: "

const char *acl_denial_of_exec(enum acl_verdict verdict)
{
    if (verdict == ACL_DENIED_KEY)
        return CHANGED "no permission to touch the specified keys";
    if (verdict == ACL_DENIED_CHANNEL)
        return CHANGED "no permission to access one of the channels used as arguments";
    return CHANGED "no permission to execute the command or subcommand";
}
