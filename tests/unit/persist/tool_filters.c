/* `bloomery show`, `query`, `build`, `merge` and `plan`, the real program, on files made by Cassandra's own code. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "golden.h"
#include "program.h"
#include "tmpdir.h"

#define GOLDEN BLOOMERY_GOLDEN_DIR
#define BUILT  GOLDEN "/built"

TMPDIR_SUITE(dir, tool_filters);
static char output[16384]; /* of the last run, stdout and stderr */

#define TOOL "'" BLOOMERY_TOOL "' "

/* Asserts an exit code and a text in the output. */
#define ASSERT_RUN(code, text, ...) program_expect(output, sizeof(output), code, text, __VA_ARGS__)

static bool same_files(const char *a, const char *b)
{
    size_t a_len, b_len;
    unsigned char *a_bytes = golden_file(&a_len, "%s", a), *b_bytes = golden_file(&b_len, "%s", b);
    bool same = a_len == b_len && memcmp(a_bytes, b_bytes, a_len) == 0;

    free(a_bytes);
    free(b_bytes);
    return same;
}

/* The keys of a golden case, each after its length of four bytes, in the file keys.bin. */
static void write_prefixed(const char *name)
{
    size_t len;
    char *keys = (char *)golden_file(&len, BUILT "/%s/keys.hex", name);
    FILE *out = fopen(tmp_path(dir, "keys.bin").text, "wb");

    cr_assert_not_null(out);
    for (char *line = keys; line < keys + len;) {
        char *end = strchr(line, '\n');
        *end = '\0';
        size_t n = golden_unhex(line);
        const unsigned char prefix[4] = {(unsigned char)(n >> 24), (unsigned char)(n >> 16), (unsigned char)(n >> 8),
                                         (unsigned char)n};
        fwrite(prefix, 1, 4, out);
        fwrite(line, 1, n, out);
        line = end + 1;
    }
    cr_assert_eq(fclose(out), 0);
    free(keys);
}

static void build_golden(const char *name)
{
    static const char *const variants[] = {"na", "me", "ka"};
    size_t len;
    char *meta = (char *)golden_file(&len, BUILT "/%s/meta.json", name);
    double n = golden_json_number(meta, "sizing_n"), p = golden_json_number(meta, "fp_chance");

    write_prefixed(name);
    for (int i = 0; i < 3; i++) {
        char expected[1024];
        snprintf(expected, sizeof(expected), BUILT "/%s/Filter.%s.db", name, variants[i]);
        ASSERT_RUN(0, variants[i],
                   TOOL "build %s/%s.db %s/keys.bin --length-prefixed --sizing cassandra --error %.17g --capacity %.0f "
                        "--variant %s --force",
                   dir, variants[i], dir, p, n, variants[i]);
        cr_expect(same_files(tmp_path(dir, "%s.db", variants[i]).text, expected), "%s %s is not Cassandra's file", name,
                  variants[i]);
        /* As a pipe, and with the daemon's size, which mostly is Cassandra's. */
        ASSERT_RUN(0, "",
                   "cat %s/keys.bin | " TOOL "build %s/piped.db --length-prefixed --sizing cassandra --error %.17g "
                   "--capacity %.0f --variant %s --force",
                   dir, dir, p, n, variants[i]);
        cr_expect(same_files(tmp_path(dir, "piped.db").text, expected), "%s %s by a pipe", name, variants[i]);
    }
    free(meta);
}

Test(tool_filters, what_is_built_is_cassandras_file_byte_for_byte)
{
    DIR *cases = opendir(BUILT);
    struct dirent *entry;
    int n = 0;

    cr_assert_not_null(cases);
    while ((entry = readdir(cases))) {
        if (entry->d_name[0] == '.')
            continue;
        build_golden(entry->d_name);
        n++;
    }
    closedir(cases);
    cr_assert_geq(n, 16);
}

/* The size follows from the number of items: the same for a file, which is read twice, and for a pipe. */
Test(tool_filters, without_a_capacity_the_items_are_counted)
{
    ASSERT_RUN(0, "", "seq 1 5000 >%s/items; seq 1 5000 | sed 's/^/text:/' >%s/keys", dir, dir);
    ASSERT_RUN(0, "5000 items", TOOL "build %s/a.db %s/items --error 0.01", dir, dir);
    ASSERT_RUN(0, "\"capacity\":5000,", "cat %s/items | " TOOL "build %s/b.db --error 0.01 --json", dir, dir);
    ASSERT_RUN(0, "5000 items", TOOL "build %s/c.db --error 0.01 --capacity 5000 <%s/items", dir, dir);
    ASSERT_RUN(0, "5000 items", TOOL "build %s/d.db --keys --error 0.01 <%s/keys", dir, dir);
    ASSERT_RUN(0, "5000 items", "head -c -1 %s/items | " TOOL "build %s/e.db - --error 0.01", dir, dir);
    for (int i = 'b'; i <= 'e'; i++)
        cr_expect(same_files(tmp_path(dir, "a.db").text, tmp_path(dir, "%c.db", i).text), "%c", i);
    ASSERT_RUN(0, "", TOOL "query %s/a.db --variant na --absent --count <%s/items; [ $? -eq 1 ]", dir, dir);
}

Test(tool_filters, a_file_that_is_there_is_not_replaced_and_none_is_left_half)
{
    ASSERT_RUN(0, "", "echo x | " TOOL "build %s/a.db --error 0.01", dir);
    ASSERT_RUN(1, "--force replaces it", "echo y | " TOOL "build %s/a.db --error 0.01", dir);
    ASSERT_RUN(0, "x", "echo x | " TOOL "query %s/a.db --variant na", dir);
    ASSERT_RUN(0, "", "echo y | " TOOL "build %s/a.db --error 0.01 --force", dir);
    ASSERT_RUN(1, "", "echo x | " TOOL "query %s/a.db --variant na", dir);
    ASSERT_RUN(1, "ends within an item",
               "printf '\\0\\0\\0\\5abc' | " TOOL "build %s/b.db --error 0.01 --length-prefixed", dir);
    ASSERT_RUN(1, "line 2: 'x' is not an integer",
               "printf 'int:1\\nint:x\\n' | " TOOL "build %s/b.db --error 0.01 --keys", dir);
    ASSERT_RUN(1, "No such file", TOOL "build %s/none/b.db --error 0.01 </dev/null", dir);
    ASSERT_RUN(1, "none.db: cannot open: No such file or directory", TOOL "show %s/none.db", dir);
    ASSERT_RUN(1, ": cannot open: Is a directory", TOOL "show %s", dir);
    ASSERT_RUN(0, "a.db", "ls %s", dir);
    cr_assert_not(strstr(output, "b.db"), "%s", output);
    cr_assert_not(strstr(output, ".part"), "%s", output);
}

Test(tool_filters, the_umask_says_who_may_read_what_is_built)
{
    const struct {
        const char *umask;
        mode_t mode;
    } rows[] = {{"022", 0644}, {"027", 0640}, {"077", 0600}};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct stat st;
        ASSERT_RUN(0, "", "umask %s; echo x | " TOOL "build %s/a.db --error 0.01 --force", rows[i].umask, dir);
        cr_assert_eq(stat(tmp_path(dir, "a.db").text, &st), 0);
        cr_expect_eq(st.st_mode & 0777, rows[i].mode, "umask %s", rows[i].umask);
    }
}

/* FILE is checked before the input, which may take hours. */
Test(tool_filters, a_file_that_cannot_be_made_is_refused_before_the_input_is_read)
{
    ASSERT_RUN(0, "", "echo x | " TOOL "build %s/a.db --error 0.01", dir);
    ASSERT_RUN(1, "--force replaces it", "echo int:x | " TOOL "build %s/a.db --error 0.01 --keys", dir);
    ASSERT_RUN(1, "Is a directory", "echo int:x | " TOOL "build %s --error 0.01 --keys --force", dir);
}

Test(tool_filters, what_is_no_regular_file_is_named_as_such)
{
    ASSERT_RUN(0, "", "cd %s && mkfifo nb-1-big-Filter.db && ln -s /dev/zero nb-2-big-Filter.db", dir);
    ASSERT_RUN(0, "", "cd %s && python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"nb-3-big-Filter.db\")'",
               dir);
    for (int i = 1; i <= 3; i++) {
        ASSERT_RUN(1, "it is not a regular file\n", TOOL "show %s/nb-%d-big-Filter.db", dir, i);
        ASSERT_RUN(2, "it is not a regular file\n", TOOL "query %s/nb-%d-big-Filter.db x", dir, i);
        ASSERT_RUN(2, "it is not a regular file; it may hold the key\n", TOOL "find %s int:1", dir);
    }
}

Test(tool_filters, more_items_than_the_capacity_are_a_warning)
{
    ASSERT_RUN(0, "warning: 100 items are more than the capacity of 10",
               "seq 1 100 | " TOOL "build %s/a.db --capacity 10 --error 0.01", dir);
    ASSERT_RUN(0, "100\n", "seq 1 100 | " TOOL "query %s/a.db --variant na --count", dir);
}

Test(tool_filters, show_says_what_the_bits_say)
{
    ASSERT_RUN(0, "na, k 5, 100032 bits, 39.3 % set, rate 0.00936, about 9983 keys of 13867",
               TOOL "show --variant na '" BUILT "/n10000_p0.01_int/Filter.na.db'");
    ASSERT_RUN(0, "\"variant\":\"me\",\"k\":5,\"bits\":100032,\"bytes\":12512,\"bits_set\":39298",
               "cp '" BUILT "/n10000_p0.01_int/Filter.me.db' %s/mc-7-big-Filter.db && " TOOL
               "show --json %s/mc-7-big-Filter.db",
               dir, dir);
    ASSERT_RUN(0, "two",
               TOOL "show --json %s/mc-7-big-Filter.db %s/mc-7-big-Filter.db | python3 -c 'import json, sys; "
                    "print(\"two\" if len(json.load(sys.stdin)) == 2 else \"?\")'",
               dir, dir);
    ASSERT_RUN(1, "use --variant na|me|ka", TOOL "show '" BUILT "/n10000_p0.01_int/Filter.na.db'");
}

/* Each malformed file is refused with a reason, or accepted by Cassandra's own readers, too. */
Test(tool_filters, malformed_files_have_reasons)
{
    DIR *files = opendir(GOLDEN "/malformed");
    struct dirent *entry;
    int refused = 0;

    cr_assert_not_null(files);
    while ((entry = readdir(files))) {
        const char *end = strstr(entry->d_name, ".db");
        if (!end || end[3])
            continue;
        int status =
            program_run(output, sizeof(output), TOOL "show --variant na '" GOLDEN "/malformed/%s'", entry->d_name);
        cr_expect(status == 0 || status == 1, "%s: exit %d: %s", entry->d_name, status, output);
        cr_expect(status == 0 || strstr(output, entry->d_name), "%s: %s", entry->d_name, output);
        refused += status == 1;
        int asked =
            program_run(output, sizeof(output), TOOL "query --variant na '" GOLDEN "/malformed/%s' x", entry->d_name);
        cr_expect(status == 0 ? asked < 2 : asked == 2, "%s: exit %d: %s", entry->d_name, asked, output);
    }
    closedir(files);
    cr_assert_geq(refused, 8);
}

/* Queries of the file, byte by byte, have the answers of queries in memory, and Cassandra's. */
Test(tool_filters, query_answers_as_cassandra_does)
{
    static const char *const variants[] = {"na", "me", "ka"};
    struct golden_lines lines;

    for (int v = 0; v < 3; v++) {
        char expected_present[65536] = "", file[512];
        int n = 0;
        FILE *keys = fopen(tmp_path(dir, "probes").text, "w");
        snprintf(file, sizeof(file), BUILT "/n100_p0.01_mixed/Filter.%s.db", variants[v]);
        golden_lines_open(&lines, "%s", BUILT "/n100_p0.01_mixed/probes.tsv");
        while (golden_lines_next(&lines)) {
            if (lines.fields[0][0] == '\0')
                continue; /* no partition key */
            fprintf(keys, "blob:0x%s\n", lines.fields[0]);
            if (strcmp(lines.fields[1 + v], "1") == 0)
                sprintf(expected_present + strlen(expected_present), "blob:0x%s\n", lines.fields[0]);
            if (n++ % 16 == 0)
                ASSERT_RUN(strcmp(lines.fields[1 + v], "1") != 0, "", TOOL "query --keys --variant %s '%s' blob:0x%s",
                           variants[v], file, lines.fields[0]);
        }
        golden_lines_close(&lines);
        fclose(keys);
        cr_assert_geq(n, 500);
        program_run(output, sizeof(output), TOOL "query --keys --variant %s '%s' <%s/probes", variants[v], file, dir);
        cr_assert_str_eq(output, expected_present, "%s", variants[v]);
    }
}

Test(tool_filters, query_prints_lines_as_they_came)
{
    ASSERT_RUN(0, "", "printf 'a\\nb\\n\\n' | " TOOL "build %s/f.db --error 1e-6", dir);
    ASSERT_RUN(0, "", "printf '1\\ta\\tx\\n2\\tc\\ty\\n3\\tb' >%s/rows", dir);
    ASSERT_RUN(0, "1\ta\tx\n3\tb\n", TOOL "query %s/f.db --variant na --field 2 <%s/rows", dir, dir);
    ASSERT_RUN(0, "2\tc\ty\n", TOOL "query %s/f.db --variant na --field 2 --absent <%s/rows", dir, dir);
    ASSERT_RUN(2, "line 3 has no field 3", TOOL "query %s/f.db --variant na --field 3 <%s/rows", dir, dir);
    ASSERT_RUN(0, "1", "printf 'x,a\\n' | " TOOL "query %s/f.db --variant na --field 2 --separator , --count", dir);
    ASSERT_RUN(1, "", TOOL "query %s/f.db --variant na c d", dir);
    ASSERT_RUN(0, "a\n\n", TOOL "query %s/f.db --variant na a c ''", dir);
    ASSERT_RUN(0, "[{\"item\":\"a\",\"present\":true},\n{\"item\":{\"hex\":\"7122ff\"},\"present\":false}]\n",
               "printf 'a\\nq\"\\377\\n' | " TOOL "query %s/f.db --variant na --json", dir);
    ASSERT_RUN(0, "0000000161",
               "printf '\\0\\0\\0\\1a\\0\\0\\0\\1c' | " TOOL
               "query %s/f.db --variant na --length-prefixed | od -An -v -tx1 | tr -d ' \\n'",
               dir);
    ASSERT_RUN(2, "--field is for items from the standard input", TOOL "query %s/f.db --variant na --field 1 a", dir);
    ASSERT_RUN(2, "cannot open", TOOL "query %s/none --variant na a", dir);
}

/* The file says its layout itself. Small, of a size with a lead, read in pieces, from a pipe, and beyond its capacity.
 */
Test(tool_filters, files_in_blocks)
{
    static const struct {
        unsigned items;
        const char *options, *shown;
    } cases[] = {{90, "", "blocked, k 6, 1024 bits, 90 items"},
                 {400000, "", "blocked, k 6, 3975168 bits"},
                 {2000000, "", "blocked, k 6, 19874240 bits"},
                 {2000, "--capacity 500", "2000 items are more than the capacity of 500"}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        unsigned n = cases[i].items;
        ASSERT_RUN(0, cases[i].shown,
                   "seq %u >%s/in; " TOOL "build %s/f %s/in --error 0.01 --variant blocked %s --force", n, dir, dir,
                   dir, cases[i].options);
        ASSERT_RUN(0, "", "seq %u | " TOOL "build %s/g --error 0.01 --variant blocked --capacity 1 --force", n, dir);
        ASSERT_RUN(0, cases[i].options[0] ? "blocked" : cases[i].shown,
                   "seq %u | " TOOL "build %s/g --error 0.01 --variant blocked %s --force", n, dir, cases[i].options);
        cr_expect(same_files(tmp_path(dir, "f").text, tmp_path(dir, "g").text), "%u items", n);
        snprintf(output, sizeof(output), "%u\n", n);
        char all[16];
        strcpy(all, output);
        ASSERT_RUN(0, all, TOOL "query %s/f --count <%s/in", dir, dir);
        ASSERT_RUN(0, "1\n", TOOL "query %s/f 1 a b c d", dir);
        ASSERT_RUN(0, "blocked, k 6", TOOL "show %s/f", dir);
        cr_expect(cases[i].options[0] || strstr(output, "rate 0.00") || strstr(output, "rate 0.01"), "%s", output);
        ASSERT_RUN(0, "", TOOL "merge %s/u %s/f %s/g --force", dir, dir, dir);
        ASSERT_RUN(0, "", TOOL "query %s/u --count <%s/in", dir, dir);
    }
    ASSERT_RUN(2, "--sizing cassandra is not for",
               TOOL "build %s/h %s/in --error 0.01 --variant blocked --sizing cassandra", dir, dir);
    ASSERT_RUN(1, "from 1e-15 on", TOOL "build %s/h %s/in --error 1e-16 --variant blocked", dir, dir);
    ASSERT_RUN(1, "cut: ", "head -c 600 %s/f >%s/cut; " TOOL "show %s/cut", dir, dir, dir);
}

/* A file in blocks says its layout; another one given is a mistake. */
Test(tool_filters, a_given_layout_must_be_that_of_the_file)
{
    ASSERT_RUN(0, "", "seq 99 >%s/in; " TOOL "build %s/b %s/in --error 0.01 --variant blocked", dir, dir, dir);
    ASSERT_RUN(0, "", TOOL "build %s/n %s/in --error 0.01 --variant na", dir, dir);
    for (int blocked = 0; blocked < 2; blocked++) {
        const char *right = blocked ? "blocked" : "na", *wrong = blocked ? "na" : "blocked";
        const struct tmp_path path = tmp_path(dir, blocked ? "b" : "n");
        const char *file = path.text;
        const char *text =
            blocked ? "its layout is blocked, and not na" : "its layout is na, me or ka, and not blocked";
        ASSERT_RUN(0, right, TOOL "show %s --variant %s", file, right);
        ASSERT_RUN(0, "1", TOOL "query %s 1 --variant %s", file, right);
        ASSERT_RUN(0, "", TOOL "merge %s/u %s %s --variant %s --force", dir, file, file, right);
        ASSERT_RUN(0, right, TOOL "import %s/data %s %s --variant %s", dir, right, file, right);
        ASSERT_RUN(1, text, TOOL "show %s --variant %s", file, wrong);
        ASSERT_RUN(2, text, TOOL "query %s 1 --variant %s", file, wrong);
        ASSERT_RUN(1, text, TOOL "merge %s/w %s %s --variant %s", dir, file, file, wrong);
        ASSERT_RUN(1, text, TOOL "import %s/data wrong %s --variant %s", dir, file, wrong);
    }
    ASSERT_RUN(2, "--variant 'redisbloom' is not na, me, ka or blocked", TOOL "show %s/n --variant redisbloom", dir);
}

/* Different bytes give different JSON, also for a parser: bytes that are no UTF-8 are not put into a string. */
Test(tool_filters, json_tells_all_bytes_apart)
{
    ASSERT_RUN(0, "", "printf 'a\n' | " TOOL "build %s/f.db --error 1e-6", dir);
    ASSERT_RUN(0, "{'hex': 'e9'}|\xc3\xa9|{'hex': 'c3'}|{'hex': 'eda080'}|\\u00e9|{'hex': 'e9c3a9'}\n",
               "printf '\\351\\n\\303\\251\\n\\303\\n\\355\\240\\200\\n\\\\u00e9\\n\\351\\303\\251\\n' | " TOOL
               "query %s/f.db --variant na --json | PYTHONIOENCODING=utf-8 python3 -c "
               "'import json, sys; print(\"|\".join(str(o[\"item\"]) for o in json.load(sys.stdin)))'",
               dir);
}

Test(tool_filters, a_union_has_the_items_of_each)
{
    ASSERT_RUN(0, "", "seq 1 1000 | " TOOL "build %s/a.db --error 0.001 --capacity 2000", dir);
    ASSERT_RUN(0, "", "seq 1001 2000 | " TOOL "build %s/me-1-big-Filter.db --error 0.001 --capacity 2000", dir);
    ASSERT_RUN(0, "",
               "cp %s/a.db %s/na-1-big-Filter.db; seq 1 2000 | " TOOL "build %s/both.db --error 0.001 --capacity 2000",
               dir, dir, dir);
    ASSERT_RUN(0, "", TOOL "merge %s/union.db %s/na-1-big-Filter.db %s/me-1-big-Filter.db", dir, dir, dir);
    cr_assert(same_files(tmp_path(dir, "union.db").text, tmp_path(dir, "both.db").text));
    ASSERT_RUN(1, "the file exists; --force", TOOL "merge %s/union.db %s/na-1-big-Filter.db", dir, dir);

    ASSERT_RUN(0, "", "seq 1 9 | " TOOL "build %s/oa-2-big-Filter.db --error 0.001", dir);
    ASSERT_RUN(1, "equal geometry", TOOL "merge %s/x.db %s/na-1-big-Filter.db %s/oa-2-big-Filter.db", dir, dir, dir);
    ASSERT_RUN(0, "", "seq 1 9 | " TOOL "build %s/la-1-big-Filter.db --error 0.001 --capacity 2000", dir);
    ASSERT_RUN(1, "layout ka", TOOL "merge %s/x.db %s/na-1-big-Filter.db %s/la-1-big-Filter.db", dir, dir, dir);
    ASSERT_RUN(2, "FILE is missing", TOOL "merge %s/x.db", dir);
    ASSERT_RUN(1, "cut.db: ", "head -c 100 %s/a.db >%s/cut.db; " TOOL "merge %s/x.db --variant na %s/a.db %s/cut.db",
               dir, dir, dir, dir, dir);
    cr_assert_not(file_exists(tmp_path(dir, "x.db").text));
}

/* On a terminal a line shows the progress; in a pipe there is none. The first part is more than a pipe holds: when it
 * is sent, the tool has begun. */
Test(tool_filters, progress_is_shown_on_a_terminal_only)
{
    if (system("command -v script >/dev/null") != 0)
        cr_skip_test("there is no script(1) to make a terminal");
    ASSERT_RUN(0, "reading ",
               "script -qec \"(seq 30000; sleep 0.3; seq 1000) | " TOOL
               "build %s/a.db --error 0.01\" /dev/null </dev/null",
               dir);
    ASSERT_RUN(0, "31000 items", "(seq 30000; sleep 0.3; seq 1000) | " TOOL "build %s/b.db --error 0.01", dir);
    cr_assert_not(strstr(output, "reading"), "%s", output);
}

/* The JSON of each command can be parsed, and has the fields named in its help. */
Test(tool_filters, json_of_each_command)
{
    static const char parse[] = "python3 -c 'import json, sys; o = json.load(sys.stdin); "
                                "print(\"|\".join(sorted((o[0] if isinstance(o, list) else o).keys())))'";
    static const struct {
        const char *command, *fields;
    } table[] = {
        {"build na-1-big-Filter.db --error 0.01 --json </dev/null", "bits|capacity|file|fill|items|k|rate|variant"},
        {"merge na-2-big-Filter.db na-1-big-Filter.db --json", "bits|file|k|merged|variant"},
        {"show na-1-big-Filter.db --json", "bits|bits_set|bytes|capacity|file|fill|k|keys|rate|variant"},
        {"query na-1-big-Filter.db x --json", "item|present"},
        {"import data f na-1-big-Filter.db --json", "bits|capacity|items|k|name|rate|variant"},
        {"list data --json", "bytes|db|expires_ms|files|id|items|layers|layout|name"},
        {"export data f out --json", "bits|file|items|k"},
        {"check data --json", "files|impossible|log|manifest|problems|whole"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        ASSERT_RUN(0, table[i].fields, "cd %s && " TOOL "%s | %s", dir, table[i].command, parse);
}
