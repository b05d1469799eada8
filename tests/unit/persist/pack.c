/* The names of the store's files. */
#include <criterion/criterion.h>

#include "manifest.h"

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
