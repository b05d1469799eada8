/* Files, arguments, printouts, and lack of memory at any step. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc_countdown.h"
#include "config_file.h"
#include "tmpdir.h"

static struct config cfg;
static struct errbuf err;
static char dir[TMPDIR_SIZE];

static void set_up(void)
{
    cr_assert_eq(config_init(&cfg), 0);
    memset(&err, 0, sizeof(err));
    tmpdir_create(dir);
}

static void tear_down(void)
{
    config_deinit(&cfg);
    tmpdir_remove(dir);
}

TestSuite(config_file, .init = set_up, .fini = tear_down);
TestSuite(config_args, .init = set_up, .fini = tear_down);
TestSuite(config_print, .init = set_up, .fini = tear_down);

static int load(const char *content)
{
    return config_load_text(&cfg, "test.conf", slice_of(content), &err);
}

static void refuses(const char *content, const char *expected)
{
    cr_assert_eq(load(content), CONFIG_REFUSED, "accepted: %s", content);
    cr_assert_str_eq(err.text, expected);
}

/* The path of a file in the test's directory; valid until the fourth call after it. */
static const char *path_of(const char *name)
{
    static char paths[4][TMPDIR_SIZE + 128];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof(paths[0]), "%s/%s", dir, name);
    return path;
}

static const char *write_file(const char *name, const char *content)
{
    const char *path = path_of(name);

    file_write_text(path, content);
    return path;
}

/* ---- the form ---- */

/* Comments, empty lines, spaces, tabs and either line end; the last value wins. */
Test(config_file, lines_have_redis_form)
{
    cr_assert_eq(load("# comment\n"
                      "\n"
                      "   \t \r\n"
                      "port 7000\r\n"
                      "\tTHREADS\t 4  \n"
                      "   # indented comment\n"
                      "bind 10.0.0.1    ::1\n"
                      "port 7001"),
                 CONFIG_OK, "%s", err.text);
    cr_assert_eq(cfg.network.port, 7001);
    cr_assert_eq(cfg.process.threads, 4);
    cr_assert_eq(cfg.network.bind.count, 2);
    cr_assert_eq(load(""), CONFIG_OK);
}

/* Both kinds of quotes, with their escapes. */
Test(config_file, quotes_are_redis_quotes)
{
    static const struct {
        const char *line, *value;
    } cases[] = {
        {"requirepass \"a b\"", "a b"},
        {"requirepass 'a b'", "a b"},
        {"requirepass \"\"", ""},
        {"requirepass ''", ""},
        {"requirepass \"\\x41\\x7e\\n\\r\\t\\b\\a\\\\\\\"\"", "A~\n\r\t\b\a\\\""},
        {"requirepass \"\\xZZ\\q\"", "xZZq"},
        {"requirepass \"\\x4\"", "x4"},
        {"requirepass 'it\\'s \\n \"so\"'", "it's \\n \"so\""},
        {"requirepass a#b", "a#b"},
        {"requirepass #", "#"},
        {"requirepass pre\"fix ed\"", "prefix ed"},
        {"\"requirepass\" x", "x"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cr_assert_eq(load(cases[i].line), CONFIG_OK, "%s: %s", cases[i].line, err.text);
        cr_assert_str_eq(cfg.network.requirepass.ptr, cases[i].value, "%s", cases[i].line);
    }
    refuses("requirepass \"x", "test.conf:1: unbalanced quotes");
    refuses("requirepass 'x", "test.conf:1: unbalanced quotes");
    refuses("requirepass \"x\"y", "test.conf:1: unbalanced quotes");
    refuses("requirepass 'x\\'", "test.conf:1: unbalanced quotes");
    refuses("requirepass \"x\\", "test.conf:1: unbalanced quotes");
    refuses("requirepass \"x\\\"", "test.conf:1: unbalanced quotes");
    refuses("dir \"a\\x00b\"", "test.conf:1: 'dir': argument must not contain a NUL byte");
    refuses("tls-key-file-pass \"a\\x00b\"", "test.conf:1: 'tls-key-file-pass': argument must not contain a NUL byte");
    cr_assert_eq(load("requirepass \"a\\x00b\""), CONFIG_OK, "%s", err.text);
    cr_assert(cfg.network.requirepass.len == 3 && memcmp(cfg.network.requirepass.ptr, "a\0b", 4) == 0);
}

/* A refusal names file, line and reason. */
Test(config_file, refusals_name_the_line)
{
    refuses("port 1\n\n# x\nthreads x\n",
            "test.conf:4: 'threads': argument couldn't be parsed into an integer (given: 'x')");
    refuses("port 1\nporrt 1\n", "test.conf:2: unknown setting 'porrt'");
    refuses("daemonize no\nport 1\n#x 1\n\nlist-compress-depth 0\r\n\"x\"y\ninclude a\nHZ 10\n",
            "test.conf:1: unknown setting 'daemonize'; likewise 'list-compress-depth', 'HZ'");
    refuses("port\n", "test.conf:1: 'port' needs a value");
    refuses("port 1 2\n", "test.conf:1: 'port' takes one value; put a value with spaces in quotes");
    refuses("save 60\n", "test.conf:1: 'save': Invalid save parameters (given: '60')");
    refuses("databases 0\n", "test.conf:1: 'databases': argument must be between 1 and 1024 inclusive (given: '0')");
    refuses("\x01\xff\n", "test.conf:1: unknown setting ''");
    refuses("requirepass=secret\n", "test.conf:1: unknown setting 'requirepass'");
    refuses("RequirePass\"secret\"\n", "test.conf:1: unknown setting 'RequirePass'");
    refuses("porrt 1\ntls-key-file-pass:secret\n",
            "test.conf:1: unknown setting 'porrt'; likewise 'tls-key-file-pass'");
    cr_assert_eq(config_load_text(&cfg, "test.conf", (struct slice){"port 1\0002\n", 9}, &err), CONFIG_REFUSED);
}

/* A comment after a value is part of the value, as in redis.conf; the refusal says so. */
Test(config_file, a_comment_behind_a_value_is_explained)
{
    refuses("port 1 # the port\n", "test.conf:1: 'port' takes one value; put a value with spaces in quotes; a comment "
                                   "needs its own line, not the end of a value's line");
    refuses("save 900 1 # often\n", "test.conf:1: 'save': Invalid save parameters (given: '900 1 # often'); a comment "
                                    "needs its own line, not the end of a value's line");
}

/* The first `save` of a file replaces the rules, further ones add to them, an empty one clears. */
Test(config_file, save_lines_add_up)
{
    cr_assert_eq(load("save 900 1\nsave 300 10 60 100\n"), CONFIG_OK, "%s", err.text);
    cr_assert_eq(cfg.data.save.count, 3);
    cr_assert_eq(cfg.data.save.items[0].seconds, 900);
    cr_assert_eq(cfg.data.save.items[2].changes, 100);
    cr_assert_eq(load("save 900 1\nsave \"\"\nsave 5 5\n"), CONFIG_OK);
    cr_assert_eq(cfg.data.save.count, 1);
    cr_assert_eq(cfg.data.save.items[0].seconds, 5);
    cr_assert_eq(load("save \"\"\n"), CONFIG_OK);
    cr_assert_eq(cfg.data.save.count, 0);
}

/* ---- files ---- */

/* An unreadable file: the errno, and its name in the text. */
Test(config_file, unreadable_files_are_named)
{
    char expected[256];

    cr_assert_eq(config_load_file(&cfg, path_of("missing.conf"), &err), -ENOENT);
    snprintf(expected, sizeof(expected), "%s/missing.conf: No such file or directory", dir);
    cr_assert_str_eq(err.text, expected);
    cr_assert_eq(config_load_file(&cfg, dir, &err), -EISDIR);
    snprintf(expected, sizeof(expected), "%s: Is a directory", dir);
    cr_assert_str_eq(err.text, expected);
}

/* A file of this size is no configuration. */
Test(config_file, huge_files_are_refused)
{
    const char *path = write_file("huge.conf", "");

    cr_assert_eq(truncate(path, 5 * 1024 * 1024), 0);
    cr_assert_eq(config_load_file(&cfg, path, &err), -EFBIG, "%s", err.text);
    cr_assert_not_null(strstr(err.text, "huge.conf: longer than 4194304 bytes"), "%s", err.text);
}

/* `include` reads in place, relative to the including file; a mistake is named by the file it is in. */
Test(config_file, includes_are_read_in_place)
{
    char expected[512], line[256];
    const char *main_path;

    cr_assert_eq(mkdir(path_of("sub"), 0700), 0);
    write_file("sub/a.conf", "threads 3\ninclude b.conf\nsave 7 7\n");
    write_file("sub/b.conf", "port 7002\n");
    main_path = write_file("main.conf", "port 7000\nsave 1 1\ninclude sub/a.conf\nmaxclients 5\n");
    cr_assert_eq(config_load_file(&cfg, main_path, &err), CONFIG_OK, "%s", err.text);
    cr_assert_eq(cfg.network.port, 7002);
    cr_assert_eq(cfg.process.threads, 3);
    cr_assert_eq(cfg.network.maxclients, 5);
    cr_assert_eq(cfg.data.save.count, 2, "save lines of included files add up");

    write_file("sub/b.conf", "\nport x\n");
    cr_assert_eq(config_load_file(&cfg, main_path, &err), CONFIG_REFUSED);
    snprintf(expected, sizeof(expected),
             "%s/sub/b.conf:2: 'port': argument couldn't be parsed into an integer (given: 'x')", dir);
    cr_assert_str_eq(err.text, expected);

    write_file("sub/b.conf", "include gone.conf\n");
    cr_assert_eq(config_load_file(&cfg, main_path, &err), -ENOENT);
    cr_assert_not_null(strstr(err.text, "sub/b.conf:1: "), "%s", err.text);
    cr_assert_not_null(strstr(err.text, "gone.conf: No such file or directory"), "%s", err.text);

    snprintf(line, sizeof(line), "include \"%s\"\n", path_of("sub/a.conf"));
    write_file("sub/b.conf", "port 7003\n");
    cr_assert_eq(config_load_file(&cfg, write_file("abs.conf", line), &err), CONFIG_OK, "an absolute path: %s",
                 err.text);
    cr_assert_eq(cfg.network.port, 7003);
    refuses("include\n", "test.conf:1: 'include' takes one path");
    refuses("include a b\n", "test.conf:1: 'include' takes one path");
    refuses("include \"a\\x00b\"\n", "test.conf:1: 'include': not a usable path");
}

/* The chain of includes has a limit, and all of it is usable. */
Test(config_file, sixteen_includes_deep_is_the_limit)
{
    for (int depth = 0; depth <= 17; depth++) {
        char name[32], line[64];

        snprintf(name, sizeof(name), "%d.conf", depth);
        if (depth < 17)
            snprintf(line, sizeof(line), "include %d.conf\n", depth + 1);
        else
            snprintf(line, sizeof(line), "port 7017\n");
        write_file(name, line);
    }
    cr_assert_eq(config_load_file(&cfg, path_of("1.conf"), &err), CONFIG_OK, "%s", err.text);
    cr_assert_eq(cfg.network.port, 7017);
    cr_assert_eq(config_load_file(&cfg, path_of("0.conf"), &err), CONFIG_REFUSED);
    cr_assert_not_null(strstr(err.text, "more than 16 files deep"), "%s", err.text);
}

/* "-" is the standard input. */
Test(config_file, a_dash_is_the_standard_input)
{
    cr_assert_not_null(freopen(write_file("in.conf", "port 7005\nthreads x\n"), "r", stdin));
    cr_assert_eq(config_load_file(&cfg, "-", &err), CONFIG_REFUSED);
    cr_assert_eq(cfg.network.port, 7005);
    cr_assert_str_eq(err.text, "standard input:2: 'threads': argument couldn't be parsed into an integer (given: 'x')");
}

/* ---- arguments ---- */

static struct config_start start;

#define ARGS(...) args((const char *const[]){"bloomeryd", __VA_ARGS__, NULL})

static int args(const char *const *words)
{
    char *argv[32] = {NULL};
    int argc = 0;

    for (; words[argc] != NULL; argc++)
        memcpy(&argv[argc], &words[argc], sizeof(char *));
    return config_load_args(&cfg, argc, argv, &start, &err);
}

/* The file first, then the arguments over it. */
Test(config_args, arguments_win_over_the_file)
{
    const char *path = write_file("a.conf", "port 7000\nthreads 2\nsave 1 1\n");

    cr_assert_eq(ARGS(path, "--threads", "4", "--bind", "127.0.0.1", "-::1", "--save", "5", "6", "--save", "7 8"),
                 CONFIG_OK, "%s", err.text);
    cr_assert_eq(start.action, CONFIG_RUN);
    cr_assert_eq(start.file, path);
    cr_assert_eq(cfg.network.port, 7000);
    cr_assert_eq(cfg.process.threads, 4);
    cr_assert_eq(cfg.network.bind.count, 2);
    cr_assert_eq(cfg.data.save.count, 2, "arguments replace the file's rules and add up among themselves");
    cr_assert_eq(cfg.data.save.items[0].seconds, 5);
    cr_assert_eq(ARGS("--save", ""), CONFIG_OK, "%s", err.text);
    cr_assert_eq(cfg.data.save.count, 0);
    cr_assert_null(start.file);
}

/* --name=value, also for values that look like options. */
Test(config_args, an_equals_sign_takes_any_value)
{
    cr_assert_eq(ARGS("--port=7001", "--requirepass=--secret=1", "--logfile="), CONFIG_OK, "%s", err.text);
    cr_assert_eq(cfg.network.port, 7001);
    cr_assert_str_eq(cfg.network.requirepass.ptr, "--secret=1");
    cr_assert_str_eq(cfg.process.logfile, "");
}

/* No arguments: a start with the defaults. */
Test(config_args, no_arguments_are_fine)
{
    cr_assert_eq(args((const char *const[]){"bloomeryd", NULL}), CONFIG_OK);
    cr_assert_eq(start.action, CONFIG_RUN);
    cr_assert_null(start.file);
}

/* The actions, in either spelling. */
Test(config_args, actions_are_recognised)
{
    cr_assert_eq(ARGS("--help"), CONFIG_OK);
    cr_assert_eq(start.action, CONFIG_SHOW_HELP);
    cr_assert_eq(ARGS("-h"), CONFIG_OK);
    cr_assert_eq(start.action, CONFIG_SHOW_HELP);
    cr_assert_eq(ARGS("--version"), CONFIG_OK);
    cr_assert_eq(start.action, CONFIG_SHOW_VERSION);
    cr_assert_eq(ARGS("-v"), CONFIG_OK);
    cr_assert_eq(start.action, CONFIG_SHOW_VERSION);
    cr_assert_eq(ARGS("--threads", "2", "--print-config"), CONFIG_OK);
    cr_assert_eq(start.action, CONFIG_SHOW_CONFIG);
    cr_assert_eq(cfg.process.threads, 2);
}

/* A setting of an earlier version is named, and does not stop the start. */
Test(config_file, settings_of_earlier_versions_have_no_effect)
{
    err.text[0] = '\0';
    cr_assert_eq(config_load_text(&cfg, "old.conf",
                                  slice_of("port 7\nLatency-Monitor-Threshold 5\ntimeout 20\ntls-cluster no\n"), &err),
                 CONFIG_OK, "%s", err.text);
    cr_assert_str_eq(err.text,
                     "old.conf:2: 'Latency-Monitor-Threshold' is no setting any more and has no effect (CHANGELOG.md: "
                     "what to use instead); likewise 'tls-cluster'");
    cr_assert_eq(cfg.network.port, 7);
    err.text[0] = '\0';
    cr_assert_eq(ARGS("--tls-cluster", "no", "--port", "9", "--server-cpulist=0"), CONFIG_OK, "%s", err.text);
    cr_assert_str_eq(
        err.text,
        "arguments: 'tls-cluster' is no setting any more and has no effect (CHANGELOG.md: what to use instead); "
        "likewise 'server-cpulist'");
    cr_assert_eq(cfg.network.port, 9);
}

/* A refusal names the argument. */
Test(config_args, refusals_name_the_argument)
{
    cr_assert_eq(ARGS("--port", "x"), CONFIG_REFUSED);
    cr_assert_str_eq(err.text, "argument --port: 'port': argument couldn't be parsed into an integer (given: 'x')");
    cr_assert_eq(ARGS("--prot", "1"), CONFIG_REFUSED);
    cr_assert_str_eq(err.text, "argument --prot: unknown setting 'prot'");
    cr_assert_eq(ARGS("--port"), CONFIG_REFUSED);
    cr_assert_str_eq(err.text, "argument --port: 'port' needs a value");
    cr_assert_eq(ARGS("--port", "--threads", "1"), CONFIG_REFUSED);
    cr_assert_eq(ARGS("--port", "1", "2"), CONFIG_REFUSED);
    cr_assert_eq(ARGS("-x"), CONFIG_REFUSED);
    cr_assert_str_eq(err.text,
                     "argument 1 is neither a setting (--name value) nor a configuration file as the first one");
    cr_assert_eq(ARGS("--port", "0"), CONFIG_REFUSED, "the whole is checked too");
    cr_assert_eq(ARGS("/nonexistent/a.conf"), -ENOENT);
}

/* ---- printouts ---- */

static char *printed(const struct config *what, size_t *len_out)
{
    struct buf out;
    char *copy;

    buf_init(&out, SIZE_MAX);
    config_print(what, &out);
    cr_assert(!buf_failed(&out));
    *len_out = buf_len(&out);
    copy = malloc(*len_out + 1);
    cr_assert_not_null(copy);
    memcpy(copy, buf_head(&out), *len_out);
    copy[*len_out] = '\0';
    buf_deinit(&out);
    return copy;
}

/* The shipped file equals the program's printout. */
Test(config_print, the_shipped_file_is_the_printout)
{
    size_t len;
    char *expected = printed(&cfg, &len);

    cr_assert_str_eq(file_text(BLOOMERY_CONF_FILE), expected, "conf/bloomery.conf differs from --print-config");
    free(expected);
}

/* A printed configuration is read back with the same values. */
Test(config_print, a_printout_reads_back_to_the_same)
{
    struct config copy;
    size_t len, copy_len;
    char *first, *second;

    cr_assert_eq(
        load("requirepass \"\\x01 a'b\\\"c\\\\ #\\xff\"\nsave \"\"\nbind *\nunixsocketperm 700\nmaxmemory 3gb\n"
             "bf-error-rate 1e-7\nreply-buffer-high-water 1025\nlogfile '#x'\ndir \"a b\"\nprotected-mode no\n"),
        CONFIG_OK, "%s", err.text);
    first = printed(&cfg, &len);
    cr_assert_not_null(strstr(first, "\nmaxmemory 3gb\n"));
    cr_assert_not_null(strstr(first, "\nreply-buffer-high-water 1025\n"));
    cr_assert_eq(config_init(&copy), 0);
    cr_assert_eq(config_load_text(&copy, "printed", (struct slice){first, len}, &err), CONFIG_OK, "%s", err.text);
    cr_assert_str_eq(copy.network.requirepass.ptr, "\x01 a'b\"c\\ #\xff");
    second = printed(&copy, &copy_len);
    cr_assert_str_eq(second, first);
    config_deinit(&copy);
    free(first);
    free(second);
}

/* --help lists every setting. */
Test(config_print, help_lists_every_setting)
{
    size_t n;
    const struct config_row *rows = config_table(&n);
    struct buf out;

    buf_init(&out, SIZE_MAX);
    config_help(&out);
    buf_append(&out, "", 1);
    for (size_t i = 0; i < n; i++) {
        char option[64];

        snprintf(option, sizeof(option), "\n  --%s ", rows[i].name);
        cr_assert_not_null(strstr(buf_head(&out), option), "%s", rows[i].name);
    }
    buf_deinit(&out);
}

/* ---- out of memory ---- */

/* Each allocation of a whole life fails in turn: -ENOMEM each time, nothing leaks, and a failed clone or change of a
 * setting leaves the configuration unchanged. */
Test(config_file, running_out_of_memory_changes_nothing)
{
    size_t n = 0;
    int status;
    bool failed;

    do {
        struct config fresh;

        alloc_countdown_start(n++);
        status = config_init(&fresh);
        failed = alloc_countdown_stop();
        cr_assert_eq(status, failed ? -ENOMEM : 0);
        if (status == 0)
            config_deinit(&fresh);
    } while (failed);
    cr_assert_gt(n, 8);

    n = 0;
    do {
        struct config copy;

        alloc_countdown_start(n++);
        status = config_clone(&cfg, &copy);
        failed = alloc_countdown_stop();
        cr_assert_eq(status, failed ? -ENOMEM : 0);
        if (status == 0)
            config_deinit(&copy);
    } while (failed);
    cr_assert_gt(n, 8);

    n = 0;
    do {
        struct config copy;

        cr_assert_eq(config_clone(&cfg, &copy), 0);
        alloc_countdown_start(n++);
        status = config_load_text(&copy, "t", slice_of("bind 1.2.3.4 ::1\nsave 1 2\nsave 3 4\ndir 'a b'\n"), &err);
        failed = alloc_countdown_stop();
        cr_assert_eq(status, failed ? -ENOMEM : CONFIG_OK, "allocation %zu: %s", n - 1, err.text);
        cr_assert(!failed || strstr(err.text, "out of memory") != NULL, "%s", err.text);
        /* the default's three, or those of the lines read: never a rule cut off or read twice */
        cr_assert(copy.data.save.count == 3 || copy.data.save.count == 1 || copy.data.save.count == 2);
        config_deinit(&copy);
    } while (failed);
    cr_assert_gt(n, 10);

    n = 0;
    do {
        alloc_countdown_start(n++);
        status = config_set(&cfg, slice_of("bind"), slice_of("10.0.0.1 10.0.0.2"), CONFIG_FILE, &err);
        failed = alloc_countdown_stop();
        cr_assert_eq(status, failed ? -ENOMEM : CONFIG_OK);
        cr_assert_str_eq(cfg.network.bind.items[0], failed ? "127.0.0.1" : "10.0.0.1");
    } while (failed);
}
