/* A user keeps the texts of its rules on commands, and the resulting set of commands. LIST and files use the texts, so
 * a category also covers commands of later versions. A rule removes earlier rules that it makes pointless: the same
 * rule, and those on subcommands of its command. */
#include "acl_user.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "glob_match.h"

#define MAX_NAME 64 /* of a command or category, longer than any */

bool acl_has_spaces(struct slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if (isspace((unsigned char)text.ptr[i]) || text.ptr[i] == '\0')
            return true;
    return false;
}

/* ---- commands ---- */

void acl_selector_clear_rules(struct acl_selector *selector)
{
    for (size_t i = 0; i < selector->nrules; i++)
        free(selector->rules[i].text);
    free(selector->rules);
    selector->rules = NULL;
    selector->nrules = 0;
}

static void remove_rule(struct acl_selector *selector, size_t i)
{
    free(selector->rules[i].text);
    selector->nrules--;
    memmove(selector->rules + i, selector->rules + i + 1, (selector->nrules - i) * sizeof(*selector->rules));
}

static enum acl_fault add_rule(struct acl_selector *selector, bool allow, struct slice name, int first_arg_of)
{
    /* without the earlier rules with this name after their sign, and those on its subcommands */
    for (size_t i = 0; i < selector->nrules;) {
        const char *rule = selector->rules[i].text + 1;
        if (strncmp(rule, name.ptr, name.len) == 0 && (rule[name.len] == '\0' || rule[name.len] == '|'))
            remove_rule(selector, i);
        else
            i++;
    }
    struct acl_rule *more = realloc(selector->rules, (selector->nrules + 1) * sizeof(*more));
    if (!more)
        return ACL_FAULT_MEMORY;
    selector->rules = more;
    char *text = malloc(name.len + 2);
    if (!text)
        return ACL_FAULT_MEMORY;
    text[0] = allow ? '+' : '-';
    memcpy(text + 1, name.ptr, name.len);
    text[name.len + 1] = '\0';
    selector->rules[selector->nrules++] = (struct acl_rule){text, first_arg_of};
    return ACL_GOOD;
}

static void set_bit(struct acl_selector *selector, size_t index, bool allow)
{
    uint64_t bit = UINT64_C(1) << index % 64;
    if (allow) {
        selector->allowed[index / 64] |= bit;
    } else {
        selector->allowed[index / 64] &= ~bit;
        selector->flags &= ~(unsigned)ACL_ALL_COMMANDS;
    }
}

/* Allows or forbids a command with all of its subcommands. */
static void change(struct acl_selector *selector, size_t index, bool allow)
{
    const struct acl_command *command = acl_command(index);
    set_bit(selector, index, allow);
    /* Rules on its first arguments have no effect any more; their texts go with those they stand behind. */
    for (size_t i = 0; i < selector->nrules;) {
        if (selector->rules[i].first_arg_of == (int)index)
            remove_rule(selector, i);
        else
            i++;
    }
    for (size_t i = 0; i < command->nsubs; i++)
        set_bit(selector, command->first_sub + i, allow);
}

static void change_all(struct acl_selector *selector, bool allow)
{
    acl_selector_clear_rules(selector);
    memset(selector->allowed, allow ? 0xff : 0, sizeof(selector->allowed));
    selector->flags &= ~(unsigned)(ACL_ALL_COMMANDS | ACL_FROM_ALL);
    if (allow)
        selector->flags |= ACL_ALL_COMMANDS | ACL_FROM_ALL;
}

/* A name in lower case. False: it is longer than any. */
static bool lower(struct slice name, char out[MAX_NAME])
{
    if (name.len >= MAX_NAME)
        return false;
    for (size_t i = 0; i < name.len; i++)
        out[i] = (char)tolower((unsigned char)name.ptr[i]);
    out[name.len] = '\0';
    return true;
}

static enum acl_fault apply_category(struct acl_selector *selector, bool allow, struct slice name)
{
    char text[MAX_NAME];
    struct slice category = {name.ptr + 1, name.len - 1};
    int number = acl_category(category);
    if (slice_is(category, "all")) {
        change_all(selector, allow);
        return ACL_GOOD;
    }
    if (number < 0 || !lower(name, text))
        return ACL_FAULT_UNKNOWN;
    const struct acl_command *command;
    for (size_t i = 0; (command = acl_command(i)) != NULL; i++)
        if (command->categories & UINT32_C(1) << number)
            change(selector, i, allow);
    return add_rule(selector, allow, (struct slice){text, name.len}, -1);
}

/* "+select|0": a command without subcommands, with this first argument only. */
static enum acl_fault apply_first_arg(struct acl_selector *selector, const struct command *row, struct slice name,
                                      struct slice arg)
{
    size_t index = command_index(row);
    if (arg.len == 0 || acl_has_spaces(arg) || arg.len > GLOB_MAX_PATTERN)
        return ACL_FAULT_SYNTAX;
    char *text = malloc(name.len);
    if (!text)
        return ACL_FAULT_MEMORY;
    memcpy(text, name.ptr, name.len);
    for (size_t i = 0; i < name.len - arg.len; i++)
        text[i] = (char)tolower((unsigned char)text[i]);
    enum acl_fault fault = add_rule(selector, true, (struct slice){text, name.len}, (int)index);
    free(text);
    return fault;
}

/* Commands of earlier versions, whose users still load: a rule for one of them has no effect. */
static bool has_gone(struct slice name)
{
    static const char *const gone[] = {"migrate",
                                       "client|caching",
                                       "client|getredir",
                                       "client|trackinginfo",
                                       "cluster|countkeysinslot",
                                       "cluster|getkeysinslot",
                                       "latency|doctor",
                                       "latency|graph",
                                       "latency|history",
                                       "latency|reset",
                                       "memory|doctor",
                                       "memory|malloc-stats",
                                       "memory|purge",
                                       "memory|stats"};
    for (size_t i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
        if (slice_is(name, gone[i]))
            return true;
    return false;
}

static enum acl_fault apply_command(struct acl_selector *selector, bool allow, struct slice name)
{
    char text[MAX_NAME];
    const char *bar = memrchr(name.ptr, '|', name.len);
    const struct command *row = command_find_full(name);
    if (allow && bar) {
        const struct command *parent = command_find_full((struct slice){name.ptr, (size_t)(bar - name.ptr)});
        struct slice arg = {bar + 1, name.len - (size_t)(bar + 1 - name.ptr)};
        if (!parent)
            return ACL_FAULT_UNKNOWN;
        if (strchr(parent->full_name, '|'))
            return ACL_FAULT_FIRST_ARG;
        if (arg.len == 0)
            return ACL_FAULT_SYNTAX;
        if (!parent->nsubcommands)
            return apply_first_arg(selector, parent, name, arg);
    }
    if (!row && has_gone(name))
        return ACL_GOOD;
    if (!row || !lower(name, text))
        return ACL_FAULT_UNKNOWN;
    change(selector, command_index(row), allow);
    return add_rule(selector, allow, (struct slice){text, name.len}, -1);
}

/* ---- patterns ---- */

void acl_patterns_clear(struct acl_pattern **patterns, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        free((*patterns)[i].text);
    free(*patterns);
    *patterns = NULL;
    *n = 0;
}

static enum acl_fault add_pattern(struct acl_pattern **patterns, size_t *n, struct slice text, uint8_t perms)
{
    if (acl_has_spaces(text))
        return ACL_FAULT_SYNTAX;
    if (text.len > GLOB_MAX_PATTERN)
        return ACL_FAULT_LONG;
    for (size_t i = 0; i < *n; i++) {
        struct acl_pattern *old = &(*patterns)[i];
        if (old->len == text.len && (text.len == 0 || memcmp(old->text, text.ptr, text.len) == 0)) {
            old->perms |= perms;
            return ACL_GOOD;
        }
    }
    struct acl_pattern *more = realloc(*patterns, (*n + 1) * sizeof(*more));
    if (!more)
        return ACL_FAULT_MEMORY;
    *patterns = more;
    struct acl_pattern pattern = {.text = slice_copy(text), .len = text.len, .perms = perms};
    if (!pattern.text)
        return ACL_FAULT_MEMORY;
    more[(*n)++] = pattern;
    return ACL_GOOD;
}

/* "~key*", "%RW~key*"; a '%' may also end after its letters, as in Redis: it then has the empty pattern. */
static enum acl_fault apply_keys(struct acl_selector *selector, struct slice rule)
{
    uint8_t perms = 0;
    size_t i = 1;
    if (selector->flags & ACL_ALL_KEYS)
        return ACL_FAULT_ALL_KEYS;
    if (rule.ptr[0] == '~') {
        perms = ACL_READ | ACL_WRITE;
    } else {
        for (; i < rule.len && rule.ptr[i] != '~'; i++) {
            int letter = toupper((unsigned char)rule.ptr[i]);
            uint8_t perm = letter == 'R' ? ACL_READ : letter == 'W' ? ACL_WRITE : 0;
            if (!perm || perms & perm)
                return ACL_FAULT_SYNTAX;
            perms |= perm;
        }
        if (!perms)
            return ACL_FAULT_SYNTAX;
        i += i < rule.len;
    }
    return add_pattern(&selector->keys, &selector->nkeys, (struct slice){rule.ptr + i, rule.len - i}, perms);
}

enum acl_fault acl_selector_apply(struct acl_selector *selector, struct slice rule)
{
    struct slice name = {rule.ptr + 1, rule.len - 1};
    bool all_keys = slice_is(rule, "allkeys") || slice_is(rule, "~*");
    bool all_channels = slice_is(rule, "allchannels") || slice_is(rule, "&*");
    char first = rule.ptr[0];
    if (all_keys || slice_is(rule, "resetkeys")) {
        acl_patterns_clear(&selector->keys, &selector->nkeys);
        selector->flags = all_keys ? selector->flags | ACL_ALL_KEYS : selector->flags & ~(unsigned)ACL_ALL_KEYS;
    } else if (all_channels || slice_is(rule, "resetchannels")) {
        acl_patterns_clear(&selector->channels, &selector->nchannels);
        selector->flags =
            all_channels ? selector->flags | ACL_ALL_CHANNELS : selector->flags & ~(unsigned)ACL_ALL_CHANNELS;
    } else if (slice_is(rule, "allcommands") || slice_is(rule, "nocommands")) {
        change_all(selector, slice_is(rule, "allcommands"));
    } else if (first == '~' || first == '%') {
        return apply_keys(selector, rule);
    } else if (first == '&') {
        return selector->flags & ACL_ALL_CHANNELS ? ACL_FAULT_ALL_CHANNELS
                                                  : add_pattern(&selector->channels, &selector->nchannels, name, 0);
    } else if (first == '+' || first == '-') {
        if (name.len == 0)
            return ACL_FAULT_UNKNOWN;
        return name.ptr[0] == '@' ? apply_category(selector, first == '+', name)
                                  : apply_command(selector, first == '+', name);
    } else {
        return ACL_FAULT_SYNTAX;
    }
    return ACL_GOOD;
}

/* ---- as text ---- */

static void space(struct buf *out, size_t begun)
{
    if (buf_len(out) > begun)
        buf_append(out, " ", 1);
}

void acl_describe_commands(const struct acl_selector *selector, struct buf *out)
{
    buf_append(out, selector->flags & ACL_FROM_ALL ? "+@all" : "-@all", 5);
    for (size_t i = 0; i < selector->nrules; i++)
        buf_appendf(out, " %s", selector->rules[i].text);
}

static const char *sign_of(const struct acl_pattern *key, enum acl_form form)
{
    if (key->perms == (ACL_READ | ACL_WRITE))
        return form == ACL_STORED && strcmp(key->text, "*") == 0 ? "%RW~" : "~";
    return key->perms == ACL_READ ? "%R~" : "%W~";
}

void acl_describe_keys(const struct acl_selector *selector, enum acl_form form, struct buf *out)
{
    size_t begun = buf_len(out);
    if (selector->flags & ACL_ALL_KEYS)
        buf_append(out, "~*", 2);
    for (size_t i = 0; i < selector->nkeys; i++) {
        const struct acl_pattern *key = &selector->keys[i];
        space(out, begun);
        buf_appendf(out, "%s%s", sign_of(key, form), key->text);
    }
}

void acl_describe_channels(const struct acl_selector *selector, struct buf *out)
{
    size_t begun = buf_len(out);
    if (selector->flags & ACL_ALL_CHANNELS)
        buf_append(out, "&*", 2);
    for (size_t i = 0; i < selector->nchannels; i++) {
        space(out, begun);
        buf_appendf(out, "&%s", selector->channels[i].text);
    }
}

static void describe_selector(const struct acl_selector *selector, enum acl_form form, struct buf *out)
{
    size_t begun = buf_len(out);
    acl_describe_keys(selector, form, out);
    space(out, begun);
    if (!(selector->flags & ACL_ALL_CHANNELS))
        buf_appendf(out, "resetchannels%s", selector->nchannels ? " " : "");
    acl_describe_channels(selector, out);
    buf_append(out, " ", 1);
    acl_describe_commands(selector, out);
}

void acl_user_describe(const struct acl_user *user, enum acl_form form, struct buf *out)
{
    buf_appendf(out, "%s%s%s%s ", user->flags & ACL_ON ? "on" : "off", user->flags & ACL_NOPASS ? " nopass" : "",
                user->flags & ACL_SKIP_SANITIZE ? " skip-sanitize-payload" : "",
                user->flags & ACL_SANITIZE ? " sanitize-payload" : "");
    for (size_t i = 0; i < user->npasswords; i++) {
        buf_append(out, "#", 1);
        for (size_t j = 0; j < ACL_DIGEST; j++)
            buf_appendf(out, "%02x", user->passwords[i][j]);
        buf_append(out, " ", 1);
    }
    describe_selector(&user->selectors[0], form, out);
    for (size_t i = 1; i < user->nselectors; i++) {
        buf_append(out, " (", 2);
        describe_selector(&user->selectors[i], form, out);
        buf_append(out, ")", 1);
    }
}
