#include "acl_user.h"

#include <ctype.h>
#include <stdlib.h>

#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <nettle/version.h>

#include "bytes.h"

bool acl_name_is_good(struct slice name)
{
    return name.len > 0 && !acl_has_spaces(name);
}

static void free_selector(struct acl_selector *selector)
{
    acl_selector_clear_rules(selector);
    acl_patterns_clear(&selector->keys, &selector->nkeys);
    acl_patterns_clear(&selector->channels, &selector->nchannels);
}

static void destroy(struct acl_user *user)
{
    for (size_t i = 0; i < user->nselectors; i++)
        free_selector(&user->selectors[i]);
    free(user->selectors);
    free(user->passwords);
    free(user->name);
    free(user);
}

static struct acl_user *new_user(struct slice name, uint64_t id, bool all_channels)
{
    struct acl_user *user = calloc(1, sizeof(*user));
    if (!user)
        return NULL;
    atomic_init(&user->refs, 1);
    user->id = id;
    user->name = slice_copy(name);
    user->selectors = calloc(1, sizeof(*user->selectors));
    if (!user->name || !user->selectors) {
        destroy(user);
        return NULL;
    }
    user->selectors[0].flags = all_channels ? ACL_ALL_CHANNELS : 0;
    user->nselectors = 1;
    return user;
}

struct acl_user *acl_user_create(struct slice name, bool all_channels)
{
    static _Atomic uint64_t last_id;
    return new_user(name, atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1, all_channels);
}

static size_t bytes_of_patterns(const struct acl_pattern *patterns, size_t n)
{
    size_t bytes = n * sizeof(*patterns);
    for (size_t i = 0; i < n; i++)
        bytes += patterns[i].len + 1;
    return bytes;
}

static size_t bytes_of_selector(const struct acl_selector *selector)
{
    size_t bytes = sizeof(*selector) + selector->nrules * sizeof(*selector->rules);
    for (size_t i = 0; i < selector->nrules; i++)
        bytes += strlen(selector->rules[i].text) + 1;
    return bytes + bytes_of_patterns(selector->keys, selector->nkeys) +
           bytes_of_patterns(selector->channels, selector->nchannels);
}

static size_t bytes_of(const struct acl_user *user)
{
    size_t bytes = sizeof(*user) + strlen(user->name) + 1 + user->npasswords * sizeof(*user->passwords);
    for (size_t i = 0; i < user->nselectors; i++)
        bytes += bytes_of_selector(&user->selectors[i]);
    return bytes;
}

struct acl_user *acl_user_ref(struct acl_user *user)
{
    atomic_fetch_add_explicit(&user->refs, 1, memory_order_relaxed);
    return user;
}

void acl_user_unref(struct acl_user *user)
{
    if (user && atomic_fetch_sub_explicit(&user->refs, 1, memory_order_acq_rel) == 1)
        destroy(user);
}

/* ---- passwords ---- */

void acl_password_digest(struct slice password, uint8_t digest_out[ACL_DIGEST])
{
    struct sha256_ctx ctx;
    sha256_init(&ctx);
    sha256_update(&ctx, password.len, (const uint8_t *)password.ptr);
#if NETTLE_VERSION_MAJOR >= 4
    sha256_digest(&ctx, digest_out);
#else
    sha256_digest(&ctx, ACL_DIGEST, digest_out);
#endif
}

bool acl_user_has_password(const struct acl_user *user, const uint8_t digest[ACL_DIGEST])
{
    static const uint8_t none[ACL_DIGEST];
    int found = 0;
    for (size_t i = 0; i < ACL_MAX_PASSWORDS; i++) {
        bool is_one = user && i < user->npasswords;
        found |= memeql_sec(is_one ? user->passwords[i] : none, digest, ACL_DIGEST) & is_one;
    }
    return found;
}

/* The place of a password, npasswords: none. For administrators, to whom its time reveals nothing. */
static size_t find_password(const struct acl_user *user, const uint8_t digest[ACL_DIGEST])
{
    size_t i = 0;
    while (i < user->npasswords && memcmp(user->passwords[i], digest, ACL_DIGEST) != 0)
        i++;
    return i;
}

static enum acl_fault add_password(struct acl_user *user, const uint8_t digest[ACL_DIGEST])
{
    user->flags &= ~(unsigned)ACL_NOPASS;
    if (find_password(user, digest) < user->npasswords)
        return ACL_GOOD;
    if (user->npasswords == ACL_MAX_PASSWORDS)
        return ACL_FAULT_PASSWORDS;
    void *more = realloc(user->passwords, (user->npasswords + 1) * sizeof(*user->passwords));
    if (!more)
        return ACL_FAULT_MEMORY;
    user->passwords = more;
    memcpy(user->passwords[user->npasswords++], digest, ACL_DIGEST);
    return ACL_GOOD;
}

static enum acl_fault remove_password(struct acl_user *user, const uint8_t digest[ACL_DIGEST])
{
    size_t at = find_password(user, digest);
    if (at == user->npasswords)
        return ACL_FAULT_NO_PASSWORD;
    user->npasswords--;
    memmove(user->passwords + at, user->passwords + at + 1, (user->npasswords - at) * sizeof(*user->passwords));
    return ACL_GOOD;
}

static bool read_digest(struct slice hex, uint8_t digest_out[ACL_DIGEST])
{
    if (hex.len != 2 * ACL_DIGEST)
        return false;
    for (size_t i = 0; i < ACL_DIGEST; i++) {
        const char *pair = hex.ptr + 2 * i;
        int byte = hex_byte(pair);
        if (byte < 0 || isupper((unsigned char)pair[0]) || isupper((unsigned char)pair[1]))
            return false;
        digest_out[i] = (uint8_t)byte;
    }
    return true;
}

/* ">password", "#hash", "<password", "!hash". */
static enum acl_fault apply_password(struct acl_user *user, struct slice rule)
{
    struct slice value = {rule.ptr + 1, rule.len - 1};
    uint8_t digest[ACL_DIGEST];
    char sign = rule.ptr[0];
    if (sign == '>' || sign == '<')
        acl_password_digest(value, digest);
    else if (!read_digest(value, digest))
        return ACL_FAULT_HASH;
    return sign == '>' || sign == '#' ? add_password(user, digest) : remove_password(user, digest);
}

/* ---- selectors ---- */

static enum acl_fault add_selector(struct acl_user *user, struct slice rule, bool all_channels)
{
    void *more = realloc(user->selectors, (user->nselectors + 1) * sizeof(*user->selectors));
    if (!more)
        return ACL_FAULT_MEMORY;
    user->selectors = more;
    struct acl_selector *selector = &user->selectors[user->nselectors];
    *selector = (struct acl_selector){.flags = all_channels ? ACL_ALL_CHANNELS : 0};
    struct slice rest = {rule.ptr + 1, rule.len - 2};
    enum acl_fault fault = ACL_GOOD;
    for (size_t nwords = 0; fault == ACL_GOOD && rest.len > 0; nwords++) {
        size_t len = 0;
        while (len < rest.len && !isspace((unsigned char)rest.ptr[len]))
            len++;
        struct slice word = {rest.ptr, len};
        /* The text of a selector ends with the first word that ends so: one within it would not be read back. */
        if (len > 0 && word.ptr[len - 1] == ')')
            fault = ACL_FAULT_SYNTAX;
        else if (nwords >= ACL_MAX_RULES)
            fault = ACL_FAULT_MANY;
        else if (len > 0)
            fault = acl_selector_apply(selector, word);
        len += len < rest.len;
        rest = (struct slice){rest.ptr + len, rest.len - len};
    }
    if (fault == ACL_GOOD)
        user->nselectors++;
    else
        free_selector(selector);
    return fault;
}

static void clear_selectors(struct acl_user *user)
{
    while (user->nselectors > 1)
        free_selector(&user->selectors[--user->nselectors]);
}

/* ---- rules ---- */

static void set_flag(struct acl_user *user, unsigned set, unsigned clear)
{
    user->flags = (user->flags & ~clear) | set;
}

static enum acl_fault apply(struct acl_user *user, struct slice rule, bool all_channels)
{
    char first = rule.len > 0 ? rule.ptr[0] : '\0';
    if (rule.len == 0) { /* no effect, as in Redis */
    } else if (slice_is(rule, "on")) {
        set_flag(user, ACL_ON, 0);
    } else if (slice_is(rule, "off")) {
        set_flag(user, 0, ACL_ON);
    } else if (slice_is(rule, "nopass")) {
        set_flag(user, ACL_NOPASS, 0);
        user->npasswords = 0;
    } else if (slice_is(rule, "resetpass")) {
        set_flag(user, 0, ACL_NOPASS);
        user->npasswords = 0;
    } else if (slice_is(rule, "sanitize-payload")) {
        set_flag(user, ACL_SANITIZE, ACL_SKIP_SANITIZE);
    } else if (slice_is(rule, "skip-sanitize-payload")) {
        set_flag(user, ACL_SKIP_SANITIZE, ACL_SANITIZE);
    } else if (slice_is(rule, "reset")) {
        struct acl_selector *own = &user->selectors[0];
        user->flags = ACL_SANITIZE;
        user->npasswords = 0;
        clear_selectors(user);
        free_selector(own);
        *own = (struct acl_selector){.flags = all_channels ? ACL_ALL_CHANNELS : 0};
    } else if (slice_is(rule, "clearselectors")) {
        clear_selectors(user);
    } else if (first == '>' || first == '<' || first == '#' || first == '!') {
        return apply_password(user, rule);
    } else if (first == '(' && rule.ptr[rule.len - 1] == ')' && rule.len > 1) {
        return add_selector(user, rule, all_channels);
    } else {
        return acl_selector_apply(&user->selectors[0], rule);
    }
    return ACL_GOOD;
}

/* The end of the selector that begins with word `first`; n if it has none. */
static size_t selector_end(const struct slice *words, size_t n, size_t first)
{
    while (first < n && (words[first].len == 0 || words[first].ptr[words[first].len - 1] != ')'))
        first++;
    return first;
}

/* An open '(' anywhere refuses the whole, before anything else does. */
static bool is_closed(const struct slice *words, size_t n, struct slice *fault_out)
{
    for (size_t i = 0; i < n; i++) {
        if (words[i].len == 0 || words[i].ptr[0] != '(')
            continue;
        *fault_out = words[i];
        size_t end = selector_end(words, n, i);
        while (end == n && ++i < n) { /* the last one is named, as in Redis */
            if (words[i].len > 0 && words[i].ptr[0] == '(')
                *fault_out = words[i];
        }
        if (end == n)
            return false;
        i = end;
    }
    return true;
}

/* The words of a selector as one, in `scratch`. False without memory. */
static bool join(const struct slice *words, size_t n, struct buf *scratch, struct slice *joined_out)
{
    buf_truncate(scratch, 0);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_append(scratch, " ", 1);
        buf_append(scratch, words[i].ptr, words[i].len);
    }
    *joined_out = (struct slice){buf_head(scratch), buf_len(scratch)};
    return !buf_failed(scratch);
}

static size_t count_rules(const struct acl_user *user)
{
    size_t n = user->npasswords + user->nselectors - 1;
    for (size_t i = 0; i < user->nselectors; i++)
        n += user->selectors[i].nkeys + user->selectors[i].nchannels + user->selectors[i].nrules;
    return n;
}

static enum acl_fault apply_all(struct acl_user *user, const struct slice *words, size_t n, bool all_channels,
                                struct buf *scratch, struct slice *fault_out)
{
    for (size_t i = 0; i < n; i++) {
        struct slice rule = words[i];
        *fault_out = rule;
        if (rule.len > 0 && rule.ptr[0] == '(') {
            size_t end = selector_end(words, n, i);
            if (!join(words + i, end - i + 1, scratch, &rule))
                return ACL_FAULT_MEMORY;
            i = end;
        }
        enum acl_fault fault = apply(user, rule, all_channels);
        if (fault == ACL_GOOD && count_rules(user) > ACL_MAX_RULES)
            fault = ACL_FAULT_MANY;
        *fault_out = rule;
        if (fault != ACL_GOOD)
            return fault;
    }
    return ACL_GOOD;
}

int acl_user_apply_words(struct acl_user *user, const struct slice *words, size_t n, bool all_channels,
                         struct buf *scratch, struct slice *fault_out)
{
    if (!is_closed(words, n, fault_out))
        return -1;
    enum acl_fault fault = apply_all(user, words, n, all_channels, scratch, fault_out);
    const unsigned all = ACL_ALL_KEYS | ACL_ALL_CHANNELS | ACL_ALL_COMMANDS;
    user->unrestricted = (user->selectors[0].flags & all) == all;
    user->bytes = bytes_of(user);
    user->npatterns = 0;
    for (size_t i = 0; i < user->nselectors; i++)
        user->npatterns += user->selectors[i].nkeys;
    return (int)fault;
}

static bool is_white(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

struct slice *acl_split(struct slice line, size_t *n_out)
{
    struct slice *words = malloc((line.len / 2 + 1) * sizeof(*words));
    *n_out = 0;
    for (size_t i = 0; words && i < line.len;) {
        size_t from = i;
        while (i < line.len && !is_white(line.ptr[i]))
            i++;
        if (i > from)
            words[(*n_out)++] = (struct slice){line.ptr + from, i - from};
        while (i < line.len && is_white(line.ptr[i]))
            i++;
    }
    return words;
}

struct acl_user *acl_user_copy(const struct acl_user *user)
{
    struct acl_user *copy = new_user(slice_of(user->name), user->id, false);
    struct buf text, scratch;
    struct slice fault;
    size_t n;
    buf_init(&text, SIZE_MAX);
    buf_init(&scratch, SIZE_MAX);
    acl_user_describe(user, ACL_STORED, &text);
    struct slice *words = acl_split((struct slice){buf_head(&text), buf_len(&text)}, &n);
    if (copy &&
        (!words || buf_failed(&text) || acl_user_apply_words(copy, words, n, false, &scratch, &fault) != ACL_GOOD)) {
        destroy(copy);
        copy = NULL;
    }
    free(words);
    buf_deinit(&scratch);
    buf_deinit(&text);
    return copy;
}

const char *acl_fault_text(enum acl_fault fault)
{
    static const char *const texts[] = {
        [ACL_FAULT_UNKNOWN] = "Unknown command or category name in ACL",
        [ACL_FAULT_SYNTAX] = "Syntax error",
        [ACL_FAULT_ALL_KEYS] =
            ("Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any "
             "effect. Try 'resetkeys' to start with an empty list of patterns"),
        [ACL_FAULT_ALL_CHANNELS] =
            ("Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any "
             "effect. Try 'resetchannels' to start with an empty list of channels"),
        [ACL_FAULT_NO_PASSWORD] = "The password you are trying to remove from the user does not exist",
        [ACL_FAULT_HASH] =
            "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters",
        [ACL_FAULT_FIRST_ARG] = "Allowing first-arg of a subcommand is not supported",
        [ACL_FAULT_LONG] = "A pattern has at most 4096 bytes",
        [ACL_FAULT_MANY] =
            "A user has at most 1000 rules: passwords, patterns, commands, categories and selectors together",
        [ACL_FAULT_PASSWORDS] = "A user has at most 64 passwords",
        [ACL_FAULT_MEMORY] = "out of memory",
    };
    return fault > ACL_GOOD && (size_t)fault < sizeof(texts) / sizeof(texts[0]) ? texts[fault] : "Wrong format";
}
