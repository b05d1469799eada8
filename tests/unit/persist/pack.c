/* Packs alone: their records, whole or not, and their names. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "pack.h"
#include "rig.h"
#include "tmpdir.h"

Test(pack, records_of_every_truncation_and_with_every_flipped_bit_are_none)
{
    struct pack_record record;
    size_t pack_len, len;
    static char dir[TMPDIR_SIZE];
    static struct rig rig;
    struct store *store;
    struct errbuf err;
    struct store_save_summary summary;

    tmpdir_create(dir);
    rig_init(&rig);
    rig.pack_limit = MANIFEST_MAX_PACKED;
    cr_assert_eq(rig_load(&rig, dir, fsops_posix(), 1, &store, &err), 0, "%s", err.text);

    rig_fill(rig_add(&rig, "a", &(struct bloom_params){.capacity = 40, .error_rate = 0.05, .expansion = 2}, NULL), 0,
             100);
    cr_assert_eq(rig_save(&rig, store, &summary, &err), 0, "%s", err.text);
    unsigned char *pack = file_read(rig_place(NULL, dir, "a", 0).path, &pack_len);
    unsigned char *bytes = malloc(pack_len - PACK_HEADER_BYTES);
    size_t size = pack_len - PACK_HEADER_BYTES;

    memcpy(bytes, pack + PACK_HEADER_BYTES, size);
    cr_assert_eq(pack_record_parse(bytes, size, &record, &len), PACK_RECORD);
    cr_assert(len == size && record.id == 1 && record.nlayers == 2 && record.name_len == 1 && record.name[0] == 'a');
    for (size_t n = 0; n < size; n++) {
        unsigned char *part = malloc(n + 1); /* so that reading too far is noticed */
        memcpy(part, bytes, n);
        cr_assert_eq(pack_record_parse(part, n, &record, &len), PACK_INCOMPLETE, "%zu bytes", n);
        free(part);
    }
    for (size_t bit = 0; bit < 8 * size; bit++) {
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        cr_assert_neq(pack_record_parse(bytes, size, &record, &len), PACK_RECORD, "bit %zu", bit);
        bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    free(bytes);
    free(pack);
    store_close(store);
    rig_deinit(&rig);
    tmpdir_remove(dir);
}

Test(pack, names_of_files_have_one_spelling)
{
    static const char *const none[] = {"",
                                       "0.pack",
                                       "01.pack",
                                       "1.pack ",
                                       "1.Pack",
                                       "-1.pack",
                                       "+1.pack",
                                       " 1.pack",
                                       "1",
                                       "pack",
                                       "18446744073709551616.pack",
                                       "1.pack.new",
                                       "1.save",
                                       "0.saved",
                                       "na-0-big-Filter.db",
                                       "na-01-big-Filter.db",
                                       "nb-1-big-Filter.db",
                                       "na-1-big-Filter.db ",
                                       "na-1-bti-Filter.db",
                                       "na1-big-Filter.db",
                                       "na-",
                                       "cuckoo-rate-.layer",
                                       "cuckoo-rate.layer",
                                       "na",
                                       "Na-1-big-Filter.db"};
    static const struct file_name names[] = {{FILE_LAYER, BLOOM_NA, 1},          {FILE_LAYER, BLOOM_ME, 42},
                                             {FILE_LAYER, BLOOM_KA, UINT64_MAX}, {FILE_PACK, 0, 7},
                                             {FILE_PACK, 0, UINT64_MAX},         {FILE_SAVED, 0, UINT64_MAX}};
    struct file_name found;
    char text[FILE_NAME_SIZE];

    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
        cr_assert(!file_name_parse(none[i], &found), "'%s'", none[i]);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        file_name_format(&names[i], text);
        cr_assert(file_name_parse(text, &found), "'%s'", text);
        cr_assert(found.kind == names[i].kind && found.variant == names[i].variant && found.number == names[i].number,
                  "'%s'", text);
    }
    for (unsigned variant = 0; variant < BLOOM_VARIANTS; variant++) {
        file_name_format(&(struct file_name){FILE_LAYER, (enum bloom_variant)variant, 9}, text);
        cr_assert(file_name_parse(text, &found) && found.variant == variant && found.number == 9, "'%s'", text);
    }
    file_name_format(&names[1], text);
    cr_assert_str_eq(text, "me-42-big-Filter.db", "a form that Cassandra's tools and import know");
}
