/* Key files: a new one can be read again, is accessible to its owner only, replaces no other file; invalid ones are
 * refused. */
#include "key_file.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault_fs.h"
#include "tmpdir.h"

static char dir[TMPDIR_SIZE];
static char path[512];

static void setup(void)
{
    tmpdir_create(dir);
    snprintf(path, sizeof(path), "%s/" KEY_FILE_NAME, dir);
}

static void teardown(void)
{
    tmpdir_remove(dir);
}

TestSuite(key_file, .init = setup, .fini = teardown);

static void write_text(const char *text)
{
    cr_assert_eq(fs_write_file(fsops_posix(), path, text, strlen(text)), 0);
}

static void expect_refused(const char *text, const char *why)
{
    struct key_file *file;
    struct errbuf err = {""};

    write_text(text);
    cr_assert_eq(key_file_read(fsops_posix(), path, &file, &err), -EINVAL);
    cr_assert(strstr(err.text, why), "%s", err.text);
}

Test(key_file, a_made_file_is_whole_private_and_stays)
{
    struct key_file *file;
    struct errbuf err = {""};
    struct stat st;

    cr_assert_eq(key_file_read(fsops_posix(), path, &file, &err), -ENOENT);
    cr_assert_eq(key_file_make(fsops_posix(), dir, path, &err), 0, "%s", err.text);
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0600);
    cr_assert_eq(st.st_size, KEY_LINE_LEN);
    cr_assert_eq(key_file_read(fsops_posix(), path, &file, &err), 0, "%s", err.text);
    cr_assert_eq(file->n, 1);
    uint64_t id = file->secrets[0].id;
    key_file_free(file);

    cr_assert_eq(key_file_make(fsops_posix(), dir, path, &err), 0, "%s", err.text);
    cr_assert_eq(key_file_read(fsops_posix(), path, &file, &err), 0);
    cr_assert_eq(file->secrets[0].id, id);
    key_file_free(file);
}

/* A name that is not synced may be lost with power, and with it the key of filters that are not lost. */
Test(key_file, whatever_fails_it_is_made_whole_and_synced_or_not_at_all)
{
    char fresh[600];
    snprintf(fresh, sizeof(fresh), "%s.new", path);
    for (size_t at = 1; at < 10; at++) {
        struct errbuf err = {""};
        struct fault_fs fault;
        fault_fs_init(&fault, fsops_posix());
        fault_fs_arm(&fault, at, FAULT_ERROR, -ENOSPC, false);
        bool made = key_file_make(&fault.ops, dir, path, &err) == 0;
        cr_expect_eq(access(path, F_OK) == 0, made, "operation %zu, %s", at, fault.hit_op);
        cr_expect(made || fault.hit);
        (void)unlink(path);
        (void)unlink(fresh);
    }
}

Test(key_file, keys_come_in_their_order_between_comments)
{
    char text[1024] = "# keys\n\n", line[KEY_LINE_LEN + 1] = "";
    struct key_file *file;
    uint64_t ids[3];

    for (unsigned i = 0; i < 3; i++) {
        cr_assert_eq(key_line_make(line), 0);
        cr_assert(key_id_parse(line, KEY_ID_DIGITS, &ids[i]));
        strcat(text, line);
        strcat(text, "# another\n");
    }
    write_text(text);
    cr_assert_eq(key_file_read(fsops_posix(), path, &file, &(struct errbuf){""}), 0);
    cr_assert_eq(file->n, 3);
    for (unsigned i = 0; i < 3; i++)
        cr_assert_eq(file->secrets[i].id, ids[i]);
    key_file_free(file);
}

Test(key_file, what_is_wrong_is_refused_and_not_repeated)
{
    char line[KEY_LINE_LEN + 1] = "";

    expect_refused("", "no key");
    expect_refused("# only a comment\n", "no key");
    expect_refused("0123 4567\n", "line 1: it is not an id");
    cr_assert_eq(key_line_make(line), 0);
    line[3] = line[3] == '0' ? '1' : '0';
    expect_refused(line, "line 1: the id is not that of the key");
    line[20] = 'g';
    expect_refused(line, "line 1: it is not an id");
}

/* The bytes of section 18 of docs/FORMAT.md do not change. */
Test(key_file, ids_and_keys_are_derived_as_documented)
{
    unsigned char secret[BLOOM_SECRET_BYTES];
    struct bloom_secret derived;
    uint64_t expected[2] = {0, 0};

    for (unsigned i = 0; i < sizeof(secret); i++)
        secret[i] = (unsigned char)i;
    bloom_secret_derive(secret, &derived);
    for (unsigned half = 0; half < 2; half++) {
        static const char *const texts[] = {"a bloomery items 1", "b bloomery items 1"};
        struct siphash_key key;
        uint64_t result[2];

        memcpy(&key, secret + 16 * half, sizeof(key));
        siphash(&key, texts[half], strlen(texts[half]), (unsigned char *)result);
        expected[0] ^= result[0];
        expected[1] ^= result[1];
    }
    cr_assert(derived.items.k[0] == expected[0] && derived.items.k[1] == expected[1]);
    cr_assert_eq(derived.id, UINT64_C(0x54b70391b3deeb2f), "%016llx", (unsigned long long)derived.id);
}
