/* Users as text: the file `aclfile`, and the lines `user` of the settings. One reading finds all faults of a file; only
 * a file without faults gives users. */
#include "acl_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "config_file.h"
#include "alloc.h"

#define FILE_MAX ((size_t)256 << 20) /* a million users */

struct read_user {
    struct acl_user *user;
    unsigned line;
};

/* A reading: the users so far, in the order of the file. */
struct reading {
    char place[PATH_MAX + 16]; /* where it is: the file and its line, or the user of a setting */
    unsigned line;             /* 0: these are settings, whose lines are not counted */
    bool all_channels;
    struct read_user *users;
    size_t n, size;
    struct buf scratch, *errors;
    bool no_memory;
};

static bool all_channels(const struct config *config)
{
    return config->users.acl_pubsub_default == PUBSUB_DEFAULT_ALL;
}

/* An error repeats at most this much of a rule, and nothing of a password, with or without its sign. */
static int shown(struct slice rule)
{
    if (rule.len > 0 && !memchr("+-~%&(@", rule.ptr[0], 7))
        return memchr("><#!", rule.ptr[0], 4) != NULL;
    return slice_shown(rule);
}

/* Takes over the reference in any case. False without memory. */
static bool take_user(struct reading *in, struct acl_user *user)
{
    if (GROW(in->users, in->n, in->size) != 0) {
        acl_user_unref(user);
        return false;
    }
    in->users[in->n++] = (struct read_user){user, in->line};
    return true;
}

/* Adds the user that the words describe. */
static void add_user(struct reading *in, struct slice name, const struct slice *rules, size_t n)
{
    struct slice rule = {"", 0};
    struct acl_user *user = acl_user_create(name, in->all_channels);
    int status = ACL_FAULT_MEMORY;
    if (user && take_user(in, user))
        status = acl_user_apply_words(user, rules, n, in->all_channels, &in->scratch, &rule);
    in->no_memory |= status == ACL_FAULT_MEMORY;
    if (status < 0)
        buf_appendf(in->errors, "%s: Unmatched parenthesis in selector definition. ", in->place);
    else if (status != ACL_GOOD)
        buf_appendf(in->errors, "%s: Error in applying operation '%.*s': %s. ", in->place, shown(rule),
                    rule.len > 0 ? rule.ptr : "", acl_fault_text((enum acl_fault)status));
}

static void read_line(struct reading *in, struct slice line)
{
    size_t n;
    struct slice *words = acl_split(line, &n);
    if (!words) {
        in->no_memory = true;
        return;
    }
    if (n == 1 || (n > 1 && !slice_is(words[0], "user")))
        buf_appendf(in->errors, "%s should start with user keyword followed by the username. ", in->place);
    else if (n > 1 && !acl_name_is_good(words[1]))
        buf_appendf(in->errors, "%s: username contains invalid characters. ", in->place);
    else if (n > 1)
        add_user(in, words[1], words + 2, n - 2);
    free(words);
}

static int compare_users(const void *a, const void *b)
{
    const struct read_user *x = a, *y = b;
    int order = strcmp(x->user->name, y->user->name);
    return order ? order : (x->line > y->line) - (x->line < y->line);
}

/* Sorts the users, reports those that come twice, and adds the default user if he is missing. */
static void complete(struct reading *in, const struct config *config)
{
    bool has_default = false;
    for (size_t i = 0; i < in->n && !has_default; i++)
        has_default = strcmp(in->users[i].user->name, "default") == 0;
    if (!has_default) {
        struct acl_user *first = acl_first_default(config->network.requirepass);
        in->no_memory |= !first || !take_user(in, first);
    }
    if (in->n)
        qsort(in->users, in->n, sizeof(*in->users), compare_users);
    for (size_t i = 1; i < in->n; i++) {
        const char *name = in->users[i].user->name;
        if (strcmp(in->users[i - 1].user->name, name) != 0)
            continue;
        if (in->line == 0)
            buf_appendf(in->errors, "user '%.128s' appears twice: a user has one line. ", name);
        else
            buf_appendf(in->errors, "WARNING: Duplicate user '%.128s' found on line %u. ", name, in->users[i].line);
    }
}

/* Gives the users to the caller, or returns an error. */
static int end(struct reading *in, const struct config *config, struct acl_list *list_out)
{
    complete(in, config);
    buf_deinit(&in->scratch);
    bool good = !in->no_memory && buf_len(in->errors) == 0 && !buf_failed(in->errors);
    struct acl_user **users = good ? malloc(in->n * sizeof(*users)) : NULL;
    for (size_t i = 0; i < in->n; i++) {
        if (users)
            users[i] = in->users[i].user;
        else
            acl_user_unref(in->users[i].user);
    }
    free(in->users);
    if (users)
        *list_out = (struct acl_list){users, in->n};
    return users ? CONFIG_OK : good || in->no_memory ? -ENOMEM : CONFIG_REFUSED;
}

static void begin(struct reading *in, const struct config *config, struct buf *errors)
{
    *in = (struct reading){.all_channels = all_channels(config), .errors = errors};
    buf_init(&in->scratch, SIZE_MAX);
}

int acl_text_read(const char *name, struct slice text, const struct config *config, struct acl_list *list_out,
                  struct buf *errors)
{
    struct reading in;
    begin(&in, config, errors);
    while (text.len > 0 && !in.no_memory) {
        const char *newline = memchr(text.ptr, '\n', text.len);
        size_t len = newline ? (size_t)(newline - text.ptr) : text.len, taken = len + (newline != NULL);
        snprintf(in.place, sizeof(in.place), "%s:%u", name, ++in.line);
        read_line(&in, (struct slice){text.ptr, len});
        text = (struct slice){text.ptr + taken, text.len - taken};
    }
    int status = end(&in, config, list_out);
    if (status == -ENOMEM)
        buf_appendf(errors, "%s: out of memory. ", name);
    return status;
}

/* The path of the file. `path_out` has PATH_MAX bytes; a longer path is cut, and then does not exist. */
static const char *file_path(const struct config *config, char *path_out)
{
    if (config->users.aclfile[0] == '/')
        return config->users.aclfile;
    snprintf(path_out, PATH_MAX, "%s/%s", config->data.dir, config->users.aclfile);
    return path_out;
}

int acl_file_read(const struct config *config, struct acl_list *list_out, struct buf *errors)
{
    char space[PATH_MAX];
    const char *path = file_path(config, space);
    struct buf text;
    struct stat st;
    struct errbuf err = {""};
    buf_init(&text, FILE_MAX);
    int status = config_file_read(path, &text, &st, &err);
    if (status)
        buf_appendf(errors, "Error loading ACLs, %s. ", err.text);
    else
        status = acl_text_read(path, (struct slice){buf_head(&text), buf_len(&text)}, config, list_out, errors);
    buf_deinit(&text);
    return status;
}

/* One line `user` of the settings, in the form of a file of settings. */
static void read_setting(struct reading *in, struct slice text)
{
    struct config_line line;
    int status = config_line_split(text, &line, NULL);
    if (line.nwords > 0)
        snprintf(in->place, sizeof(in->place), "user '%.*s'", slice_shown(line.words[0]), line.words[0].ptr);
    if (status != CONFIG_OK) {
        in->no_memory |= status == -ENOMEM;
        buf_appendf(in->errors, "user: unbalanced quotes. ");
    } else if (line.nwords > 0 && !acl_name_is_good(line.words[0])) {
        buf_appendf(in->errors, "user: a name has no spaces and no NUL: quote words, not the line. "); /* passwords */
    } else if (line.nwords > 0) {
        add_user(in, line.words[0], line.words + 1, line.nwords - 1);
    }
    config_line_deinit(&line);
}

int acl_lines_read(const struct config *config, struct acl_list *list_out, struct errbuf *err)
{
    struct reading in;
    struct buf errors;
    buf_init(&errors, ERRBUF_SIZE * 2);
    begin(&in, config, &errors);
    for (const char *line = config->users.user; *line;) {
        size_t len = strcspn(line, "\n");
        read_setting(&in, (struct slice){line, len});
        line += len + (line[len] == '\n');
    }
    int status = end(&in, config, list_out);
    if (status == -ENOMEM)
        errbuf_set(err, "out of memory");
    else if (status)
        errbuf_set(err, "%.*s", (int)buf_len(&errors), buf_head(&errors));
    buf_deinit(&errors);
    return status;
}

/* ---- writing ---- */

/* Appends the user as a line of settings. */
static void print_user(const struct acl_user *user, struct buf *scratch, struct buf *out)
{
    size_t n;
    buf_truncate(scratch, 0);
    acl_user_describe(user, ACL_STORED, scratch);
    struct slice *words = acl_split((struct slice){buf_head(scratch), buf_len(scratch)}, &n);
    if (!words) {
        out->failed = true;
        return;
    }
    config_print_word(slice_of(user->name), out);
    for (size_t i = 0; i < n; i++) {
        buf_append(out, " ", 1);
        config_print_word(words[i], out);
    }
    free(words);
}

/* Whether the user equals the one that a start with these settings makes without a line for him. */
static bool is_first_default(const struct acl_user *user, const struct config *config)
{
    struct acl_user *first = strcmp(user->name, "default") == 0 ? acl_first_default(config->network.requirepass) : NULL;
    struct buf a, b;
    buf_init(&a, SIZE_MAX);
    buf_init(&b, SIZE_MAX);
    acl_user_describe(user, ACL_STORED, &a);
    if (first)
        acl_user_describe(first, ACL_STORED, &b);
    bool same = first && buf_len(&a) == buf_len(&b) && memcmp(buf_head(&a), buf_head(&b), buf_len(&a)) == 0;
    buf_deinit(&a);
    buf_deinit(&b);
    acl_user_unref(first);
    return same;
}

int acl_to_settings(struct acl *acl, struct config *config)
{
    struct acl_list list;
    struct buf scratch, lines;
    if (!acl_list(acl, &list))
        return -ENOMEM;
    buf_init(&scratch, SIZE_MAX);
    buf_init(&lines, SIZE_MAX);
    for (size_t i = 0; i < list.n; i++) {
        if (is_first_default(list.users[i], config))
            continue;
        if (buf_len(&lines) > 0)
            buf_append(&lines, "\n", 1);
        print_user(list.users[i], &scratch, &lines);
    }
    acl_list_free(&list);
    buf_append(&lines, "", 1); /* the NUL */
    char *user = buf_failed(&scratch) || buf_failed(&lines) ? NULL : strdup(buf_head(&lines));
    buf_deinit(&scratch);
    buf_deinit(&lines);
    if (!user)
        return -ENOMEM;
    free(config->users.user);
    config->users.user = user;
    return 0;
}

int acl_file_write(struct acl *acl, const struct config *config, struct errbuf *err)
{
    char space[PATH_MAX], real[PATH_MAX];
    const char *path = file_path(config, space);
    struct stat old;
    struct acl_list list;
    struct buf text;
    if (!realpath(path, real))
        return config_file_failed("cannot write", path, err);
    if (stat(real, &old) != 0)
        return config_file_failed("cannot write", real, err);
    if (!acl_list(acl, &list)) {
        errno = ENOMEM;
        return config_file_failed("cannot write", path, err);
    }
    buf_init(&text, SIZE_MAX);
    for (size_t i = 0; i < list.n; i++) {
        buf_appendf(&text, "user %s ", list.users[i]->name);
        acl_user_describe(list.users[i], ACL_STORED, &text);
        buf_append(&text, "\n", 1);
    }
    acl_list_free(&list);
    errno = ENOMEM;
    int status =
        buf_failed(&text) ? config_file_failed("cannot write", path, err) : config_file_replace(real, &text, &old, err);
    buf_deinit(&text);
    return status;
}
