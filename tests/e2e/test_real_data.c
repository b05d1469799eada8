/* Real input: the Homepage URLs of the package index that apt keeps, and Cassandra's own files. The daemon writes
 * equal files, and imports and queries those of real tables. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "client.h"
#include "daemon.h"
#include "program.h"

#define PORT (daemon_under_test.port)

DAEMON_SUITE(daemon_under_test, real_data, "--save-pack-limit", "0"); /* files are compared */

/* ---- lines ---- */

struct lines {
    char **items;
    size_t count;
};

static struct lines read_lines(FILE *file, const char *prefix)
{
    struct lines lines = {NULL, 0};
    char *line = NULL;
    size_t size = 0, prefix_len = strlen(prefix);
    ssize_t len;
    while ((len = getline(&line, &size, file)) >= 0) {
        if (len && line[len - 1] == '\n')
            line[--len] = '\0';
        if (strncmp(line, prefix, prefix_len) != 0)
            continue;
        if (lines.count % 1024 == 0)
            lines.items = realloc(lines.items, (lines.count + 1024) * sizeof(*lines.items));
        lines.items[lines.count++] = strdup(line + prefix_len);
    }
    free(line);
    return lines;
}

static void free_lines(struct lines *lines)
{
    for (size_t i = 0; i < lines->count; i++)
        free(lines->items[i]);
    free(lines->items);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static size_t count_distinct(const struct lines *lines)
{
    char **sorted = malloc((lines->count + 1) * sizeof(*sorted));
    size_t distinct = 0;
    memcpy(sorted, lines->items, lines->count * sizeof(*sorted));
    qsort(sorted, lines->count, sizeof(*sorted), by_text);
    for (size_t i = 0; i < lines->count; i++)
        distinct += i == 0 || strcmp(sorted[i - 1], sorted[i]) != 0;
    free(sorted);
    return distinct;
}

/* Sends `command filter item` for every line, pipelined, and returns the sum of the answers. */
static long long ask_all(redisContext *client, const char *command, const char *filter, const struct lines *lines)
{
    long long sum = 0;
    for (size_t start = 0; start < lines->count; start += 1000) {
        size_t end = start + 1000 < lines->count ? start + 1000 : lines->count;
        for (size_t i = start; i < end; i++)
            redisAppendCommand(client, "%s %s %s", command, filter, lines->items[i]);
        for (size_t i = start; i < end; i++) {
            redisReply *reply = NULL;
            cr_assert_eq(redisGetReply(client, (void **)&reply), REDIS_OK);
            cr_assert_eq(reply->type, REDIS_REPLY_INTEGER, "%s", reply->str);
            sum += reply->integer;
            freeReplyObject(reply);
        }
    }
    return sum;
}

/* ---- the URLs of apt's package index ---- */

#define URL_RATE 0.001

/* The number of "new" answers equals the number of distinct URLs within the configured rate (six standard
 * deviations), and no URL is absent afterwards, also after a restart. */
DAEMON_TEST(daemon_under_test, real_data, urls_of_the_package_index)
{
    FILE *apt = popen("apt-cache dumpavail 2>/dev/null", "r");
    cr_assert_not_null(apt);
    struct lines urls = read_lines(apt, "Homepage: ");
    pclose(apt);
    if (urls.count < 1000) {
        free_lines(&urls);
        cr_skip_test("apt has no package index here");
    }
    size_t distinct = count_distinct(&urls);
    redisContext *client = client_open(PORT);
    expect(client, "+OK", "BF.RESERVE urls %f 100000", URL_RATE);
    long long found_new = ask_all(client, "BF.ADD", "urls", &urls);
    double allowed = (double)distinct * URL_RATE + 6 * sqrt((double)distinct * URL_RATE);
    cr_expect_leq(found_new, (long long)distinct);
    cr_expect_geq(found_new, (long long)((double)distinct - allowed), "%lld new of %zu distinct", found_new, distinct);
    cr_expect_eq(client_number(client, "BF.CARD urls"), found_new);
    cr_expect_eq(ask_all(client, "BF.EXISTS", "urls", &urls), (long long)urls.count);
    expect(client, "+OK", "SAVE");
    client = client_after_kill(client, &daemon_under_test, NULL);
    cr_expect_eq(ask_all(client, "BF.EXISTS", "urls", &urls), (long long)urls.count,
                 "a URL is absent after the restart");
    cr_expect_eq(client_number(client, "BF.CARD urls"), found_new);
    redisFree(client);
    free_lines(&urls);
}

/* `bloomery fill` adds the same items: the printed numbers equal the daemon's. */
DAEMON_TEST(daemon_under_test, real_data, urls_through_fill)
{
    if (system("[ \"$(apt-cache dumpavail 2>/dev/null | grep -c ^Homepage)\" -gt 1000 ]"))
        cr_skip_test("apt has no package index here");
    char output[4096];
    unsigned long long sent = 0, acknowledged = 0, found_new = 0, lines = 0, distinct = 0;
    program_expect(output, sizeof(output), 0, "filter 'urls': ",
                   "cd '%s' && apt-cache dumpavail | sed -n 's/^Homepage: //p' >urls && '%s' fill "
                   "redis://127.0.0.1:%d urls --new --error %f --capacity 100000 --from urls && cat urls | wc -l && "
                   "sort -u urls | wc -l",
                   daemon_under_test.dir, BLOOMERY_TOOL_PATH, PORT, URL_RATE);
    cr_assert_eq(sscanf(strstr(output, "filter 'urls': "),
                        "filter 'urls': %llu items sent, %llu acknowledged, %llu new\n%llu\n%llu", &sent, &acknowledged,
                        &found_new, &lines, &distinct),
                 5, "%s", output);
    cr_expect_eq(sent, lines);
    cr_expect_eq(acknowledged, lines);
    double allowed = (double)distinct * URL_RATE + 6 * sqrt((double)distinct * URL_RATE);
    cr_expect_leq(found_new, distinct);
    cr_expect_geq((double)found_new, (double)distinct - allowed, "%s", output);
    redisContext *client = client_open(PORT);
    cr_expect_eq(client_number(client, "BF.CARD urls"), (long long)found_new);
}

/* The same through redis-cli --pipe, which checks that every command was answered. */
DAEMON_TEST(daemon_under_test, real_data, urls_through_redis_cli_pipe)
{
    if (system("command -v redis-cli >/dev/null && [ \"$(apt-cache dumpavail 2>/dev/null | grep -c ^Homepage)\" -gt "
               "1000 ]"))
        cr_skip_test("no redis-cli or no package index here");
    char command[512], line[256], last[256] = "";
    snprintf(
        command, sizeof(command),
        "apt-cache dumpavail | sed -n 's/^Homepage: /BF.ADD urls /p' | sed 's/$/\\r/' | redis-cli -p %d --pipe 2>&1",
        PORT);
    FILE *pipe = popen(command, "r");
    while (fgets(line, sizeof(line), pipe))
        strcpy(last, line);
    cr_expect_eq(pclose(pipe), 0);
    int errors = -1, replies = 0;
    cr_assert_eq(sscanf(last, "errors: %d, replies: %d", &errors, &replies), 2, "%s", last);
    cr_expect_eq(errors, 0);
    cr_expect_gt(replies, 1000);
}

/* ---- Cassandra's files ---- */

static size_t from_hex(const char *hex, unsigned char *bytes_out)
{
    size_t n = strlen(hex) / 2;
    for (size_t i = 0; i < n; i++)
        sscanf(hex + 2 * i, "%2hhx", &bytes_out[i]);
    return n;
}

static struct lines read_keys(const char *dir)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/keys.hex", dir);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    struct lines keys = read_lines(file, "");
    fclose(file);
    return keys;
}

static void ask_keys(redisContext *client, const char *command, const char *filter, const struct lines *keys,
                     bool all_one)
{
    static unsigned char bytes[1 << 17];
    for (size_t i = 0; i < keys->count; i++) {
        size_t len = from_hex(keys->items[i], bytes);
        redisReply *reply = redisCommand(client, "%s %s %b", command, filter, bytes, len);
        cr_assert_not_null(reply);
        cr_assert_eq(reply->type, REDIS_REPLY_INTEGER, "%s", reply->str);
        cr_assert(!all_one || reply->integer == 1, "key %s of %s is absent", keys->items[i], filter);
        freeReplyObject(reply);
    }
}

static double number_in(const char *json, const char *field)
{
    char pattern[64];
    snprintf(pattern, sizeof(pattern), "\"%s\":", field);
    const char *at = strstr(json, pattern);
    cr_assert_not_null(at, "no %s", field);
    return strtod(at + strlen(pattern), NULL);
}

static size_t read_file(const char *path, char *out, size_t size)
{
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s", path);
    size_t n = fread(out, 1, size - 1, file);
    out[n] = '\0';
    fclose(file);
    return n;
}

/* The daemon's file for the keys, capacity and rate of a golden file equals that file, byte for byte. */
static void compare_with_golden(redisContext *client, const char *name)
{
    char dir[512], path[1024], json[2048];
    snprintf(dir, sizeof(dir), "%s/built/%s", BLOOMERY_GOLDEN_DIR, name);
    snprintf(path, sizeof(path), "%s/meta.json", dir);
    read_file(path, json, sizeof(json));
    double n = number_in(json, "sizing_n"), p = number_in(json, "fp_chance"),
           keys_count = number_in(json, "distinct_keys");
    if (p < 6.71e-5 || p >= 0.393 || keys_count > n)
        return; /* the daemon sizes these differently (bloom_size.h), or calls the filter full */
    struct lines keys = read_keys(dir);
    redisReply *reply = redisCommand(client, "BF.RESERVE %s %.17g %.0f NONSCALING", name, p, n);
    cr_assert_str_eq(reply->str, "OK");
    freeReplyObject(reply);
    ask_keys(client, "BF.ADD", name, &keys, false);
    expect(client, "+OK", "SAVE");

    static char written[1 << 18], golden[1 << 18];
    size_t written_len = read_file(daemon_layer(&daemon_under_test, name, 0).path, written, sizeof(written));
    snprintf(path, sizeof(path), "%s/Filter.na.db", dir);
    size_t golden_len = read_file(path, golden, sizeof(golden));
    cr_expect(written_len == golden_len && memcmp(written, golden, golden_len) == 0, "%s: not Cassandra's file", name);
    free_lines(&keys);
}

CLIENT_TEST(daemon_under_test, real_data, saved_files_equal_cassandras)
{
    DIR *dir = opendir(BLOOMERY_GOLDEN_DIR "/built");
    cr_assert_not_null(dir);
    struct dirent *entry;
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.' && !strchr(entry->d_name, '%'))
            compare_with_golden(client, entry->d_name);
    closedir(dir);
    cr_expect_geq(client_number(client, "DBSIZE"), 10, "the golden files were not found");
}

/* A real file of each variant is imported by the tool, served, queried with its own keys, and written back unchanged
 * by a save. `file_name` is its name in its table, which tells the variant. */
static void import_real(const char *name, const char *file_name)
{
    char dir[512], path[1024], command[4096], original[4096], saved[4096];
    snprintf(dir, sizeof(dir), "%s/real/%s", BLOOMERY_SHARED_GOLDEN_DIR, name);
    snprintf(path, sizeof(path), "%s/%s", daemon_under_test.dir, file_name);
    snprintf(command, sizeof(command), "cp '%s/Filter.db' %s && '%s' import %s %s %s", dir, path, BLOOMERY_TOOL_PATH,
             daemon_under_test.data, name, path);
    daemon_stop(&daemon_under_test);
    cr_assert_eq(system(command), 0, "%s", command);
    redisContext *client = client_restart(&daemon_under_test);
    struct lines keys = read_keys(dir);
    ask_keys(client, "BF.EXISTS", name, &keys, true);
    expect(client, "[nil]", "BF.INFO %s EXPANSION", name);
    expect(client, "+OK", "RENAME %s saved", name);
    expect(client, "+OK", "SAVE");
    client_kill(client, &daemon_under_test);
    snprintf(path, sizeof(path), "%s/Filter.db", dir);
    size_t original_len = read_file(path, original, sizeof(original));
    size_t saved_len = read_file(daemon_layer(&daemon_under_test, "saved", 0).path, saved, sizeof(saved));
    cr_expect(original_len == saved_len && memcmp(original, saved, saved_len) == 0, "%s was not written back as it was",
              name);
    client = client_restart(&daemon_under_test);
    ask_keys(client, "BF.EXISTS", "saved", &keys, true);
    redisFree(client);
    free_lines(&keys);
}

static void skip_without_real_files(void)
{
    struct stat st;
    if (stat(BLOOMERY_SHARED_GOLDEN_DIR "/real", &st) != 0)
        cr_skip_test("no files of public projects here");
}

DAEMON_TEST(daemon_under_test, real_data, import_before_3_0)
{
    skip_without_real_files();
    import_real("scylla-la-composite", "la-1-big-Filter.db");
}

DAEMON_TEST(daemon_under_test, real_data, import_3_x)
{
    skip_without_real_files();
    import_real("scylla-me-invalid_checksums", "me-3ga6_0000-big-Filter.db");
}

DAEMON_TEST(daemon_under_test, real_data, import_4_0_and_later)
{
    skip_without_real_files();
    import_real("cassandra-oa-legacy_oa_clust", "oa-1-big-Filter.db");
}

/* Changes in the log that the files lack, adds or others, must be saved first: names and ids depend on them. */
DAEMON_TEST(daemon_under_test, real_data, import_is_refused_while_the_log_has_changes)
{
    static const char *const changes[] = {"BF.ADD f y", "BF.RESERVE x 0.01 100", "PEXPIREAT f 33177117420123"};
    const char *const args[] = {"--appendfsync", "always", NULL};
    char text[1024];
    daemon_stop(&daemon_under_test);
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        redisContext *client = client_start(&daemon_under_test, args);
        expect(client, "+OK", "FLUSHALL");
        expect(client, ":1", "BF.ADD f x");
        expect(client, "+OK", "SAVE");
        cr_assert_neq(client_ask(client, changes[i])[0], '-');
        client_kill(client, &daemon_under_test);
        cr_expect_eq(program_run(text, sizeof(text), "'%s' import %s x '%s/malformed/ok_4_words.db' --variant na",
                                 BLOOMERY_TOOL_PATH, daemon_under_test.data, BLOOMERY_GOLDEN_DIR),
                     1, "%s: %s", changes[i], text);
        cr_expect_not_null(strstr(text, "the log has changes that are not in the files yet"), "%s: %s", changes[i],
                           text);
    }
    redisContext *client = client_start(&daemon_under_test, args);
    expect(client, "+OK", "FLUSHALL");
    expect(client, "(Server closed the connection)", "SHUTDOWN SAVE");
    redisFree(client);
    daemon_wait(&daemon_under_test);
    /* A torn end of the log is no change, and is told. */
    cr_expect_eq(program_run(text, sizeof(text),
                             "for f in %s/log/*.log; do printf torn >>$f; done; "
                             "'%s' import %s x '%s/malformed/ok_4_words.db' --variant na",
                             daemon_under_test.data, BLOOMERY_TOOL_PATH, daemon_under_test.data, BLOOMERY_GOLDEN_DIR),
                 0, "%s", text);
    cr_expect_not_null(strstr(text, "is invalid and not known to be synced"), "%s", text);
}

/* While the daemon runs the tool refuses to run, with a reason. */
DAEMON_TEST(daemon_under_test, real_data, import_is_refused_while_the_daemon_runs)
{
    char text[512];
    cr_expect_eq(program_run(text, sizeof(text), "'%s' import %s x '%s/malformed/ok_4_words.db' --variant na",
                             BLOOMERY_TOOL_PATH, daemon_under_test.data, BLOOMERY_GOLDEN_DIR),
                 1);
    char pid[16];
    sprintf(pid, "%d", (int)daemon_under_test.pid);
    cr_expect_not_null(strstr(text, pid), "%s", text);
}
