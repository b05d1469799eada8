/* Lists of processors: server-cpulist and similar settings. */
#include <stdio.h>
#include <string.h>

#include "config_rig.h"

TestSuite(config_cpus, .init = set_up, .fini = tear_down);

static int set(const char *name, struct slice value)
{
    return config_set(&cfg, slice_of(name), value, CONFIG_FILE, &err);
}

/* Lists of processors as in taskset; the value is shown as written. */
Test(config_cpus, lists_of_processors)
{
    static const struct {
        const char *list;
        const char *set; /* its processors */
    } good[] = {{"", ""},
                {"0", "0"},
                {"1,3", "1 3"},
                {"3,1,1", "1 3"},
                {"0-3", "0 1 2 3"},
                {"2-2", "2"},
                {"0-7:2", "0 2 4 6"},
                {"1-6:3,0", "0 1 4"},
                {"0-2:9", "0"},
                {"1023", "1023"},
                {"0-1,1022-1023", "0 1 1022 1023"},
                {"007", "7"}};

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        cpu_set_t cpus;
        char shown[256] = "";

        cr_assert_eq(set("server-cpulist", slice_of(good[i].list)), CONFIG_OK, "%s", err.text);
        cr_assert_str_eq(cfg.process.server_cpulist, good[i].list);
        cr_assert(config_cpus(slice_of(good[i].list), &cpus), "%s", good[i].list);
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET((size_t)cpu, &cpus))
                snprintf(shown + strlen(shown), sizeof(shown) - strlen(shown), "%s%d", shown[0] ? " " : "", cpu);
        cr_assert_str_eq(shown, good[i].set, "%s", good[i].list);
    }
}

/* Other texts are refused, with the correct form. */
Test(config_cpus, what_is_no_list_of_processors)
{
    static const char *const bad[] = {"x",      ",",          "0,",       ",0",    "0,,1", "1-",  "-1",   "3-1",
                                      "0-3:",   "0-3:0",      "0:2",      "0-1-2", " 0",   "0 ",  "0, 1", "1024",
                                      "0-1024", "4294967296", "0-3:1024", "0x1",   "+1",   "1.5", "all",  "0-3:-1"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char expected[200];

        snprintf(expected, sizeof(expected),
                 "'bio-cpulist' must be a list of processors (1,3 or 0-3 or 0-7:2), all below 1024, not '%s'", bad[i]);
        cr_assert_eq(set("bio_cpulist", slice_of(bad[i])), CONFIG_REFUSED, "%s", bad[i]);
        cr_assert_str_eq(err.text, expected);
        cr_assert_str_eq(cfg.process.bio_cpulist, "");
    }
    cr_assert_eq(set("bio-cpulist", (struct slice){"1\0", 2}), CONFIG_REFUSED);
}

/* Redis 7.0's names are aliases of the same settings. */
Test(config_cpus, an_alias_names_the_same_setting)
{
    cr_assert_eq(set("server_cpulist", slice_of("1")), CONFIG_OK);
    cr_assert_str_eq(cfg.process.server_cpulist, "1");
    cr_assert_eq(config_find(slice_of("BGSAVE_CPULIST")), config_find(slice_of("bgsave-cpulist")));
    cr_assert_null(config_find(slice_of("tcp_backlog")));
}
