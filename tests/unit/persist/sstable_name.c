/* Paths of SSTables' files as Cassandra, DataStax's versions of it and ScyllaDB write them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "sstable_name.h"

#define ID "1c6ace40fad111e7b9cf000000000002"

/* "keyspace.table[.index] id version generation component place", as far as the path states them. */
static const char *describe(const char *path)
{
    static const char *const places[] = {"live",   "snapshot",   "backup",  "staging",
                                         "upload", "quarantine", "deleted", "unsealed"};
    static char text[1024];
    struct sstable_name n;

    if (sstable_name_parse(path, &n, NULL) != SSTABLE_OK)
        return "other";
    snprintf(text, sizeof(text), "%.*s.%.*s%s%.*s %s %.*s %.*s %s %.*s %s%s%.*s", (int)n.keyspace.len, n.keyspace.ptr,
             (int)n.table.len, n.table.ptr, n.index.len ? "." : "", (int)n.index.len, n.index.ptr,
             n.table_id.len ? "id" : "-", (int)n.version.len, n.version.ptr, (int)n.generation.len, n.generation.ptr,
             n.bti ? "bti" : "big", (int)n.component.len, n.component.ptr, places[n.place], n.snapshot.len ? ":" : "",
             (int)n.snapshot.len, n.snapshot.ptr);
    return text;
}

Test(sstable_name, paths_as_the_databases_write_them)
{
    static const char *const table[][2] = {
        {"/var/lib/cassandra/data/ks/users-" ID "/nb-17-big-Filter.db", "ks.users id nb 17 big Filter.db live"},
        {"ks/users-" ID "/nb-3fw2_0tj4_46w3k2cpidnirvjy7k-big-Data.db",
         "ks.users id nb 3fw2_0tj4_46w3k2cpidnirvjy7k big Data.db live"},
        {"ks/users-ea3b3e6b-0d78-4913-89f2-15fcf98711d0/na-1-big-Filter.db", "ks.users id na 1 big Filter.db live"},
        {"ks/users-" ID "/da-2-bti-Filter.db", "ks.users id da 2 bti Filter.db live"},
        {"ks/users-" ID "/ks-users-ka-3-Filter.db", "ks.users id ka 3 big Filter.db live"},
        {"ks/users/ks-users-jb-3-Filter.db", "ks.users - jb 3 big Filter.db live"},
        {"ks/users-" ID "/other-name-ka-3-Filter.db", "other.name id ka 3 big Filter.db live"},
        {"ks/users/ks-users.by_age-ic-3-Filter.db", "ks.users.by_age - ic 3 big Filter.db live"},
        {"Keyspace1/Keyspace1-Indexed1.626972746864617465-hb-1-Filter.db",
         "Keyspace1.Indexed1.626972746864617465 - hb 1 big Filter.db live"},
        {"ks/users-" ID "/.by_age/oa-1-big-Filter.db", "ks.users.by_age id oa 1 big Filter.db live"},
        {"ks/users-" ID "/snapshots/before/me-1-big-Filter.db", "ks.users id me 1 big Filter.db snapshot:before"},
        {"ks/users-" ID "/snapshots/before/.by_age/nb-1-big-Filter.db",
         "ks.users.by_age id nb 1 big Filter.db snapshot:before"},
        {"ks/users-" ID "/snapshots/backups/me-1-big-Filter.db", "ks.users id me 1 big Filter.db snapshot:backups"},
        {"ks/users-" ID "/backups/nb-1-big-Filter.db", "ks.users id nb 1 big Filter.db backup"},
        {"ks/users-" ID "/backups/.by_age/nb-1-big-Filter.db", "ks.users.by_age id nb 1 big Filter.db backup"},
        {"ks/users-" ID "/staging/me-1-big-Filter.db", "ks.users id me 1 big Filter.db staging"},
        {"ks/users-" ID "/upload/me-1-big-Filter.db", "ks.users id me 1 big Filter.db upload"},
        {"ks/users-" ID "/quarantine/me-1-big-Filter.db", "ks.users id me 1 big Filter.db quarantine"},
        {"ks/users-" ID "/pending_delete/me-1-big-Filter.db", "ks.users id me 1 big Filter.db deleted"},
        {"ks/users-" ID "/1.sstable/me-1-big-Filter.db", "ks.users id me 1 big Filter.db unsealed"},
        {"ks/users-" ID "/staging/1.sstable/me-1-big-Filter.db", "ks.users id me 1 big Filter.db unsealed"},
        {"ks/users-" ID "/tmp-la-1-big-Filter.db", "ks.users id la 1 big Filter.db unsealed"},
        {"ks/users-" ID "/tmplink-la-1-big-Filter.db", "ks.users id la 1 big Filter.db unsealed"},
        {"ks/users/ks-users-tmp-ka-1-Filter.db", "ks.users - ka 1 big Filter.db unsealed"},
        {"ks//users-" ID "/./nb-1-big-Filter.db", "ks.users id nb 1 big Filter.db live"},
        {"/users-" ID "/nb-1-big-Filter.db", ".users id nb 1 big Filter.db live"},
        {"users-" ID "/nb-1-big-Filter.db", ".users id nb 1 big Filter.db live"},
        {"../nb-1-big-Filter.db", ". - nb 1 big Filter.db live"},
        {"../users/nb-1-big-Filter.db", ".users - nb 1 big Filter.db live"},
        {"nb-1-big-Filter.db", ". - nb 1 big Filter.db live"},
        {"nb-1-big-TOC.txt", ". - nb 1 big TOC.txt live"},
        {"me-1-big-TOC.txt.tmp", ". - me 1 big TOC.txt.tmp live"},
        {"backups/backups-" ID "/nb-1-big-Filter.db", "backups.backups id nb 1 big Filter.db live"},
        {"data/snapshots/t-" ID "/na-1-big-Filter.db", "snapshots.t id na 1 big Filter.db live"},
        {"snapshots/t-" ID "/nb-1-big-Filter.db", "snapshots.t id nb 1 big Filter.db live"},
        {"data/snapshots/t-" ID "/.by_age/nb-1-big-Filter.db", "snapshots.t.by_age id nb 1 big Filter.db live"},
        {"data/snapshots/t-" ID "/backups/nb-1-big-Filter.db", "snapshots.t id nb 1 big Filter.db backup"},
        {"data/snapshots/t-" ID "/snapshots/a/nb-1-big-Filter.db", "snapshots.t id nb 1 big Filter.db snapshot:a"},
        {"ks/t-" ID "/snapshots/t-" ID "/nb-1-big-Filter.db", "ks.t id nb 1 big Filter.db snapshot:t-" ID},
        {"data/snapshots/t/snapshots-t-ic-1-Filter.db", "snapshots.t - ic 1 big Filter.db live"},
        {"data/snapshots/t/snapshots/t/snapshots-t-ic-1-Filter.db", "snapshots.t - ic 1 big Filter.db snapshot:t"},
        {"ks/t/snapshots/t/ks-t-ic-1-Filter.db", "ks.t - ic 1 big Filter.db snapshot:t"},
        {"ks/t-" ID "0/nb-1-big-Filter.db", "ks.t-" ID "0 - nb 1 big Filter.db live"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        cr_expect_str_eq(describe(table[i][0]), table[i][1], "%s: %s", table[i][0], describe(table[i][0]));
}

Test(sstable_name, other_names_are_no_sstables)
{
    static const char *const table[] = {
        "",
        "/",
        "Filter.db",
        "-Filter.db",
        "nb-1-big",
        "nb-1-big-",
        "big-Data.db",
        "1-big-Data.db",
        "nb--big-Data.db",
        "NB-1-big-Data.db",
        "nb-1-Data.db",
        "ks-cf-nb-1-big-Data.db",
        "manifest.json",
        "x-nb-1-big-Filter.db",
        "ks/nb-1-big-Filter.db/",
        "-users-ka-1-Filter.db",
        "ks--ka-1-Filter.db",
        "ks-tmp-ka-1-Filter.db",
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct sstable_name name;
        struct errbuf err = {""};
        cr_expect_eq(sstable_name_parse(table[i], &name, &err), SSTABLE_OTHER, "%s", table[i]);
        cr_expect(strstr(err.text, "is not the name"), "%s: %s", table[i], err.text);
    }
}

Test(sstable_name, reads_use_what_is_live)
{
    static const struct {
        const char *path;
        bool read;
    } table[] = {
        {"ks/t-" ID "/nb-1-big-Filter.db", true},
        {"ks/t-" ID "/staging/nb-1-big-Filter.db", true},
        {"ks/t-" ID "/quarantine/me-1-big-Filter.db", true},
        {"ks/t-" ID "/upload/nb-1-big-Filter.db", false},
        {"ks/t-" ID "/snapshots/a/nb-1-big-Filter.db", false},
        {"ks/t-" ID "/backups/nb-1-big-Filter.db", false},
        {"ks/t-" ID "/pending_delete/me-1-big-Filter.db", false},
        {"ks/t-" ID "/tmp-la-1-big-Filter.db", false},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct sstable_name name;
        cr_assert_eq(sstable_name_parse(table[i].path, &name, NULL), SSTABLE_OK);
        cr_expect_eq(sstable_is_read(&name), table[i].read, "%s", table[i].path);
    }
}

Test(sstable_name, siblings_lie_beside_each_other)
{
    static const char path[] = "ks/t-" ID "/nb-17-big-Filter.db";
    struct sstable_name name;
    char sibling[128];

    cr_assert_eq(sstable_name_parse(path, &name, NULL), SSTABLE_OK);
    size_t len = sstable_sibling(path, &name, "TOC.txt", sibling, sizeof(sibling));
    cr_assert_str_eq(sibling, "ks/t-" ID "/nb-17-big-TOC.txt");
    cr_assert_eq(len, strlen(sibling));
    sibling[0] = 'x';
    cr_assert_eq(sstable_sibling(path, &name, "TOC.txt", sibling, len), len);
    cr_assert_eq(sibling[0], 'x', "written although there is no room for the NUL");
    cr_assert_eq(sstable_sibling(path, &name, "TOC.txt", sibling, len + 1), len);
}
