#include "acl_check.h"

#include <stdio.h>
#include <string.h>

#include "database.h"
#include "glob_match.h"

/* The words of a command, from its name on. */
struct call {
    const struct acl_command *command;
    size_t index;
    const struct resp_command *words;
    size_t first, argc;
    size_t work; /* so far, of comparing names with patterns: see ACL_MAX_WORK */
};

static struct slice word(const struct call *call, size_t i)
{
    return resp_arg(call->words, call->first + i);
}

/* The work of comparing a name with `n` patterns. */
static size_t work_of(struct slice name, size_t n)
{
    return name.len <= ACL_MAX_TEXT ? n * (ACL_PATTERN_WORK + name.len) : 0;
}

/* Counts the comparisons of a name with `n` patterns. False: they are too many. */
static bool has_time(struct call *call, struct slice name, size_t n)
{
    call->work += work_of(name, n);
    return call->work <= ACL_MAX_WORK;
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

/* ---- keys ---- */

static bool allows_key(const struct acl_selector *selector, struct slice key, uint8_t need)
{
    if (selector->flags & ACL_ALL_KEYS)
        return true;
    for (size_t i = 0; i < selector->nkeys; i++) {
        const struct acl_pattern *pattern = &selector->keys[i];
        if ((pattern->perms & need) == need && acl_pattern_matches(pattern, key))
            return true;
    }
    return false;
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

static enum acl_verdict check_keys(const struct acl_selector *selector, struct call *call, size_t *at_out)
{
    if (selector->flags & ACL_ALL_KEYS)
        return ACL_ALLOWED;
    if (call->command->special == ACL_FIND)
        return check_find(selector, call, at_out) ? ACL_ALLOWED : ACL_DENIED_KEY;
    struct command_keys keys = command_keys(call->command->row, call->argc);
    for (size_t i = keys.first; i < keys.end; i += keys.step) {
        uint8_t need = i == keys.first ? call->command->need_first : call->command->need_rest;
        if (!has_time(call, word(call, i), selector->nkeys))
            return ACL_DENIED_WORK;
        if (!allows_key(selector, word(call, i), need)) {
            *at_out = i;
            return ACL_DENIED_KEY;
        }
    }
    return ACL_ALLOWED;
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
    for (size_t i = 0; i < user->nselectors; i++)
        if (selector_allows_channel(&user->selectors[i], channel, is_pattern))
            return true;
    return false;
}

static enum acl_verdict check_channels(const struct acl_selector *selector, struct call *call, size_t *at_out)
{
    enum acl_channels kind = call->command->channels;
    size_t last = kind == ACL_CHANNEL ? 1 : call->argc - 1;
    if (kind == ACL_NO_CHANNELS || selector->flags & ACL_ALL_CHANNELS)
        return ACL_ALLOWED;
    for (size_t i = 1; i <= last; i++) {
        if (!has_time(call, word(call, i), selector->nchannels))
            return ACL_DENIED_WORK;
        if (!selector_allows_channel(selector, word(call, i), kind == ACL_PATTERNS)) {
            *at_out = i;
            return ACL_DENIED_CHANNEL;
        }
    }
    return ACL_ALLOWED;
}

/* ---- the whole ---- */

/* A command has names of filters or of channels. */
static enum acl_verdict check(const struct acl_selector *selector, struct call *call, size_t *at_out)
{
    if (!has_bit(selector, call->index) && !call->command->always && !allows_first_arg(selector, call))
        return ACL_DENIED_COMMAND;
    enum acl_verdict verdict = check_keys(selector, call, at_out);
    return verdict == ACL_ALLOWED ? check_channels(selector, call, at_out) : verdict;
}

/* COPY into another database. A number that is none is left to the command. */
static bool allows_copy(const struct acl_user *user, const struct call *call, size_t *at_out)
{
    for (size_t i = 3; i + 1 < call->argc; i++) {
        int64_t number;
        if (!slice_is(word(call, i), "DB") || !slice_to_int64(word(call, i + 1), &number) || number < 0 ||
            number >= DATABASES_MAX || acl_may_use(user, (unsigned)number))
            continue;
        *at_out = i + 1;
        return false;
    }
    return true;
}

enum acl_verdict acl_check(const struct acl_user *user, const struct command *row, const struct resp_command *words,
                           size_t first, size_t *at_out)
{
    size_t index = command_index(row), worst_at = 0, at = 0;
    struct call call = {
        .command = acl_command(index), .index = index, .words = words, .first = first, .argc = words->argc - first};
    enum acl_verdict worst = ACL_DENIED_COMMAND;
    bool may_copy = call.command->special != ACL_COPY || allows_copy(user, &call, &at);
    for (size_t i = 0; i < user->nselectors; i++) {
        enum acl_verdict verdict = may_copy ? check(&user->selectors[i], &call, &at) : ACL_DENIED_KEY;
        if (verdict == ACL_ALLOWED)
            return ACL_ALLOWED;
        if (verdict > worst || (verdict == worst && at > worst_at)) {
            worst = verdict;
            worst_at = at;
        }
    }
    *at_out = first + worst_at;
    return worst;
}

bool acl_may_call(const struct acl_user *user, size_t command, struct slice key)
{
    uint8_t need = acl_command(command)->need_first;
    for (size_t i = 0; i < user->nselectors; i++) {
        const struct acl_selector *selector = &user->selectors[i];
        if (has_bit(selector, command) && work_of(key, selector->nkeys) <= ACL_MAX_WORK &&
            allows_key(selector, key, need))
            return true;
    }
    return false;
}

bool acl_allows_command(const struct acl_user *user, size_t command)
{
    for (size_t i = 0; i < user->nselectors; i++)
        if (has_bit(&user->selectors[i], command))
            return true;
    return false;
}

bool acl_may_use(const struct acl_user *user, unsigned database)
{
    char number[16];
    struct resp_span spans[2] = {{0, 6}, {6, 0}};
    int len = snprintf(number, sizeof(number), "select%u", database);
    spans[1].len = (unsigned)len - 6;
    const struct resp_command words = {.base = number, .spans = spans, .argc = 2};
    size_t at;
    return database == 0 || user->unrestricted ||
           acl_check(user, command_find_full(resp_arg(&words, 0)), &words, 0, &at) == ACL_ALLOWED;
}

bool acl_may_read(const struct acl_user *user, size_t command, unsigned database, struct slice name)
{
    if (!acl_may_use(user, database))
        return false;
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
    else if (verdict == ACL_DENIED_WORK)
        snprintf(text_out, size,
                 "ERR the names of the '%s' command are too many to be compared with all patterns of this user: send "
                 "fewer at a time",
                 row->full_name);
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
    if (verdict == ACL_DENIED_WORK)
        return CHANGED "its names are too many to be compared with all patterns of this user";
    return CHANGED "no permission to execute the command or subcommand";
}
