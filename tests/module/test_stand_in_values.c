/* Values that come short, damaged, or made up, in a stand-in engine. */
#include <stdint.h>
#include <string.h>

#include "rng.h"
#include "test_stand_in.h"

/* A filter of valkey-bloom with two layers, as BF.LOAD takes it. */
static const unsigned char valkey_payload[] =
    "\x01\x02\x00\x00\x00\x9a\x99\x99\x99\x99\x99\xb9\x3f\x00\x00\x00\x00\x00\x00\xe0\x3f\x01"
    "\x02\x00\x00\x00\x00\x00\x00\x00"
    "\x30\x00\x00\x00\x00\x00\x00\x00\x01\x03\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00"
    "0123456789abcdef0123456789abcdef\xed\x54\x55"
    "\x04\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00"
    "\x34\x00\x00\x00\x00\x00\x00\x00\x01\x07\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00"
    "0123456789abcdef0123456789abcdef\x02\xc2\x97\x0a\x05\x8a\x8a"
    "\x04\x00\x00\x00\x00\x00\x00\x00\x08\x00\x00\x00\x00\x00\x00\x00";

static const char *const in_place_of_valkey[] = {"take-over", "valkey"};

/* Values of RedisBloom and of valkey-bloom have no checksum: damage is found by the file's. Here nothing but an end is
 * expected. `arguments` tells whose. */
static void values_of_others(const void *arguments)
{
    bool valkey = arguments == in_place_of_valkey;
    struct rng rng;
    rng_init(&rng, 12);
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, arguments), "it has not loaded");
    size_t before = stand_in_held();
    if (valkey)
        stand_in_run("bf.load f", valkey_payload, sizeof(valkey_payload) - 1);
    else
        stand_in_run("bf.insert f CAPACITY 10 ITEMS a b c d e f g h i j k l m n", NULL, 0);
    stand_in_save("f");
    size_t fields = stand_in_saved_fields();
    EXPECT(!valkey || fields == 5 + 2 * 2 + 1, "%zu fields", fields);
    for (size_t i = 0; i < fields; i++)
        EXPECT(!stand_in_restore("bad", i), "%zu of %zu fields were taken", i, fields);
    EXPECT(stand_in_restore("good", SIZE_MAX), "what was saved is refused");
    for (int i = 0; i < 2000; i++) {
        stand_in_save("f");
        size_t field = (size_t)rng_below(&rng, fields), byte = (size_t)rng_below(&rng, 1u << 20);
        stand_in_damage(field, byte, (unsigned char)(1u << rng_below(&rng, 8)));
        if (stand_in_restore("bad", SIZE_MAX))
            stand_in_run("bf.madd bad a b c", NULL, 0);
    }
    if (valkey) {
        stand_in_rewrite("f", "again");
        expect("bf.card again", "8 ");
        expect("bf.load f x", "-BUSYKEY Target key name already exists. ");
        expect("bf.load new x", "-ERR bloom object decoding failed. Unsupported version: version of the payload: "
                                "120 is not possible ");
    }
    stand_in_end();
    EXPECT(stand_in_held() == before, "%zu allocations are left", stand_in_held() - before);
}

static void values(const void *data)
{
    struct rng rng;
    (void)data;
    rng_init(&rng, 11);
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, prefix), "it has not loaded");
    stand_in_run("bf.insert f CAPACITY 100000 ITEMS a b c", NULL, 0);
    stand_in_save("f");
    size_t fields = stand_in_saved_fields();
    for (size_t i = 0; i < fields; i++)
        EXPECT(!stand_in_restore("bad", i) || i + 1 == fields, "%zu of %zu fields were taken", i, fields);
    EXPECT(stand_in_restore("good", SIZE_MAX), "what was saved is refused");
    for (int i = 0; i < 500; i++) {
        stand_in_save("f");
        size_t field = (size_t)rng_below(&rng, fields), byte = (size_t)rng_below(&rng, 1u << 20);
        stand_in_damage(field, byte, (unsigned char)(1u << rng_below(&rng, 8)));
        if (stand_in_restore("bad", SIZE_MAX)) /* fewer chunks than its header says: a filter that is being loaded */
            EXPECT(field == 0 && strstr(stand_in_run("bf.exists bad a", NULL, 0), "being loaded"),
                   "field %zu was taken", field);
    }
    stand_in_end();
}

/* Half of a filter in RedisBloom's layout, with two pieces. */
static void load_half(void)
{
    size_t len;
    stand_in_run("bf.insert rb CAPACITY 4 LAYOUT REDISBLOOM ITEMS a b c d e f g", NULL, 0);
    stand_in_run("bf.scandump rb 0", NULL, 0);
    const void *bytes = stand_in_bytes(&len);
    char *header = malloc(len);
    memcpy(header, bytes, len);
    stand_in_run("bf.loadchunk half 1", header, len);
    stand_in_run("bf.loadchunk half 3", "\1", 1);
    stand_in_run("bf.loadchunk half 6", "\1", 1);
    free(header);
}

/* They have no checksum either. */
static void half_values(const void *data)
{
    struct rng rng;
    unsigned taken = 0;
    rng_init(&rng, 14);
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, data), "it has not loaded");
    size_t before = stand_in_held();
    for (int i = 0; i < 1500; i++) {
        load_half();
        stand_in_save("half");
        size_t field = (size_t)rng_below(&rng, stand_in_saved_fields());
        stand_in_damage(field, (size_t)rng_below(&rng, 1u << 20), (unsigned char)(1u << rng_below(&rng, 8)));
        if (stand_in_restore("bad", SIZE_MAX)) {
            taken++;
            stand_in_rewrite("bad", "again");
            for (int byte = 2; byte < 40; byte++) {
                char line[40];
                snprintf(line, sizeof(line), "bf.loadchunk bad %d", byte);
                stand_in_run(line, "\7", 1);
            }
            stand_in_run("bf.madd bad p q r s t", NULL, 0);
            EXPECT(stand_in_save("bad") && stand_in_restore("again", SIZE_MAX), "round %d: it cannot be loaded again",
                   i);
        }
        stand_in_end();
    }
    EXPECT(taken > 100, "%u were taken", taken);
    EXPECT(stand_in_held() == before, "%zu allocations are left", stand_in_held() - before);
}

/* Values with right checksums, as somebody may make them up: what is accepted can be used as any filter, and saved, and
 * is loaded again then. */
static void made_up(const void *line)
{
    static const char *const arguments[] = {"bf-max-filter-bytes", "10000000"};
    static const char *const uses[] = {"bf.madd bad p q r s t u v w x y z",
                                       "bf.mexists bad a p",
                                       "bf.merge union bad",
                                       "bf.merge good bad",
                                       "bf.merge bad good",
                                       "bf.info bad FULL",
                                       "bf.debug bad",
                                       "bf.card bad",
                                       "bf.insert bad ITEMS a b c d e f",
                                       "bf.scandump bad 0",
                                       "bf.madd union 1 2 3 4",
                                       "bf.add good 1",
                                       "bf.madd bad 5 6 7 8 9 10 11 12 13 14"};
    struct rng rng;
    unsigned taken = 0;
    rng_init(&rng, 13);
    EXPECT(stand_in_load(MODULE_PATH, NULL, 2, arguments), "it has not loaded");
    for (int i = 0; i < 2000; i++) {
        stand_in_run(line, NULL, 0);
        stand_in_save("good");
        size_t last = stand_in_saved_fields() - 1;
        for (size_t flips = 1 + (size_t)rng_below(&rng, 3); flips > 0; flips--)
            stand_in_damage(rng_below(&rng, 3) ? 1 : last, 32 + (size_t)rng_below(&rng, 400),
                            (unsigned char)(1u << rng_below(&rng, 8)));
        stand_in_seal();
        if (use_restored(uses, sizeof(uses) / sizeof(uses[0]))) {
            taken++;
            stand_in_run("bf.clear bad", NULL, 0);
        }
        stand_in_end();
    }
    EXPECT(taken > 100, "%u were taken", taken);
}

void test_values(void)
{
    in_a_process("values", values, NULL);
    in_a_process("values of RedisBloom", values_of_others, take_over);
    in_a_process("values of valkey-bloom", values_of_others, in_place_of_valkey);
    in_a_process("half values", half_values, prefix);
    in_a_process("half values, taken over", half_values, take_over);
    in_a_process("made up", made_up, "bf.insert good CAPACITY 4 ITEMS a b c d e f");
    in_a_process("made up", made_up, "bf.insert good CAPACITY 8 WINDOW 60 PARTS 4 REFRESH ITEMS a b c d e");
    in_a_process("made up", made_up, "bf.insert good CAPACITY 8 WINDOW ITEMS 8 PARTS 4 ITEMS a b c d e");
}
