#include "sstables_rig.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tmpdir.h"
#include "wait.h"

struct daemon the_daemon;
redisContext *client;
char root[300];

const unsigned char na_file[16] = {0, 0, 0, 5, 0, 0, 0, 1, 0x80, 0, 0x20, 0x20, 0, 0, 0x02, 0};
const unsigned char me_file[16] = {0, 0, 0, 5, 0, 0, 0, 1, 0, 0x02, 0, 0, 0x20, 0x20, 0, 0x80};
const unsigned char ka_file[16] = {0, 0, 0, 5, 0, 0, 0, 1, 0x08, 0x44, 0, 0, 0x20, 0x10, 0, 0};

void discard(void)
{
    if (client)
        redisFree(client);
    client = NULL;
    daemon_discard(&the_daemon);
}

const char *ask(const char *format, ...)
{
    static char text[400000];
    static const char round[] = ",\"round\",:";
    va_list args;
    va_start(args, format);
    cr_assert_eq(redisvAppendCommand(client, format, args), REDIS_OK);
    va_end(args);
    int len = snprintf(text, sizeof(text), "%s", client_reply(client));
    cr_assert_lt(len, (int)sizeof(text));
    for (char *at; (at = strstr(text, round));) {
        const char *behind = at + strlen(round);
        behind += strspn(behind, "0123456789");
        memmove(at, behind, strlen(behind) + 1);
    }
    return text;
}

/* ---- files ---- */

void make_directories(const char *path)
{
    char part[600];
    snprintf(part, sizeof(part), "%s", path);
    for (char *slash = part + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(part, 0777);
        *slash = '/';
    }
}

const char *below_root(const char *path)
{
    static char whole[2][700];
    static unsigned next;
    char *text = whole[next++ % 2];
    snprintf(text, sizeof(whole[0]), "%s/%s", root, path);
    return text;
}

/* `path` ends with Filter.db. */
void write_toc(const char *path)
{
    char toc[700];
    snprintf(toc, sizeof(toc), "%s", below_root(path));
    strcpy(strstr(toc, "Filter.db"), "TOC.txt");
    file_write(toc, "Filter.db\n", 10);
}

void write_filter(const char *path, const void *bytes, size_t len)
{
    make_directories(below_root(path));
    file_write(below_root(path), bytes, len);
}

void write_data(const char *path)
{
    make_directories(below_root(path));
    file_write(below_root(path), "", 0);
}

void write_sstable(const char *path, const void *bytes, size_t len)
{
    write_filter(path, bytes, len);
    write_toc(path);
}

void prepare(void)
{
    daemon_prepare(&the_daemon);
    snprintf(root, sizeof(root), "%s/sstables", the_daemon.dir);
    mkdir(root, 0777);
}

void wait_scanned(void)
{
    wait_until(client_info(client, "bf", "sstable_scanning") == 0);
}

void start(void)
{
    const char *const args[] = {"--sstable-dir", root, NULL};
    client = client_start(&the_daemon, args);
    wait_scanned();
}

double daemon_seconds(void)
{
    clockid_t clock;
    struct timespec used;
    cr_assert_eq(clock_getcpuclockid(the_daemon.pid, &clock), 0);
    cr_assert_eq(clock_gettime(clock, &used), 0);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

void link_to_first(char *path)
{
    make_directories(below_root(path));
    cr_assert_eq(link(below_root("first/nb-1-big-Filter.db"), below_root(path)), 0);
    strcpy(strstr(path, "Filter.db"), "TOC.txt");
    cr_assert_eq(link(below_root("first/nb-1-big-TOC.txt"), below_root(path)), 0);
}
