/* What a change tells replicas, and what they make of it, in a stand-in engine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test_stand_in.h"

static void replication(const void *data)
{
    (void)data;
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, prefix), "it has not loaded");
    stand_in_run("bf.madd f a b a", NULL, 0);
    const char *told = stand_in_replicated();
    EXPECT(strcmp(told, "bf.apply f MAKE <104 bytes>\nbf.madd f a b\n") == 0, "%s", told);
    stand_in_run("bf.madd f a b", NULL, 0);
    stand_in_run("bf.exists f a", NULL, 0);
    stand_in_run("bf.reserve f 0.1 5", NULL, 0);
    told = stand_in_replicated();
    EXPECT(*told == '\0', "%s", told);
    stand_in_run("bf.add f c", NULL, 0);
    told = stand_in_replicated();
    EXPECT(strcmp(told, "verbatim\n") == 0, "%s", told);
    stand_in_run("bf.insert g CAPACITY 2 ITEMS a b c d", NULL, 0);
    told = stand_in_replicated();
    EXPECT(strcmp(told,
                  "bf.apply g MAKE <104 bytes>\nbf.madd g a b\nbf.apply g LAYER 1 <104 bytes>\nbf.madd g c d\n") == 0,
           "%s", told);
    stand_in_run("bf.insert often CAPACITY 1 EXPANSION 1 ITEMS a b c a d e", NULL, 0); /* each layer in its place */
    told = stand_in_replicated();
    EXPECT(strcmp(told, "bf.apply often MAKE <104 bytes>\nbf.madd often a\n"
                        "bf.apply often LAYER 1 <104 bytes>\nbf.madd often b\n"
                        "bf.apply often LAYER 2 <104 bytes>\nbf.madd often c\n"
                        "bf.apply often LAYER 3 <104 bytes>\nbf.madd often d\n"
                        "bf.apply often LAYER 4 <104 bytes>\nbf.madd often e\n") == 0,
           "%s", told);
    stand_in_run("bf.insert h CAPACITY 2 NONSCALING ITEMS a b c d", NULL, 0);
    told = stand_in_replicated();
    EXPECT(strcmp(told, "bf.apply h MAKE <104 bytes>\nbf.madd h a b\n") == 0, "%s", told);
    stand_in_run("bf.merge g g", NULL, 0);
    told = stand_in_replicated();
    EXPECT(*told == '\0', "%s", told);
    stand_in_run("bf.insert g2 CAPACITY 2 ITEMS x", NULL, 0);
    (void)stand_in_replicated();
    stand_in_run("bf.merge g2 g", NULL, 0);
    told = stand_in_replicated();
    EXPECT(strncmp(told, "bf.merge g2 g\nbf.apply g2 ITEMS ", 32) == 0, "%s", told);
    stand_in_end();
}

static void expect_told(const char *line, const char *const *told)
{
    stand_in_run(line, NULL, 0);
    const char *all = stand_in_replicated(), *at = all;
    for (; *told; told++) {
        at = strstr(at, *told);
        EXPECT(at, "'%s' is not told in its place by '%s': %s", *told, line, all);
        at += strlen(*told);
    }
    EXPECT(strcmp(at, "\n") == 0 || (at == all && *at == '\0'), "'%s' tells more: %s", line, all);
}

/* The windows' own: the numbers between have the time. */
static void windows_told(const void *data)
{
    (void)data;
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, prefix), "it has not loaded");
    expect_told("bf.reserve w 0.01 4 WINDOW ITEMS 4 PARTS 2 REFRESH",
                (const char *const[]){"bf.apply w MAKE <144 bytes>", NULL});
    expect_told("bf.madd w a b c", (const char *const[]){"bf.apply w TURN 0 1 ", " <144 bytes>\nbf.madd w a b\n",
                                                         "bf.apply w TURN 1 2 ", " <144 bytes>\nbf.madd w c", NULL});
    expect_told("bf.madd w c c", (const char *const[]){NULL}); /* the newest part has it */
    expect_told("bf.add w a", (const char *const[]){"verbatim", NULL});
    expect_told("bf.madd w a c d", (const char *const[]){"bf.apply w TURN 2 3 ", " <144 bytes>\nbf.madd w d", NULL});
    expect_told("bf.clear w", (const char *const[]){"verbatim", NULL});
    /* Parts of 3 MB, two of which are alive: what is over is dropped by an add, and emptied by a timer. */
    expect_told("bf.insert large CAPACITY 2000000 ERROR 0.001 WINDOW ITEMS 1 PARTS 1 ITEMS a b c",
                (const char *const[]){"bf.apply large MAKE <144 bytes>\nbf.apply large TURN 0 1 ", "TURN 1 2 ",
                                      "TURN 2 3 ", "bf.madd large c\nbf.apply large DROP 2", NULL});
    expect_told("bf.add large d", (const char *const[]){"bf.apply large TURN 0 4 ",
                                                        " <144 bytes>\nbf.madd large d\nbf.apply large DROP 3", NULL});
    expect("bf.mexists large a b c d", "*4 0 0 1 1 ");
    expect_told("bf.clear w", (const char *const[]){NULL});
    /* Unions: the places begin with layer 0, a byte 0. */
    expect("bf.insert a CAPACITY 10 WINDOW 60 PARTS 2 ITEMS x", "*1 1 ");
    expect("bf.insert b CAPACITY 10 WINDOW 60 PARTS 2 ITEMS x y", "*2 1 1 ");
    expect_told("bf.merge u a b",
                (const char *const[]){"bf.apply u UNION <144 bytes> a  b \nbf.apply u ITEMS 2", NULL});
    expect_told("bf.merge u a u", (const char *const[]){NULL});
    expect("bf.mexists u x y z", "*3 1 1 0 ");
    stand_in_end();
}

static void obeyed(const char *line, const void *header, size_t len, const char *reply)
{
    const char *got = stand_in_run(line, header, len);
    EXPECT(strncmp(got, reply, strlen(reply)) == 0, "'%s' was answered '%s', not '%s'", line, got, reply);
}

/* What a primary says is carried out as it is, whatever the own clock and the own filter say. */
static void windows_obeyed(const void *data)
{
    (void)data;
    size_t len;
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, prefix), "it has not loaded");
    expect("bf.reserve w 0.01 4 WINDOW ITEMS 4 PARTS 2", "OK ");
    stand_in_run("bf.scandump w 0", NULL, 0);
    const void *bytes = stand_in_bytes(&len);
    char *header = malloc(len);
    memcpy(header, bytes, len);
    stand_in_obey(true);
    obeyed("bf.apply v MAKE", header, len, "OK ");
    obeyed("bf.apply v TURN 0 7 1", header, len, "OK ");
    obeyed("bf.madd v a a a", NULL, 0, "*3 1 1 1 "); /* the part has two places */
    expect("bf.card v", "2 ");
    obeyed("bf.apply v TURN 1 8 1", header, len, "OK ");
    obeyed("bf.add v a", NULL, 0, "1 ");
    expect("bf.card v", "3 ");
    obeyed("bf.apply v TURN 3 9 1", header, len, "-ERR layer 3 of a window that has 2");
    obeyed("bf.apply v TURN 1 x 1", header, len, "-ERR it takes");
    obeyed("bf.apply v TURN 1 9", header, len, "-ERR it takes");
    obeyed("bf.apply v TURN 1 9 1", "x", 1, "-ERR ");
    obeyed("bf.apply v DROP", NULL, 0, "");
    obeyed("bf.apply v DROP x", NULL, 0, "-ERR it takes");
    obeyed("bf.apply v DROP 8", NULL, 0, "OK ");
    expect("bf.card v", "1 ");
    obeyed("bf.apply v TURN 0 9 1", header, len, "OK ");
    obeyed("bf.add v b", NULL, 0, "1 ");
    expect("bf.mexists v a b", "*2 1 1 ");
    obeyed("bf.apply u UNION", "x", 1, "-ERR ");
    obeyed("bf.apply u UNION", header, len, "OK ");
    expect("bf.card u", "0 ");
    obeyed("bf.reserve plain 0.1 10", NULL, 0, "OK ");
    obeyed("bf.apply plain TURN 1 9 1", header, len, "-ERR the filter is not a window");
    obeyed("bf.apply plain DROP 8", NULL, 0, "-ERR the filter is not a window");
    stand_in_obey(false);
    obeyed("bf.apply v DROP 9", NULL, 0, "-ERR this command is for replication only");
    free(header);
    stand_in_end();
}

/* No limit of its own stops a replica, and what a log has made already is not made again. */
static void growth_obeyed(const void *data)
{
    static const char *const small[] = {"prefix", "bf", "bf-max-filter-bytes", "100"};
    (void)data;
    size_t len;
    EXPECT(stand_in_load(MODULE_PATH, NULL, 4, small), "it has not loaded");
    EXPECT(strncmp(stand_in_run("bf.reserve f 0.01 1000", NULL, 0), "-", 1) == 0, "there is no limit");
    expect("bf.reserve f 0.01 2 EXPANSION 1", "OK ");
    stand_in_run("bf.scandump f 0", NULL, 0);
    const void *bytes = stand_in_bytes(&len);
    char *header = malloc(len);
    memcpy(header, bytes, len);
    stand_in_obey(true);
    for (int i = 0; i < 40; i++) {
        char line[64];
        snprintf(line, sizeof(line), "bf.madd f a%d b%d c%d", i, i, i);
        EXPECT(!strchr(stand_in_run(line, NULL, 0), '-'), "'%s' was refused", line);
    }
    for (int i = 0; i < 2; i++) {
        obeyed("bf.apply f LAYER 1", header, len, "OK ");
        obeyed("bf.apply f LAYER 0", header, len, "OK ");
    }
    obeyed("bf.apply f LAYER 500", header, len, "-ERR layer 500 of a filter with ");
    obeyed("bf.reserve g 0.01 1000", NULL, 0, "OK ");
    stand_in_obey(false);
    EXPECT(strchr(stand_in_run("bf.madd f d e f g h i", NULL, 0), '-'), "its clients have no limit");
    free(header);
    stand_in_end();
}

/* A part of a union into which nothing went, as it ended on the primary while that made the union, is over here, too.
 */
static void union_of_what_is_over(const void *data)
{
    (void)data;
    size_t len;
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, prefix), "it has not loaded");
    expect("bf.insert a CAPACITY 10 WINDOW 60 PARTS 2 ITEMS x", "*1 1 ");
    stand_in_run("bf.scandump a 0", NULL, 0);
    const void *bytes = stand_in_bytes(&len);
    char *header = malloc(len);
    memcpy(header, bytes, len);
    stand_in_obey(true);
    obeyed("bf.apply u UNION", header, len, "OK ");
    stand_in_obey(false);
    expect("bf.info u RING", "*1 *0 ");
    expect("bf.add u y", "1 ");
    EXPECT(strncmp(stand_in_run("bf.info u RING", NULL, 0), "*1 *1 ", 6) == 0, "the add has begun no part");
    free(header);
    stand_in_end();
}

void test_replication(void)
{
    in_a_process("replication", replication, NULL);
    in_a_process("windows are told", windows_told, NULL);
    in_a_process("windows obey", windows_obeyed, NULL);
    in_a_process("growth obeyed", growth_obeyed, NULL);
    in_a_process("a union of what is over", union_of_what_is_over, NULL);
}
