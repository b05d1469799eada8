/* CONFIG REWRITE: the new text of a file; a failure of any operation leaves the file unchanged. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config_file.h"
#include "tmpdir.h"

/* ---- operations that fail on demand ---- */

static int fail_at = -1; /* the n-th operation from now on fails with fail_errno */
static int fail_errno;
static bool short_writes; /* each write takes one byte only */

int __real_open(const char *path, int flags, ...);
int __real_fstat(int fd, struct stat *st);
ssize_t __real_read(int fd, void *data, size_t len);
ssize_t __real_write(int fd, const void *data, size_t len);
int __real_fsync(int fd);
int __real_fchmod(int fd, mode_t mode);
int __real_rename(const char *from, const char *to);
int __wrap_open(const char *path, int flags, ...);
int __wrap_fstat(int fd, struct stat *st);
ssize_t __wrap_read(int fd, void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len);
int __wrap_fsync(int fd);
int __wrap_fchmod(int fd, mode_t mode);
int __wrap_rename(const char *from, const char *to);

static bool fails(void)
{
    if (fail_at < 0 || fail_at-- > 0)
        return false;
    errno = fail_errno;
    return true;
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    return fails() ? -1 : __real_open(path, flags, mode);
}

int __wrap_fstat(int fd, struct stat *st)
{
    return fails() ? -1 : __real_fstat(fd, st);
}

ssize_t __wrap_read(int fd, void *data, size_t len)
{
    return fails() ? -1 : __real_read(fd, data, len);
}

ssize_t __wrap_write(int fd, const void *data, size_t len)
{
    return fails() ? -1 : __real_write(fd, data, short_writes && len > 1 ? 1 : len);
}

int __wrap_fsync(int fd)
{
    return fails() ? -1 : __real_fsync(fd);
}

int __wrap_fchmod(int fd, mode_t mode)
{
    return fails() ? -1 : __real_fchmod(fd, mode);
}

int __wrap_rename(const char *from, const char *to)
{
    return fails() ? -1 : __real_rename(from, to);
}

/* ---- the text ---- */

static struct config cfg;
static struct errbuf err;

static void set(const char *name, const char *value)
{
    struct slice n = {name, strlen(name)}, v = {value, strlen(value)};
    cr_assert_eq(config_set(&cfg, n, v, CONFIG_FILE, &err), CONFIG_OK, "%s", err.text);
}

static void init(void)
{
    cr_assert_eq(config_init(&cfg), 0);
}

static void deinit(void)
{
    config_deinit(&cfg);
}

TestSuite(config_rewrite, .init = init, .fini = deinit);

static const char *rewritten(const char *before)
{
    static char text[65536];
    struct buf out;

    buf_init(&out, SIZE_MAX);
    int status = config_rewrite_text(&cfg, "test.conf", slice_of(before), &out, &err);
    cr_assert_eq(status, CONFIG_OK, "%s", err.text);
    snprintf(text, sizeof(text), "%.*s", (int)buf_len(&out), buf_len(&out) ? buf_head(&out) : "");
    buf_deinit(&out);
    return text;
}

/* Without changes every byte stays, with settings written in any form. */
Test(config_rewrite, what_is_right_stays_as_it_is)
{
    static const char text[] =
        "# comment\n\n  PORT   7000 \r\nmaxmemory 64mb\nsave 10 1\nsave \"20 2\"\nbind '127.0.0.1'\n# end";

    set("port", "7000");
    set("maxmemory", "67108864");
    set("save", "10 1 20 2");
    set("bind", "127.0.0.1");
    char expected[sizeof(text) + 1];
    snprintf(expected, sizeof(expected), "%s\n", text);
    cr_assert_str_eq(rewritten(text), expected, "only the missing line end is added");
    cr_assert_str_eq(rewritten(expected), expected);
}

/* A changed setting replaces the last line that set it; its earlier lines are removed. */
Test(config_rewrite, the_last_line_is_replaced_in_its_place)
{
    set("timeout", "7");
    cr_assert_str_eq(rewritten("# a\ntimeout 1\n# b\ntimeout 2\n# c\n"), "# a\n# b\ntimeout 7\n# c\n");
}

/* A setting in no line is added at the end under one heading, which is not repeated. */
Test(config_rewrite, new_settings_come_at_the_end)
{
    set("timeout", "7");
    cr_assert_str_eq(rewritten(""), "\n# Added by CONFIG REWRITE\ntimeout 7\n");
    set("maxclients", "77");
    cr_assert_str_eq(rewritten("\n# Added by CONFIG REWRITE\ntimeout 7\n"),
                     "\n# Added by CONFIG REWRITE\ntimeout 7\nmaxclients 77\n");
}

/* A setting with its default again is written if the file has another value. */
Test(config_rewrite, a_default_is_written_over_another_value)
{
    cr_assert_str_eq(rewritten("timeout 5\n"), "timeout 0\n");
}

/* The rules of `save` are one list over all lines. */
Test(config_rewrite, save_lines_become_one)
{
    set("save", "5 6 7 8");
    cr_assert_str_eq(rewritten("save 1 1\n#x\nsave 2 2\n"), "#x\nsave 5 6 7 8\n");
    set("save", "");
    cr_assert_str_eq(rewritten("save 1 1\n"), "save \"\"\n");
}

/* Values that need quotes are read back unchanged. */
Test(config_rewrite, odd_values_survive)
{
    set("requirepass", "a b\"\\#'\n\x01\xff");
    struct config again;
    const char *text = rewritten("requirepass old\n");
    cr_assert_eq(config_init(&again), 0);
    cr_assert_eq(config_load_text(&again, "x", slice_of(text), &err), CONFIG_OK);
    cr_assert_str_eq(again.network.requirepass.ptr, cfg.network.requirepass.ptr);
    config_deinit(&again);
}

/* Every setting with its default can be written and read back; so can a file with all of them. */
Test(config_rewrite, the_printed_file_is_right_as_it_is)
{
    struct buf out;
    buf_init(&out, SIZE_MAX);
    config_print(&cfg, &out);
    buf_append(&out, "", 1);
    char *text = strdup(buf_head(&out));
    cr_assert_str_eq(rewritten(text), text);
    free(text);
    buf_deinit(&out);
}

/* A file that has become invalid since the start is not overwritten. */
Test(config_rewrite, a_file_that_cannot_be_read_is_left_alone)
{
    struct buf out;
    static const char text[] = "port 1\nnosuch 2\n";

    buf_init(&out, SIZE_MAX);
    cr_assert_eq(config_rewrite_text(&cfg, "test.conf", slice_of(text), &out, &err), CONFIG_REFUSED);
    cr_assert_not_null(strstr(err.text, "test.conf:2"), "%s", err.text);
    buf_deinit(&out);
}

/* ---- the file ---- */

static char *read_text(const char *path)
{
    size_t len;
    unsigned char *bytes = file_read(path, &len);
    char *text = malloc(len + 1);

    memcpy(text, bytes, len);
    text[len] = '\0';
    free(bytes);
    return text;
}

static void expect_file(const char *path, const char *expected)
{
    char *text = read_text(path);

    cr_assert_str_eq(text, expected);
    free(text);
}

/* The mode is kept, and no other file is left. */
Test(config_rewrite, the_file_is_replaced)
{
    char dir[TMPDIR_SIZE];
    struct stat st;

    tmpdir_create(dir);
    struct tmp_path path = tmp_path(dir, "b.conf");
    file_write(path.text, "timeout 1\n", 10);
    cr_assert_eq(chmod(path.text, 0640), 0);
    set("timeout", "9");
    short_writes = true;
    cr_assert_eq(config_rewrite(&cfg, path.text, &err), CONFIG_OK, "%s", err.text);
    expect_file(path.text, "timeout 9\n");
    cr_assert_eq(stat(path.text, &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0640);
    cr_assert_eq(dir_count(dir), 1);
    tmpdir_remove(dir);
}

/* A symbolic link stays one; its target, in another directory, is replaced there. */
Test(config_rewrite, a_symbolic_link_stays)
{
    char dir[TMPDIR_SIZE];
    struct stat st;

    tmpdir_create(dir);
    struct tmp_path real_dir = tmp_path(dir, "real"), link_dir = tmp_path(dir, "link");
    struct tmp_path file = tmp_path(dir, "real/b.conf"), link = tmp_path(dir, "link/b.conf");
    cr_assert_eq(mkdir(real_dir.text, 0755), 0);
    cr_assert_eq(mkdir(link_dir.text, 0755), 0);
    file_write(file.text, "timeout 1\n", 10);
    cr_assert_eq(symlink("../real/b.conf", link.text), 0);
    set("timeout", "9");
    cr_assert_eq(config_rewrite(&cfg, link.text, &err), CONFIG_OK, "%s", err.text);
    cr_assert_eq(lstat(link.text, &st), 0);
    cr_assert(S_ISLNK(st.st_mode));
    expect_file(file.text, "timeout 9\n");
    cr_assert_eq(dir_count(real_dir.text), 1);
    cr_assert_eq(dir_count(link_dir.text), 1);
    tmpdir_remove(dir);
}

/* A later include must not win: settings are then written after it. Includes themselves are not changed. */
Test(config_rewrite, settings_go_behind_includes)
{
    char dir[TMPDIR_SIZE];

    tmpdir_create(dir);
    struct tmp_path main_file = tmp_path(dir, "b.conf"), included = tmp_path(dir, "more.conf");
    static const char text[] = "timeout 1\nmaxclients 5\ninclude more.conf\nport 7001\n";
    file_write(main_file.text, text, strlen(text));
    file_write(included.text, "maxclients 6\nsave 1 1\n", 22);
    set("timeout", "1");
    set("maxclients", "7");
    set("save", "2 2");
    set("port", "7002");
    cr_assert_eq(config_rewrite(&cfg, main_file.text, &err), CONFIG_OK, "%s", err.text);
    expect_file(main_file.text, "timeout 1\ninclude more.conf\nport 7002\n\n# Added by CONFIG REWRITE\nmaxclients 7\n"
                                "save \"\"\nsave 2 2\n");
    expect_file(included.text, "maxclients 6\nsave 1 1\n");
    tmpdir_remove(dir);
}

/* Each operation fails in turn: the error names operation and place, the file is the old one, nothing else is left.
 * The last operations sync the directory, with the new file in its place already. */
Test(config_rewrite, any_failure_leaves_the_file)
{
    static const int errors[] = {ENOSPC, EACCES, EIO};
    char dir[TMPDIR_SIZE];
    int failures = 0, in_place = 0;

    tmpdir_create(dir);
    struct tmp_path path = tmp_path(dir, "b.conf");
    set("timeout", "9");
    for (size_t e = 0; e < sizeof(errors) / sizeof(errors[0]); e++) {
        for (int n = 0;; n++) {
            file_write(path.text, "timeout 1\n", 10);
            err.text[0] = '\0';
            fail_errno = errors[e];
            fail_at = n;
            int status = config_rewrite(&cfg, path.text, &err);
            bool failed = fail_at < 0;
            fail_at = -1;
            if (!failed) {
                cr_assert_eq(status, CONFIG_OK, "%s", err.text);
                break;
            }
            failures++;
            cr_assert_eq(status, -errors[e], "operation %d", n);
            cr_assert_not_null(strstr(err.text, strerror(errors[e])), "operation %d: %s", n, err.text);
            cr_assert_not_null(strstr(err.text, dir), "operation %d: %s", n, err.text);
            cr_assert_eq(dir_count(dir), 1, "operation %d", n);
            char *text = read_text(path.text);
            bool new_text = strcmp(text, "timeout 9\n") == 0;
            cr_assert(new_text || strcmp(text, "timeout 1\n") == 0, "operation %d: %s", n, text);
            in_place += new_text;
            cr_assert(!new_text || n > 7, "operation %d: replaced too early", n);
            free(text);
        }
    }
    cr_assert_geq(failures, 30);
    cr_assert_leq(in_place, 6);
    tmpdir_remove(dir);
}

/* A missing file is not created. */
Test(config_rewrite, a_missing_file_is_an_error)
{
    char dir[TMPDIR_SIZE];

    tmpdir_create(dir);
    struct tmp_path path = tmp_path(dir, "b.conf");
    cr_assert_eq(config_rewrite(&cfg, path.text, &err), -ENOENT);
    cr_assert_eq(dir_count(dir), 0);
    tmpdir_remove(dir);
}
