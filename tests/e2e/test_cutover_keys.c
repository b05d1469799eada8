/* `bloomery move --cutover` of KEYED filters whose keys the target lacks. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon_pair.h"
#include "program.h"
#include "wait.h"

static char output[16384]; /* of the last run */

DAEMON_PAIR(cutover_keys);

static void expect_move(int status, const char *text, const char *options)
{
    program_expect(output, sizeof(output), status, text,
                   "'%s' move --from redis://127.0.0.1:%d --to redis://127.0.0.1:%d %s 2>&1", BLOOMERY_TOOL_PATH,
                   source.port, target.port, options);
}

/* Adds would be refused in the target, too, after the source is read-only. */
PAIR_TEST(cutover_keys, a_cutover_waits_for_the_keys_of_keyed_filters)
{
    expect(from, "+OK", "BF.RESERVE secret 0.01 100 KEYED");
    expect(from, ":1", "BF.ADD secret x");
    expect_move(0, "warning: KEYED filters in the target answer errors until its key file has the keys ", "");
    expect_move(3, "differs secret: it cannot be queried in the target: ERR the key ", "--verify");
    expect_move(1, "no cutover: the target lacks keys of KEYED filters: ", "--cutover");
    expect(to, "+OK", "ACL SETUSER default -info");
    expect_move(1, "INFO, which names the missing keys of KEYED filters, is refused: NOPERM", "--cutover");
    expect(to, "+OK", "ACL SETUSER default +info");
    program_expect(output, sizeof(output), 1, "KEYED filters answer errors: the key file lacks the keys ",
                   "'%s' status redis://127.0.0.1:%d 2>&1", BLOOMERY_TOOL_PATH, target.port);
    expect(from, ":1", "BF.ADD secret y");
    program_expect(output, sizeof(output), 0, "", "cp '%s/KEYS' '%s/KEYS'", source.data, target.data);
    expect(to, "+OK", "CONFIG SET bf-key-file %s/KEYS", target.data);
    expect_move(0, "cut over", "--cutover");
    cr_assert(!strstr(output, "warning"), "%s", output);
    expect(to, "[:1,:1]", "BF.MEXISTS secret x y");
}

/* A filter of the target that is unrelated to the source. */
PAIR_TEST(cutover_keys, a_key_that_no_filter_of_the_source_has_stops_no_cutover)
{
    expect(to, "+OK", "BF.RESERVE other 0.01 100 KEYED");
    program_expect(output, sizeof(output), 0, "", "umask 077; '%s' key > '%s/another'", BLOOMERY_TOOL_PATH,
                   target.data);
    expect(to, "+OK", "CONFIG SET bf-key-file %s/another", target.data);
    expect(from, ":1", "BF.ADD plain x");
    expect(from, "+OK", "BF.RESERVE secret 0.01 100 KEYED");
    expect_move(1, "no cutover: the target lacks keys of KEYED filters: ", "--cutover");
    expect(from, ":1", "DEL secret");
    expect_move(0, "cut over", "--cutover");
    cr_assert(strncmp(client_ask(to, "BF.ADD other x"), "-ERR", 4) == 0, "the key is missing");
}

/* A full pipe: a tool that prints a message waits until the pipe is read. */
static int open_full_pipe(const char *path)
{
    cr_assert_eq(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    while (write(fd, "\n", 1) == 1)
        continue;
    return fd;
}

/* Reads the pipe until its last writer has closed it, and leaves out empty lines. */
static void read_pipe(FILE *file)
{
    char line[1024];
    size_t len = 0;
    while (fgets(line, sizeof(line), file)) {
        if (line[0] != '\n')
            len += (size_t)snprintf(output + len, sizeof(output) - len, "%s", line);
        cr_assert_lt(len, sizeof(output));
    }
    fclose(file);
}

/* Whether its main thread is in a write to its stderr; true if the system does not report it. */
static bool is_writing(pid_t pid)
{
    char path[64], expected[32], line[256] = "";
    snprintf(path, sizeof(path), "/proc/%d/syscall", (int)pid);
    snprintf(expected, sizeof(expected), "%d 0x2 ", (int)SYS_write);
    FILE *file = fopen(path, "r");
    if (!file)
        return true;
    (void)!fgets(line, sizeof(line), file);
    fclose(file);
    return strncmp(line, expected, strlen(expected)) == 0;
}

/* The pause follows the check for missing keys. The tool hangs just before both, when it has caught up. */
PAIR_TEST(cutover_keys, a_filter_under_a_new_key_that_comes_at_the_last_moment_ends_a_cutover)
{
    char path[300], urls[2][64];
    int status;
    snprintf(path, sizeof(path), "%s/said", source.dir);
    snprintf(urls[0], sizeof(urls[0]), "redis://127.0.0.1:%d", source.port);
    snprintf(urls[1], sizeof(urls[1]), "redis://127.0.0.1:%d", target.port);
    expect(from, ":1", "BF.ADD plain x");
    int fd = open_full_pipe(path);
    pid_t pid = fork();
    if (pid == 0) {
        if (freopen("/dev/null", "w", stdout) && freopen(path, "a", stderr))
            execl(BLOOMERY_TOOL_PATH, "bloomery", "move", "--from", urls[0], "--to", urls[1], "--cutover",
                  (char *)NULL);
        _exit(99);
    }
    wait_until(client_number(to, "EXISTS plain") == 1 && is_writing(pid));
    expect(from, "+OK", "BF.RESERVE secret 0.01 100 KEYED");
    FILE *said = fopen(path, "r");
    cr_assert_not_null(said);
    close(fd); /* a reader must remain, but no writer except the tool */
    read_pipe(said);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%d: %s", status, output);
    cr_assert(strstr(output, "no cutover: the target lacks keys of KEYED filters: "), "%s", output);
    expect(from, "[\"read-only\",\"no\"]", "CONFIG GET read-only");
    expect(from, ":1", "BF.ADD secret x");
}
